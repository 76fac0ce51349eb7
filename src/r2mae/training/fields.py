"""Fields of dataclasses as options: types in words, values from text, checks, and help from NumPy docstrings. No torch.

A command's options are the fields of a dataclass. The docstring gives the help: its first paragraphs describe the
command, "Parameters" the options, and "Examples" is shown as it is.
"""

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from r2mae.errors import UserError

_MAX_REPR = 120  # characters of a value in an error
_NULL = "null"  # the text for None, as in YAML
TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
"""The words that flags take, in lower case."""


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
        """Return the value of a word of the command line.

        Raises
        ------
        UserError
            If the option takes no such value.
        """
        try:
            return value_of(text, self.kind)
        except ValueError:
            raise UserError(f"{self.typed} takes {describe_type(self.kind)}, not {short_repr(text)}") from None


def argument(default: Any = MISSING, **settings: Any) -> Any:
    """Return a field that is a positional argument of a command; settings are attributes of :class:`ConfigOption`."""
    return dataclasses.field(default=default, metadata={"positional": True, **settings})


def option(default: Any = MISSING, **settings: Any) -> Any:
    """Return a field that is an option with some attributes of :class:`ConfigOption`."""
    return dataclasses.field(default=default, metadata=settings)


def value_of(text: str, kind: Any) -> Any:
    """Return the value of a type that a text means: the number 3 or 3.0, true or yes, a word, a path from ``~``.

    Raises
    ------
    ValueError
        If it means none.
    """
    if type(None) in get_args(kind) and text == _NULL and not any(get_origin(part) is tuple for part in get_args(kind)):
        return None
    for part in _parts(kind):
        if get_origin(part) is Literal and text in get_args(part):
            return text
        if part is bool and text.lower() in TRUTHS:
            return TRUTHS[text.lower()]
        if part in (int, float):
            try:
                return part(text.encode("ascii").decode())  # Python also reads the digits of other scripts
            except ValueError:
                continue
        if part is str:
            return at_home(text)
    raise ValueError(text)


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
    """Return the types of a union without None; for a list those of its entries."""
    if get_origin(kind) is tuple:
        return _parts(get_args(kind)[0])
    if get_origin(kind) is Literal or not get_args(kind):
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


def matches_type(value: Any, kind: Any) -> bool:
    """Return whether a value has the annotated type of a field."""
    if kind is Any or get_origin(kind) is ClassVar:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(matches_type(entry, get_args(kind)[0]) for entry in value)
    if get_args(kind):
        return any(matches_type(value, part) for part in get_args(kind))
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def coerce_values(kind: type, given: Mapping[str, Any], *, group: str = "") -> dict[str, Any]:
    """Convert plain values to the types of a dataclass's fields: whole numbers to floats, lists to tuples.

    Parameters
    ----------
    kind : type
        The dataclass.
    given : mapping
        Plain values by field.
    group : str
        The group of the fields, for errors: `name` and `source` are named after it, and a model's settings below it.

    Raises
    ------
    UserError
        If a value does not have the type of its field.
    """
    hints = {name: hint for name, hint in _hints(kind).items() if name in given}
    for name, hint in hints.items():
        if not matches_type(given[name], hint):
            told = f"{_in_words(group, name)} takes {describe_type(hint)}, not {short_repr(given[name])}"
            raise UserError(told + yaml_hint(given[name], hint))
    # YAML writes 2 for 2.0.
    floats = {name for name, hint in hints.items() if float in (hint, *get_args(hint))}
    try:
        exact = {key: _as_floats(v) if key in floats else v for key, v in given.items()}
    except OverflowError:
        raise UserError("a number is too large: give one below 1e300") from None
    return {key: tuple(value) if isinstance(value, list) else value for key, value in exact.items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _in_words(group: str, name: str) -> str:
    if name in ("name", "source"):
        return group
    return f"model.{name}" if group == "model" else name


def _as_floats(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(float(entry) for entry in value)
    return None if value is None else float(value)


def yaml_hint(value: Any, kind: Any) -> str:
    """Return how to write a value that YAML reads as another type than the one that is meant; empty for others."""
    meant = "yes" if value else "no"
    if isinstance(value, bool) and matches_type(meant, kind):
        return f' (YAML reads {meant} as {str(value).lower()}: write "{meant}", with the quotes)'
    exponent = re.fullmatch(r"([-+]?\d+)([eE][-+]?\d+)", value) if isinstance(value, str) else None
    if exponent and matches_type(1.0, kind):
        return f" (YAML reads {value} as text: write {exponent[1]}.0{exponent[2]})"
    return ""


def short_repr(value: Any) -> str:
    """Return a value as short text for an error, even an integer of thousands of digits, which ``str`` refuses."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    try:
        text = repr(value)
    except ValueError:  # such an integer inside a list
        return f"a {type(value).__name__} with a huge number"
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]} …"


def require_at_least(config: object, name: str, bound: int) -> None:
    """Refuse a value that is no number, or is below a bound."""
    value = getattr(config, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= bound:
        raise UserError(f"{name} must be {bound} or more, not {short_repr(value)}")


def require_positive(config: object, name: str) -> None:
    """Refuse a value that is not a finite number above zero."""
    value = getattr(config, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise UserError(f"{name} must be a finite number above 0, not {short_repr(value)}")
