"""Read a printed configuration."""

from typing import Any

import yaml

from r2mae.domains.lookup import get_domain
from r2mae.training.layers import flat_values


def fields(text: str) -> dict[str, Any]:
    """Return the fields of a configuration in YAML by their short names, settings of the model without prefix."""
    read = yaml.safe_load(text)
    apart = {name: read.pop(name) for name in ("domain", "scheme") if name in read}
    flat = flat_values(get_domain(apart["domain"]).config, read)
    return {**apart, **{name.removeprefix("model."): value for name, value in flat.items()}}
