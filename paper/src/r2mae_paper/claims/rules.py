"""From numbers to verdicts: the rules of the list of claims, functions of a case and its numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from r2mae_paper.claims.claim import ORDER, Case, Found, Word, typeset, weakest
from r2mae_paper.claims.estimates import Estimate
from r2mae_paper.claims.measures import MEASURES, is_full
from r2mae_paper.claims.results import Results, UnavailableError

Parts: TypeAlias = Mapping[str, Estimate]
Rule: TypeAlias = Callable[[Parts, Case, bool], Found]
"""Takes the numbers of a case, the case, and whether data and sizes are the paper's."""

_FOUR_IN_FIVE = (1.96 + 0.84) / 1.96
"""A difference of so many halves of its interval is decided in four of five repetitions."""


def judged(results: Results, case: Case) -> Found:
    """Measure a number and judge it, no better than its measure allows."""
    if case.rule == "none":
        return Found("not testable here", case.note)
    measured = MEASURES[case.measure](results, case)
    same = measured.same and is_full(results, case)
    found = RULES[case.rule](measured.parts, case, same)
    reason = " ".join(text for text in (case.note, measured.note, found.reason) if text)
    word = min(found.verdict, measured.at_most, key=ORDER.index)
    return replace(found, verdict=word, reason=typeset(reason), same=same)


def difference(parts: Parts, case: Case, same: bool) -> Found:
    """Judge that a number is above the margin: each part of it, or, with the option `any`, one.

    The paper's number must be in the interval too, unless data and sizes are not the paper's, or the option `sign` says
    that its sign alone counts. One part is enough to refute the sentence about all; that is the worst of several, and
    its interval is corrected for their number.
    """
    found = [_above(part, case, same) for part in parts.values()]
    if "any" in case.options:
        return max(found, key=lambda one: (ORDER.index(one.verdict), one.ours))
    return _of_all(found, parts)


def _above(part: Estimate, case: Case, same: bool) -> Found:
    if part.high < case.margin:
        part = part.corrected()
    shown, refuted = part.low > case.margin, part.high < case.margin
    found = _zone(part, case, same, shown, refuted, abs(part.mean - case.margin))
    paper = None if "sign" in case.options or not part.known else case.paper
    if refuted or not same or paper is None or part.low <= paper <= part.high:
        return found
    return _found("direction only" if shown else "not reproduced", part, "The interval excludes the paper's number.")


def differs(parts: Parts, case: Case, same: bool) -> Found:
    """Judge that a number is not zero, whatever the sign, in one part at least; the clearest one is shown.

    It is refuted where the interval of every part is within the margin. Intervals are corrected for parts and signs.
    """
    known = {name: part for name, part in parts.items() if part.known}
    if not known:
        return Found("undecided", "Equal values have no interval: seeds that differ are needed.")
    name = max(known, key=lambda one: max(known[one].low, -known[one].high))
    part = known[name]
    within = all(-case.margin <= one.low and one.high <= case.margin for one in parts.values())
    found = _zone(part, case, same, part.low > 0 or part.high < 0, within, abs(part.mean))
    clearest = f"Shown is the clearest, {name}." if len(parts) > 1 else ""
    why = f"Within {case.margin:g} counts as none." if found.verdict == "not reproduced" else found.reason
    return replace(found, reason=f"{clearest} {why}".strip())


