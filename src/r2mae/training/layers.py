"""The values of a configuration from several sources, merged before anything is checked. No torch.

A value has one flat name, however it is written: `lr` for the field `optimizer.lr`, `model.hidden` for a setting of the
model, `low` for a common option of a scheme, and `scheme.power` for one that only one scheme has.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from r2mae.errors import UserError, nearest
from r2mae.masking.schemes import SCHEME_OPTIONS
from r2mae.training.config_groups import Group
from r2mae.training.fields import FieldError, short_repr
from r2mae.training.models import PREFIX
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.training.config import RunConfig

SCHEME_PREFIX = "scheme."
"""What begins the name of an option that only one scheme has."""

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
        For values that are refused. It names the source of the last layer that gives the field of a
        :class:`FieldError`, or for other errors of the layer that causes it, since the layers before do not.
    """
    layers = kind.with_defaults(layers)
    try:
        return make(_merge(kind, layers))
    except UserError as error:
        refused = error
    for place, layer in reversed([*enumerate(layers)]):
        if isinstance(refused, FieldError):
            guilty = _gives(kind, layer, refused.name)
        else:
            guilty = _refusal(kind, layers[:place], make) != str(refused)
        if guilty:
            with naming(layer.source):
                raise refused
    raise refused


def _gives(kind: "type[RunConfig]", layer: Layer, name: str) -> bool:
    """Return whether a layer gives a field, or an option of the scheme."""
    flat = _flat_values(kind, layer.values)
    scheme = flat.get("scheme")
    options = scheme.given if isinstance(scheme, SchemeSpec) else ()
    return name in {*options, *(one.removeprefix(SCHEME_PREFIX) for one in flat)}


def _refusal(kind: "type[RunConfig]", layers: Sequence[Layer], make: Callable[[dict[str, Any]], Any]) -> str:
    """Return the error of layers; empty if there is none."""
    try:
        make(_merge(kind, layers))
    except UserError as error:
        return str(error)
    return ""


def _merge(kind: "type[RunConfig]", layers: Sequence[Layer]) -> dict[str, Any]:
    flat = [_flat_values(kind, layer.values) for layer in layers]
    model, values = kind.model.name, dict[str, Any]()
    for layer in flat:
        model = layer.get("model", model)
        if not isinstance(model, str):
            raise UserError(f"model takes a name, not {short_repr(model)}")
    for layer in flat:
        named = layer.get("model", model)
        own = {*kind.settings_of(named).own_fields()} - {*fields_of(kind), *SCHEME_OPTIONS}
        later = _each_once((PREFIX + name if name in own else name, value) for name, value in layer.items())
        if named != model:
            later = {name: value for name, value in later.items() if not name.startswith(PREFIX)}
        values = _over(kind, values, later)
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


def scheme_of(values: Mapping[str, Any]) -> tuple[dict[str, Any], SchemeSpec | str | None, dict[str, Any]]:
    """Separate merged values: the fields and settings, the scheme or its name or None, and its given options."""
    scheme = values.get("scheme")
    options = {name.removeprefix(SCHEME_PREFIX): value for name, value in values.items() if is_of_scheme(name)}
    rest = {name: value for name, value in values.items() if name != "scheme" and not is_of_scheme(name)}
    return rest, scheme, scheme.given_options if isinstance(scheme, SchemeSpec) else options


def name_of(scheme: SchemeSpec | str) -> str:
    """Return the name of a scheme."""
    return scheme.name if isinstance(scheme, SchemeSpec) else scheme


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


@cache
def fields_of(kind: "type[RunConfig]") -> dict[str, tuple[str, str]]:
    """Return the group and the field of each short name; settings that only some models have are not among them."""
    found: dict[str, tuple[str, str]] = {}
    for top in dataclasses.fields(kind):
        default = getattr(kind, top.name)
        if isinstance(default, Group):
            found |= {default.short_name(field.name): (top.name, field.name) for field in dataclasses.fields(default)}
        elif top.name != "scheme":
            found[top.name] = ("", top.name)
    return {short: place for short, place in found.items() if not short.startswith(PREFIX)}


def _flat_values(kind: "type[RunConfig]", values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one source by flat names; a setting of the model may still lack its prefix."""
    flat = _each_once(entry for name, value in values.items() for entry in _entries(kind, str(name), value))
    flat = {name: value for name, value in flat.items() if value is not None or not is_of_scheme(name)}
    if isinstance(flat.get("scheme"), SchemeSpec) and (outside := next(filter(is_of_scheme, flat), None)):
        raise UserError(f"{outside} is outside of the scheme, whose options are all inside: move it")
    return flat


def _entries(kind: "type[RunConfig]", name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the flat names and values of an entry, which may be a group, or have the name of its group before it."""
    group, dot, field = name.partition(".")
    top = getattr(kind, group, None)
    inside = {field: value} if dot else value.to_dict() if isinstance(value, Group) else value
    if group == "scheme":
        entries = _scheme_entries(inside)
    elif isinstance(top, Group) and isinstance(inside, Mapping):
        entries = {top.short_name(str(one)): (one, inside[one]) for one in inside}
        known = fields_of(kind)
        for short, (one, _) in entries.items():
            if group != "model" and known.get(short) != (group, one):
                allowed = sorted(field for of, field in known.values() if of == group)
                raise UserError(f"unknown field {group}.{one}: {nearest(str(one), allowed)}")
        entries = {short: value for short, (_, value) in entries.items()}
    else:
        entries = {name: value}
    for short, one in entries.items():
        place = fields_of(kind).get(short, ("scheme" if is_of_scheme(short) else group, ""))
        if kind.omitted & {name, group, short, place[0]}:
            raise UserError(f"unknown field {name!r}: it has no meaning in a run of {kind.domain}")
        yield short, one


def _scheme_entries(value: Any) -> dict[str, Any]:
    """Return a scheme by flat names: its name, it itself, or a mapping with its options."""
    if not isinstance(value, Mapping):
        if not isinstance(value, str | SchemeSpec | None):
            raise UserError(f"scheme takes a name, not {short_repr(value)}")
        return {"scheme": value}
    if "given" in value:
        return {"scheme": SchemeSpec.from_dict(value)}
    named = _scheme_entries(value["name"]) if "name" in value else {}
    return named | option_names({name: one for name, one in value.items() if name != "name"})


def _each_once(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return entries as a dictionary; a name that is given twice is refused."""
    found: dict[str, Any] = {}
    for name, value in entries:
        if name in found:
            raise UserError(f"{name} is given twice, such as by itself and in its group: give it once")
        found[name] = value
    return found
