"""The paper's claims and what the results at hand say of each.

The claims are in ``published/claims.csv``: sentences, and how each is judged, by a rule of :mod:`rules` from a number
of :mod:`measures`. :func:`judge` judges all of :data:`CLAIMS` from folders of results. No claim is judged by results
of the scale `smoke` or of another version of r2mae: it is then "not run", as it is where there are none.
"""

import math
from collections.abc import Mapping
from importlib.resources import files
from io import StringIO

import pandas as pd

from r2mae_paper.claims.claim import MEANING, Case, Claim, Found, Verdict, Word, summed
from r2mae_paper.claims.results import Results, UnavailableError, UndecidableError
from r2mae_paper.claims.rules import judged

__all__ = ["CLAIMS", "MEANING", "Case", "Claim", "Found", "Results", "Verdict", "Word", "judge"]

_OF_CLAIM = ("part", "name", "place", "sentence", "number")


def read(text: str) -> tuple[Claim, ...]:
    """Read a list of claims. A cell with bars has a value for each case of its row, another one for all."""
    table = pd.read_csv(StringIO(text), dtype=str, keep_default_na=False)
    cells = table.drop(columns=[*_OF_CLAIM, "decimals"]).apply(lambda column: column.str.split("|"))
    counts = cells.map(len).max(axis="columns")
    claims = []
    for row, split, count in zip(table.to_dict("records"), cells.to_dict("records"), counts, strict=True):
        cases = [{key: values[place % len(values)].strip() for key, values in split.items()} for place in range(count)]
        named = {column: row[column] for column in _OF_CLAIM}
        claims.append(Claim(**named, decimals=int(row["decimals"]), cases=tuple(map(_case, cases))))
    return tuple(claims)


def _case(cells: Mapping[str, str]) -> Case:
    options = (option.partition("=") for option in cells["options"].split(";") if option.strip())
    return Case(
        label=cells["case"],
        formerly=tuple(cells["formerly"].split()),
        columns=tuple(cells["columns"].split()),
        options={key.strip(): value.strip() for key, _, value in options},
        margin=float(cells["margin"] or 0),
        paper=float(cells["paper"]) if cells["paper"] else None,
        affordable=int(cells["affordable"] or 0),
        **{column: cells[column] for column in ("rule", "measure", "study", "table", "where", "full", "note")},
    )


CLAIMS = read(files("r2mae_paper.published").joinpath("claims.csv").read_text("utf-8"))
"""All claims: sentences that sum up others, then the others in the order of the paper."""


def judge(results: Results) -> list[Verdict]:
    """Return the verdict of every claim, in the order of :data:`CLAIMS`."""
    cases = [case for claim in CLAIMS for case in claim.cases]
    found = {case: _found(case, results) for case in cases if case.rule != "sum"}
    by_name = {name: one for case, one in found.items() for name in case.formerly}
    found |= {case: _summed(case, by_name) for case in cases if case.rule == "sum"}
    return [Verdict(claim, tuple(found[case] for case in claim.cases)) for claim in CLAIMS]


def _found(case: Case, results: Results) -> Found:
    try:
        return judged(results, case)
    except UnavailableError as error:
        return Found("not run", f"{error}.")
    except UndecidableError as error:
        return Found("undecidable at this scale", str(error), seeds=math.inf)
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:
        # a table with other names or with holes: its results are damaged
        said = " ".join(str(error).split())[:120]
        return Found("not run", f"The results of {case.study} lack what the rule needs ({said}).")


def _summed(case: Case, found: Mapping[str, Found]) -> Found:
    words: list[Word] = [found[name].verdict for name in case.options["of"].split()]
    counts = ", ".join(f"{words.count(word)} {word}" for word in MEANING if word in words)
    return Found(summed(words), f"Of {len(words)} parts below: {counts}.")
