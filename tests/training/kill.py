"""Kill runs at random moments and compare what they end with; a command for many kills, and a part of the tests.

python -m tests.training.kill --kills 30
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

VARIANTS = {
    "plain": [],
    "two workers": ["--workers", "2"],
    "accumulation": ["--accumulate", "4", "--scheme", "r2mae-cl", "--validation", "0.1", "--validate-every", "5"],
    "two processes": ["--devices", "2"],
}
_COMMON = ["pretrain", "images", "digits", "--steps", "260", "--save-every", "9", "--hidden", "64", "--threads", "1"]


def command(out: Path, options: Sequence[str]) -> list[str]:
    """Return the command line of a run."""
    return [sys.executable, "-m", "r2mae", *_COMMON, *options, "--out", str(out)]


def kill_at_random(out: Path, options: Sequence[str], rng: random.Random) -> bool:
    """Start or go on with a run and kill it (-9) with all its workers; return False if it had ended before."""
    process = subprocess.Popen(
        command(out, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
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
    options = VARIANTS[name]
    whole = folder / "whole"
    subprocess.run(command(whole, options), check=True, capture_output=True)
    done = 0
    for attempt in itertools.count():
        out = folder / f"killed-{attempt}"
        while done < kills and kill_at_random(out, options, rng):
            done += 1
        subprocess.run(command(out, options), check=True, capture_output=True)
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
    parser.add_argument("--kills", type=int, default=30, help="in all, spread over the variants")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for place, name in enumerate(VARIANTS):
        share = options.kills // len(VARIANTS) + (place < options.kills % len(VARIANTS))
        with tempfile.TemporaryDirectory() as folder:
            done = same_after_kills(Path(folder), name, share, rng)
        print(f"{name}: {done} kills, the same bytes every time", flush=True)


if __name__ == "__main__":
    main()
