"""Train the toy wing with several processes; a script, because its processes start it again.

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

from tests.training.conftest import InterruptAt, ToyConfig, ToyWing

from r2mae.errors import UserError
from r2mae.training.loop import fit


class KilledAt(InterruptAt):
    """A reporter that ends its process, as the kernel does when memory is short."""

    def update(self, pace: Any) -> None:
        if pace.step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class Waiting(InterruptAt):
    """A reporter that waits, at a step that is saved, for whoever ends the process."""

    def update(self, pace: Any) -> None:
        if pace.step >= self.step:
            time.sleep(60)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    who, reporter = os.environ.get("R2MAE_TEST_KILL"), None
    if who == "rank 1 at the start" and os.environ.get("LOCAL_RANK") == "1":
        os._exit(3)
    if who == "rank 0 in training" and os.environ.get("LOCAL_RANK", "0") == "0":
        reporter = KilledAt(10)
    if os.environ.get("R2MAE_TEST_WAIT", "never") != "never":
        reporter = Waiting(int(os.environ["R2MAE_TEST_WAIT"]))
    if folder := os.environ.get("R2MAE_TEST_PIDS"):
        Path(folder, f".pid-{os.environ['RANK']}").write_text(str(os.getpid()))
    try:
        for out, options in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            fit(ToyConfig(threads=1, **json.loads(options)), ToyWing(), out, reporter=reporter)
    except UserError as error:
        sys.exit(f"r2mae: {error}")
