"""What hidden pixels are filled with, and what a random ratio still gains: zeros, the mean image, or a Gaussian.

With the Gaussian, a network adds to the conditional mean, the best linear prediction for each mask. All networks are
judged by the mean error over the ratios 0.1 to 0.9, beside the Gaussian itself, the mean image and the network before
training.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.compare.runs import SweepRun
from r2mae.evaluation.metrics import metrics_by_ratio
from r2mae.images.config import ImagesConfig
from r2mae_paper import drawing as draw
from r2mae_paper.bases import few_classes, runs_of_groups
from r2mae_paper.gains import best_and_blind, compared_rows, gains_by_set, pooled_rows
from r2mae_paper.randomness import SCHEMES, gain_in_percent
from r2mae_paper.rows import TableRow, Tables, select, unique
from r2mae_paper.scheme_tables import chosen, variants_of
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

ERROR, PROBE = "masked_mse", "probe_accuracy"
FIXED = tuple(name for name in SCHEMES if name.startswith("fixed"))
ROWS = (*FIXED, "r2mae", "r2mae-per-sample")
BASELINES = ("gaussian", "mean", "pixels", "untrained")
SIDES = {"mnist": 14, "tiny-imagenet": 16}
_LINES = {"zero": (draw.GREY, ":"), "mean": (draw.COLOURS[1], "--"), "gaussian": (draw.COLOURS[0], "-")}


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each set, filling, row and seed, and the baselines of each set; each set has a folder."""
    groups = {}
    for name in size.sets:
        data = few_classes(out) if name == "tiny-imagenet" else name
        settings: Mapping[str, Any] = {**size.settings, "steps": size.steps[name]}
        base = ImagesConfig.make(data=data, resize=SIDES.get(name), **settings)
        rows = []
        schemes = chosen(size, SCHEMES if size.rows else {row: SCHEMES[row] for row in ROWS}, "fixed 0.50")
        for fill in size.fills:
            points = {f"{row}, {fill}": {**scheme, "fill": fill} for row, scheme in schemes.items()}
            rows += variants_of(base, points, set=name, fill=fill)
        # The network of the last filling before training; the others' features are the same.
        groups[name] = rows + variants_of(base.replace(fill=size.fills[-1]), {}, BASELINES, set=name, fill="none")
    return runs_of_groups(groups, range(size.seeds), out)


def table(results: pd.DataFrame) -> Tables:
    """Return means and paired differences by set, gains over the best fixed ratio in percent, and all runs."""
    by_ratio = metrics_by_ratio(map(str, results.columns)).get(ERROR, {})
    scores = [score for score in (ERROR, *by_ratio.values(), PROBE) if score in results]
    results = results.assign(row=[str(label).split(",", maxsplit=1)[0] for label in results["label"]])
    rows: list[TableRow] = []
    gains: list[TableRow] = []
    for (name, fill), group in results.groupby(["set", "fill"], sort=False):
        own = group.assign(label=group["row"])
        for score in scores:
            references = partial(best_and_blind, fixed=FIXED, blind="fixed 0.50", higher=score == PROBE)
            found = compared_rows(own.dropna(subset=[score]), score, references, higher=score == PROBE)
            rows += [{"set": name, "fill": fill, **row} for row in found]
        if fill != "none":
            logs = own.assign(**{ERROR: np.log(own[ERROR])})
            references = partial(best_and_blind, fixed=FIXED, blind="fixed 0.50", higher=False)
            gained = map(gain_in_percent, pooled_rows(gains_by_set(logs, ERROR, references, higher=False)))
            gains += [{"set": name, "fill": fill, **row} for row in gained]
    kept = ["set", "fill", "row", "label", "seed", "seconds", *scores]
    return {"fills": rows, "fills-gains": gains, "fills-runs": results[kept].to_dict("records")}


def plot(tables: Tables, size: Size) -> draw.Figures:
    """Draw the error at each missing share over the Gaussian's: each filling with one ratio, and with random ones."""
    sets = unique(tables["fills"], "set")
    figure, panels = draw.panels(len(sets), width=3.6 if len(sets) > 1 else 5.6, height=3.6)
    names = metrics_by_ratio(row["score"] for row in tables["fills"])[ERROR]
    for axes, name in zip(panels, sets, strict=True):
        means = {(row["fill"], row["label"], row["score"]): row["mean"] for row in select(tables["fills"], set=name)}
        gaussian = np.array([means["none", "gaussian", score] for score in names.values()])
        axes.axhline(1.0, color=draw.BLACK, linewidth=1, label="Gaussian, no network")
        for fill, (colour, style) in _LINES.items():
            for row, mark in (("fixed 0.50", "s"), ("r2mae-per-sample", "o")):
                values = np.array([means.get((fill, row, score), np.nan) for score in names.values()])
                if np.isfinite(values).any():
                    label = f"{row}, {fill}"
                    axes.plot(
                        list(names), values / gaussian, style, marker=mark, markersize=4, color=colour, label=label
                    )
        draw.ratio_axis(axes, "error over the Gaussian's" if name == sets[0] else "", name)
        axes.set_xlabel("missing share")
    draw.legend_below(figure, panels[0], 4 if len(sets) > 1 else 2)
    return {"fills": figure}


STUDIES: Sequence[Study] = (Study(ENTRIES["fills"], plot, table, runs=runs),)
