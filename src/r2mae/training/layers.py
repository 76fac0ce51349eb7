"""The values of a configuration from several sources, merged before anything is checked. No torch.

A value has one flat name, however it is written: `lr` for the field `optimizer.lr`, `model.hidden` for a setting of the
model, `low` for a common option of a scheme, and `scheme.power` for one that only one scheme has.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from r2mae.errors import UserError, nearest
from r2mae.fields import FieldError, short_repr
from r2mae.masking.schemes import SCHEME_OPTIONS
from r2mae.training.config_groups import Group
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
    models are dropped. A layer that gives one of :attr:`RunConfig.alternatives` resets the other. The value of `scheme`
    is a name, or a complete :class:`SchemeSpec` as long as no later layer changes what its defaults depend on; the
    options given for it are values of their own, and remain if a later layer names another scheme.

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
            flat = _flat_values(kind, layer.values)
            guilty = refused.name in {*flat, *split_options(flat)[1]}
        else:
            guilty = _refusal(kind, layers[:place], make) != str(refused)
        if guilty:
            with naming(layer.source):
                raise refused
    raise refused


def _refusal(kind: "type[RunConfig]", layers: Sequence[Layer], make: Callable[[dict[str, Any]], Any]) -> str:
    """Return the error of layers; empty if there is none."""
    try:
        make(_merge(kind, layers))
    except UserError as error:
        return str(error)
    return ""


def _merge(kind: "type[RunConfig]", layers: Sequence[Layer]) -> dict[str, Any]:
    flat = [_flat_values(kind, layer.values) for layer in layers]
    model: Any = kind.model.name
    for layer in flat:
        model = layer.get("model", model)
        if not isinstance(model, str):
            raise UserError(f"model takes a name, not {short_repr(model)}")
    values: dict[str, Any] = {}
    for layer in flat:
        named = layer.get("model", model)
        own = {*kind.settings_of(named).own_fields()} - {*fields_of(kind)}
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
    decisive = [name for name in ("model", *kind.decides_scheme) if name in later]
    moved = any(later[name] != before.get(name, kind.default_of(name)) for name in decisive)
    known, named = before.get("scheme"), later.get("scheme")
    if isinstance(named, SchemeSpec):
        before = split_options(before)[0]
    elif isinstance(known, SchemeSpec) and named in (None, known.name):
        later["scheme"] = known.name if moved else known
    return {**before, **later}


def split_options(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return flat values without the options of schemes, and these options by their own names."""
    options = {name for name in values if name in SCHEME_OPTIONS or name.startswith(SCHEME_PREFIX)}
    others = {name: value for name, value in values.items() if name not in options}
    return others, {name.removeprefix(SCHEME_PREFIX): values[name] for name in values if name in options}


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
    if kind in _FIELDS:
        return _FIELDS[kind]
    found: dict[str, tuple[str, str]] = {}
    for top in dataclasses.fields(kind):
        default = getattr(kind, top.name)
        if isinstance(default, Group):
            found |= {default.short_name(field.name): (top.name, field.name) for field in dataclasses.fields(default)}
        elif top.name != "scheme":
            found[top.name] = ("", top.name)
    _FIELDS[kind] = {short: place for short, place in found.items() if not short.startswith(PREFIX)}
    return _FIELDS[kind]


def _flat_values(kind: "type[RunConfig]", values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one source by flat names; a setting of the model may still lack its prefix."""
    return _each_once(entry for name, value in values.items() for entry in _entries(kind, str(name), value))


def _entries(kind: "type[RunConfig]", name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the flat names and values of an entry, which may be a group, or have the name of its group before it."""
    group, dot, inner = name.partition(".")
    top, inside = getattr(kind, group, None), {inner: value} if dot else value
    if kind.omitted & {name, group, *fields_of(kind).get(name, ())} or (name in SCHEME_OPTIONS and not kind.hides):
        raise UserError(f"unknown field {name!r}: it has no meaning in a run of {kind.domain}")
    if group == "scheme":
        yield from _scheme_entries(inside)
    elif isinstance(top, Group) and isinstance(inside, Mapping):
        for one, entry in inside.items():
            short, own = top.short_name(str(one)), [field for of, field in fields_of(kind).values() if of == group]
            if group != "model" and one not in own:
                raise UserError(f"unknown field {group}.{one}: {nearest(str(one), sorted(own))}")
            if short in kind.omitted:
                raise UserError(f"unknown field {group}.{one}: it has no meaning in a run of {kind.domain}")
            yield short, entry
    else:
        yield name, value


def _scheme_entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Return a scheme and its given options by flat names: of its name, of a complete scheme, or of a mapping."""
    if isinstance(value, Mapping) and "given" in value:
        value = SchemeSpec.from_dict(value)
    if isinstance(value, SchemeSpec):
        yield "scheme", value
        yield from option_names(value.given_options).items()
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _scheme_entries(one) if name == "name" else option_names({name: one}).items()
    elif isinstance(value, str):
        yield "scheme", value
    elif value is not None:
        raise UserError(f"scheme takes a name, not {short_repr(value)}")


def _each_once(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return entries as a dictionary; a name that is given twice is refused."""
    found: dict[str, Any] = {}
    for name, value in entries:
        if name in found:
            raise UserError(f"{name} is given twice, such as by itself and in its group: give it once")
        found[name] = value
    return found
