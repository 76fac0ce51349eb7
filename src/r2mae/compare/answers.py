"""What a comparison answers, in words: the baselines, a line for each question, what to run next, and warnings."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r2mae.compare.analysis import Analysis, power_of, scores_by_seed
from r2mae.compare.wording import BEST_FIXED, decimals, difference_places, interval, listing, number, seeds
from r2mae.evaluation.bn_statistics import NOTES
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.spectrum import SPECTRUM

if TYPE_CHECKING:
    from r2mae.compare.comparison import Comparison  # which offers the answers

UNTRAINED = "untrained"
"""The baseline that says whether training paid."""
_MANY = 30  # seeds; a difference that needs more is small


@dataclass(frozen=True)
class Answers:
    """What a comparison answers.

    Parameters
    ----------
    baselines : str
        How the untrained network and the best other baseline compare; empty without baselines.
    lead : bool
        Whether the baselines come first, as training is not shown to pay.
    questions : tuple of str
        A line for each of the analysis' questions.
    next : str
        The command that would decide more, and what it would decide; empty where all is decided.
    warnings : tuple of str
        What changes how the findings are to be read, the most important first.
    """

    baselines: str
    lead: bool
    questions: tuple[str, ...]
    next: str
    warnings: tuple[str, ...]

    @property
    def headline(self) -> tuple[str, ...]:
        """The lines of the findings, in their order."""
        told = (self.baselines, *self.questions) if self.lead else (*self.questions, self.baselines)
        return tuple(filter(None, told))


def answers(comparison: "Comparison", analysis: Analysis, out: Path | None = None) -> Answers:
    """Put the findings into words; `out` is the folder of the comparison, from which that of the next is named."""
    paid = [(metric, *_baselines(comparison, analysis, metric)) for metric in analysis.questions]
    told = [text for _, _, text in sorted(paid, key=lambda one: not one[1]) if text]
    return Answers(
        baselines=f"{' '.join(told)[:-1]}, all minus {analysis.against[0]}." if told else "",
        lead=any(idle for _, idle, _ in paid),
        questions=tuple(_answer(comparison, analysis, metric) for metric in analysis.questions),
        next=_next(comparison, analysis, out, [metric for metric, _, _ in sorted(paid, key=lambda one: one[1])]),
        warnings=tuple(_warnings(comparison, analysis)),
    )


def partner(analysis: Analysis, metric: Metric) -> str:
    """Return what variants are compared with in a metric: the label named, or ``the best fixed ratio (0.50)``."""
    against, reference = analysis.against[0], analysis.references.get(metric.name)
    if against != BEST_FIXED or reference is None:
        return "the best fixed ratio" if against == BEST_FIXED else against
    ratios = sorted({label.rpartition(" ")[2] for label in reference.labels.values()}, key=float)
    return f"the best fixed ratio ({' or '.join(ratios)})"


def gap(analysis: Analysis, line: Mapping[str, Any], metric: Metric, *, ends: bool = True) -> str:
    """Return a difference with its interval: of errors in per cent of the reference's mean, of others as it is."""
    reference = analysis.references[metric.name]
    base, values = float(np.mean([*reference.scores.values()])), [float(line[key]) for key in ("mean", "low", "high")]
    per_cent = metric.higher_is_better is False and metric.bounds[0] == 0 and base > 0
    unit, places = "", analysis.decimals[metric.name]
    if per_cent:
        values, unit = [100 * value / base for value in values], "\u00a0%"
        half = (values[2] - values[1]) / 2
        places = max(decimals([], [half]) - 1, 0) if math.isfinite(half) else decimals([], [abs(values[0])])
    mean, low, high = values
    places = difference_places(mean, low, high, places)
    within = interval(low, high, places, signed=True) if ends else ""
    return f"{number(mean, places, signed=True)}{unit}" + (f" ({within})" if within else "")


