"""A build that was killed goes on, and ends with the same bytes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from genome.alignments import random_alignment
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.store.unfinished import in_order

SCRIPT = """
import os, signal, sys
sys.path.insert(0, "tests")
from genome.alignments import shrink
from r2mae.genome import build_store
shrink(setattr)
kill_stage, kill_at, every, source, reference, out = sys.argv[1:]
seen = []
def progress(stage, done):
    seen.append(stage)
    if stage == kill_stage and seen.count(stage) == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)
build_store(source, out, reference=reference, progress=progress, every=float(every))
print(*seen, sep=";")
"""


def run(stage: str, at: int, every: float, source: Path, out: Path) -> tuple[int, list[str]]:
    """Build in a process of its own; returns its exit code, and the stages of all units that it did."""
    words = [stage, str(at), str(every), str(source), str(source.with_name("ref.fa")), str(out)]
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()[-1].split(";") if done.stdout else []


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def maf(tmp_path: Path) -> Path:
    """A MAF with overlapping blocks, and the FASTA of its reference, in which no base is known."""
    alignment = random_alignment(21, blocks=40)
    (tmp_path / "a.maf").write_text(alignment.maf())
    text = "".join(f">{name}\n{'n' * length}\n" for name, length in alignment.lengths.items())
    (tmp_path / "ref.fa").write_text(text)
    return tmp_path / "a.maf"


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    """Aligned rows with insertions."""
    (tmp_path / "a.fa").write_text(
        ">ref\n" + "ACgt-N" * 30 + "\n>x\n" + "A-CGTA" * 30 + "\n>y\n" + "TTTTTT" * 30 + "\n"
    )
    (tmp_path / "ref.fa").write_text(">chr1\n" + "ACGTN" * 30 + "\n")
    return tmp_path / "a.fa"


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 100])
@pytest.mark.parametrize(
    ("kind", "stage"), [("maf", "reading"), ("maf", "checking"), ("fasta", "turning rows into columns")]
)
def test_killed_in_the_middle(kind: str, stage: str, every: float, request: pytest.FixtureRequest) -> None:
    source: Path = request.getfixturevalue(kind)
    out = source.with_name("store")
    code, units = run("never", 0, every, source, source.with_name("undisturbed"))
    assert code == 0
    total = units.count(stage)
    assert total > 5
    for at in (2, 4):  # counted from where the build goes on
        assert run(stage, at, every, source, out)[0] == -signal.SIGKILL
        assert not out.exists()
    code, units = run("never", 0, every, source, out)
    assert code == 0
    assert contents(out) == contents(source.with_name("undisturbed"))
    # A unit is committed before it is told of, or with the next.
    assert units.count(stage) == (total - 6 if every == 0 else total)
    assert not [path for path in source.parent.iterdir() if path.name.startswith(".")]


def test_a_finished_store_is_not_made_again(maf: Path) -> None:
    first = build_store(maf, maf.with_name("store"))
    before = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    again = build_store(maf, maf.with_name("store"), jobs=2)
    assert {path: path.stat().st_mtime_ns for path in again.folder.iterdir()} == before
    with pytest.raises(UserError, match="was built of something else or with other options"):
        build_store(maf, maf.with_name("store"), reference=maf.with_name("ref.fa"))


@pytest.mark.usefixtures("small_chunks")
def test_another_build_begins_anew(maf: Path) -> None:
    class Stop(Exception):
        pass

    def stop(stage: str, done: float) -> None:
        if stage == "checking":
            raise Stop

    out = maf.with_name("store")
    with pytest.raises(Stop):
        build_store(maf, out, progress=stop, every=0)
    stages: list[str] = []
    other = build_store(maf, out, species=["sp0"], progress=lambda stage, _: stages.append(stage))
    assert other.species == ("ref", "sp0")
    assert "finding species" in stages


def test_a_full_disk_is_told_of_and_the_build_goes_on(maf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from r2mae.genome.store import fill_maf

    def full(handle: int, data: object, offset: int) -> None:
        raise OSError(28, "No space left on device")

    out = maf.with_name("store")
    with monkeypatch.context() as patch:
        patch.setattr(fill_maf, "write_at", full)
        with pytest.raises(UserError, match=r"No space left on device.*rerun the same command to resume"):
            build_store(maf, out)
    assert not out.exists()
    assert isinstance(build_store(maf, out), AlignmentStore)


def test_two_builds_of_one_store(maf: Path) -> None:
    def second(stage: str, done: float) -> None:
        with pytest.raises(UserError, match="another process is building it"):
            build_store(maf, maf.with_name("store"))

    build_store(maf, maf.with_name("store"), progress=second)


def test_units_come_in_order() -> None:
    from concurrent.futures import ThreadPoolExecutor

    read = []

    def units() -> object:
        for unit in range(50):
            read.append(unit)
            yield unit

    with ThreadPoolExecutor(3) as pool:
        for place, (unit, square) in enumerate(in_order(lambda unit: unit * unit, units(), pool, 4)):  # type: ignore[arg-type]
            assert (unit, square) == (place, place * place)
            assert len(read) <= place + 4
