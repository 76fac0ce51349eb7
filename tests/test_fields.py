"""Values and ranges of fields, wherever they come from."""

from dataclasses import dataclass
from math import inf, nan
from typing import Any, Literal

import pytest

from r2mae.errors import UserError
from r2mae.fields import Fraction, PartialFraction, Positive, Range, Size, check_fields, value_of


@pytest.mark.parametrize(
    ("value", "kind", "meant"),
    [
        ("1e-3", float, 1e-3),
        (2, float, 2.0),
        ("3", int | float, 3),
        (3.0, int | float, 3.0),
        ("auto", float | Literal["auto"], "auto"),
        (False, Literal["yes", "no"], "no"),
        ("Yes", bool, True),
        ([1, "2"], tuple[int, ...] | None, (1, 2)),
        (None, int | None, None),
    ],
)
def test_what_a_value_means(value: Any, kind: Any, meant: Any) -> None:
    found = value_of(value, kind)
    assert found == meant and type(found) is type(meant)


@pytest.mark.parametrize(
    ("value", "kind"),
    [("3.5", int), (3.0, int), (True, int), (1, bool), (False, str), ("٣", int), (10**400, float), (None, int)],
)
def test_values_without_a_meaning_are_refused(value: Any, kind: Any) -> None:
    with pytest.raises(ValueError):
        value_of(value, kind)


def test_ranges_in_words() -> None:
    found = [str(one) for one in (Range(1), Range(1, 4096), Range(above=0), Range(0, below=1), Range(above=0, most=1))]
    assert found == ["1 or more", "1 to 4,096", "above 0", "0 or more and below 1", "above 0 and at most 1"]


@dataclass(frozen=True)
class Fields:
    size: Size | None = None
    rate: Positive = 1.0
    share: Fraction = 1
    decays: tuple[PartialFraction, ...] = (0.0, 0.9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 0}, r"^the size must be 1 or more, not 0$"),
        ({"size": 2**31}, r"^the size takes numbers up to 2,147,483,647"),
        ({"rate": inf}, "rate takes a finite number, not inf"),
        ({"share": nan}, "share takes a finite number"),
        ({"decays": (0.5, 1.0)}, "decays must be 0 or more and below 1"),
        ({"decays": 0.5}, r"decays takes a list \(each a number\), not 0.5"),
    ],
)
def test_ranges_are_part_of_the_annotation(values: dict[str, Any], message: str) -> None:
    check_fields(Fields())
    with pytest.raises(UserError, match=message):
        check_fields(Fields(**values), lambda field: f"the {field}")
