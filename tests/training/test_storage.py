"""A full disk, a folder that becomes read-only: the last good checkpoint survives."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from r2mae.files import atomic_write
from r2mae.training import checkpoint
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit

from .conftest import InterruptAt, Interrupted, ToyConfig, ToyDomain, equal_bytes

pytestmark = pytest.mark.slow

LINE = [sys.executable, "-m", "r2mae", "pretrain", "digits", "--steps", "40", "--save-every", "10", "--threads", "1"]


def test_a_full_disk_while_saving_is_one_line_and_the_run_resumes(tmp_path: Path) -> None:
    """A limit on file sizes fails writes in the middle, as a full disk does."""
    out = [*LINE, "--hidden", "512", "--out", str(tmp_path / "a")]
    limited = ["bash", "-c", 'ulimit -f 1500; exec "$@"', "bash", *out]
    done = subprocess.run(limited, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].endswith("free some space, and run the same command again to resume")
    assert not list((tmp_path / "a").rglob("*.tmp"))
    assert subprocess.run(out, check=False, capture_output=True).returncode == 0
    subprocess.run([*LINE, "--hidden", "512", "--out", str(tmp_path / "b")], check=True, capture_output=True)
    assert equal_bytes(tmp_path / "a", tmp_path / "b")


def test_a_failed_save_keeps_the_checkpoint_of_before(
    tmp_path: Path, domain: ToyDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(ToyConfig.make(steps=30), domain, tmp_path / "whole")
    write, calls = checkpoint.write_checkpoint, []

    def third_fails(path: Path, content: dict[str, object]) -> None:
        calls.append(path)
        if len(calls) < 3:
            return write(path, content)
        with atomic_write(path, "wb") as file:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "write_checkpoint", third_fails)
    with pytest.raises(OSError, match="No space left") as caught:
        fit(ToyConfig.make(steps=30), domain, tmp_path / "cut")
    assert str(tmp_path / "cut") in str(caught.value)
    monkeypatch.undo()
    assert read_checkpoint(RunFolder(tmp_path / "cut").checkpoint)["r2mae_step"] == 14
    fit(ToyConfig.make(steps=30), domain, tmp_path / "cut")
    assert equal_bytes(tmp_path / "whole", tmp_path / "cut")


def test_a_folder_that_turns_into_a_file(tmp_path: Path, domain: ToyDomain) -> None:
    """Root may write to read-only folders, so the folder is replaced instead."""
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(steps=30), domain, tmp_path / "a", reporter=InterruptAt(8))
    folder = tmp_path / "a" / "checkpoints"
    folder.rename(tmp_path / "kept")
    folder.write_text("a file")
    with pytest.raises(OSError, match=r"checkpoints"):
        fit(ToyConfig.make(steps=30), domain, tmp_path / "a")
    assert read_checkpoint(tmp_path / "kept" / "last.ckpt")["r2mae_step"] == 7
