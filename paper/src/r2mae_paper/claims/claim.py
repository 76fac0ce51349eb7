"""What a claim of the paper is, what a check finds, and the verdicts that there are."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from r2mae_paper.claims.results import Results

Word: TypeAlias = Literal[
    "reproduced", "direction only", "undecided", "not reproduced", "not testable here", "not run"
]  # fmt: skip

MEANING: dict[Word, str] = {
    "reproduced": "With the paper's data and sizes the results show what the sentence says. Where the paper gives a "
    "number, it lies in our 95 % interval. Where it gives none, the interval excludes zero on the side that the "
    "sentence names. A number without an interval lies within the limit that its row or this page states.",
    "direction only": "The interval excludes zero on the side that the sentence names. But the size is not the "
    "paper's, or data or scale are not, or a part of what is claimed is missing.",
    "undecided": "The runs at hand can neither show the claim nor refute it: the interval contains zero, or there is "
    "none; or the sentence is a number of the paper, and data or scale are not, or the interval is too wide to tell.",
    "not reproduced": "The results contradict the sentence: the interval excludes zero on the other side, or, with the "
    "paper's data and sizes, it excludes the paper's number, which is taken as exact; or a number without an interval "
    "is beyond the stated limit. Where the reason says that data or scale are not the paper's, the sentence does not "
    "carry over to ours; of the paper's own numbers it says nothing.",
    "not testable here": "No run of this project can decide it; the reason says why.",
    "not run": "What decides it has no usable results in the folders that were read.",
}
"""What each verdict means, in the order of tables."""


@dataclass(frozen=True)
class Found:
    """What a check found in the results.

    Attributes
    ----------
    verdict : str
        One of :data:`MEANING`.
    reason : str
        A sentence or two: on which data, and what was found beside the number.
    ours, low, high : float
        The measure and its 95 % interval; NaN where there is none.
    elsewhere : bool
        Whether data or scale are not the paper's.
    """

    verdict: Word
    reason: str
    ours: float = math.nan
    low: float = math.nan
    high: float = math.nan
    elsewhere: bool = False


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that states a result.

    Attributes
    ----------
    part : str
        Heading of the table that it stands in.
    name : str
        A short name of its own.
    place : str
        Section, figure or table.
    says : str
        What it states, in our words.
    measure : str
        The number that would show it; positive where the sentence is right, if it is a difference.
    target : str
        The target of :mod:`r2mae_paper.targets` whose results decide it; empty if none or several do.
    paper : float, optional
        The measure by the paper's own numbers, where it prints them.
    decimals : int
        Of the numbers in tables.
    why : str
        Why nothing here can decide it, for a claim without a check and without parts.
    parts : tuple of str
        Names of other claims, for a sentence that sums them up: its verdict is made of theirs.
    """

    part: str
    name: str
    place: str
    says: str
    measure: str
    target: str = ""
    paper: float | None = None
    decimals: int = 3
    why: str = ""
    parts: tuple[str, ...] = ()


Check: TypeAlias = "Callable[[Results, Claim], Found]"
"""Says what the results say of a claim.

It raises :class:`~r2mae_paper.claims.results.UnavailableError` if they do not have what it needs.
"""


@dataclass(frozen=True)
class Verdict:
    """A claim and what the results say of it.

    Attributes
    ----------
    claim : Claim
    verdict : str
        One of :data:`MEANING`.
    ours, low, high : float
        Our number and its 95 % interval; NaN where there is none.
    reason : str
        On which data, and why.
    """

    claim: Claim
    verdict: Word
    ours: float
    low: float
    high: float
    reason: str

    @property
    def paper_in_words(self) -> str:
        """The paper's number, or nothing."""
        return "" if self.claim.paper is None else _number(self.claim.paper, self.claim.decimals)

    @property
    def ours_in_words(self) -> str:
        """Our number with its interval, or nothing."""
        if not math.isfinite(self.ours):
            return ""
        mean = _number(self.ours, self.claim.decimals)
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return mean
        return f"{mean} ({_number(self.low, self.claim.decimals)} to {_number(self.high, self.claim.decimals)})"


def summed(words: Sequence[Word]) -> Word:
    """Return the verdict of a sentence that sums up several.

    Those that cannot be tested are left out. If as many are refuted as shown, the sentence is not reproduced. Otherwise
    it is as good as its weakest part, where a refuted one is a part that is missing.
    """
    tested = [word for word in words if word != "not testable here"]
    refuted = tested.count("not reproduced")
    if refuted and refuted >= tested.count("reproduced") + tested.count("direction only"):
        return "not reproduced"
    for word in ("undecided", "not run"):
        if word in tested:
            return word
    if not tested:
        return "not testable here"
    return "reproduced" if set(tested) == {"reproduced"} else "direction only"


def typeset(text: str) -> str:
    """Return words with minus signs before their numbers in place of hyphens."""
    return re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return typeset(text.lstrip("-") if float(text) == 0 else text)
