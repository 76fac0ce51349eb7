"""What is embedded has a row for each document, whatever is in it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from r2mae.text import documents
from r2mae.text.batches import architecture
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.tokenizer import train_bpe

SIZES = {"hidden_size": 8, "layers": 1, "heads": 2, "intermediate_size": 8, "sequence_length": 16}
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
TEXTS = ["a short one", "", f"{LONG} first", "   ", f"{LONG} second", "a short one", "naïve 日本語 🙂", "\n", ""]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@cache
def model() -> tuple[TextConfig, Any, Any]:
    config = TextConfig.make(data="x", **SIZES)
    return (config, *DOMAIN.build(architecture(config, train_bpe(iter([LONG.upper(), *TEXTS]), 300))))


def embed(source: str) -> dict[str, np.ndarray]:
    return DOMAIN.embed(*model(), source)


def alone(text: str) -> np.ndarray:
    """The vector of a text that is a corpus of its own."""
    if not text.strip():
        return np.zeros(8, np.float32)
    Path("alone.jsonl").write_text(json.dumps({"text": text}))
    (found,) = embed("alone.jsonl")["embedding"]
    return found


def write(kind: str, texts: list[str]) -> str:
    name = f"a.{kind}"
    if kind == "jsonl":
        rows = [json.dumps({"text": text or None}) for text in texts]
        Path(name).write_text("\n\n".join(rows) + "\n")
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": [text or None for text in texts]}), name)
    elif kind == "fasta":
        Path(name).write_text("".join(f">r{row}\n{text}\n" for row, text in enumerate(texts)))
    else:
        Path(name).write_text("\n\n\n" + "\n\n\n \n".join(texts) + "\n\n")
    return name


def read_by(kind: str) -> list[str]:
    """The texts as a file of a kind can have them: blank lines divide plain text, and FASTA has no spaces."""
    if kind == "txt":
        return [text.strip() for text in TEXTS if text.strip()]
    return ["".join(text.split()).upper() for text in TEXTS] if kind == "fasta" else TEXTS


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "fasta", "txt"])
def test_each_document_has_a_row(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    texts = read_by(kind)
    found, empty = embed(write(kind, texts)), [not text.strip() for text in texts]
    assert found["index"].tolist() == list(range(len(texts)))
    assert "files" not in found
    assert ((found["tokens"] == 2) == empty).all()
    long, told = int((found["tokens"] > 16).sum()), caplog.text
    assert long
    assert f"{long} have more than 16 tokens" in told
    assert (f"a.{kind}: of {len(texts)} documents {sum(empty)} are empty" in told) == any(empty)
    np.testing.assert_allclose(found["embedding"], np.stack([alone(text) for text in texts]), atol=1e-5)
    assert found["documents"].tolist() == [text.strip()[:80] for text in texts]


@pytest.mark.parametrize("kind", ["fasta", "txt"])
def test_pieces_of_a_long_document_are_one_row(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text.replace(" ", "\n") for text in (TEXTS if kind == "fasta" else read_by(kind))]
    whole = embed(write(kind, texts))
    monkeypatch.setattr(documents, "LONGEST", 20)
    found = embed(f"a.{kind}")
    assert ((found["tokens"] == 2) == (whole["tokens"] == 2)).all()


def test_pieces_of_a_document_are_weighted_by_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["short", f"{LONG}\n{LONG} end", "last"]
    name = write("jsonl", texts)
    monkeypatch.setattr(documents, "LONGEST", len(LONG) + 1)
    found = embed(name)
    pieces = [LONG, f"{LONG} ", "end"]
    monkeypatch.setattr(documents, "LONGEST", 1 << 20)
    sizes = [embed(write("txt", [piece]))["tokens"][0] - 2 for piece in pieces]
    expected = np.average([alone(piece) for piece in pieces], axis=0, weights=sizes)
    np.testing.assert_allclose(found["embedding"], [alone("short"), expected, alone("last")], atol=1e-5)
    assert found["tokens"][1] == sum(sizes) + 2


def test_several_files_are_named() -> None:
    Path("d", "Ä").mkdir(parents=True)
    for place in ("b.jsonl", "Ä/a.jsonl"):
        Path("d", place).write_text("\n".join(json.dumps({"text": text}) for text in ("", place)))
    found = embed("d")
    assert found["files"].tolist() == ["b.jsonl", "b.jsonl", "Ä/a.jsonl", "Ä/a.jsonl"]
    assert found["documents"].tolist() == ["", "b.jsonl", "", "Ä/a.jsonl"]
    assert found["index"].tolist() == [0, 1, 2, 3]
