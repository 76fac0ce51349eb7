"""The paper's presets bring its vocabulary, say which of the two it became, and leave older runs as they were."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.printed import fields
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.text.batches import load_data
from r2mae.text.config import PAPER_PRESETS, PAPER_VOCABULARY, ROBERTA, TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.presets import PLAIN_PRESETS
from r2mae.text.tokenizer import load_tokenizer, roberta_files, train_bpe
from r2mae.training.config import RunConfig

TEXTS = [f"document {number}: the cat sat on the mat and the dog on the log" for number in range(60)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and a machine to which nothing has been fetched."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(TEXTS), encoding="utf-8")
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["pretrain", *words, "--print-config"]) == 0
    found: dict[str, Any] = fields(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(("preset", "millions"), [("roberta-medium", 51.5), ("roberta-base", 124.7)])
def test_the_number_of_weights(preset: str, millions: float) -> None:
    sizes = {name: value for name, value in PLAIN_PRESETS[preset].items() if name not in ("accumulate", "lr")}
    with torch.device("meta"):
        special = {"pad_id": 1, "bos_id": 0, "eos_id": 2}
        made = {"vocab_size": PAPER_VOCABULARY, "length": 128, "dropout": 0.1, **special, **sizes}
        model = MaskedLanguageModel.from_architecture(made)
    # The paper: 52 and 125.
    assert round(sum(one.numel() for one in model.parameters()) / 1e6, 1) == millions


@pytest.mark.slow
def test_presets_bring_the_vocabulary_of_the_paper(
    shared_data: Path, corpus: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("text", str(corpus), "--preset")
    for preset in PAPER_PRESETS:
        values = printed(capsys, *words, preset)
        assert (values["tokenizer"], values["vocab_size"]) == (ROBERTA, PAPER_VOCABULARY)
        assert load_tokenizer(values["tokenizer"]).vocab_size == PAPER_VOCABULARY
    assert printed(capsys, *words, "tiny")["vocab_size"] == 8000
    assert printed(capsys, "text", str(corpus))["vocab_size"] == 8000
    assert printed(capsys, "fineweb", "--preset", "roberta-medium")["tokenizer"] == ROBERTA
    monkeypatch.setenv("R2MAE_DATA", str(here / "nothing"))
    values = printed(capsys, *words, "roberta-medium")
    assert (values["tokenizer"], values["vocab_size"]) == (None, PAPER_VOCABULARY)
    assert printed(capsys, "fineweb", "--preset", "roberta-medium")["tokenizer"] == "FacebookAI/roberta-base"


def test_explicit_options_win(shared_data: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("text", str(corpus), "--preset", "roberta-medium")
    values = printed(capsys, *words, "--vocab-size", "8000")
    assert (values["tokenizer"], values["vocab_size"]) == (None, 8000)
    assert printed(capsys, *words, "--tokenizer", "mine.json")["tokenizer"] == "mine.json"


def note_of(config: RunConfig) -> str:
    """The first note of a run's data, where it is about the vocabulary."""
    assert isinstance(config, TextConfig)
    told = load_data(config).notes[0]
    assert "\n" not in told
    return told


def test_a_line_says_if_the_vocabulary_is_not_the_papers(corpus: Path) -> None:
    medium: dict[str, Any] = {"data": str(corpus), "preset": "roberta-medium", "sequence_length": 16}
    told = note_of(TextConfig.make(**medium, vocab_size=PAPER_VOCABULARY))
    assert "roberta-medium with a BPE of 293 tokens that is trained on the corpus: the paper's is" in told
    assert "to train on" in note_of(TextConfig.make(**{**medium, "preset": "tiny"}, vocab_size=300))


def test_a_vocabulary_is_trained_at_the_size_of_the_paper() -> None:
    """Special tokens and bytes are among them."""
    words = [f"{a}{b}{c}{d}" for a in "abcdefghijkl" for b in "mnopqrstuv" for c in "aeiouy" for d in "bcdfgh"]
    made = train_bpe([" ".join(words)] * 2, 1500)
    assert made.vocab_size == 1500
    assert made.special_ids == (0, 1, 2, 3, 4)


def test_where_it_is_looked_for(shared_data: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert roberta_files() == shared_data / "bpe"
    monkeypatch.setenv("R2MAE_DATA", str(here / "data"))
    assert roberta_files() is None
    with pytest.raises(UserError, match=r"not on this machine: put its encoder\.json.*FacebookAI/roberta-base"):
        load_tokenizer(ROBERTA)
    fetched = here / "hub" / "models--FacebookAI--roberta-base" / "snapshots" / "abc"
    load_tokenizer(shared_data / "bpe").save(fetched)
    assert roberta_files() == fetched / "tokenizer.json"
    assert load_tokenizer(ROBERTA).vocab_size == PAPER_VOCABULARY
    train_bpe(TEXTS, 300).save(fetched)
    with pytest.raises(UserError, match="293 tokens, expected RoBERTa's 50,265"):
        load_tokenizer(ROBERTA)
    (here / "data" / "bpe").mkdir(parents=True)
    for name in ("encoder.json.gz", "vocab.bpe.gz"):  # GPT-2's, with other numbers
        shutil.copy(shared_data / "bpe" / name, here / "data" / "bpe")
    assert roberta_files() == fetched / "tokenizer.json"


def test_a_vocabulary_that_is_gone_is_told_before_anything_is_read(
    corpus: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(here / "data"))
    assert main(["pretrain", "text", str(corpus), "--tokenizer", ROBERTA, "--batch-size", "8", "--out", "run"]) == 2
    told = capsys.readouterr().err.strip()
    assert "is not on this machine" in told
    assert "\n" not in told
    assert not Path("run").exists()


def test_runs_of_either_vocabulary_are_told_apart(shared_data: Path, corpus: Path) -> None:
    base = {"data": str(corpus), "preset": "roberta-medium", "vocab_size": PAPER_VOCABULARY}
    assert DOMAIN.fingerprint(TextConfig.make(**base, tokenizer=ROBERTA)) != DOMAIN.fingerprint(TextConfig.make(**base))
    assert DOMAIN.fingerprint(TextConfig.make(**base)) == DOMAIN.fingerprint(TextConfig.make(data=str(corpus)))
