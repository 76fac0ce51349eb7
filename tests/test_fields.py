"""Values and ranges of fields, wherever they come from."""

from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        (3.0, int, 3),
        ("1e3", int, 1000),
        ("1.0", int | float, 1.0),
        ("+.5e1", float, 5.0),
        (32, Literal["auto", "32"], "32"),
        (np.int64(32), Literal["auto", "32"], "32"),
        (np.int64(3), int, 3),
        (np.float64(1e5), int, 100_000),
        (np.float32(0.25), float, 0.25),
        (np.uint8(1), int | float, 1),
        (np.float32(1), int | float, 1.0),
        (np.True_, bool, True),
        (np.False_, Literal["yes", "no"], "no"),
        (np.arange(3), tuple[int, ...], (0, 1, 2)),
        ([np.str_("a")], tuple[str, ...], ("a",)),
        (Path("a"), str, "a"),
    ],
)
def test_what_a_value_means(value: Any, kind: Any, meant: Any) -> None:
    found = value_of(value, kind)
    assert found == meant and type(found) is type(meant)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *((value, int) for value in ("3.5", 1000.5, True, "٣", None, "1_0", " 12", "1e400", inf, nan, "0x10")),
        *((value, int) for value in (np.True_, np.float64(0.5), np.array([3]))),
        *((value, float) for value in (10**400, "1_0", "12 ", 2j, np.True_, "")),
        (1, bool),
        (False, str),
    ],
)
def test_values_without_a_meaning_are_refused(value: Any, kind: Any) -> None:
    with pytest.raises(ValueError):
        value_of(value, kind)


@given(st.floats(allow_nan=False) | st.integers(-(2**62), 2**62))
def test_numbers_are_the_same_as_text_and_of_numpy(number: float) -> None:
    kind = type(number)
    assert value_of(repr(number), kind) == value_of(np.array(number)[()], kind) == number
    assert type(value_of(np.array(number), kind)) is kind


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
