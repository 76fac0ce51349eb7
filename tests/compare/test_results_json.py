"""results.json: plain types, and all that a comparison found."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from r2mae.compare.analysis import analyse
from r2mae.compare.answers import answers
from r2mae.compare.comparison import Comparison
from r2mae.compare.publish import to_json
from r2mae.files import write_json


def test_json_is_plain_and_complete(comparison: Comparison, tmp_path: Path) -> None:
    odd = {**comparison.config, "path": tmp_path, "ratios": (0.5, np.float32(0.7)), "steps": np.int64(5)}
    comparison = replace(comparison, config=odd)
    found = analyse(comparison)
    write_json(tmp_path / "results.json", to_json(comparison, found))
    read = json.loads((tmp_path / "results.json").read_text())
    assert read["schema_version"] == 1
    told = answers(comparison, found)
    assert (read["headline"], read["next"]) == (" ".join(told.headline), told.next)
    assert len(read["runs"]) == 8 * 3
    assert read["runs"][0]["probe_accuracy"] == comparison.table["probe_accuracy"][0]
    assert [run["ratio"] for run in read["runs"] if run["label"] == "mdlm"] == [None] * 3
    assert len(read["summary"]) == 8 * 4
    # Three metrics judge; the default is not compared with itself.
    assert len(read["differences"]) == 3 * (8 + 7)
    assert [line["seed"] for line in read["best_fixed"]["probe_accuracy"]["seeds"]] == [0, 1, 2]
    assert {row["label"] for row in read["ranks"]} == set(comparison.labels)
    assert read["ranks"][0]["average score"] is None  # errors and accuracies have no mean
    assert read["config"]["path"] == str(tmp_path)
    assert read["config"]["steps"] == 5
