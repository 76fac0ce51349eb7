"""What a claim of the paper is, what a rule finds, and the verdicts that there are."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Word: TypeAlias = Literal[
    "reproduced", "direction only", "undecided", "undecidable at this scale", "not reproduced", "not testable here",
    "not run",
]  # fmt: skip

MEANING: dict[Word, str] = {
    "reproduced": "The results show the sentence with the paper's data and sizes. Our 95 % interval contains the "
    "paper's number; where the paper gives none, the interval excludes zero on the side that the sentence names.",
    "direction only": "The interval excludes zero on the side that the sentence names. The size differs from the "
    "paper's, or data or scale do, or a part of the claim is missing.",
    "undecided": "The interval contains zero, or is too wide. The last column says how many seeds would tell.",
    "undecidable at this scale": "No number of seeds that is affordable here would tell.",
    "not reproduced": "The results contradict the sentence: the interval excludes zero on the other side, or, with the "
    "paper's data and sizes, it excludes the paper's number. With other data the verdict is about ours only.",
    "not testable here": "No run of this project can decide it; the last column says why.",
    "not run": "The folders that were read have no usable results.",
}
"""What each verdict means, in the order of tables."""

ORDER: tuple[Word, ...] = (
    "not reproduced", "not run", "undecidable at this scale", "undecided", "direction only", "reproduced",
    "not testable here",
)  # fmt: skip
"""Verdicts from the one that shows a sentence least; what cannot be tested says nothing."""

_OPEN = ("undecidable at this scale", "undecided")


@dataclass(frozen=True)
class Found:
    """What a rule found in the results."""

    verdict: Word
    """One of :data:`MEANING`."""
    reason: str = ""
    """What was found apart from the number."""
    ours: float = math.nan
    low: float = math.nan
    high: float = math.nan
    """`ours`, `low`, `high`: the number and its 95 % interval; NaN where there is none."""
    seeds: float = math.nan
    """How many seeds would decide what is open; infinite if no number would, NaN if that is not the question."""
    same: bool = True
    """Whether data and sizes are the paper's."""


@dataclass(frozen=True, eq=False)
class Case:
    """One number that a sentence is judged by."""

    label: str
    """What it is of, where a sentence has several."""
    formerly: tuple[str, ...]
    """The names that it had when each case was a sentence of its own; sums name their parts by these."""
    rule: str
    measure: str
    """`rule`, `measure`: how numbers become a verdict (:data:`~r2mae_paper.claims.rules.RULES`), and tables numbers
    (:data:`~r2mae_paper.claims.measures.MEASURES`)."""
    study: str
    table: str
    """`study`, `table`: the target whose results decide it, or several, and the file; by default its first."""
    columns: tuple[str, ...]
    """Columns that the measure takes, in its order."""
    where: str
    """Which rows count, as pandas' ``query`` takes it."""
    options: Mapping[str, str]
    """Further words for the measure and the rule."""
    margin: float
    """Where the sentence begins to hold, or the limit."""
    paper: float | None
    """The number by the paper's own numbers, where it prints them."""
    affordable: int
    """How many seeds of the study 24 hours of two cores train; 0 for studies that train nothing."""
    full: str
    """When data and sizes are the paper's: "scale" (the target says `full`), or what must hold for the table, as
    pandas' ``eval`` takes it, after ``FILE:`` for another file; "never", or both with a semicolon."""
    note: str
    """A sentence for the reason; of the rule `none` the reason."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that states a result, with one case or several that all must show it."""

    part: str
    """Heading of its table."""
    name: str
    """A short name of its own."""
    place: str
    """Section, figure or table."""
    sentence: str
    """What it states, in our words."""
    number: str
    """The number that would show it; positive where the sentence is right, if it is a difference."""
    decimals: int
    """Of the numbers in tables."""
    cases: tuple[Case, ...]
    """"""


