"""Train the toy domain with several processes; a script, because its processes start it again.

python tests/training/ddp.py OUT '{"devices": 2, "steps": 20}' [OUT OPTIONS …]
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.training.conftest import InterruptAt, ToyConfig, ToyDomain

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
            time.sleep(60)


def train(out: str, options: dict[str, Any], reporter: Any) -> None:
    """Train a run. Where more are to come, one that is refused ends none of them."""
    more = "R2MAE_TEST_GO_ON" in os.environ
    try:
        fit(ToyConfig.make(threads=1, **options), ToyDomain(), out, reporter=reporter)
    except UserError as error:
        if not more:
            sys.exit(f"r2mae: {error}")
        if os.environ["RANK"] == "0":  # the others have met the same
            print(f"r2mae: {error}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    who, reporter = os.environ.get("R2MAE_TEST_KILL"), None
    rank = os.environ.get("RANK")
    if who == "rank 1 at the start" and rank == "1":
        os._exit(3)
    if who == "rank 0 in training" and rank == "0":
        reporter = KilledAt(10)
    if step := os.environ.get("R2MAE_TEST_WAIT"):
        reporter = Waiting(int(step))
    for out, options in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        train(out, json.loads(options), reporter)
