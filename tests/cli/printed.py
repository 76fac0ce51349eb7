"""Read a printed configuration."""

from typing import Any

import yaml


def fields(text: str) -> dict[str, Any]:
    """Return the fields of a configuration in YAML by their short names, settings of the model without prefix."""
    read = yaml.safe_load(text)
    flat = {name: read.pop(name) for name in ("domain", "scheme") if name in read}
    for name, value in read.items():
        inside = value if isinstance(value, dict) else {name: value}
        flat |= {name if field in ("name", "source") else field: one for field, one in inside.items()}
    return flat
