"""Train the toy domain with several processes; a script, because its processes start it again.

python tests/training/ddp.py OUT '{"devices": 2, "steps": 20}' [OUT OPTIONS …]

Besides options of the configuration, OPTIONS may have `killed_at`, the step at which rank 0 ends; or `begun` and `at`,
the folder of another run and the step of a checkpoint that it has kept, from which this one resumes.
"""

import atexit
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

from r2mae.cli.launch import run_on_devices
from r2mae.errors import UserError
from r2mae.training.loop import fit


class KilledAt(InterruptAt):
    """A reporter that ends its process, as the kernel does when memory is short."""

    def update(self, pace: Any) -> None:
        if pace.step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class Waiting(InterruptAt):
    """A reporter that waits, in a run that begins, for whoever ends the process."""

    def start(self, step: int, total: int) -> None:
        self.resumed = step > 0

    def update(self, pace: Any) -> None:
        if pace.step >= self.step and not self.resumed:
            time.sleep(20)


def begin(begun: Path, step: int, out: Path) -> None:
    """Make a folder as that of a run was at a checkpoint."""
    if os.environ.get("RANK", "0") != "0":
        while not (out / "config.yaml").exists():
            time.sleep(0.02)
        return
    (out / "checkpoints").mkdir(parents=True)
    for name in ("metrics.csv", "data.json", "environment.json"):
        shutil.copy(begun / name, out / name)
    shutil.copy(begun / "checkpoints" / f"step-{step:08}.ckpt", out / "checkpoints" / "last.ckpt")
    shutil.copy(begun / "config.yaml", out / "config.yaml")


def train(out: str, options: dict[str, Any], reporter: Any) -> None:
    """Train a run. Where more are to come, one that is refused ends none of them."""
    more = "R2MAE_TEST_GO_ON" in os.environ
    if "begun" in options:
        begin(Path(options.pop("begun")), options.pop("at"), Path(out))
    if "killed_at" in options:
        reporter = KilledAt(options.pop("killed_at"))
    try:
        fit(ToyConfig.make(threads=1, **options), ToyDomain(), out, reporter=reporter)
    except UserError as error:
        if not more:
            raise
        if os.environ["RANK"] == "0":  # the others have met the same
            print(f"r2mae: {error}", file=sys.stderr, flush=True)


def train_all() -> int:
    """Train the runs of the command."""
    step = os.environ.get("R2MAE_TEST_WAIT")
    for out, options in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        train(out, json.loads(options), Waiting(int(step)) if step else None)
    return 0


def refuse_threads() -> None:
    """Fail if threads of Gloo are left when Python ends: one that then frees a tensor aborts the process, sometimes."""
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    left = [name for name in names if "gloo" in name]
    if left and not any("fsdp" in word for word in sys.argv):  # where torch keeps the group, it waits instead
        print(f"threads are left: {left}", file=sys.stderr, flush=True)
        os._exit(9)


if __name__ == "__main__":
    atexit.register(refuse_threads)  # runs after what the library registers later
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if "R2MAE_TEST_EXIT" in os.environ and os.environ.get("RANK") == "1":
        os._exit(3)
    try:
        sys.exit(run_on_devices(train_all))
    except UserError as error:
        sys.exit(f"r2mae: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
