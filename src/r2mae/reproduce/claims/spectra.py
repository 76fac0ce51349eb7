"""What the paper says of general covariances in the linear model: Figs. 1E to 1G and 4, Tables 5 and 9."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from r2mae.reproduce.claims.claim import Claim, Found
from r2mae.reproduce.claims.judging import above_lowest, of_difference, of_errors, of_level, of_most, of_share, over
from r2mae.reproduce.claims.linear_model import Columns, columns, later
from r2mae.reproduce.claims.results import Results, Unavailable
from r2mae.reproduce.published import Model, published

if TYPE_CHECKING:
    import pandas as pd

Table = Literal["table5", "table9"]

PLATEAU = 0.1
"""A plateau must be this wide, in units of the ratio, to count as one: two steps of the grid; the number is ours."""

_SEEDS = 5  # of the paper's Tables 5 and 9, for each model


def _models(results: Results) -> tuple[dict[str, list[Columns]], bool]:
    """Return the curves of each covariance model from the weakest signal to the strongest; equal eigenvalues count once."""
    table = results.table("fig1e", "quantile", "eigenvalue", "ratio", "normalised_risk", "error", "formula")
    thresholds = results.table("fig1e", "gamma", "n", name="fig1e-thresholds")
    models: dict[str, list[Columns]] = {}
    for model, rows in table.groupby("model", sort=False):
        signals = [columns(group) for _, group in rows.groupby("quantile", sort=True)]
        strong = {round(float(own["eigenvalue"][0]), 4): own for own in reversed(signals)}
        models[str(model)] = [strong[value] for value in sorted(strong)]
    return models, bool((thresholds["n"].iloc[0] == 500))


def _of_models(results: Results, judge: Any, reason: str) -> Found:
    models, same = _models(results)
    found = {name: judge(curves, same) for name, curves in models.items()}
    said = "; ".join(f"{name}: {one.reason}" if one.reason else name for name, one in found.items())
    return of_most(list(found.values()), f"{reason} {said}.")


def _non_monotonic(results: Results) -> Found:
    def judge(curves: Sequence[Columns], same: bool) -> Found:
        own = curves[-1]
        best = own["ratio"][own["normalised_risk"].argmin()]
        return of_difference(above_lowest(own["normalised_risk"], own["error"]), f"p = {best:g}", same=same)

    return _of_models(results, judge, "Largest eigenvalue; the lowest risk is at")


def _stronger_deeper(results: Results) -> Found:
    def judge(curves: Sequence[Columns], same: bool) -> Found:
        lowest = [
            (float(own["normalised_risk"].min()), float(own["error"][own["normalised_risk"].argmin()]))
            for own in curves
        ]
        steps = [of_errors(a - b, e, f) for (a, e), (b, f) in zip(lowest, lowest[1:], strict=False)]
        said = ", ".join(f"{value:.2f}" for value, _ in lowest)
        return of_most([of_difference(step, "", same=same) for step in steps], said)

    return _of_models(results, judge, "Lowest normalised risk from the weakest to the strongest eigenvector.")


def _stronger_later(results: Results) -> Found:
    def judge(curves: Sequence[Columns], same: bool) -> Found:
        renamed = [{"ratio": own["ratio"], "risk": own["normalised_risk"], "error": own["error"]} for own in curves]
        found = later(renamed, "", key="", same=same)
        return Found(found.verdict, found.reason.split(": ")[-1].rstrip("."), found.ours, found.low, found.high)

    return _of_models(results, judge, "Best ratios from the weakest to the strongest eigenvector.")


def _threshold(results: Results) -> Found:
    rows = results.table("fig1e", "threshold", "threshold_over_mean", "share_above", name="fig1e-thresholds")
    rows = rows.groupby("model", sort=False).head(1)  # the first of each model is the one that is drawn
    spread = float(rows["threshold_over_mean"].max() / rows["threshold_over_mean"].min())
    said = ", ".join(f"{row.threshold:.2f} ({row.model})" for row in rows.itertuples())
    reason = f"Largest threshold over the smallest, in units of the mean eigenvalue; eigenvalues: {said}. "
    reason += "A spread of a tenth would be the same threshold. It follows the spectrum by a law, (1 + σ²/λ)·mean(λ²)/(2·mean(λ))."
    word: Any = "reproduced" if spread <= 1.1 else "direction only" if spread <= 2 else "not reproduced"
    return Found(word, reason, spread)


def _ends(results: Results) -> Found:
    """Judge that the risk is near that of predicting zero at the lowest ratio and far above it at the highest."""
    models, same = _models(results)
    strongest = [curves[-1] for curves in models.values()]
    start = [float((1 - own["normalised_risk"][0]) / (1 - own["normalised_risk"].min())) for own in strongest]
    steps = [of_errors(float(own["normalised_risk"][-1] - 1), own["error"][-1]) for own in strongest]
    reason = f"At p = 0.05 the largest eigenvector has {100 * min(start):.0f} to {100 * max(start):.0f} % of its descent behind it; "
    reason += "at p = 0.95 its risk exceeds the null risk by at least the number shown."
    found = of_most([of_difference(step, "", same=same) for step in steps], reason)
    return found if max(start) < 0.25 else Found("not reproduced", reason, found.ours, found.low, found.high)


def _plateaus(results: Results, reading: str) -> "pd.DataFrame":
    rows = results.table(
        "fig1g", "first_until", "near_best_from", "near_best_until", "best_risk", name="fig1g-plateaus"
    )
    rows = rows[(rows["reading"] == reading) & (rows["sample"] != "formula")]
    if not len(rows):
        raise Unavailable(f"fig1g has no samples of the reading {reading}")
    return rows


def _of_readings(results: Results, measure: Any, reason: str) -> Found:
    """Judge both readings of the model by the one that supports the sentence better."""
    same = len(_plateaus(results, "D")) >= 10
    found = []
    for reading in ("D", "WW"):
        widths = np.asarray(measure(_plateaus(results, reading)), dtype=float)
        mean, low, high = over(widths)
        if np.isnan(low):  # all samples alike
            low = high = mean
        judged = of_difference((mean - PLATEAU, low - PLATEAU, high - PLATEAU), "", same=same)
        said = f"{reason} {int((widths >= PLATEAU).sum())} of {len(widths)} samples have one of {PLATEAU:g} or more."
        found.append(Found(judged.verdict, said, mean, low, high))
    order = ("reproduced", "direction only", "undecided", "not reproduced")
    return min(found, key=lambda one: (order.index(one.verdict), -one.ours))


def _first_plateau(results: Results) -> Found:
    reason = "From p = 0.05 to where a tenth of the descent is behind; the better of two readings of the text."
    return _of_readings(results, lambda rows: rows["first_until"] - 0.05, reason)


def _best_plateau(results: Results) -> Found:
    reason = "Range of ratios within a tenth of the descent of the lowest risk; the better of two readings of the text."
    return _of_readings(results, lambda rows: rows["near_best_until"] - rows["near_best_from"], reason)


def _another_sample(results: Results) -> Found:
    """Judge that two samples of one model differ, at the ratio where they differ most for their errors."""
    table = results.table("fig4", "sample", "ratio", "normalised_risk", "error")
    same = len(_plateaus_of(results)) >= 10
    found = []
    for _, rows in table.groupby("reading", sort=False):
        first, second = (columns(group) for _, group in rows.groupby("sample"))
        gaps = [of_errors(abs(float(a - b)), e, f, comparisons=len(first["ratio"]))
                for a, b, e, f in zip(first["normalised_risk"], second["normalised_risk"], first["error"],
                                      second["error"], strict=True)]  # fmt: skip
        found.append(max(gaps, key=lambda gap: gap[1]))
    reason = (
        "The two samples of twenty whose best ratios lie farthest apart, at the ratio where they differ most clearly."
    )
    return of_most([of_difference(gap, "", same=same) for gap in found], reason)


def _plateaus_of(results: Results) -> "pd.DataFrame":
    rows = results.table("fig4", "best_ratio", name="fig4-plateaus")
    return rows[rows["reading"] == "D"]


def _cells(results: Results, table: Table) -> tuple["pd.DataFrame", bool]:
    rows = results.table(table, "seed", "gain", "over_best", "r2mae", "gain_error")
    return rows, len(rows) >= 2 * _SEEDS


def _over_middle(results: Results, table: Table) -> Found:
    rows, same = _cells(results, table)
    better = int((rows["gain"] < 0).sum())
    reason = f"R²MAE is better in {better} of {len(rows)} cells (two models, five seeds each; the paper: all of 10)."
    return of_difference(over(-rows["gain"].to_numpy(float)), reason, paper=_paper_gain(table), same=same)


def _over_best(results: Results, table: Table) -> Found:
    rows, same = _cells(results, table)
    better = int((rows["over_best"] < 0).sum())
    wins = round(10 * _paper_share(table))
    mean, low, high = over(-rows["over_best"].to_numpy(float))
    reason = (
        f"{better} of {len(rows)} cells (the paper: {wins} of 10). The risk of the best fixed ratio minus R²MAE's is "
    )
    reason += f"{mean:.4f} ({low:.4f} to {high:.4f}), the paper's {_paper_gap(table):.4f}; "
    reason = (
        reason.replace("-", "−") + "here the best ratio is chosen on one half of the masks and measured on the other."
    )
    return of_share(better, len(rows), reason, paper=_paper_share(table), same=same)


def _level(results: Results, table: Table, model: Model) -> Found:
    rows, same = _cells(results, table)
    own = rows[rows["model"] == model]
    if not len(own):
        raise Unavailable(f"{table} has no rows of the model {model}")
    reason = "Mean over seeds, each a covariance of its own."
    return of_level(over(own["r2mae"].to_numpy(float)), reason, paper=_paper_level(table, model), same=same)


def _paper_gain(table: Table) -> float:
    cells = [cell for cells in published(table).entries.values() for cell in cells.values()]
    return float(np.mean([cell.middle - cell.r2mae for cell in cells]))


def _paper_gap(table: Table) -> float:
    cells = [cell for cells in published(table).entries.values() for cell in cells.values()]
    return float(np.mean([cell.best - cell.r2mae for cell in cells]))


def _paper_share(table: Table) -> float:
    cells = [cell for cells in published(table).entries.values() for cell in cells.values()]
    return float(np.mean([cell.r2mae < cell.best for cell in cells]))


def _paper_level(table: Table, model: Model) -> float:
    return float(np.mean([cell.r2mae for cell in published(table).entries[model].values()]))


def _ranges(results: Results) -> Found:
    rows = results.table("ranges", "best_fixed", "range")
    better, count = int((rows["range"] < rows["best_fixed"]).sum()), len(rows)
    reason = f"By our general formula, in {better} of {count} random settings a range has a lower mean risk over directions than the "
    return of_share(better, count, f"{reason}best fixed ratio.")


_OTHERS_CURVES = "The paper draws accuracies that others published. They are not here, and the text states no number: `r2mae reproduce "

CLAIMS = (
    Claim(
        "non-monotonic", "Sec. 3.4, Fig. 1E", "With dependence between features the risk has an interior minimum in all covariance models.",
        "risk at the lower end minus the lowest, the smallest of three models", "fig1e", _non_monotonic,
    ),
    Claim(
        "stronger-deeper", "Sec. 3.4, Fig. 1E", "The effect is stronger for stronger signals (eigenvectors of larger eigenvalues).",
        "smallest gain of the lowest risk from signal to signal", "fig1e", _stronger_deeper,
    ),
    Claim(
        "stronger-later", "Sec. 3.4, Fig. 1E", "The best ratio is higher for stronger signals.",
        "best ratio, strongest minus weakest, the smallest of three models", "fig1e", _stronger_later, decimals=2,
    ),
    Claim(
        "threshold", "Sec. 3.4, Fig. 1E", "The eigenvalue from which masking pays is comparable in all models, perhaps universal.",
        "largest threshold over the smallest", "fig1e", _threshold, decimals=2,
    ),
    Claim(
        "bert-curves", "Sec. 3.4, Fig. 1F", "The error curves of fine-tuned BERT by task look like those of the linear model by signal.",
        "likeness of two families of curves", why=f"{_OTHERS_CURVES}fig1f --curve FILE.csv` draws a table that you have.",
    ),
    Claim(
        "first-plateau", "Sec. 3.4, Fig. 1G", "The latent space model has a plateau at low ratios, before the risk improves.",
        "width of the plateau", "fig1g", _first_plateau,
    ),
    Claim(
        "best-plateau", "Sec. 3.4, Fig. 1G", "And a second one, a range of ratios that are all nearly best.",
        "width of the plateau", "fig1g", _best_plateau,
    ),
    Claim(
        "mae-curve", "Sec. 3.4, Fig. 1G", "These plateaus are those of MAE's fine-tuning accuracy on ImageNet.",
        "likeness of two curves", why=f"{_OTHERS_CURVES}fig1g` draws the linear model alone.",
    ),
    Claim(
        "another-sample", "Sec. 3.4, Fig. 4", "Another sample of the latent space model has another curve.",
        "largest difference of normalised risk", "fig4", _another_sample,
    ),
    Claim(
        "mae-probe", "Sec. 3.4, Fig. 4", "That sample's curve is the one of MAE's linear probes.",
        "likeness of two curves", why=f"{_OTHERS_CURVES}fig4` draws the linear model alone.",
    ),
)  # fmt: skip

TABLES = (
    Claim(
        "ends-degenerate", "Sec. 4", "Near ratios of 0 and 1 the risk degenerates or explodes, so that U(0, 1) is a poor range.",
        "risk at p = 0.95 above the null risk, the smallest of three models", "fig1e", _ends, decimals=2,
    ),
    *(
        claim
        for table, place, span in (("table5", "Sec. 4.3, Table 5", "U(0.5, 0.6)"), ("table9", "Sec. 4.3, Table 9", "U(0.4, 0.5)"))
        for claim in (
            Claim(
                f"{table}-middle", place, f"In the linear model R²MAE, {span}, has a lower risk than the middle of its range.",
                "risk of the middle minus R²MAE's", table, partial(_over_middle, table=table), _paper_gain(table), 4,
            ),
            Claim(
                f"{table}-best", place, f"R²MAE, {span}, has a lower risk than the best fixed ratio in most cases.",
                "share of cells in which it does", table, partial(_over_best, table=table), _paper_share(table), 2,
            ),
            *(
                Claim(
                    f"{table}-{model}", place, f"R²MAE's normalised risk in the {words} model.", "mean risk over five seeds",
                    table, partial(_level, table=table, model=model), _paper_level(table, model),
                )
                for model, words in (("beta", "Beta covariance"), ("latent", "latent space"))
            ),
        )
    ),
    Claim(
        "ranges", "Abstract, Sec. 1, 4.3", "With an appropriate range R²MAE beats the best fixed ratio across covariances, in most cases.",
        "share of random settings in which it does", "ranges", _ranges, decimals=4,
    ),
)  # fmt: skip
