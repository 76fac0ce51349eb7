"""Looks at a comparison: which count, and what a damaged record says."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from r2mae.compare.comparison import Comparison
from r2mae.compare.publish import publish
from r2mae.compare.run_states import read_looks
from r2mae.errors import UserError

Make = Callable[..., Comparison]


def test_looks_are_counted_for_each_scheme_and_only_where_something_was_decided(tiny: Make, tmp_path: Path) -> None:
    scores = {"fixed 0.50": [0.0, 0.1, 0.2], "a": [1.0, 1.2, 1.1]}
    for expected, more in ((1, {}), (1, {}), (2, {"fixed 0.50": [0.3], "a": [1.4]})):
        scores = {label: [*values, *more.get(label, [])] for label, values in scores.items()}
        publish(tiny(scores), tmp_path, console=Console(file=StringIO()))
        assert json.loads((tmp_path / "results.json").read_text())["looks"].get("a", 1) == expected
    later = {**scores, "b": [*scores["a"][:3], 1.3]}
    publish(tiny(later), tmp_path, console=Console(file=StringIO()))
    assert {label: len(shown) for label, shown in read_looks(tmp_path)["best fixed"].items()} == {"a": 2, "b": 1}
    named = replace(tiny(later), config={"against": "fixed 0.50"})
    for _ in range(2):
        publish(named, tmp_path, console=Console(file=StringIO()))
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["against"], results["looks"]) == ("fixed 0.50", {"a": 3, "b": 2}), "another reference is a look"
    (tmp_path / "looks.json").write_text('{"a": 3}')
    with pytest.raises(UserError, match=r"looks\.json is damaged: restore it"):
        read_looks(tmp_path)


def test_fixed_ratios_alone_are_no_look(tiny: Make, tmp_path: Path) -> None:
    publish(tiny({"fixed 0.50": [0.0, 0.1], "fixed 0.70": [0.2, 0.4]}), tmp_path, console=Console(file=StringIO()))
    assert read_looks(tmp_path) == {}
