"""Figs. 2A and 2D: MLPs of ten widths on MNIST at nine fixed ratios; linear probe, and effective rank."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae.evaluation.statistics import best_fixed, paired_difference, wider_partner
from r2mae.images.config import ImagesConfig
from r2mae.sweep.runs import SweepRun
from r2mae_paper.bases import image_presets, runs_by_ratio
from r2mae_paper.by_ratio import BARS, by_seed, curve, means, measured, shape
from r2mae_paper.drawing import COLOURS, Axes, Figures, panels, ratio_axis
from r2mae_paper.rows import TableRow, Tables, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

_PROBE, _ENTROPY = "probe_accuracy", "spectral_entropy"
_SCORES = (_PROBE, _ENTROPY, "effective_rank", "masked_mse", "clean_mse")
_KINDS = {16: "parameter-insufficient", 512: "parameter-sufficient"}
_STATISTICS = {AS_TRAINED: "batch statistics of training", "": "re-estimated batch statistics"}


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each width, ratio and seed; scores are taken with either kind of batch statistics."""
    base = ImagesConfig.make(data=size.data, scheme="fixed", bn_statistics="both")
    names = [f"mlp-{hidden}-{latent}" for hidden in size.hidden for latent in size.latent]
    return runs_by_ratio(base, "preset", image_presets(names, size.settings), size, out)


def table(results: pd.DataFrame) -> Tables:
    """Return means over seeds, the best ratio of each width and what it gains, how widths differ in that; all runs."""
    widths = [str(preset).split("-")[1:] for preset in results["preset"]]
    results = results.assign(
        hidden=[int(hidden) for hidden, _ in widths],
        latent=[int(latent) for _, latent in widths],
        ratio=results["ratio"].astype(float),
    )
    scores = measured(results, _SCORES)
    shapes = [
        # A rank, too, counts as better if it is lower: the paper's claim is that it falls.
        {"score": score, "hidden": hidden, "latent": latent, **shape(group, score, higher=score.endswith(_PROBE))}
        for score in scores
        for (hidden, latent), group in results.groupby(["hidden", "latent"])
        if len(group["ratio"].unique()) > 1
    ]
    columns = ["preset", "hidden", "latent", "ratio", "seed", "seconds", *scores]
    return {
        "fig2a": means(results, ("hidden", "latent", "ratio"), scores),
        "fig2a-shapes": shapes,
        "fig2a-widths": [row for score in scores if score.endswith(_PROBE) for row in _differences(results, score)],
        "fig2a-runs": results[columns].to_dict("records"),
    }


def plot(tables: Tables, size: Size) -> Figures:
    """Draw the probe's accuracy (Fig. 2A) and the entropy of singular values (Fig. 2D), in a row for each statistics.

    Fig. 2D is of the sufficient models. The paper's effective rank is the entropy itself, and not its exponential.
    """
    rows: list[TableRow] = tables["fig2a"]
    shown = {prefix: words for prefix, words in _STATISTICS.items() if any(prefix + _PROBE in row for row in rows)}
    hidden = sorted(unique(rows, "hidden"))
    figures: dict[str, Any] = {}
    figures["fig2a"], axes = panels(len(hidden), len(shown), width=4.0, height=3.2)
    places = [(first, prefix) for prefix in shown for first in hidden]
    for panel, (first, prefix) in zip(axes, places, strict=True):
        _widths(panel, select(rows, hidden=first), prefix + _PROBE)
        panel.set_ylabel("linear probe accuracy")
        panel.set_title(f"{_KINDS.get(first, f'first layer {first}')}\n({shown[prefix]})", fontsize=9)
    _legend_beside(axes[len(hidden) - 1 :: len(hidden)])
    figures["fig2d"], axes = panels(len(shown), width=4.0, height=3.2)
    for panel, prefix in zip(axes, shown, strict=True):
        _widths(panel, select(rows, hidden=max(hidden)), prefix + _ENTROPY)
        panel.set_ylabel("entropy of singular values")
        panel.set_title(f"test embeddings\n({shown[prefix]})", fontsize=9)
    _legend_beside(axes[-1:])
    return figures


def _widths(axes: Axes, rows: Sequence[TableRow], score: str) -> None:
    """Draw a curve for each width of the second layer."""
    for colour, latent in zip(COLOURS, sorted(unique(rows, "latent")), strict=False):
        curve(axes, select(rows, latent=latent), score, colour, f"{latent}")
    ratio_axis(axes)


def _legend_beside(last: Sequence[Axes]) -> None:
    """Name bars and widths to the right of the last panel of each row, from the top in the order of most curves."""
    for axes in last:
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(
            handles[::-1], labels[::-1], title=f"{BARS}\n\nsecond layer", fontsize=8, title_fontsize=8, frameon=False,
            loc="center left", bbox_to_anchor=(1.0, 0.5),
        )  # fmt: skip


def _gains_of_two(
    wide: Float[np.ndarray, "seeds ratios"], narrow: Float[np.ndarray, "seeds ratios"]
) -> tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " seeds"]]:
    """Return two columns whose difference is how much more a best larger ratio gains over the smallest if wide.

    Of held-out scores and pseudo-values those whose difference between the widths spreads more.
    """
    if len(wide) == 1:
        return wide[:, 1:].max(1) - wide[:, 0], narrow[:, 1:].max(1) - narrow[:, 0]
    first, second = best_fixed(wide[:, 1:]), best_fixed(narrow[:, 1:])
    lowest = wide[:, 0] - narrow[:, 0]
    return wider_partner(lowest, first.scores - second.scores, first.pseudo - second.pseudo), lowest


def _differences(results: pd.DataFrame, score: str) -> list[TableRow]:
    """Return for each second layer by how much more masking gains with the wider first layer, paired over seeds.

    The gain is that of the best larger ratio over the smallest. That one width gains and the other does not is no
    evidence of a difference between them: this is.
    """
    rows: list[TableRow] = []
    for latent, group in results.groupby("latent"):
        found: dict[Any, Any] = {hidden: by_seed(own, score) for hidden, own in group.groupby("hidden")}
        tables = {hidden: pd.DataFrame(values, index=seeds) for hidden, (values, ratios, seeds) in found.items()
                  if len(ratios) > 1 and len(seeds)}  # fmt: skip
        if len(tables) < 2:
            continue
        wide, narrow = max(tables), min(tables)
        shared = tables[wide].index.intersection(tables[narrow].index)
        if not len(shared):
            continue
        gap = paired_difference(*_gains_of_two(*(tables[one].loc[shared].to_numpy() for one in (wide, narrow))))
        row: TableRow = {"score": score, "latent": latent, "wide": wide, "narrow": narrow, "seeds": gap.n}
        row |= {"gain_of_wide_minus_narrow": gap.mean, "low": gap.low, "high": gap.high, "is": gap.verdict}
        rows.append(row)
    return rows


STUDIES = (Study(ENTRIES["fig2a"], plot, table, runs=runs),)