@dataclass(frozen=True)
class Verdict:
    """A claim, and what the results say of each of its cases."""

    claim: Claim
    """"""
    found: tuple[Found, ...]
    """One a case."""

    @property
    def verdict(self) -> Word:
        """The verdict of the weakest case."""
        return weakest(self.found).verdict

    @property
    def paper(self) -> str:
        """The paper's numbers, or nothing."""
        return self._listed(["" if case.paper is None else self._number(case.paper) for case in self.claim.cases])

    @property
    def ours(self) -> str:
        """Our numbers with their intervals, or nothing."""
        ends = [f" ({self._number(one.low)} to {self._number(one.high)})" if math.isfinite(one.low) else ""
                for one in self.found]  # fmt: skip
        return self._listed([self._number(one.ours) + both for one, both in zip(self.found, ends, strict=True)])

    @property
    def seeds(self) -> str:
        """The seeds that would decide what is open."""
        return self._listed(
            [
                "" if math.isnan(one.seeds) else f"{one.seeds:.0f}" if math.isfinite(one.seeds) else "no number"
                for one in self.found
            ]
        )

    def _number(self, value: float) -> str:
        """Return a number with the claim's decimals; nothing for one that is not finite."""
        text = f"{value:.{self.claim.decimals}f}" if math.isfinite(value) else ""
        return typeset(text.lstrip("-") if text and float(text) == 0 else text)

    def _listed(self, words: Sequence[str]) -> str:
        """Return the words of the cases, each after its label where there are several."""
        if len(words) == 1:
            return words[0]
        return "; ".join(f"{case.label}: {word}" for case, word in zip(self.claim.cases, words, strict=True) if word)

    @property
    def reason(self) -> str:
        """The reasons of the cases; one that several have is given once, and a verdict where they differ."""
        words = {one.verdict for one in self.found}
        by_reason: dict[str, list[str]] = {}
        for case, one in zip(self.claim.cases, self.found, strict=True):
            word = f" is {one.verdict}" if len(words) > 1 else ""
            by_reason.setdefault(one.reason, []).append(f"{case.label}{word}")
        reasons = [reason if len(words) == len(by_reason) == 1 else f"{', '.join(labels)}: {reason}"
                for reason, labels in by_reason.items() if reason]  # fmt: skip
        return " ".join(
            [*reasons, *(() if all(one.same for one in self.found) else ("Data or scale are not the paper's.",))]
        )


def weakest(found: Sequence[Found]) -> Found:
    """Return the case that shows a sentence least, with the verdict and the seeds that all open ones need."""
    least = min(
        found,
        key=lambda one: (
            ORDER.index("undecided" if one.verdict in _OPEN else one.verdict),
            one.low if math.isfinite(one.low) else -math.inf,
        ),
    )
    if least.verdict not in _OPEN:
        return least
    open_ = [one for one in found if one.verdict in _OPEN]
    needs = [one for one in open_ if one.verdict == "undecidable at this scale"] or open_
    most = max(needs, key=lambda one: one.seeds if not math.isnan(one.seeds) else -1.0)
    return replace(least, verdict=most.verdict, reason=most.reason, seeds=most.seeds)


def summed(words: Sequence[Word]) -> Word:
    """Return the verdict of a sentence that sums up several.

    Those that cannot be tested are left out. If as many are refuted as shown, the sentence is not reproduced. Otherwise
    it is as good as its weakest part, where a refuted one is a part that is missing.
    """
    tested = [word for word in words if word != "not testable here"]
    refuted = tested.count("not reproduced")
    if refuted and refuted >= tested.count("reproduced") + tested.count("direction only"):
        return "not reproduced"
    for word in ("undecidable at this scale", "undecided", "not run"):
        if word in tested:
            return word
    if not tested:
        return "not testable here"
    return "reproduced" if set(tested) == {"reproduced"} else "direction only"


def typeset(text: str) -> str:
    """Return words with minus signs before their numbers in place of hyphens."""
    return re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
