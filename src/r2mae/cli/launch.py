"""Several processes of a command: it is run again under torchrun, and its exit code says how they ended. No torch."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from r2mae.errors import UserError
from r2mae.training.ranks import LAUNCHED, RESUMES, NotStartedError, ProcessLostError, is_launched, is_relaunched

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

_LOST = 75  # exit code of a process that ended only because another one did
_FORCED = 20.0  # seconds to save, after the launcher has ended


def run_on_devices(command: Callable[[], int]) -> int:
    """Run a command, under torchrun if it needs several processes, and return its exit code.

    A process of torchrun ends when its launcher has ended.
    """
    if is_launched():
        threading.Thread(target=_follow, args=(os.getppid(),), daemon=True, name="r2mae launcher").start()
    try:
        return command()
    except NotStartedError as error:
        return launch(error.devices)
    except ProcessLostError as lost:
        if not is_relaunched():
            raise
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(lost.__cause__ or lost)  # for `launch`
        return _LOST


def launch(devices: int) -> int:
    """Run the command of this process again as several processes under torchrun, and return their exit code."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        raise UserError(f"{devices} devices need a command or a script, which each process runs: write one")
    logging.disable(logging.CRITICAL)  # torchrun's own messages; this process has none left
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // devices)))
    with TemporaryDirectory() as logs:  # torchrun makes a folder, and leaves it
        os.environ[LAUNCHED] = "1"
        settings = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=devices,
            run_id="r2mae",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            local_addr="localhost",
            logs_specs=DefaultLogsSpecs(logs),
        )
        try:
            elastic_launch(settings, sys.executable)(*sys.orig_argv[1:])
        except SignalException as stop:
            return 128 + int(stop.sigval)
        except ChildFailedError as error:
            return _exit_code(error.failures, devices)
    return 0


def _exit_code(failures: "Mapping[int, ProcessFailure]", ranks: int) -> int:
    """Report which process ended the others, unless it has done so itself; return the exit code of the command.

    torchrun's own summary names the process that it noticed first. Here, one that torchrun ended, or that lost its
    connection, is no cause.
    """
    codes = {rank: failure.exitcode for rank, failure in failures.items()}
    stopped = [128 + number for number in (signal.SIGINT, signal.SIGTERM)]
    for code in (*stopped, 2):  # a run that was stopped, and a user's mistake
        if code in codes.values():
            return code
    rank, code = min(codes.items(), key=lambda one: (one[1] in (-signal.SIGTERM, _LOST), one[0]))
    how = f"ended with exit code {code}"
    if code == _LOST:
        how = f"lost the others ({' '.join(failures[rank].message.split())[:300]})"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        how = f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    print(f"r2mae: process {rank + 1} of {ranks} (rank {rank}) {how}; {RESUMES}", file=sys.stderr, flush=True)
    return 1


def _follow(launcher: int) -> None:
    """Stop this process as SIGTERM does when its launcher has ended, so that none continues alone."""
    while os.getppid() == launcher:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_FORCED)
    os._exit(1)