def _answer(comparison: "Comparison", analysis: Analysis, metric: Metric) -> str:
    """Return the answer to one question."""
    asked = f"Better {metric.question} ({metric.label})?" if metric.question else f"Better {metric.label}?"
    against, reference = partner(analysis, metric), analysis.references.get(metric.name)
    if not analysis.rivals:
        only = "only fixed ratios" if analysis.against[0] == BEST_FIXED else f"only {against}"
        return f"{asked} Not compared: there is {only}. Add other schemes (--schemes)."
    if reference is None and analysis.against[0] == BEST_FIXED:
        return f"{asked} Not compared: no fixed ratio has a score. Add fixed to --schemes."
    lines = {label: line for label in analysis.rivals if (line := analysis.difference(label, metric.name))}
    if reference is None or not lines:
        return f"{asked} Not compared: no scheme has a seed in common with {against}."
    better, worse = (
        [label for label in lines if analysis.decided(label, metric.name) == verdict] for verdict in ("better", "worse")
    )
    told = {label: f"{label} {gap(analysis, lines[label], metric)}" for label in (*better, *worse)}
    also = f" Worse: {listing([told[label] for label in worse])}." if worse else ""
    if better:
        return f"{asked} Yes, against {against}: {listing([told[label] for label in better])}.{also}"
    if len(worse) == len(lines):
        return f"{asked} No, every scheme is worse than {against}.{also}"
    count = seeds(max(line["n"] for line in lines.values()))
    shown = "be better than" if worse else "differ from"
    return f"{asked} Undecided: with {count} no scheme is shown to {shown} {against}.{also}"


def _baselines(comparison: "Comparison", analysis: Analysis, metric: Metric) -> tuple[bool, str]:
    """Return whether training is not shown to pay, and a sentence on the untrained network and the best baseline."""
    lines = {label: line for label in comparison.baselines if (line := analysis.difference(label, metric.name))}
    own, untrained = metric.question or metric.label, lines.pop(UNTRAINED, None)
    others = sorted(lines, key=lambda label: lines[label]["mean"], reverse=bool(metric.higher_is_better))[:1]
    named = {UNTRAINED: untrained} if untrained else {}
    named |= {label: lines[label] for label in others}
    if not named:
        return False, ""
    paid = {"worse": f"Training paid for {own}", "better": f"Training harmed {own}"}
    lead = f"Best baseline for {own}"
    if untrained:
        known = math.isfinite(untrained["low"])
        lead = paid.get(untrained["verdict"], f"Training is not shown to pay for {own}" if known else f"For {own}")
    better = {label: " is better, " if line["verdict"] == "better" else " " for label, line in named.items()}
    told = ", ".join(f"{label}{better[label]}{gap(analysis, line, metric)}" for label, line in named.items())
    idle = untrained is not None and math.isfinite(untrained["low"]) and untrained["verdict"] != "worse"
    return idle, f"{lead}: {told}."


def _next(comparison: "Comparison", analysis: Analysis, out: Path | None, metrics: Sequence[Metric]) -> str:
    """Return the command with the number of seeds that decides the most of an undecided question.

    It is the first of the questions that seeds can decide, or else the first of all.
    """
    open_questions = []
    for metric in metrics:
        rows = [
            row
            for row in power_of(comparison, analysis, metric, _MANY)
            if analysis.decided(row["label"], metric.name) == "undecided"
        ]
        if rows:
            needed = min((row["seeds"] for row in rows if row["seeds"]), default=math.inf)
            open_questions.append((metric, rows, needed))
    if not open_questions:
        return ""
    metric, rows, needed = min(open_questions, key=lambda one: one[2] > _MANY)
    had = max(row["pairs"] for row in rows)
    count = 3 if had < 2 else max(int(needed), had + 1) if needed <= _MANY else min(max(10, 2 * had), had + _MANY)
    undecided = [row["label"] for row in rows]
    found = {
        row["label"]: gap(analysis, {"mean": row["decides"], "low": math.nan, "high": math.nan}, metric).lstrip("+")
        for row in sorted(power_of(comparison, analysis, metric, count), key=lambda row: row["decides"])
        if row["label"] in undecided and math.isfinite(row["decides"])
    }
    said = ", ".join(f"{size} for {label}" for label, size in [*found.items()][:3])
    said = f"{seeds(count)} decide {said} in {metric.label}" if said else f"{seeds(had)} show no spread"
    if had > 1 and needed > _MANY:
        said += f"; the differences so far need {f'{needed:,} or more' if needed < math.inf else 'above 10,000'}"
    command, folder = comparison.config.get("command"), f"{out or 'runs/compare'}-{count}-seeds"
    if command:
        return f"{shlex.join([*command, '--seeds', str(count), '--out', folder])}  # {said} (--plan-power)"
    return f"the same comparison with {count} seeds, in another folder: {said}"


