"""The paper's claims and what the results at hand say of each.

:func:`verdicts` judges all of :data:`CLAIMS` from folders of results. No claim is judged by results of the scale `smoke` or of
another version of r2mae: it is then "not run", as it is where there are none.
"""

from collections.abc import Sequence
from pathlib import Path

from r2mae.reproduce.claims import cells, linear_model, networks, schemes, spectra, summary
from r2mae.reproduce.claims.claim import MEANING, Claim, Found, Verdict, Word, weakest
from r2mae.reproduce.claims.results import Results, Unavailable

__all__ = ["CLAIMS", "MEANING", "Claim", "Found", "Results", "Verdict", "Word", "judge", "verdicts"]

CLAIMS: tuple[Claim, ...] = (
    *summary.CLAIMS,
    *linear_model.CLAIMS,
    *spectra.CLAIMS,
    *networks.CLAIMS,
    *schemes.VISION,
    *schemes.LANGUAGE,
    *schemes.DNA,
    *cells.CLAIMS,
    *schemes.DOMAINS,
    *cells.RECONSTRUCTION,
    *spectra.TABLES,
)
"""All claims, in the order of the paper."""


def verdicts(folders: Sequence[Path]) -> list[Verdict]:
    """Judge every claim.

    Parameters
    ----------
    folders : sequence of Path
        Folders of targets or of comparisons, or folders that hold them.

    Raises
    ------
    UserError
        If a folder does not exist, or two of them hold the same target.
    """
    return judge(Results(folders))


def judge(results: Results) -> list[Verdict]:
    """Return the verdict of every claim, in the order of :data:`CLAIMS`."""
    found = {claim.name: _found(claim, results) for claim in CLAIMS if not claim.parts}
    for claim in CLAIMS:
        if claim.parts:
            found[claim.name] = _summed(claim, found)
    return [Verdict(claim, one.verdict, one.ours, one.low, one.high, one.reason)
            for claim in CLAIMS for one in [found[claim.name]]]  # fmt: skip


def _found(claim: Claim, results: Results) -> Found:
    if claim.check is None:
        return Found("not testable here", claim.why)
    try:
        return claim.check(results)
    except Unavailable as error:
        return Found("not run", f"{error}.")


def _summed(claim: Claim, found: dict[str, Found]) -> Found:
    words: list[Word] = [found[name].verdict for name in claim.parts]
    counts = ", ".join(f"{words.count(word)} {word}" for word in MEANING if word in words)
    return Found(weakest(words), f"The weakest of {len(words)} verdicts: {counts}.")
