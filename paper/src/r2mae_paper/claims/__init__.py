"""The paper's claims and what the results at hand say of each.

The claims are in ``published/claims.csv``, the checks in the modules of this package. :func:`verdicts` judges all of
:data:`CLAIMS` from folders of results. No claim is judged by results of the scale `smoke` or of another version of
r2mae: it is then "not run", as it is where there are none.
"""

import csv
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from r2mae_paper.claims import cells, estimation, linear_model, networks, schemes, spectra, texts
from r2mae_paper.claims.claim import MEANING, Check, Claim, Found, Verdict, Word, summed
from r2mae_paper.claims.results import Results, UnavailableError

__all__ = ["CHECKS", "CLAIMS", "MEANING", "Claim", "Found", "Results", "Verdict", "Word", "judge", "verdicts"]


def _claims() -> tuple[Claim, ...]:
    text = files("r2mae_paper.published").joinpath("claims.csv").read_text("utf-8")
    return tuple(
        Claim(
            **{key: row[key] for key in ("part", "name", "place", "says", "measure", "target", "why")},
            paper=float(row["paper"]) if row["paper"] else None,
            decimals=int(row["decimals"]),
            parts=tuple(row["parts"].split()),
        )
        for row in csv.DictReader(text.splitlines())
    )


CLAIMS = _claims()
"""All claims: sentences that sum up others, then the others in the order of the paper."""

CHECKS: dict[str, Check] = {
    **linear_model.CHECKS,
    **spectra.CHECKS,
    **estimation.CHECKS,
    **networks.CHECKS,
    **texts.CHECKS,
    **schemes.CHECKS,
    **cells.CHECKS,
}
"""Checks by the names of claims."""


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
    judged = ((claim, found[claim.name]) for claim in CLAIMS)
    return [Verdict(claim, one.verdict, one.ours, one.low, one.high, _reason(one)) for claim, one in judged]


def _reason(found: Found) -> str:
    return f"{found.reason} Data or scale are not the paper's." if found.elsewhere else found.reason


def _found(claim: Claim, results: Results) -> Found:
    check = CHECKS.get(claim.name)
    if check is None:
        return Found("not testable here", claim.why)
    try:
        return check(results, claim)
    except UnavailableError as error:
        return Found("not run", f"{error}.")
    except (
        ArithmeticError,
        LookupError,
        ValueError,
    ) as error:  # a table with other names or with holes: its results are damaged
        said = " ".join(str(error).split())[:120]
        return Found("not run", f"The results of {claim.target} lack what the check needs ({said}).")


def _summed(claim: Claim, found: dict[str, Found]) -> Found:
    words: list[Word] = [found[name].verdict for name in claim.parts]
    counts = ", ".join(f"{words.count(word)} {word}" for word in MEANING if word in words)
    return Found(summed(words), f"Of {len(words)} sentences below: {counts}.")
