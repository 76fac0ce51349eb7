"""The paper's presets bring its vocabulary, RoBERTa's."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from cli.printed import fields
from r2mae.cli.main import main
from r2mae.text.config import PAPER_VOCABULARY, ROBERTA, TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.tokenizer import load_tokenizer, train_bpe

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
    with torch.device("meta"):
        special = {"pad_id": 1, "bos_id": 0, "eos_id": 2}
        made = {"length": 128, "dropout": 0.1, **special, **DOMAIN.presets[preset]}
        model = MaskedLanguageModel.from_architecture(made)
    # The paper: 52 and 125.
    assert round(sum(one.numel() for one in model.parameters()) / 1e6, 1) == millions


def test_presets_bring_the_vocabulary_of_the_paper(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for data in (str(corpus), "fineweb"):
        values = printed(capsys, "text", data, "--preset", "roberta-base")
        assert (values["tokenizer"], values["vocab_size"]) == (ROBERTA, PAPER_VOCABULARY)
    assert printed(capsys, "text", str(corpus), "--preset", "tiny")["vocab_size"] == 8000
    assert printed(capsys, "text", "fineweb")["tokenizer"] == "FacebookAI/roberta-base"


def test_a_vocabulary_is_trained_at_the_size_of_the_paper() -> None:
    """Special tokens and bytes are among them."""
    words = [f"{a}{b}{c}{d}" for a in "abcdefghijkl" for b in "mnopqrstuv" for c in "aeiouy" for d in "bcdfgh"]
    made = train_bpe([" ".join(words)] * 2, 1500)
    assert made.vocab_size == 1500
    assert made.special_ids == (0, 1, 2, 3, 4)


def test_it_is_of_the_data_folder_or_of_the_hub(
    shared_data: Path, corpus: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_tokenizer(ROBERTA).vocab_size == PAPER_VOCABULARY
    monkeypatch.setenv("R2MAE_DATA", str(here / "data"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert main(["pretrain", "text", str(corpus), "--tokenizer", ROBERTA, "--batch-size", "8", "--out", "run"]) == 2
    told = capsys.readouterr().err.strip()
    assert "tokenizer FacebookAI/roberta-base cannot be read" in told
    assert "--tokenizer null, which has one trained" in told
    assert "\n" not in told
    assert not Path("run/model.safetensors").exists()


def test_runs_of_either_vocabulary_are_told_apart(shared_data: Path, corpus: Path) -> None:
    own, roberta = (
        TextConfig.make(data=str(corpus), preset="roberta-medium", tokenizer=tokenizer) for tokenizer in (None, ROBERTA)
    )
    assert DOMAIN.fingerprint(roberta) != DOMAIN.fingerprint(own)
    assert DOMAIN.fingerprint(own) == DOMAIN.fingerprint(TextConfig.make(data=str(corpus)))
