"""The domain from the command line: pretrain, evaluate, embed, export; typos; and runs that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, RobertaForMaskedLM

from r2mae.cli.main import main
from r2mae.domains.base import Domain
from r2mae.text.checkpoint import save_pretrained
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "layers": 1,
    "heads": 2,
    "intermediate_size": 32,
    "vocab_size": 300,
    "sequence_length": 16,
    "batch_size": 8,
    "validation": 0.1,
    "threads": 1,
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Sentences of which every word follows from the one before."""
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    rng = np.random.default_rng(0)
    texts = [" ".join(words[(start + i) % 10] for i in range(30)) for start in rng.integers(0, 10, 60)]
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


def words_of(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]


def test_everything_is_there() -> None:
    assert isinstance(DOMAIN, Domain)
    names = [metric.name for metric in DOMAIN.metrics_of(TextConfig.make(data="x", glue=("sst2", "cola")))]
    assert names == ["loss", "accuracy", "sst2_accuracy", "cola_matthews"]


def test_pretrain_evaluate_embed_and_export(
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    options = words_of({**SIZES, "vocab_size": 330, "steps": 20})
    assert main(["pretrain", "text", str(corpus), *options, "--out", "run", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert 0 <= scores["accuracy_0.15"] <= 1
    assert main(["evaluate", "run", "--eval-sequences", "5", "--json"]) == 0
    few = json.loads(capsys.readouterr().out)
    assert few["measured"] == {"eval_sequences": 5, "glue": [], "glue_probes": []}
    assert few["scores"]["loss"] != scores["loss"]

    assert main(["embed", "run", str(corpus), "-o", "e.npz"]) == 0
    with np.load("e.npz", allow_pickle=False) as made:
        assert made["embedding"].shape == (60, 16)
        assert np.isfinite(made["embedding"]).all()
        assert made["documents"][0] == corpus.read_text().split("\n\n")[0][:80]
        assert (made["tokens"] > 16).all()  # longer than the sequences, and cut

    monkeypatch.setenv("R2MAE_DATA", str(tmp_path))
    (tmp_path / "glue" / "SST-2").mkdir(parents=True)
    rows = "\n".join(f"{'alpha beta' if i % 2 else 'theta iota'}\t{i % 2}" for i in range(64))
    for name in ("train", "dev"):
        (tmp_path / "glue" / "SST-2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}\n")
    capsys.readouterr()
    assert main(["evaluate", "run", "glue", "--task", "sst2", "--limit", "32"]) == 0
    shown = capsys.readouterr().out
    assert "SST-2 accuracy" in shown
    assert "loss" not in shown
    assert main(["evaluate", "run", "glue", "--probe", "SST-2", "--limit", "32"]) == 0
    shown = capsys.readouterr().out
    assert "SST-2 accuracy, probe" in shown
    assert "loss" not in shown
    assert "32 examples of train.tsv" in caplog.text
    assert main(["evaluate", "run", "glue", "--probe", "SST-2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["glue_limit"] is None

    save_pretrained("run", "stock")
    stock, tokenizer = RobertaForMaskedLM.from_pretrained("stock").eval(), AutoTokenizer.from_pretrained("stock")
    found = stock(**tokenizer("alpha beta <mask> delta", return_tensors="pt"))
    assert torch.isfinite(found.logits).all()
    assert AutoModelForSequenceClassification.from_pretrained("stock", num_labels=2).num_labels == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pretrain text nothing.txt", "nothing.txt"),
        ("pretrain text empty.txt", "empty.txt"),
        ("pretrain text latin.txt", "UTF-8"),
        ("pretrain text corpus.txt --tokenizer nowhere.json", "nowhere.json"),
        ("pretrain text corpus.txt --corruption masked", "--corruption"),
        ("pretrain text corpus.txt --hidden-size 10 --heads 3", "is not a multiple of heads 3"),
        ("pretrain text corpus.txt --preset tiny --sequence-length 4000", "smaller --sequence-length"),
        ("pretrain text corpus.txt --presett tiny", "did you mean '--preset'"),
        ("pretrain text rows.jsonl --text-column txt", "txt"),
    ],
)
def test_mistakes_are_told_in_one_line(
    corpus: Path, line: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(corpus.parent)
    Path("empty.txt").write_text("\n\n")
    Path("latin.txt").write_bytes("gr\u00fc\u00dfe".encode("latin-1"))
    Path("rows.jsonl").write_text('{"text": "one"}\n')
    assert main([*line.split(), "--batch-size", "8", "--out", "run"]) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "\n" not in told
    assert not RunFolder("run").config_file.exists()


def test_tasks_of_glue_need_their_name(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fit(TextConfig.make(data=str(corpus), **SIZES, steps=1), DOMAIN, Path("run"))
    for words, message in (
        (["glue"], "name them, --task sst2 qnli or --probe"),
        (["--task", "sst2"], "r2mae evaluate run glue --task"),
        (["glue", "--task", "sst3"], "sst2"),
        (["glue", "--probe", "sst3"], "sst2"),
        (["glue-probe", "--task", "sst2"], "did you mean 'glue'"),
        (["gleu"], "did you mean 'glue'"),
        (["--probe", "sst2"], "r2mae evaluate run glue --probe"),
        (["--layer", "counts"], "has no --layer"),
    ):
        assert main(["evaluate", "run", *words]) == 2
        told = capsys.readouterr().err.strip()
        assert message in told
        assert "\n" not in told


def test_a_killed_process_goes_on_to_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    options = {**SIZES, "scheme": "r2mae-cl", "steps": 100, "save_every": 5, "accumulate": 2}
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    line = [sys.executable, "-m", "r2mae", "pretrain", "text", str(corpus), *words_of(options), "--out", str(cut)]
    checkpoint = RunFolder(cut).checkpoint
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(line, **quiet, start_new_session=True, env=dict(os.environ)) as run:
        while not checkpoint.exists():
            assert run.poll() is None
            time.sleep(0.002)
        os.killpg(run.pid, signal.SIGKILL)
    assert not RunFolder(cut).trained
    step = read_checkpoint(checkpoint)["r2mae_step"]
    config = TextConfig.make(data=str(corpus), **options)
    assert fit(config, DOMAIN, cut).resumed_from == step
    fit(config, DOMAIN, whole)
    for name in ("model.safetensors", "metrics.csv"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


def test_other_data_are_not_measured(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    fit(TextConfig.make(data=str(corpus), **SIZES, steps=1), DOMAIN, run)
    corpus.write_text(corpus.read_text() + "\n\nanother document of a few words")
    assert main(["evaluate", str(run)]) == 2
    assert "has changed since" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--glue", "sst3"], "unknown GLUE task 'sst3'"),
        (["--glue", "sst2", "--glue-limit", "1"], "glue_limit must be 2 or more, not 1"),
        (["--glue", "sst2"], "is not a folder: put GLUE there"),
        (["--glue-probes", "sst3"], "unknown GLUE task 'sst3'"),
        (["--glue-probes", "sst2"], "is not a folder: put GLUE there"),
    ],
)
def test_mistakes_about_glue_are_told_before_anything_is_trained(
    words: list[str],
    told: str,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path / "nowhere"))
    for command in ("pretrain", "compare"):
        assert main([command, "text", str(corpus), "--preset", "tiny", *words, "--out", str(tmp_path / "out")]) == 2
        assert told in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_another_folder_is_told_before_text_is_read(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    line = ["pretrain", "text", str(corpus), *words_of({**SIZES, "steps": 1})]
    assert main([*line, "--out", str(tmp_path / "mine")]) == 2
    error = capsys.readouterr().err
    assert "holds other files (notes.txt)" in error
    assert "to learn from" not in error
