"""The values of a configuration from several sources, merged before anything is checked. No torch.

A value has one flat name, however it is written: `lr` for the field `optimizer.lr`, `model.hidden` for a setting of the
model, `low` for a common option of a scheme, and `scheme.power` for one that only one scheme has.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from r2mae.errors import UserError, nearest
from r2mae.masking.schemes import SCHEME_OPTIONS
from r2mae.training.config_groups import Group
from r2mae.training.fields import short_repr
from r2mae.training.models import ModelSettings
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.training.config import RunConfig

PREFIX = "model."
"""What begins the name of a model's setting."""
SCHEME_PREFIX = "scheme."
"""What begins the name of an option that only one scheme has."""
SCHEME_OWN = "scheme_options"
"""The option that gives such options, as NAME=NUMBER."""

_NAMED_AFTER_GROUP = ("source", "name")  # fields that the short name of their group names: `data`, `model`, `optimizer`

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Layer:
    """What one source says of a configuration.

    Parameters
    ----------
    values : mapping
        Values in any form: by short names, by names such as ``optimizer.lr``, or as mappings of a group's fields.
    source : str
        Its name in errors, such as "runs.yaml"; empty for the command line and arguments, which need no name.
    """

    values: Mapping[str, Any]
    source: str = ""


def merged(kind: "type[RunConfig]", layers: Sequence[Layer], make: Callable[[dict[str, Any]], _Made]) -> _Made:
    """Return what `make` makes of the values of all layers by flat names; a later layer overrides an earlier one.

    Settings of a model belong to the model that their layer names, or else to the model of the run; those of other
    models are dropped. A layer that gives one of :attr:`RunConfig.alternatives` resets the other. Options of the scheme
    remain if a later layer names another scheme; the complete scheme of a layer (a :class:`SchemeSpec`) remains as it
    is until a later one changes what its options depend on.

    Raises
    ------
    UserError
        For values that are refused. It names the source without which the error would be another one.
    """
    try:
        return make(_merge(kind, layers))
    except UserError as error:
        told = str(error)
    for layer in layers:
        others = [one for one in layers if one is not layer]
        if layer.source and _refusal(kind, others, make) != told:
            raise UserError(f"{layer.source}: {told}")
    raise UserError(told)


def _refusal(kind: "type[RunConfig]", layers: Sequence[Layer], make: Callable[[dict[str, Any]], Any]) -> str:
    """Return the error of layers; empty if there is none."""
    try:
        make(_merge(kind, layers))
    except UserError as error:
        return str(error)
    return ""


def _merge(kind: "type[RunConfig]", layers: Sequence[Layer]) -> dict[str, Any]:
    flat = [_flat_names(kind, layer.values) for layer in layers]
    named = [values.get("model") for values in flat]
    if wrong := [values["model"] for values in flat if not isinstance(values.get("model", ""), str)]:
        raise UserError(f"model takes a name, not {short_repr(wrong[0])}")
    model = next((name for name in reversed(named) if name is not None), kind.default_model())
    values: dict[str, Any] = {}
    for own, layer in zip(named, flat, strict=True):
        later = _with_prefixes(kind, layer, model if own is None else own)
        dropped = own not in (None, model)
        values = _over(kind, values, {n: one for n, one in later.items() if not (dropped and n.startswith(PREFIX))})
    return values


