"""A build that was killed resumes with the contigs that are not finished, and ends with the same bytes."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from genome.alignments import random_alignment
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.store import build

SCRIPT = """
import os, signal, sys
from r2mae.genome import build_store
from r2mae.genome.store import build
kill_at, source, reference, out = sys.argv[1:]
finish, done = build._Builder.finish, []
def counted(builder, *values):
    if len(done) == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)
    finish(builder, *values)
    done.append(1)
build._Builder.finish = counted
build_store(source, out, reference=reference)
print(len(done))
"""


def run(at: int, source: Path, reference: Path, out: Path) -> tuple[int, str]:
    """Build in a process of its own, which is killed after so many contigs; returns its exit code and their number."""
    words = [str(at), str(source), str(reference), str(out)]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.strip()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def maf(tmp_path: Path) -> Path:
    """A MAF with overlapping blocks, and the FASTA of its reference, in which no base is known."""
    alignment = random_alignment(21, blocks=40, contigs=4)
    (tmp_path / "a.maf").write_text(alignment.maf())
    text = "".join(f">{name}\n{'n' * length}\n" for name, length in alignment.lengths.items())
    (tmp_path / "ref.fa").write_text(text)
    return tmp_path / "a.maf"


@pytest.mark.slow
def test_killed_in_the_middle(maf: Path, tmp_path: Path) -> None:
    reference, out = tmp_path / "ref.fa", tmp_path / "store"
    assert run(99, maf, reference, tmp_path / "undisturbed") == (0, "4")
    for at in (2, 1):  # counted from where the build resumes
        assert run(at, maf, reference, out)[0] == -signal.SIGKILL
        assert not out.exists()
    assert run(99, maf, reference, out) == (0, "1")
    assert contents(out) == contents(tmp_path / "undisturbed")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".store")]


@pytest.mark.slow
def test_killed_before_the_contig_of_a_fasta_is_finished(tmp_path: Path) -> None:
    (tmp_path / "a.fa").write_text(">c\nACgt-NACgt-N\n>x\nN-tgCAN-tgCA\n")
    (tmp_path / "ref.fa").write_text(">c\nACgtNACgtN\n")
    words = tmp_path / "a.fa", tmp_path / "ref.fa"
    assert run(99, *words, tmp_path / "undisturbed") == (0, "1")
    assert run(0, *words, tmp_path / "store")[0] == -signal.SIGKILL
    assert run(99, *words, tmp_path / "store") == (0, "1")
    assert contents(tmp_path / "store") == contents(tmp_path / "undisturbed")


def test_a_finished_store_is_not_made_again(maf: Path) -> None:
    first = build_store(maf, maf.with_name("store"))
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    again = build_store(maf, maf.with_name("store"))
    assert {path: path.stat().st_mtime_ns for path in again.folder.rglob("*")} == before
    with pytest.raises(UserError, match="was built of something else or with other options"):
        build_store(maf, maf.with_name("store"), reference=maf.with_name("ref.fa"))


def test_a_store_that_another_process_finished_meanwhile(maf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = build_store(maf, maf.with_name("store")).folder
    before, looked = contents(out), build._is_built
    answers = iter([False])
    monkeypatch.setattr(build, "_is_built", lambda *given: next(answers, None) is None and looked(*given))
    build_store(maf, out)
    assert contents(out) == before
    assert not [path for path in maf.parent.iterdir() if path.name.startswith(".store")]


def test_another_build_begins_again(maf: Path) -> None:
    class Stop(Exception):
        pass

    def stop(stage: str, done: float) -> None:
        if stage == "reading the reference":
            raise Stop

    out = maf.with_name("store")
    with pytest.raises(Stop):
        build_store(maf, out, reference=maf.with_name("ref.fa"), progress=stop)
    assert (maf.parent / ".store.unfinished").is_dir()
    other = build_store(maf, out, species=["sp0"])
    assert other.species == ("ref", "sp0")
    assert not (maf.parent / ".store.unfinished").exists()


def test_a_full_disk_is_told_of_and_the_build_resumes(maf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, dtype: object, *shape: int) -> np.ndarray:
        raise OSError(28, "No space left on device")

    out = maf.with_name("store")
    with monkeypatch.context() as patch:
        patch.setattr(build, "allocate", full)
        with pytest.raises(UserError, match=r"No space left on device.*rerun the same command to resume"):
            build_store(maf, out)
    assert not out.exists()
    assert isinstance(build_store(maf, out), AlignmentStore)


def test_two_builds_of_one_store(maf: Path) -> None:
    seen = []

    def second(stage: str, done: float) -> None:
        seen.append(stage)
        with pytest.raises(UserError, match="another process is writing it"):
            build_store(maf, maf.with_name("store"), reference=maf.with_name("ref.fa"))

    build_store(maf, maf.with_name("store"), reference=maf.with_name("ref.fa"), progress=second)
    assert seen
