"""Files of a run folder that anybody may have written: bounded, typed, and one line about what is wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae.training import folder
from r2mae.training.folder import RunFolder, hint_for, read_json, read_yaml
from r2mae.training.metrics import MetricsFile, read_metrics

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
GOOD = {"format": 1, "domain": "images", "steps": 3, "seconds": 1.5, "architecture": {}}


@pytest.mark.parametrize("text", [LAUGHS, "a: &x 1\nb: *x\n", "a: &x 1\n", "<<: &x {a: 1}\n"])
def test_anchors_and_aliases_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="anchors and aliases are not read"):
        read_yaml(path)


def test_a_key_that_occurs_twice(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("lr: 1\nlr: 2\n")
    with pytest.raises(UserError, match="a key occurs twice"):
        read_yaml(tmp_path / "x.yaml")


@pytest.mark.parametrize("number", ["1:30", "0x" + "f" * 9000])
def test_whole_numbers_that_are_not_meant_or_cannot_be_printed(tmp_path: Path, number: str) -> None:
    (tmp_path / "x.yaml").write_text(f"steps: {number}\n")
    with pytest.raises(UserError, match="is no whole number that is read"):
        read_yaml(tmp_path / "x.yaml")


def test_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.yaml").write_text("x: " + "y" * (1 << 18))
    with pytest.raises(UserError, match="more than 262,144 bytes"):
        read_yaml(tmp_path / "x.yaml")
    monkeypatch.setattr(folder, "_MAX_JSON", 10)
    (tmp_path / "x.json").write_text(json.dumps({"x": "y" * 10}))
    with pytest.raises(UserError, match="more than 10 bytes"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("read", [read_yaml, read_json])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no regular file"):
        read(tmp_path / "pipe")


@pytest.mark.parametrize(
    "change",
    [
        {"steps": "12"},
        {"steps": True},
        {"steps": -1},
        {"steps": 10**400},
        {"seconds": "1.5"},
        {"seconds": 10**400},
        {"domain": 5},
        {"architecture": [1]},
        {"format": None},
    ],
)
def test_descriptions(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(GOOD))
    assert RunFolder(tmp_path).description.steps == 3
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(UserError, match="does not describe a model"):
        _ = RunFolder(tmp_path).description


@pytest.mark.parametrize(
    "text",
    [
        '{"scores": {"a": "0.5"}}', '{"scores": {"a": 1e400}}', '{"scores": {"a": NaN}}', '{"scores": {"a": [1]}}',
        '{"scores": {"a": true}}',
        '{"scores": [1]}', '{"scores": {}, "seconds": "1"}', '{"scores": {}, "seconds": 1e999}',
        '{"scores": {"a": ' + "9" * 400 + "}}", "[]", "[" * 100_000,
    ],
)  # fmt: skip
def test_results_that_are_damaged_count_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"scores": {"a": 0.5, "b": null}, "seconds": 2}')
    found = RunFolder(tmp_path).results
    assert found is not None
    assert found["scores"] == {"a": 0.5, "b": None}
    path.write_text(text)
    assert RunFolder(tmp_path).results is None


def test_fingerprints(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"fingerprint": ["x"]}')
    with pytest.raises(UserError, match="no fingerprint"):
        RunFolder(tmp_path).check_data("x", "y")


@pytest.mark.parametrize("digit", ["²", "٣", "9" * 30, "x"])
def test_metrics_with_digits_that_are_none(tmp_path: Path, digit: str) -> None:
    (tmp_path / "config.yaml").write_text("data: digits\n")
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,ratio,loss,lr,validation_loss\n1,0.5,1,0.1,\n{digit},0.5,1,0.1,\n")
    with pytest.raises(UserError, match="lacks steps before"):
        MetricsFile(path, keep=2)


def test_metrics_of_text_cannot_be_read_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,ratio,loss,lr,validation_loss\n²,0.5,1,0.1,\n")
    with pytest.raises(UserError, match=r"metrics\.csv cannot be read"):
        read_metrics(path)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "statistics.safetensors"])
def test_what_the_checkpoint_holds_is_no_reason_to_delete_a_run(tmp_path: Path, name: str) -> None:
    assert hint_for(tmp_path / name) == f"delete {tmp_path} and rerun the command that made it"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    advice = hint_for(tmp_path / name)
    assert advice.startswith(f"delete {tmp_path / 'model.json'} and rerun the command that made the run")
    assert "delete it;" in hint_for(tmp_path / "data.json")
