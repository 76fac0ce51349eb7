"""Train with several processes, one run after the other; a script for torchrun, and for the processes that it starts.

python tests/training/sharded.py RUNS.json

A run is a mapping: `out`, `options` of the configuration and, where it goes on from a checkpoint that another run has
kept, `begun` (that run's folder) and `step`; or `killed_at`, a step. The domain is the toy domain.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.training.conftest import InterruptAt, ToyConfig, ToyDomain

from r2mae.errors import UserError
from r2mae.training import distributed
from r2mae.training.loop import fit

distributed._FILE = 256  # bytes: several files for each process


class KilledAt(InterruptAt):
    """A reporter that ends its process, as the kernel does when memory is short."""

    def update(self, pace: Any) -> None:
        if pace.step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def begin(begun: Path, step: int, out: Path) -> None:
    """Make a folder as that of a run was at a checkpoint."""
    if os.environ.get("RANK", "0") != "0":
        while not (out / "config.yaml").exists():
            time.sleep(0.02)
        return
    (out / "checkpoints").mkdir(parents=True)
    for name in ("metrics.csv", "data.json", "environment.json"):
        shutil.copy(begun / name, out / name)
    kept = f"step-{step:08}"
    shutil.copy(begun / "checkpoints" / f"{kept}.ckpt", out / "checkpoints" / "last.ckpt")
    for shards in (begun / "checkpoints").glob(f"{kept}.*.shards"):
        shutil.copytree(shards, out / "checkpoints" / shards.name)
    shutil.copy(begun / "config.yaml", out / "config.yaml")


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        for run in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
            if "begun" in run:
                begin(Path(run["begun"]), run["step"], Path(run["out"]))
            reporter = KilledAt(run["killed_at"]) if "killed_at" in run else None
            fit(ToyConfig.make(threads=1, **run["options"]), ToyDomain(), run["out"], reporter=reporter)
    except UserError as error:
        sys.exit(f"r2mae: {error}")
