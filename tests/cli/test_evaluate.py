"""`r2mae evaluate`: which options reach the evaluation."""

import json
import random
from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a few sentences, and a task of GLUE."""
    folder, draw = tmp_path_factory.mktemp("evaluate"), random.Random(0)
    words = ["snow", "river", "stone", "bright", "morning", "walks", "under", "green", "hills", "slowly"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MAE_CACHE", str(folder / "cache"))
        documents = (" ".join(draw.choices(words, k=40)) for _ in range(60))
        (folder / "notes.txt").write_text("\n\n".join(documents))
        config = TextConfig.make(
            data=str(folder / "notes.txt"), vocab_size=300, sequence_length=16, hidden_size=8, layers=1, heads=1,
            intermediate_size=16, batch_size=8, steps=2, threads=1, validation=0.1,
        )  # fmt: skip
        fit(config, DOMAIN, folder / "run")
    (folder / "glue" / "SST-2").mkdir(parents=True)
    for name in ("train", "dev"):
        rows = "".join(f"{' '.join(draw.choices(words, k=5))}\t{label}\n" for label in (0, 1) * 6)
        (folder / "glue" / "SST-2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    return folder


def evaluate(text: Path, line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MAE_CACHE", str(text / "cache"))
        patch.setenv("R2MAE_DATA", str(text))
        code = main(["evaluate", str(text / "run"), *line.split()])
    return code, *capsys.readouterr()


def test_an_option_of_zero_is_not_dropped(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = evaluate(text, "glue --task sst2 --limit 0", capsys)
    assert (code, "limit must be 2 or more, not 0" in err) == (2, True)


def test_an_empty_list_of_tasks_is_none(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("glue --task", "glue", "glue --limit 8"):
        code, _, err = evaluate(text, line, capsys)
        assert (code, "the run names no tasks of GLUE: name them, --task sst2 qnli or --probe" in err) == (2, True)


def test_fine_tuning_is_shown_with_its_deviation(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = evaluate(text, "glue --task sst2 --limit 8", capsys)
    assert code == 0
    assert out.startswith("SST-2 accuracy  0.")
    assert " ± " in out
    assert "_sd" not in out


def test_fine_tuning_needs_no_corpus(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tokenizer is that of the model; nothing is tokenised for it."""
    line = ["evaluate", str(text / "run"), "glue", "--task", "sst2", "--limit", "8"]
    monkeypatch.setenv("R2MAE_DATA", str(text))
    assert main([*line, "--json"]) == 0
    with_corpus = json.loads(capsys.readouterr().out)
    (text / "run" / "evaluation.json").unlink()
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    (text / "notes.txt").rename(tmp_path / "notes.txt")
    try:
        assert main([*line, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(line) == 0
        assert "\nmeasured on glue in " in capsys.readouterr().out
        assert main(["evaluate", str(text / "run")]) == 2
        assert "notes.txt does not exist" in capsys.readouterr().err
    finally:
        (tmp_path / "notes.txt").rename(text / "notes.txt")
    assert found["scores"] == with_corpus["scores"]
    assert found["data"] == "glue"
    assert not (tmp_path / "cache").exists()


def test_what_a_domain_has_not_is_refused_even_if_it_is_zero(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = evaluate(text, "--layer 0", capsys)
    assert (code, "the domain text, which has no --layer" in err) == (2, True)
