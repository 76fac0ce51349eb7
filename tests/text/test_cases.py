"""Corpora that were once read in silence: parts that are named, and text that the tokenizer does not know."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from r2mae.cli.main import main
from r2mae.text import batches, evaluate
from r2mae.text.batches import load_data
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN

pytestmark = pytest.mark.slow

SIZES = {"hidden_size": 8, "layers": 1, "heads": 2, "intermediate_size": 8, "sequence_length": 16}
SMALL = [word for name, size in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(size))]
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tokenizer_of_codons(path: Path) -> None:
    """A tokenizer of upper-case codons, to which those in lower case are unknown."""
    codons = [f"{a}{b}{c}" for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*SPECIALS, *codons])}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(path))


def test_test_files_of_a_folder_are_not_trained_on(caplog: pytest.LogCaptureFixture) -> None:
    Path("c").mkdir()
    for part in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001", "test-00000-of-00001"):
        rows = [f"{part} row {number} of some words" for number in range(40)]
        pyarrow.parquet.write_table(pyarrow.table({"text": rows}), f"c/{part}.parquet")
    data = load_data(TextConfig.make(data="c", vocab_size=300, sequence_length=16))
    assert len(data.store) == 80
    assert "c: 2 files are read, without 1 of test, 1 of validation (--split all: with these)" in caplog.text
    assert len(load_data(TextConfig.make(data="c", vocab_size=300, sequence_length=16, split="all")).store) == 160


@pytest.mark.parametrize(("lower", "share"), [(1.0, None), (0.97, "97%"), (0.5, "50%"), (0.0, "")])
def test_text_that_the_tokenizer_does_not_know(
    lower: float, share: str | None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ACGT"), 3)) for _ in range(4000)]
    words = [word.lower() if number < lower * 4000 else word for number, word in enumerate(words)]
    rng.shuffle(words)
    Path("dna.txt").write_text("\n\n".join(" ".join(words[first : first + 50]) for first in range(0, 4000, 50)))
    tokenizer_of_codons(Path("codons.json"))
    line = ["pretrain", "text", "dna.txt", "--tokenizer", "codons.json", *SMALL, "--steps", "2", "--batch-size", "4"]
    code = main([*line, "--device", "cpu", "--out", "run"])
    told = capsys.readouterr().err + caplog.text
    if share is None:
        assert code == 2
        assert "dna.txt: every token is unknown to the tokenizer, and none can be hidden" in told
        assert not Path("run/model.safetensors").exists()
        return
    assert code == 0
    assert (f"dna.txt: {share} of the tokens are unknown to the tokenizer" in told) == bool(share)
    Path("unknown.txt").write_text("acg tgc\n\naaa")
    assert main(["embed", "run", "unknown.txt", "-o", "e.npz"]) == 2
    assert "unknown.txt: every token is unknown to the tokenizer" in capsys.readouterr().err
    assert not Path("e.npz").exists()


def test_documents_of_several_blocks_are_embedded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(["ACG"] * count) for count in range(1, 41)]
    Path("dna.txt").write_text("\n\n".join(texts))
    tokenizer_of_codons(Path("codons.json"))
    config = TextConfig.make(data="dna.txt", tokenizer="codons.json", **SIZES)
    task, model = DOMAIN.build(load_data(config).architecture)
    whole = evaluate.embed_documents(config, task, model, "dna.txt")
    monkeypatch.setattr(batches, "_BLOCK", 100)
    monkeypatch.setattr(evaluate, "_EMBEDDED_ROWS", 3)
    found = evaluate.embed_documents(config, task, model, "dna.txt")
    assert found["tokens"].tolist() == [count + 2 for count in range(1, 41)]
    np.testing.assert_allclose(found["embedding"], whole["embedding"], atol=1e-5)
    assert (found["documents"] == whole["documents"]).all()


def test_the_example_without_a_network_ends_in_one_line(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "text.py"
    command = [sys.executable, str(example), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 1
    assert "distilbert-base-uncased cannot be read (" in done.stderr
    assert done.stderr.count("\n") == 1