def _warnings(comparison: "Comparison", analysis: Analysis) -> list[str]:
    """Return what changes how the findings are to be read, the most important first."""
    told, runs, primary = [f"{sentence}." for sentence in comparison.unread], comparison.table, analysis.primary
    table = scores_by_seed(comparison, primary.name)
    for label in table:
        missing = list(table.index[table[label].isna()])
        # A baseline such as the mean image has no embedding to probe: nothing is missing.
        if missing and not (label in comparison.baselines and len(missing) == len(table)):
            told.append(f"{_lacks(label, primary, missing)}: means and pairs omit the missing runs.")
    for metric in analysis.metrics:  # only a collapsed model lacks a measured effective rank
        if metric.name in SPECTRUM:
            lacking = runs[runs[metric.name].isna() & ~runs["label"].isin(comparison.baselines)]
            for label, part in lacking.groupby("label", sort=False):
                told.append(f"{_lacks(label, metric, list(part['seed']))}: all its features are zero.")
    absent = [one.label for one in comparison.metrics if one not in analysis.metrics and not one.optional]
    if absent:
        told.append(f"No run has a value of {listing(absent)}.")
    choice = analysis.best_fixed.get(primary.name)
    if choice and not choice.held_out:
        told.append("With one seed, the best fixed ratio is chosen on the seed that it is compared on.")
    ratios = runs.drop_duplicates("label").set_index("label")["ratio"].dropna().to_dict()
    for metric in analysis.questions if analysis.against[0] == BEST_FIXED else ():
        means = {float(ratio): analysis.interval(str(label), metric.name)["mean"] for label, ratio in ratios.items()}
        if edge := edge_warning(means, up=bool(metric.higher_is_better)):
            told.append(f"For {metric.question or metric.label} {edge}")
    if comparison.by_sample and comparison.measured == NOTES["yes"]:
        told.append(
            f"Batch statistics at one ratio do not fit {listing(comparison.by_sample)}: its errors may be too high "
            "(--norm layer, or --bn-statistics both)."
        )
    return told


def edge_warning(means: Mapping[float, float], *, up: bool) -> str:
    """Return a warning if the best fixed ratio is the lowest or highest that ran, with ratios to add; else "".

    Parameters
    ----------
    means : mapping of ratio to mean score
        Mean score of each fixed ratio.
    up : bool
        Whether higher is better.
    """
    known = {ratio: mean for ratio, mean in sorted(means.items()) if math.isfinite(mean)}
    ratios = list(known)
    best = max(known.values(), default=0.0) if up else min(known.values(), default=0.0)
    leaders = [ratio for ratio, mean in known.items() if mean == best]
    if len(ratios) < 2 or len(leaders) != 1 or leaders[0] not in (ratios[0], ratios[-1]):
        return ""
    edge, lowest = leaders[0], leaders[0] == ratios[0]
    room = edge if lowest else 1 - edge  # two more ratios divide the rest of the axis
    further = [room * share if lowest else 1 - room * share for share in (0.2, 0.6)]
    grid = " ".join(f"{ratio:g}" for ratio in sorted({*ratios, *(float(f"{ratio:.3g}") for ratio in further)}))
    side, beyond = ("lowest", "lower") if lowest else ("highest", "higher")
    return f"{edge:g} is the {side} ratio that ran, and a {beyond} one may be better (--ratios {grid})."


def _lacks(label: Any, metric: Metric, missing: Sequence[Any]) -> str:
    """Return "r2mae has no accuracy for seeds 0 and 1"."""
    return (
        f"{label} has no {metric.label} for {'seed' if len(missing) == 1 else 'seeds'} {listing([*map(str, missing)])}"
    )
