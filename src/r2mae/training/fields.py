"""Types of configuration fields: their description in words, and checks of values."""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from r2mae.errors import UserError

_MAX_REPR = 120  # characters of a value in an error


def describe_type(kind: Any) -> str:
    """Describe the values that a field takes: "a number", "one of adam, adamw" and so on."""
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    if kind in words:
        return words[kind]
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list of {describe_type(get_args(kind)[0])}"
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
            raise UserError(f"{_in_words(group, name)} takes {describe_type(hint)}, not {short_repr(given[name])}")
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
