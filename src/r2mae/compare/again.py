"""Make the report of a comparison again, from the files in its folder."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from r2mae.compare.finished import damaged_results, finished_runs, read_shared_fields
from r2mae.compare.gather import gather
from r2mae.compare.variants import default_label
from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError
from r2mae.report.comparison import Comparison
from r2mae.training.folder import read_json


def gather_again(out: Path) -> Comparison:
    """Return the comparison of all finished runs in a folder, without running anything.

    If the data can no longer be read, the comparison has no examples, and a warning is logged.

    Raises
    ------
    UserError
        If the folder holds no comparison, or no finished run.
    """
    shared = read_shared_fields(out)
    domain = domain_of_run(shared, out)
    base = domain.config.from_dict(shared, source=str(out / "compare.json"))
    previous = _previous_config(out)
    schemes = previous.get("schemes")
    labels = [str(label) for label in schemes] if isinstance(schemes, list) else []
    runs, unread = finished_runs(out, domain, base, labels), damaged_results(out)
    if not any(not run.variant.baseline for run in runs):
        if unread:
            raise UserError(unread[0])
        raise UserError(f"no run in {out} is finished: repeat the command of the comparison to resume it")
    label = previous.get("default_fixed_label") or default_label(base)
    default = {"default_fixed_label": label}
    try:
        comparison = gather(runs, domain, base, extra=default)
    except UserError as error:
        if not domain.has_examples:
            raise
        comparison = gather(runs, domain, base, extra=default, examples=False)
        logging.getLogger("r2mae").warning("%s: the report has no examples (%s)", out, error)
    return replace(comparison, unread=tuple(unread))


def _previous_config(out: Path) -> dict[str, Any]:
    """Return the configuration in the previous ``results.json``; empty without one."""
    try:
        config = read_json(out / "results.json").get("config")
    except (UserError, OSError, AttributeError):
        return {}
    return config if isinstance(config, dict) else {}
