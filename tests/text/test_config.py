"""Options that were typed and have no effect are refused; what presets and files bring is not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.printed import fields
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.text.config import PAPER_VOCABULARY, ROBERTA, TextConfig


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with plain text, JSON lines, and a file of options."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    Path("ok.txt").write_text("one\n\ntwo\n")
    Path("mixed").mkdir()
    Path("mixed/a.txt").write_text("one\n")
    Path("mixed/b.jsonl").write_text('{"body": "two"}\n')
    Path("base.yaml").write_text(yaml.safe_dump({"vocab_size": 400, "glue_limit": 5, "text_column": "body"}))
    Path("made.yaml").write_text(yaml.safe_dump({"tokenizer": "mine.json"}))
    return tmp_path


REFUSED = {
    "ok.txt --tokenizer roberta-50265 --vocab-size 300 --preset tiny": "roberta-50265 has its own: omit it",
    "ok.txt --preset roberta-medium --tokenizer roberta-50265 --vocab-size 300": "vocab_size 300 is for a tokenizer",
    "ok.txt --tokenizer=mine.json --vocab-size=300": "mine.json has its own: omit it",
    "ok.txt --config made.yaml --vocab-size 300": "mine.json has its own: omit it",
    "ok.txt --preset roberta-medium --vocab-size 300": "roberta-50265 has its own: omit it (without init",
    "ok.txt --init ckpt --vocab-size 300": "ckpt has its own: omit it",
    "ok.txt --glue-limit 5": "glue_limit is for tasks of GLUE: name them, --glue or --glue-probes sst2 qnli",
    "ok.txt --text-column body": "ok.txt is plain text, which has no columns: omit --text-column body",
}


@pytest.mark.parametrize("line", REFUSED)
@pytest.mark.parametrize("command", ["pretrain", "compare"])
def test_typed_options_without_effect(command: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "text", *line.split(), "--print-config"]) == 2
    told = capsys.readouterr().err
    assert REFUSED[line] in told
    assert told.count("\n") == 1


TAKEN: dict[str, dict[str, Any]] = {
    "ok.txt --config base.yaml": {"vocab_size": 400, "glue_limit": 5, "text_column": "body", "tokenizer": None},
    "ok.txt --config base.yaml --tokenizer mine.json": {"tokenizer": "mine.json"},
    "ok.txt --config made.yaml --tokenizer null --vocab-size 300": {"tokenizer": None, "vocab_size": 300},
    "ok.txt --config made.yaml --preset tiny": {"tokenizer": "mine.json"},
    "ok.txt --config base.yaml --init ckpt": {"init": "ckpt"},
    "ok.txt --glue sst2 --glue-limit 5": {"glue_limit": 5},
    "ok.txt --glue-probes QNLI SST-2 --glue-limit 5": {"glue_limit": 5, "glue_probes": ["sst2", "qnli"]},
    "mixed --text-column body": {"text_column": "body"},
    "nothing.jsonl --text-column body": {"text_column": "body"},
}


@pytest.mark.parametrize("line", TAKEN)
def test_options_with_an_effect(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "text", *line.split(), "--print-config"]) == 0
    found = fields(capsys.readouterr().out)
    assert TAKEN[line].items() <= found.items()


def test_a_preset_brings_one_and_the_user_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "text", "ok.txt", "--print-config", "--preset", "roberta-medium"]
    for more, expected in (
        ([], (ROBERTA, PAPER_VOCABULARY)),
        (["--tokenizer", "null"], (None, PAPER_VOCABULARY)),
        (["--tokenizer", "null", "--vocab-size", "300"], (None, 300)),
        (["--tokenizer", "mine.json"], ("mine.json", PAPER_VOCABULARY)),
    ):
        assert main([*words, *more]) == 0
        found = fields(capsys.readouterr().out)
        assert (found["tokenizer"], found["vocab_size"]) == expected


def test_tasks_of_a_measurement_replace_all_tasks_of_the_run() -> None:
    own = TextConfig.make(data="x", glue=("sst2",), glue_probes=("qnli",))
    for given in ({"glue": ("qqp",)}, {"glue_probes": ("qqp",)}):
        found = own.with_measurement(**given).evaluation
        assert (found.glue, found.glue_probes) == (given.get("glue", ()), given.get("glue_probes", ()))
    found = own.with_measurement(glue_limit=9).evaluation
    assert (found.glue, found.glue_probes, found.glue_limit) == (("sst2",), ("qnli",), 9)


def test_what_old_runs_hold_is_read() -> None:
    TextConfig.from_dict({"domain": "text", "data": "ok.txt", "glue_limit": 5, "text_column": "body"})
    TextConfig.from_dict({"domain": "text", "data": "ok.txt", "tokenizer": ROBERTA, "vocab_size": 300})
    with pytest.raises(UserError, match="roberta-50265 has its own"):
        TextConfig.make(data="x", tokenizer=ROBERTA).check_given({"tokenizer": ROBERTA, "vocab_size": 8000})


def test_text_curricula_are_those_of_dna_and_marked_as_ours() -> None:
    """The paper has none for text: the tokens take the numbers of its DNA models."""
    curriculum = TextConfig.make(data="x", scheme="cl").scheme.make().bind(600).curriculum
    assert curriculum is not None
    assert len(curriculum.grid.values) == 10
    assert (curriculum.iterations, curriculum.floor) == (10, 0.5)
    assert curriculum.frozen(99)
    assert not curriculum.frozen(100)
    assert curriculum.multiplier_at(300) == 0
    assert not TextConfig.ratios.not_in_paper
