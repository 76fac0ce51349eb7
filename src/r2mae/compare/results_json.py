"""``results.json``: the runs and findings of a comparison as plain types, for other programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

import pandas as pd

from r2mae.compare.analysis import Analysis
from r2mae.compare.comparison import Comparison
from r2mae.compare.wording import CONFIDENCE

SCHEMA_VERSION = 1


def to_json(comparison: Comparison, analysis: Analysis) -> dict[str, Any]:
    """Return ``results.json``: the comparison's runs and all findings as plain types, None for missing values.

    A bound that a metric lacks is None. The runs are under the key ``runs``.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "title": comparison.title,
        "headline": analysis.headline,
        "notes": list(analysis.notes),
        "confidence": CONFIDENCE,
        "primary_metric": analysis.primary.name,
        "against": analysis.against[0],
        "looks": dict(comparison.looks),
        "measured": comparison.measured,
        "metrics": [
            {**asdict(metric), "bounds": [end if isfinite(end) else None for end in metric.bounds]}
            for metric in comparison.metrics
        ],
        "summary": _records(analysis.summary),
        "differences": _records(analysis.differences),
        "best_fixed": {
            metric: {
                "held_out": choice.held_out,
                "seeds": [
                    {"seed": seed, "label": choice.labels[seed], "score": score}
                    for seed, score in choice.scores.items()
                ],
            }
            for metric, choice in analysis.best_fixed.items()
        },
        "items": _items(comparison),
        "ranks": _records(analysis.ranks.rename_axis("label").reset_index()),
        "runs": _records(comparison.table),
        "config": _plain(comparison.config),
        "environment": _plain(comparison.environment),
    }


def _items(comparison: Comparison) -> list[dict[str, Any]]:
    """Return for each set of test items its fingerprint, how many items it has, how many are kept, and the runs."""
    runs: dict[str, list[tuple[str, int]]] = {}
    for run, one in comparison.items.items():
        runs.setdefault(one.fingerprint, []).append(run)
    first = {name: comparison.items[found[0]] for name, found in runs.items()}
    return [
        {
            "fingerprint": name,
            "of": first[name].total_items,
            "kept": first[name].kept,
            "runs": [list(run) for run in found],
        }
        for name, found in runs.items()
    ]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(key): None if pd.isna(value) else value for key, value in record.items()}
        for record in table.to_dict("records")
    ]


def _plain(value: Mapping[str, Any]) -> Any:
    return json.loads(
        json.dumps(value, default=lambda other: other.tolist() if hasattr(other, "tolist") else str(other))
    )
