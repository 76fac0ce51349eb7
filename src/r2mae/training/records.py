"""Readers of the small files of a run folder, which report any defect of a file in one line.

A run folder may come from a stranger. So files are read by :func:`r2mae.files.read_confined`, YAML with references
(anchors and aliases) is refused, and every value must have the type that the code expects.
"""

import json
import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from r2mae.errors import UserError
from r2mae.files import read_confined

_MAX_YAML = 1 << 18  # bytes; a configuration has some hundred lines
_MAX_JSON = 1 << 28  # a model of cells lists its genes, and its training history has a line per step
_MAX_BITS = 100  # of a whole number in YAML; Python does not write those of thousands of digits
_MODEL_FILES = ("model.json", "model.safetensors", "statistics.safetensors")  # written together


class _PlainLoader(yaml.SafeLoader):
    """Loads YAML without references: a few lines of nested aliases can expand beyond the memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.YAMLError(f"anchors and aliases are not read: write out {event.anchor!r} in full")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        made = super().construct_mapping(node, deep=deep)
        if len(made) < len(node.value):
            raise yaml.YAMLError("a key occurs twice")
        return made

    def construct_yaml_int(self, node: Any) -> int:
        made = super().construct_yaml_int(node)
        if ":" in node.value:  # 1:30 are ninety seconds of an old calendar
            raise yaml.YAMLError(f"{node.value[:40]!r} is no whole number: put it in quotes if it is text")
        if made.bit_length() > _MAX_BITS:
            raise yaml.YAMLError("a whole number is too large")
        return made


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_yaml_int)


def read_yaml(path: Path, *, linked: bool = False) -> dict[str, Any]:
    """Read a YAML file of fields as plain types; no objects are constructed.

    With `linked` it may be a link to another folder, for files that the user names.

    Raises
    ------
    UserError
        If the file is missing, too large, no mapping of names to values, or contains anchors or aliases.
    """
    try:
        values = yaml.load(_read_text(path.resolve() if linked else path, _MAX_YAML), _PlainLoader)  # a safe loader
    except FileNotFoundError:
        raise UserError(f"there is no configuration {path}") from None
    except (OSError, yaml.YAMLError, RecursionError, ValueError, OverflowError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is not a readable YAML file ({reason}): repair it, or name another") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"{path} is not a configuration: expected a mapping of fields to values")
    return values


def read_json(path: Path, *, linked: bool = False) -> dict[str, Any]:
    """Read a JSON object; a defect raises a UserError; `linked` as in :func:`read_yaml`."""
    try:
        value = json.loads(_read_text(path.resolve() if linked else path, _MAX_JSON))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is not readable JSON ({reason}): {hint_for(path)}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} should contain a JSON object: {hint_for(path)}")
    return value


def hint_for(path: Path) -> str:
    """Return the hint for a damaged file of a run folder; files that can be rewritten do not cost the folder."""
    folder = path.parent
    if path.name == "data.json":
        return "delete it; changes of the run's data are then no longer detected"
    if path.name not in _MODEL_FILES:
        return f"delete {folder} and rerun the same command"
    if not (folder / "checkpoints" / "last.ckpt").is_file():
        return f"delete {folder} and rerun the command that made it"
    return (
        f"delete {folder / 'model.json'} and rerun the command that made the run, such as `r2mae pretrain`: it writes "
        "the model again, from the last checkpoint"
    )


def finite_float(value: Any) -> float | None:
    """Return a finite number as a float, None for anything else (text, true, 1e400, a thousand digits)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        made = float(value)
    except OverflowError:
        return None
    return made if math.isfinite(made) else None


def _read_text(path: Path, most: int) -> str:
    return read_confined(path, most).decode("utf-8")
