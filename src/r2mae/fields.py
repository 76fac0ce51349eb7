"""Fields of dataclasses as options: types in words, values and their ranges, and help from NumPy docstrings. No torch.

A command's options are the fields of a dataclass. The docstring gives the help: its first paragraphs describe the
command, "Parameters" the options, and "Examples" is shown as it is. The annotation of a field says which values it
takes: ``Size`` is a whole number of 1 or more.
"""

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache
from itertools import islice
from math import inf, isfinite
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from r2mae.errors import UserError

_MAX_REPR = 120  # characters of a value in an error
_NULL = "null"  # the text for None, as in YAML
_MOST_VALUES = 10_000  # of a list
_MOST = 2**31 - 1  # of a whole number without a range; far above what any run needs, and low enough for no overflow
TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
"""The words that flags take, in lower case."""


class FieldError(UserError):
    """The error for a field, or an option of a scheme, that must not be given; `name` is its flat name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Range:
    """The numbers that a field takes, as metadata of its type: ``Annotated[int, Range(1)]``.

    Parameters
    ----------
    least, most : float
        The ends, if they are in the range.
    above, below : float
        The ends, if they are not.
    """

    least: float = -inf
    most: float = inf
    above: float = -inf
    below: float = inf

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        if isfinite(self.least) and isfinite(self.most):
            return f"{self.least:,} to {self.most:,}"
        ends = (f"{self.least:,} or more", f"above {self.above:,}", f"at most {self.most:,}", f"below {self.below:,}")
        numbers = (self.least, self.above, self.most, self.below)
        return " and ".join(end for end, number in zip(ends, numbers, strict=True) if isfinite(number))


Size = Annotated[int, Range(1)]
"""A whole number of 1 or more."""
Positive = Annotated[float, Range(above=0)]
"""A number above 0."""
NonNegative = Annotated[float, Range(0)]
"""A number of 0 or more."""
Fraction = Annotated[float, Range(0, 1)]
"""A number from 0 to 1."""
PartialFraction = Annotated[float, Range(0, below=1)]
"""A number from 0 to 1, except 1."""


@dataclass(frozen=True)
class ConfigOption:
    """An option of the command line, such as a field of a dataclass.

    Parameters
    ----------
    name : str
        Name in Python; on the command line, dashes replace its underscores.
    kind : type
        Type of the values, as annotated.
    default : Any
        Default; :data:`dataclasses.MISSING` if the option is required.
    help : str
        Help text.
    group : str
        Heading of its part of the help.
    common : bool
        Whether it is among the usual options, which the short help shows.
    positional : bool
        Whether it is a positional argument.
    short : str
        A short form, such as "-o".
    metavar : str
        Name of the value in the help; by default from the type.
    flag : str
        The option as typed, without dashes at the start, if it is not the name.
    words : sequence of str, or callable
        Values to suggest for completion, or a function that returns them; others are accepted, too.
    default_text : str
        The default in words, if `default` is None.
    """

    name: str
    kind: Any
    default: Any = MISSING
    help: str = ""
    group: str = "options"
    common: bool = True
    positional: bool = False
    short: str = ""
    metavar: str = ""
    flag: str = ""
    words: Sequence[str] | Callable[[], Sequence[str]] = ()
    default_text: str = ""

    @property
    def typed(self) -> str:
        """The option as typed: ``--batch-size``; of a positional argument its name in the help."""
        if self.positional:
            return self.metavar or self.name.upper()
        return "--" + (self.flag or self.name).replace("_", "-")

    @property
    def is_list(self) -> bool:
        """Whether it takes several words."""
        return any(get_origin(part) is tuple for part in (self.kind, *get_args(self.kind)))

    @property
    def is_flag(self) -> bool:
        """Whether it is true if it is given without a value."""
        return self.kind in (bool, bool | None)

    @property
    def choices(self) -> tuple[str, ...]:
        """The only words that it takes; empty for any, or if it takes numbers, too."""
        parts = _parts(self.kind)
        literal = all(get_origin(part) is Literal for part in parts)
        return tuple(str(word) for part in parts for word in get_args(part)) if literal else ()

    def read(self, text: str) -> Any:
        """Return the value of a word of the command line, with ``~`` at its start expanded."""
        if text == _NULL and type(None) in get_args(self.kind) and not self.is_list:
            return None
        kinds = (self.kind, *get_args(self.kind))
        entry = next((get_args(part)[0] for part in kinds if get_origin(part) is tuple), self.kind)
        try:
            return value_of(at_home(text), entry)
        except ValueError:
            raise UserError(f"{self.typed} takes {describe_type(self.kind)}, not {short_repr(text)}") from None


def argument(default: Any = MISSING, **settings: Any) -> Any:
    """Return a field that is a positional argument of a command; settings are attributes of :class:`ConfigOption`."""
    return dataclasses.field(default=default, metadata={"positional": True, **settings})


def option(default: Any = MISSING, **settings: Any) -> Any:
    """Return a field that is an option with some attributes of :class:`ConfigOption`."""
    return dataclasses.field(default=default, metadata=settings)


def value_of(value: Any, kind: Any) -> Any:
    """Return what a value means for a type: a word of the command line, a value of YAML, or one of Python or NumPy.

    Text may be the number 3 or 3.0, true or yes, or a word; a path is text. YAML reads the words yes and no as true and
    false, and 1e-3 as text; lists are tuples. A whole number may be written 1e5 or 3.0, unless fractions mean something
    else there. What is returned are Python's own types.

    Raises
    ------
    ValueError
        If it means none.
    """
    value, parts = plain(value), _parts(kind)
    if kind is Any or (value is None and type(None) in get_args(kind)):
        return value
    for part in parts:
        if get_origin(part) is tuple and isinstance(value, list | tuple):
            return tuple(value_of(entry, get_args(part)[0]) for entry in value)
        if get_origin(part) is Literal:
            word = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            if str(word) in get_args(part):
                return str(word)
        if part is bool and (isinstance(value, bool) or str(value).lower() in TRUTHS):
            return TRUTHS[str(value).lower()]
        if part in (int, float):
            try:
                return _number(value, part, whole=float not in parts)
            except ValueError:
                continue
        if part is not bool and get_origin(part) is None and isinstance(value, part):
            return value
    raise ValueError(value)


def plain(value: Any) -> Any:
    """Return the Python value that a scalar or an array of NumPy is, and a path as text; others as they are.

    ``np.float32(1e-3)`` is 0.001, as it is shown.
    """
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):  # not of functions and types
        if value.dtype.kind == "f" and value.itemsize < 8:
            value = value.astype(str).astype(float)
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)


def decimal(text: str) -> float | None:
    """Return the number that a text is, None if it is none: Python reads blanks, ``1_2`` and full-width digits, too."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def several(name: str, given: Any) -> list[Any]:
    """Return one value or several of a call in Python as a list; a UserError names what has too many."""
    given = plain(given)
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [given]
    values = list(islice(given, _MOST_VALUES + 1))
    if len(values) > _MOST_VALUES:
        raise UserError(f"{name} has more than {_MOST_VALUES:,} entries: give fewer")
    return values


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """Return the whole number that a value means (:func:`value_of`); a UserError names it if there is none."""
    try:
        number = value_of(value, int)
    except ValueError:
        number = None
    if number is None or number < least:
        raise UserError(f"{name} must be a whole number of {least} or more, not {short_repr(value)}")
    return int(number)


