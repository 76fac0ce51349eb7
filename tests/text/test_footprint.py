"""A step that does not fit is refused before anything is read, and the hint fits."""

import re
from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.text import footprint
from r2mae.text.config import TextConfig
from r2mae.text.footprint import check_memory, step_bytes

GB = 10**9


@pytest.mark.parametrize(
    ("sizes", "measured"),  # peak of forward and backward pass without weights' gradients, dropout 0.1, ratio 0.4
    [
        ({"hidden_size": 256, "layers": 4, "heads": 4, "intermediate_size": 1024, "batch_size": 32}, 0.580),
        ({"hidden_size": 512, "layers": 8, "heads": 8, "intermediate_size": 2048, "batch_size": 24}, 1.860),
        ({"hidden_size": 256, "layers": 2, "heads": 2, "intermediate_size": 1024, "sequence_length": 64}, 0.185),
    ],
)
def test_the_estimate_is_about_what_was_measured(sizes: dict[str, int], measured: float) -> None:
    vocabulary = {512: 50265}.get(sizes["hidden_size"], 1000 if sizes["layers"] == 2 else 8000)
    config = TextConfig.make(data="x", **{"batch_size": 64, **sizes})
    assert 0.93 * measured <= step_bytes(config, vocabulary) / GB < 1.15 * measured


def test_it_grows_with_what_is_at_hand_at_once() -> None:
    whole, half = (step_bytes(TextConfig.make(data="x", batch_size=64, accumulate=parts), 8000) for parts in (1, 2))
    assert whole == pytest.approx(2 * half)
    assert step_bytes(TextConfig.make(data="x", batch_size=64), 8000, ratio=1.0) > whole
    assert step_bytes(TextConfig.make(data="x", batch_size=64), 9000) > whole


def test_the_remedy_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "available_memory", lambda: 20 * GB)
    with pytest.raises(UserError, match=r"2,048 sequences at a time need about \d+ GB, and 20") as refused:
        check_memory(TextConfig.make(data="x", tokenizer="t", device="cpu"))
    parts = int(re.findall(r"--accumulate (\d+)", str(refused.value))[0])
    check_memory(TextConfig.make(data="x", tokenizer="t", accumulate=parts, device="cpu"))
    with pytest.raises(UserError, match="smaller --preset"):
        check_memory(TextConfig.make(data="x", batch_size=1, hidden_size=2**20, device="cpu"))
    for free in (None, 10**15):
        monkeypatch.setattr(footprint, "available_memory", lambda free=free: free)
        check_memory(TextConfig.make(data="x", tokenizer="t", device="cpu"))


def test_it_is_refused_before_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(footprint, "available_memory", lambda: GB)
    (tmp_path / "a.txt").write_text("a few words\n")
    for command in ("pretrain", "compare"):
        assert main([command, "text", str(tmp_path / "a.txt"), "--device", "cpu", "--out", str(tmp_path / "out")]) == 2
        assert "give --accumulate" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    # A GPU has memory of its own, and tells of it.
    monkeypatch.setattr(footprint, "_GPU", tmp_path)
    check_memory(TextConfig.make(data="x"))
    check_memory(TextConfig.make(data="x", device="cuda:1"))
