"""From numbers to verdicts: the rules of the list of claims, functions of results and a case."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, cast

import numpy as np
from scipy import stats

from r2mae_paper.claims.claim import Case, Found, Word, typeset, weakest
from r2mae_paper.claims.estimates import Estimate, Measured
from r2mae_paper.claims.measures import MEASURES, is_full, rows_of
from r2mae_paper.claims.results import Results, UnavailableError
from r2mae_paper.published import Model, published

Rule: TypeAlias = Callable[[Results, Case], Found]

WITHIN = 2.0, 10.0
"""A formula describes a simulation if half of the points deviate by at most the first, and all by the second, in %."""

_FOUR_IN_FIVE = (1.96 + 0.84) / 1.96
"""A difference of so many halves of its interval is decided in four of five repetitions."""

_ORDER: tuple[Word, ...] = ("not reproduced", "undecidable at this scale", "undecided", "direction only", "reproduced")


def difference(results: Results, case: Case) -> Found:
    """Judge that a number is above the margin: each part of it, or, with the option `any`, one.

    The paper's number must be in the interval too, unless data and sizes are not the paper's, or the option `sign` says
    that its sign alone counts. One part is enough to refute the sentence about all; that is the worst of several, and
    its interval is corrected for their number.
    """
    measured, same = _measured(results, case)
    paper = None if "sign" in case.options else case.paper
    found = [_above(part, case, paper, same=same) for part in measured.parts.values()]
    if "any" in case.options:
        return _with_note(max(found, key=lambda one: (_ORDER.index(one.verdict), one.ours)), measured, same)
    return _with_note(_of_all(found, measured), measured, same)


def _above(part: Estimate, case: Case, paper: float | None, *, same: bool) -> Found:
    if part.high < case.margin:
        part = part.corrected()
    if part.low > case.margin:
        word: Word = "reproduced" if same else "direction only"
    elif part.high < case.margin:
        word = "not reproduced"
    else:
        found = _open(part, abs(part.mean - case.margin), case, same=same)
        return found if paper is None or not same or not part.known or part.low <= paper <= part.high else replace(
            found, verdict="not reproduced", reason="The interval excludes the paper's number.", seeds=math.nan
        )  # fmt: skip
    if word == "reproduced" and paper is not None and not part.low <= paper <= part.high:
        return _found("direction only", part, "The interval excludes the paper's number.")
    return _found(word, part)


def differs(results: Results, case: Case) -> Found:
    """Judge that a number is not zero, whatever the sign, in one part at least; the clearest one is shown.

    It is refuted where the interval of every part is within the margin. Intervals are corrected for parts and signs.
    """
    measured, same = _measured(results, case)
    known = {name: part for name, part in measured.parts.items() if part.known}
    if not known:
        return _with_note(
            Found("undecided", "Equal values have no interval: seeds that differ are needed."), measured, same
        )
    name = max(known, key=lambda one: max(known[one].low, -known[one].high))
    part = known[name]
    reason = f"Shown is the clearest, {name}." if len(measured.parts) > 1 else ""
    if part.low > 0 or part.high < 0:
        return _with_note(_found("reproduced" if same else "direction only", part, reason), measured, same)
    if len(known) == len(measured.parts) and all(
        -case.margin <= one.low and one.high <= case.margin for one in known.values()
    ):
        return _with_note(
            _found("not reproduced", part, f"{reason} Within {case.margin:g} counts as none."), measured, same
        )
    found = _open(part, abs(part.mean), case, same=same)
    return _with_note(replace(found, reason=f"{reason} {found.reason}".strip()), measured, same)


def level(results: Results, case: Case) -> Found:
    """Judge a number that the paper prints, which has no direction: other data or sizes say nothing of it.

    The interval must contain the paper's number, and reach at most the margin to either side: a wide one agrees with
    any. With the option `printed` our values are compared with those of the paper's table by Welch's interval. With the
    option `exists` one success shows a part of the sentence, and none shows nothing.
    """
    measured, same = _measured(results, case)
    (part,) = measured.parts.values()
    if case.paper is None:
        raise UnavailableError("the paper prints no number")
    if not same:
        found = replace(_found("undecidable at this scale", part, "The paper's number is of its data."), seeds=math.inf)
        return _with_note(found, measured, same)
    compared, target = part, case.paper
    if "printed" in case.options and part.known:
        compared, target = _welch(results, case), 0.0
        measured = replace(measured, note=f"{measured.note} Ours minus the printed ones has the interval "
                           f"{compared.low:.3f} to {compared.high:.3f}.".strip())  # fmt: skip
    if not compared.known:
        found = _open(compared, case.margin, case, same=same)
    elif not compared.low <= target <= compared.high:
        found = _found("direction only" if "exists" in case.options and part.mean > 0 else "not reproduced", part)
    elif (compared.high - compared.low) / 2 > case.margin or ("exists" in case.options and part.mean == 0):
        found = replace(_open(part, case.margin, case, same=same), ours=part.mean, low=part.low, high=part.high)
    else:
        found = _found("reproduced", part)
    return _with_note(found, measured, same)


def _welch(results: Results, case: Case) -> Estimate:
    """Return our values minus those that the paper prints for a covariance model."""
    ours = rows_of(results, case)[case.columns[0]].to_numpy(float)
    entries = published(cast("Literal['table5', 'table9']", case.study)).entries[cast(Model, case.options["printed"])]
    printed = [cell.r2mae for cell in entries.values()]
    apart = stats.ttest_ind(ours, printed, equal_var=False).confidence_interval()
    return Estimate(float(np.mean(ours) - np.mean(printed)), float(apart.low), float(apart.high))


def none(results: Results, case: Case) -> Found:
    """Judge that there is no difference: the interval of every part is within the margin.

    It is refuted where one is outside of it.
    """
    measured, same = _measured(results, case)
    found = []
    for part in measured.parts.values():
        if -case.margin <= part.low and part.high <= case.margin:
            found.append(_found("reproduced" if same else "direction only", part))
        elif part.low > case.margin or part.high < -case.margin:
            found.append(_found("not reproduced", part))
        else:
            found.append(_open(part, abs(abs(part.mean) - case.margin), case, same=same))
    measured = replace(measured, note=f"{measured.note} Less than {case.margin:g} counts as none.".strip())
    return _with_note(_of_all(found, measured), measured, same)


def limit(results: Results, case: Case) -> Found:
    """Judge numbers without an interval: all must be at most the margin, or, with `least`, at least."""
    measured, same = _measured(results, case)
    sign = -1 if "least" in case.options else 1
    part = max(measured.parts.values(), key=lambda one: sign * one.mean)
    shown: Word = "reproduced" if same else "direction only"
    found = _found(shown if sign * part.mean <= sign * case.margin else "not reproduced", part)
    side = "least" if sign < 0 else "most"
    return _with_note(
        found, replace(measured, note=f"{measured.note} The limit is at {side} {case.margin:g}.".strip()), same
    )


def fit(results: Results, case: Case) -> Found:
    """Judge that a formula describes a simulation, by :data:`WITHIN`; the number is the median deviation in %.

    The columns are the simulation, the formula, and perhaps a second simulation, which must fit, too.
    """
    rows = rows_of(results, case)
    simulated, predicted, *others = (rows[column].to_numpy(float) for column in case.columns)
    off, *more = (100 * np.abs(one / predicted - 1) for one in (simulated, *others))
    same = is_full(results, case)
    fits = [float(np.median(one)) <= WITHIN[0] and float(one.max()) <= WITHIN[1] for one in (off, *more)]
    word: Word = "not reproduced" if not fits[0] else "reproduced" if all(fits) and same else "direction only"
    reason = f"The largest deviation of {len(off)} points is {off.max():.1f} %."
    if more:
        reason += f" With one design it is {more[0].max():.1f} %, and the median {np.median(more[0]):.1f} %."
    reason += f" Half within {WITHIN[0]:g} % and all within {WITHIN[1]:g} % count as a fit."
    return _with_note(Found(word, reason, float(np.median(off))), Measured(note=case.note), same)


def untestable(results: Results, case: Case) -> Found:
    """Say why no run of this project can decide a sentence."""
    return Found("not testable here", case.note)


def _measured(results: Results, case: Case) -> tuple[Measured, bool]:
    """Return the numbers of a case, and whether data and sizes are the paper's."""
    measured = MEASURES[case.measure](results, case)
    note = " ".join(text for text in (case.note, measured.note) if text)
    return replace(measured, note=note), measured.same and is_full(results, case)