def _number(value: Any, kind: type, *, whole: bool) -> Any:
    """Return a number, also of text; with `whole`, a number like 3.0 or 1e5 is the whole number."""
    if isinstance(value, str):
        number = decimal(value)
        value = int(value) if number is not None and value.lstrip("+-").isdigit() else number
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(value)
    if kind is int and not isinstance(value, Integral) and not (whole and value == value // 1):  # not of inf and nan
        raise ValueError(value)
    try:
        return kind(value)
    except OverflowError:
        raise ValueError(value) from None


def at_home(value: Any) -> Any:
    """Return a text with ``~`` at its start expanded, also within lists and mappings; other values as they are."""
    if isinstance(value, Mapping):
        return {name: at_home(one) for name, one in value.items()}
    if isinstance(value, list):
        return [at_home(one) for one in value]
    if not isinstance(value, str) or not value.startswith("~"):
        return value
    return os.path.expanduser(value)  # noqa: PTH111 (a text need not be a path)


def _parts(kind: Any) -> list[Any]:
    """Return the types of a union without None."""
    if get_origin(kind) in (Literal, tuple) or not get_args(kind):
        return [kind]
    return [found for part in get_args(kind) if part is not type(None) for found in _parts(part)]


def options_of(kind: type, group: str = "options") -> list[ConfigOption]:
    """Return the fields of a dataclass as options, with help from the docstrings of the class and its bases.

    A field's metadata may set other attributes of :class:`ConfigOption`.
    """
    hints, texts = get_type_hints(kind), parameter_texts(kind)
    return [
        ConfigOption(**{
            "name": field.name, "kind": hints[field.name], "default": _default(field),
            "help": texts.get(field.name, ""), "group": group, **field.metadata,
        })
        for field in dataclasses.fields(kind)
    ]  # fmt: skip


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


_SECTION = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*)(?: :.*)?\n((?: {4}.*\n*)+)", re.MULTILINE)


