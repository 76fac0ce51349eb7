"""Read a printed configuration."""

from typing import Any

import yaml

from r2mae.training.config import flat_names


def fields(text: str) -> dict[str, Any]:
    """Return the fields of a configuration in YAML by their short names, settings of the model without prefix."""
    return {name.removeprefix("model."): value for name, value in flat_names(yaml.safe_load(text)).items()}
