"""Kill runs at random moments and compare what they end with; a command for many kills, and a part of the tests.

python -m tests.training.kill --kills 30 [--only "two processes" cells]
"""

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from r2mae.domains.lookup import get_domain

_TWO = ["--devices", "2"]
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "plain": ("images", []),
    "two workers, accumulation": (
        "images",
        ["--workers", "2", "--accumulate", "4", "--scheme", "r2mae-cl", "--validation", "0.1", "--validate-every", "5"],
    ),
    "two processes": ("images", _TWO),
    **{name: (name, []) for name in ("cells", "text", "genome")},
    **{f"{name}, two processes": (name, _TWO) for name in ("cells", "text", "genome")},
}
_COMMON = ["--steps", "260", "--save-every", "9", "--threads", "1"]


def words_of(name: str, folder: Path) -> list[str]:
    """Return the words of a variant's command, whose data are written into the folder."""
    domain, options = VARIANTS[name]
    if domain == "images":
        return [domain, "digits", "--hidden", "64", *options]
    sys.path.insert(0, str(Path(__file__).parents[1]))  # as in pytest, whose modules write the data
    from tests.contract.conftest import ENTRIES

    entry = ENTRIES[domain]
    sizes = entry.sizes[get_domain(domain).config.make(data="x").model.name]
    (folder / "options.yaml").write_text(yaml.safe_dump({**entry.fields, **sizes}), encoding="utf-8")
    return [domain, entry.write(folder), "--config", str(folder / "options.yaml"), *options]


def command(out: Path, words: Sequence[str]) -> list[str]:
    """Return the command line of a run."""
    return [sys.executable, "-m", "r2mae", "pretrain", *words, *_COMMON, "--out", str(out)]


def kill_at_random(out: Path, words: Sequence[str], rng: random.Random) -> bool:
    """Start or go on with a run and kill it (-9) with all its workers; return False if it had ended before."""
    process = subprocess.Popen(
        command(out, words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        seen = _progress(out)
        while _progress(out) == seen and process.poll() is None:
            time.sleep(0.002)
        # From here on the moment is a matter of luck: in a step, in a flush, or while a checkpoint is written.
        time.sleep(rng.uniform(0, 0.25))
        ended = process.poll() is not None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return not ended


def _progress(out: Path) -> int:
    """Something that changes once this process trains, not while it starts."""
    try:
        return (out / "checkpoints" / "last.ckpt").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def same_after_kills(folder: Path, name: str, kills: int, rng: random.Random) -> int:
    """Return how many kills a run survived to the same bytes as the undisturbed one.

    Raises
    ------
    AssertionError
        If a file differs.
    """
    words = words_of(name, folder)
    whole = folder / "whole"
    subprocess.run(command(whole, words), check=True, capture_output=True)
    done = 0
    for attempt in itertools.count():
        out = folder / f"killed-{attempt}"
        while done < kills and kill_at_random(out, words, rng):
            done += 1
        subprocess.run(command(out, words), check=True, capture_output=True)
        for file in ("model.safetensors", "metrics.csv"):
            assert (out / file).read_bytes() == (whole / file).read_bytes(), f"{name}: {file} differs in {out}"
        assert not list(out.rglob("*.tmp")), "half-written files are left"
        shutil.rmtree(out)
        if done >= kills:
            return done
    raise AssertionError


def main() -> None:
    """Kill and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=30, help="of each variant")
    parser.add_argument(
        "--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT", help=", ".join(VARIANTS)
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            done = same_after_kills(Path(folder), name, options.kills, rng)
        print(f"{name}: {done} kills, the same bytes every time", flush=True)


if __name__ == "__main__":
    main()
