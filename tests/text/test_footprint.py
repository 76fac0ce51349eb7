"""A step that does not fit is refused before anything is read, and the hint fits."""

import re
from pathlib import Path

import pytest

from r2mae import cores
from r2mae.cli.main import main
from r2mae.domains import lookup
from r2mae.errors import UserError
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN

GB = 10**9


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    (tmp_path / "a.txt").write_text("a few words\n")
    return str(tmp_path / "a.txt")


SMALL = {"hidden_size": 256, "heads": 4, "intermediate_size": 1024}


@pytest.mark.parametrize(
    ("sizes", "measured"),  # peak of forward and backward pass without weights' gradients, dropout 0.1, ratio 0.4
    [
        ({**SMALL, "layers": 4, "batch_size": 32}, 0.580),
        ({"batch_size": 24, "vocab_size": 50265}, 1.860),
        ({**SMALL, "layers": 2, "heads": 2, "sequence_length": 64, "batch_size": 64, "vocab_size": 1000}, 0.185),
    ],
)
def test_the_estimate_is_about_what_was_measured(
    sizes: dict[str, int], measured: float, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TextConfig.make(data=corpus, scheme="fixed", ratio=0.4, device="cpu", **sizes)
    monkeypatch.setattr(cores, "available_memory", lambda: 1.15 * measured * GB)
    DOMAIN.check(config)
    monkeypatch.setattr(cores, "available_memory", lambda: 0.93 * measured * GB)
    with pytest.raises(UserError, match="at a time need about"):
        DOMAIN.check(config)
    DOMAIN.check(config.replace(accumulate=2))


def test_the_remedy_fits(corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "available_memory", lambda: 20 * GB)
    large = TextConfig.make(data=corpus, tokenizer="t", device="cpu")
    with pytest.raises(UserError, match=r"2,048 sequences at a time need about \d+ GB, and 20") as refused:
        DOMAIN.check(large)
    DOMAIN.check(large.replace(accumulate=int(re.findall(r"--accumulate (\d+)", str(refused.value))[0])))
    with pytest.raises(UserError, match="smaller --preset"):
        DOMAIN.check(large.replace(batch_size=1, hidden_size=2**20))
    for size in (10**9, 2**31 - 1):  # a prime number
        with pytest.raises(UserError, match="give a smaller --batch-size"):
            DOMAIN.check(large.replace(batch_size=size))
    with pytest.raises(UserError, match="smaller --vocab-size"):
        DOMAIN.check(TextConfig.make(data=corpus, vocab_size=10**9, device="cpu"))
    for free in (None, 10**15):
        monkeypatch.setattr(cores, "available_memory", lambda free=free: free)
        DOMAIN.check(large)


def test_it_is_refused_before_text_is_read(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cores, "available_memory", lambda: GB)
    for command in ("pretrain", "compare"):
        assert main([command, "text", corpus, "--device", "cpu", "--out", str(tmp_path / "out")]) == 2
        assert "give --accumulate" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    # A GPU has memory of its own, and tells of it.
    monkeypatch.setattr(lookup, "_GPU", tmp_path)
    DOMAIN.check(TextConfig.make(data=corpus))
    DOMAIN.check(TextConfig.make(data=corpus, device="cuda:1"))
