"""The wings that :mod:`r2mae.registry` names; a wing's libraries come when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from r2mae.errors import UserError, unknown
from r2mae.registry import WINGS

if TYPE_CHECKING:
    from r2mae.catalogue import PublicSet
    from r2mae.wings.contract import Wing


def get_wing(name: str) -> "Wing":
    """Return a wing.

    Raises
    ------
    UserError
        If there is no such wing, or a library that it needs is not installed; the message names the extra.
    """
    if name not in WINGS:
        raise unknown("wing", name, WINGS)
    try:
        return cast("Wing", import_module(WINGS[name]).WING)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("r2mae"):
            raise
        raise UserError(
            f"the wing {name!r} needs {error.name!r}, which is not installed: pip install 'r2mae[{name}]'"
        ) from None


def public_sets() -> "dict[str, PublicSet]":
    """Return the named sets of all wings that are installed."""
    return {name: entry for wing in WINGS for name, entry in get_wing(wing).sets.items()}


def wing_of(data: str) -> str | None:
    """Return the wing that a named set belongs to, or None for other names."""
    entry = public_sets().get(data)
    return None if entry is None else entry.wing


def defaults_of(wing: "Wing", data: str | None, preset: str | None) -> dict[str, Any]:
    """Return the fields that a named set and a preset fix, unless the user says otherwise."""
    fields: dict[str, Any] = {}
    if data is not None:
        fields |= wing.set_defaults.get(data, {})
    if preset is not None:
        if not wing.presets:
            raise UserError(f"the wing {wing.name!r} has no presets: leave --preset out")
        if preset not in wing.presets:
            raise unknown("preset", preset, wing.presets)
        fields |= {**wing.presets[preset], "preset": preset}
    return fields


def wing_of_run(config: Mapping[str, Any], path: Path) -> "Wing":
    """Return the wing that a run's configuration names."""
    name = config.get("wing")
    if not isinstance(name, str) or name not in WINGS:
        raise UserError(f"{path}: config.yaml names no wing of this version (wing: {name!r})")
    return get_wing(name)