def docstring_part(kind: type, section: str = "") -> str:
    """Return a section of a NumPy docstring, such as "Examples"; without a name the text before the first section."""
    before, *others = _SECTION.split(inspect.cleandoc(kind.__doc__ or "") + "\n")
    return {"": before, **dict(zip(others[::2], others[1::2], strict=True))}.get(section, "").strip("\n")


def parameter_texts(kind: type) -> dict[str, str]:
    """Return the descriptions of parameters by name, from the NumPy docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        for names, text in _PARAMETER.findall(docstring_part(one, "Parameters") + "\n"):
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def describe_type(kind: Any) -> str:
    """Describe the values that a field takes: "a number", "one of adam, adamw" and so on."""
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    if kind in words:
        return words[kind]
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list (each {describe_type(get_args(kind)[0])})"
    return " or ".join(describe_type(part) for part in get_args(kind) if part is not type(None))


def read_fields(kind: type, given: Mapping[str, Any], name_of: Callable[[str], str] = str) -> dict[str, Any]:
    """Return what values mean for the fields of a dataclass, see :func:`value_of`; ranges are not checked.

    Parameters
    ----------
    kind : type
        The dataclass.
    given : mapping
        Values by field.
    name_of : callable
        Returns the name of a field in errors.

    Raises
    ------
    UserError
        Names the field, and what it takes.
    """
    found = {}
    for field, value in given.items():
        try:
            found[field] = value_of(value, _fields(kind)[field][0])
        except ValueError:
            takes = describe_type(_fields(kind)[field][0])
            raise UserError(f"{name_of(field)} takes {takes}, not {short_repr(value)}") from None
    return found


def check_fields(values: Any, name_of: Callable[[str], str] = str) -> None:
    """Refuse values of a dataclass that do not fit the types and ranges of its fields, as :func:`read_fields`."""
    kind: type = type(values)
    given = {field: getattr(values, field) for field in _fields(kind)}
    for field, value in read_fields(kind, given, name_of).items():
        name, limits, shown = name_of(field), _fields(kind)[field][1], short_repr(given[field])
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, str) and "\0" in entry:
                raise UserError(f"{name} contains a NUL character, which no path or name may: {entry!r}")
            if isinstance(entry, float) and not isfinite(entry):
                raise UserError(f"{name} takes a finite number, not {shown}")
            if isinstance(entry, int | float) and entry not in limits:
                raise UserError(f"{name} must be {limits}, not {shown}")
            if isinstance(entry, int) and not isfinite(limits.most) and abs(entry) > _MOST:
                raise UserError(f"{name} takes numbers up to {_MOST:,}, not {shown}")
        object.__setattr__(values, field, value)  # as its type says, such as a tuple for a list


@cache
def _fields(kind: type) -> dict[str, tuple[Any, Range]]:
    """Return the type and the range of each field of a dataclass."""
    plain, full = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: (plain[name], next(_ranges(full[name]), Range())) for name in names}


def _ranges(kind: Any) -> Iterator[Range]:
    if isinstance(kind, Range):
        yield kind
    for part in get_args(kind):
        yield from _ranges(part)


def short_repr(value: Any) -> str:
    """Return a value as short text for an error, even an integer of thousands of digits, which ``str`` refuses."""
    value = plain(value)
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    try:
        text = repr(value)
    except ValueError:  # such an integer inside a list
        return f"a {type(value).__name__} with a huge number"
    text = " ".join(text.splitlines())
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]} …"