def _of_all(found: Sequence[Found], measured: Measured) -> Found:
    """Return the weakest part; of several the reason counts those that show the sentence."""
    least = weakest(found)
    if len(found) < 2:
        return least
    shown = sum(one.verdict in ("reproduced", "direction only") for one in found)
    name = next(name for name, one in zip(measured.parts, found, strict=True) if one.ours == least.ours)
    return replace(least, reason=f"{shown} of {len(found)} show it. The weakest is {name}. {least.reason}".strip())


def _open(part: Estimate, distance: float, case: Case, *, same: bool) -> Found:
    """Say of a number that decides nothing how many seeds would, and whether so many are affordable.

    With the paper's data and sizes whoever made the results can afford them; then nothing but a grid, or what seeds do
    not narrow, is out of reach.
    """
    needed = part.seeds(distance)
    if math.isinf(needed):
        why = "More than 10,000 seeds would be needed."
        if part.grid >= distance:
            why = f"It is within a step of the grid of ratios, {part.grid:g}, which no number of seeds narrows."
        elif part.between > 0:
            why = f"Seeds do not narrow the spread between sets, {part.between:.2g}."
        return replace(_found("undecidable at this scale", part, why), seeds=needed)
    if math.isnan(needed):
        times = (_FOUR_IN_FIVE * (part.high - part.low) / 2 / distance) ** 2 if distance > 0 else math.inf
        why = f"{times:.0f} times as many draws would decide it." if math.isfinite(times) else "More draws would tell."
        return _found("undecided", part, why if part.known else "Two seeds that differ are needed for an interval.")
    if case.affordable and needed > case.affordable and not same:
        why = f"{needed:.0f} seeds would decide it. {case.affordable} are affordable."
        return replace(_found("undecidable at this scale", part, why), seeds=needed)
    return replace(_found("undecided", part, f"{needed:.0f} seeds would decide it."), seeds=needed)


def _found(word: Word, part: Estimate, reason: str = "") -> Found:
    return Found(word, reason, part.mean, part.low, part.high)


def _with_note(found: Found, measured: Measured, same: bool) -> Found:
    """Return what was found, with the note of the measure, and no better than it allows."""
    word = min(found.verdict, measured.at_most, key=_ORDER.index)
    reason = " ".join(text for text in (measured.note, found.reason) if text)
    return replace(found, verdict=word, reason=typeset(reason), same=same)


RULES: dict[str, Rule] = {
    "difference": difference,
    "differs": differs,
    "level": level,
    "no difference": none,
    "limit": limit,
    "fit": fit,
    "none": untestable,
}
"""Rules by the names that the list of claims uses; `sum` is made of other sentences."""