def level(parts: Parts, case: Case, same: bool) -> Found:
    """Judge a number that the paper prints, which has no direction: other data or sizes say nothing of it.

    The interval must contain the paper's number, and reach at most the margin to either side: a wide one agrees with
    any. A second part is our number minus those that the paper's table has, whose interval must then contain zero. With
    the option `exists` one success shows a part of the sentence, and none shows nothing.
    """
    part, *minus_printed = parts.values()
    if case.paper is None:
        raise UnavailableError("the paper prints no number")
    if not same:
        return _found("undecidable at this scale", part, "The paper's number is of its data.", math.inf)
    (compared, target), said = (part, case.paper), ""
    if minus_printed:
        (compared,), target = minus_printed, 0.0
        said = f"Ours minus the printed ones has the interval {compared.low:.3f} to {compared.high:.3f}."
    if not compared.known:
        found = _open(compared, case.margin, case, same)
    elif not compared.low <= target <= compared.high:
        found = _found("direction only" if "exists" in case.options and part.mean > 0 else "not reproduced", part)
    elif (compared.high - compared.low) / 2 > case.margin or ("exists" in case.options and part.mean == 0):
        found = _open(part, case.margin, case, same)
    else:
        found = _found("reproduced", part)
    return replace(found, reason=f"{said} {found.reason}".strip())


def no_difference(parts: Parts, case: Case, same: bool) -> Found:
    """Judge that there is no difference: the interval of every part is within the margin.

    It is refuted where one is outside of it.
    """
    most = case.margin
    found = [
        _zone(
            part, case, same, -most <= part.low and part.high <= most, part.low > most or part.high < -most,
            abs(abs(part.mean) - most),
        )
        for part in parts.values()
    ]  # fmt: skip
    least = _of_all(found, parts)
    return replace(least, reason=f"Less than {most:g} counts as none. {least.reason}".strip())


def limit(parts: Parts, case: Case, same: bool) -> Found:
    """Judge numbers by themselves, without an interval: all must be at most the margin, or, with `least`, at least."""
    sign, side = (-1, "least") if "least" in case.options else (1, "most")
    part = Estimate(max((one.mean for one in parts.values()), key=lambda mean: sign * mean))
    shown = sign * part.mean <= sign * case.margin
    return replace(_zone(part, case, same, shown, not shown), reason=f"The limit is at {side} {case.margin:g}.")


def _zone(part: Estimate, case: Case, same: bool, shown: bool, refuted: bool, distance: float = 0.0) -> Found:
    """Return what a number shows; where it decides nothing, how many seeds would show this distance."""
    if shown:
        return _found("reproduced" if same else "direction only", part)
    return _found("not reproduced", part) if refuted else _open(part, distance, case, same)


def _of_all(found: Sequence[Found], parts: Parts) -> Found:
    """Return the weakest part; of several the reason counts those that show the sentence."""
    least = weakest(found)
    if len(found) < 2:
        return least
    shown = sum(one.verdict in ("reproduced", "direction only") for one in found)
    name = next(name for name, one in zip(parts, found, strict=True) if one.ours == least.ours)
    return replace(least, reason=f"{shown} of {len(found)} show it. The weakest is {name}. {least.reason}".strip())


def _open(part: Estimate, distance: float, case: Case, same: bool) -> Found:
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
        return _found("undecidable at this scale", part, why, needed)
    if math.isnan(needed):
        times = (_FOUR_IN_FIVE * (part.high - part.low) / 2 / distance) ** 2 if distance > 0 else math.inf
        why = f"{times:.0f} times as many draws would decide it." if math.isfinite(times) else "More draws would tell."
        return _found("undecided", part, why if part.known else "Two seeds that differ are needed for an interval.")
    why = f"{needed:.0f} seeds would decide it."
    if case.affordable and needed > case.affordable and not same:
        return _found("undecidable at this scale", part, f"{why} {case.affordable} are affordable.", needed)
    return _found("undecided", part, why, needed)


def _found(word: Word, part: Estimate, reason: str = "", seeds: float = math.nan) -> Found:
    return Found(word, reason, part.mean, part.low, part.high, seeds)


RULES: Mapping[str, Rule] = {
    "difference": difference,
    "differs": differs,
    "level": level,
    "no difference": no_difference,
    "limit": limit,
}
"""Rules by the names that the list of claims uses; `none` is of what cannot be tested, `sum` of other sentences."""
