"""Conditions on rows: a column, a comparison, and a value or several."""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from r2mae.errors import UserError

_CONDITION = re.compile(r"(?P<column>[^<>=!]+?)\s*(?P<sign>>=|<=|!=|==|=|>|<)\s*(?P<value>.*)")
_ORDERS: dict[str, Callable[[Float64[np.ndarray, " n"], float], Bool[np.ndarray, " n"]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Condition:
    """A condition, such as ``expected_count>=20`` or ``consequence=missense,synonymous``.

    Parameters
    ----------
    column : str
    sign : {">=", "<=", ">", "<", "=", "!="}
        Those of order compare numbers; a row without a number does not meet them.
    values : tuple of str
        For ``=`` any of them, for ``!=`` none of them: as text, whatever its case, or as numbers.
    """

    column: str
    sign: str
    values: tuple[str, ...]

    def met(self, texts: Sequence[str]) -> Bool[np.ndarray, " n"]:
        """Tell which values of the column meet it."""
        if self.sign in _ORDERS:
            return _ORDERS[self.sign](numbers(texts), float(self.values[0]))
        accepted = {_plain(value) for value in self.values}
        found = np.array([_plain(text) in accepted for text in texts], bool)
        return found if self.sign == "=" else ~found


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises
    ------
    UserError
        If it is none.
    """
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise UserError(f"where {text!r} is no condition: write a column, one of = != < <= > >=, and a value")
    sign = "=" if match["sign"] == "==" else match["sign"]
    values = tuple(value.strip() for value in match["value"].split(","))
    if sign in _ORDERS and (len(values) != 1 or np.isnan(numbers(values)[0])):
        raise UserError(f"where {text!r}: {sign} compares with a number")
    return Condition(match["column"].strip(), sign, values)


def numbers(texts: Sequence[str]) -> Float64[np.ndarray, " n"]:
    """Return texts as numbers, NaN where one is none."""
    found = np.full(len(texts), np.nan)
    for place, text in enumerate(texts):
        try:
            found[place] = float(text)
        except ValueError:
            continue
    return found


def _plain(text: str) -> str:
    """Return a value as it is compared: numbers in one spelling, words in lower case."""
    try:
        return repr(float(text))
    except ValueError:
        return text.lower()