def _over(kind: "type[RunConfig]", before: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return the values with those of a later layer in their place."""
    for one, other in kind.alternatives.items():
        if later.get(one) is not None and other not in later:
            later[other] = None
        elif later.get(other) is not None and one not in later:
            later[one] = kind.default_of(one)
    spec = before.get("scheme")
    if isinstance(spec, SchemeSpec):
        if later.get("scheme") == spec.name:
            del later["scheme"]
        decisive = [name for name in ("model", *kind.decides_scheme) if name in later]
        moved = any(later[name] != before.get(name, kind.default_of(name)) for name in decisive)
        if moved or any(name == "scheme" or is_of_scheme(name) for name in later):
            before = {**before, "scheme": spec.name, **option_names(spec.given_options)}
    if isinstance(later.get("scheme"), SchemeSpec):
        before = {name: value for name, value in before.items() if not is_of_scheme(name)}
    return {**before, **later}


def is_of_scheme(name: str) -> bool:
    """Return whether a flat name is that of a scheme's option."""
    return name in SCHEME_OPTIONS or name.startswith(SCHEME_PREFIX)


def scheme_of(values: Mapping[str, Any]) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Separate merged values: the fields and settings, the scheme or its name or None, and the options of schemes."""
    options = {name.removeprefix(SCHEME_PREFIX): value for name, value in values.items() if is_of_scheme(name)}
    rest = {name: value for name, value in values.items() if name != "scheme" and not is_of_scheme(name)}
    return rest, values.get("scheme"), options


def option_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of schemes by flat names."""
    return {name if name in SCHEME_OPTIONS else SCHEME_PREFIX + name: value for name, value in options.items()}


@contextmanager
def naming(source: str | None) -> Iterator[None]:
    """Within the block, errors begin with the name of a source."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{source}: {error}" if source else str(error)) from None


_FIELDS: dict[type, dict[str, tuple[str, str]]] = {}


def fields_of(kind: "type[RunConfig]") -> dict[str, tuple[str, str]]:
    """Return the group and the field of each short name; settings that only some models have are not among them."""
    if kind not in _FIELDS:
        _FIELDS[kind] = _find_fields(kind)
    return _FIELDS[kind]


def _find_fields(kind: "type[RunConfig]") -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for top in dataclasses.fields(kind):
        default = getattr(kind, top.name)
        if not isinstance(default, Group):
            if top.name != "scheme":
                found[top.name] = ("", top.name)
            continue
        own = set(type(default).own_fields()) if isinstance(default, ModelSettings) else set()
        for field in dataclasses.fields(default):
            if field.name not in own:
                short = top.name if field.name in _NAMED_AFTER_GROUP else field.name
                found[short] = (top.name, field.name)
    return found


def group_names(kind: "type[RunConfig]") -> tuple[str, ...]:
    """Return the names of the groups of a configuration."""
    return tuple(top.name for top in dataclasses.fields(kind) if isinstance(getattr(kind, top.name), Group))


def flat_values(kind: "type[RunConfig]", values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one source by flat names.

    Raises
    ------
    UserError
        For unknown groups or models, and a value that is given twice.
    """
    flat = _flat_names(kind, values)
    return _with_prefixes(kind, flat, flat.get("model", kind.default_model()))


def _flat_names(kind: "type[RunConfig]", values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by flat names; a setting of the model may still lack its prefix."""
    groups, shorts = group_names(kind), {place: short for short, place in fields_of(kind).items()}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, field = str(name).partition(".")
        if name in kind.omitted or group in kind.omitted:
            raise UserError(f"unknown field {name!r}: it has no meaning in a run of {kind.domain}")
        fields = value.to_dict() if isinstance(value, Group) else value
        if group in ("scheme", SCHEME_OWN):
            entries = _scheme_entries({field: value} if dot else value, own=name == SCHEME_OWN)
        elif name in groups and isinstance(fields, Mapping):
            entries = _group_entries(shorts, group, fields)
        elif dot and group in groups:
            entries = _group_entries(shorts, group, {field: value})
        else:
            entries = {str(name): value}
        for short, entry in entries.items():
            _put(flat, short, entry)
    flat = {name: value for name, value in flat.items() if value is not None or not is_of_scheme(name)}
    if isinstance(flat.get("scheme"), SchemeSpec) and (outside := next(filter(is_of_scheme, flat), None)):
        raise UserError(f"{outside} is outside of the scheme, whose options are all inside: move it")
    return flat


def _group_entries(shorts: Mapping[tuple[str, str], str], group: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a group by flat names; what a model lacks is found when it is known."""
    found = {}
    for field, value in fields.items():
        short = shorts.get((group, str(field)), f"{PREFIX}{field}" if group == "model" else None)
        if short is None:
            allowed = sorted(name for of, name in shorts if of == group)
            raise UserError(f"unknown field {group}.{field}: {nearest(str(field), allowed)}")
        found[short] = value
    return found


def _scheme_entries(value: Any, *, own: bool) -> dict[str, Any]:
    """Return a scheme (its name, or a mapping with its options) or `scheme_options` by flat names."""
    if own and not isinstance(value, Mapping):
        words = [value] if isinstance(value, str) else value or ()
        if not isinstance(words, list | tuple):
            raise UserError(f"{SCHEME_OWN} takes NAME=NUMBER, such as power=3, not {short_repr(value)}")
        value = {}
        for word in words:
            name, _, number = str(word).partition("=")
            if name in SCHEME_OPTIONS:
                raise UserError(f"{name} is no further option of a scheme: give {word} as --{name.replace('_', '-')}")
            if not name or name in value:
                raise UserError(f"{SCHEME_OWN} takes NAME=NUMBER, each name once, not {short_repr(word)}")
            value[name] = number
    if not isinstance(value, Mapping):
        return {"scheme": value}
    if "given" in value:
        return {"scheme": SchemeSpec.from_dict(value)}
    named = {"scheme": value["name"]} if "name" in value and not own else {}
    options = {name: one for name, one in value.items() if name != "name" or own}
    return named | option_names({
        name: one if name in SCHEME_OPTIONS or one is None else _number(name, one) for name, one in options.items()
    })  # fmt: skip


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{SCHEME_OWN} takes NAME=NUMBER, such as power=3, not {short_repr(f'{name}={value}')}")
    return number


def _with_prefixes(kind: "type[RunConfig]", flat: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return values with the prefix before each setting of the model."""
    own = {*kind.settings_of(model).own_fields()} - {*fields_of(kind), *SCHEME_OPTIONS}
    found: dict[str, Any] = {}
    for name, value in flat.items():
        _put(found, PREFIX + name if name in own else name, value)
    return found


def _put(flat: dict[str, Any], name: str, value: Any) -> None:
    if name in flat:
        raise UserError(f"{name} is given twice, such as by itself and in its group: give it once")
    flat[name] = value
