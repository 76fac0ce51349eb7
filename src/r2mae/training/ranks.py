"""The rank of this process, known before any process group exists; and ending processes whose parent has ended."""

import os
import sys
import threading
import time
from collections.abc import Callable

from r2mae.errors import UserError

LEADER = "R2MAE_LEADER"  # process id of rank 0, in the environment of the processes that it starts
GOES_ON = "rerun the same command to resume from the last checkpoint"
TORCHRUN, SLURM = "torchrun", "SLURM"
_VARIABLES = {TORCHRUN: ("RANK", "WORLD_SIZE"), SLURM: ("SLURM_PROCID", "SLURM_NTASKS")}
_EVERYWHERE = {TORCHRUN: "--nproc-per-node", SLURM: "--ntasks-per-node"}
# Which process of how many this is, as launchers say it; Lightning and torch read them, too.
_NUMBERS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT",
            "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "JSM_NAMESPACE_RANK")  # fmt: skip
_DIGITS = 9
_POLL = 0.5  # seconds between looks at rank 0
_PATIENCE = 5.0  # seconds that rank 0 has to end the others, when all meet the same error


def process_rank(devices: int, nodes: int = 1) -> int:
    """Return this process's rank among those that train one model together.

    It is read from the environment variables of torchrun, of SLURM, or of Lightning, for processes that it starts. A
    run on one device is always rank 0, even if SLURM started several such processes: each of them is a run of its own.

    Parameters
    ----------
    devices : int
        How many processes the run is meant to have on each machine.
    nodes : int
        On how many machines.

    Raises
    ------
    UserError
        If a launcher started another number of processes, or laid them out otherwise, or none started those of several
        machines.
    """
    launcher = launched_by()
    if launcher is None or (launcher == SLURM and devices * nodes == 1):
        if nodes > 1:
            raise UserError(
                f"--nodes {nodes} needs torchrun or srun to start the command on every machine: see docs/cluster.md"
            )
        return int(os.environ.get("LOCAL_RANK", "0")) if devices > 1 else 0
    rank, size = _VARIABLES[launcher]
    place, count = int(os.environ[rank]), int(os.environ[size])
    if place >= count:
        raise UserError(f"{rank} is {place} and {size} {count}: the first of {count} processes has the rank 0")
    machines, here = _layout(launcher, count)
    if machines * here != count:
        raise UserError(
            f"{count} processes were started on several machines, and not as many on each: start as many everywhere, "
            f"for --nodes {nodes} --devices {devices} with {_EVERYWHERE[launcher]} {devices}"
        )
    hint = f"--nodes {machines} --devices {here}" if machines > 1 or nodes > 1 else f"--devices {here}"
    if count != devices * nodes:
        there = f" on each of {nodes} machines" if nodes > 1 else ""
        raise UserError(f"{count} processes were started for {devices} device(s){there}: say {hint}")
    if here != devices:
        raise UserError(
            f"{here} processes were started on this machine, and --devices says {devices}: say --nodes {machines} "
            f"--devices {here}"
        )
    return place


def check_variables() -> None:
    """Refuse variables of launchers that hold no number, before a library that reads them is imported.

    Raises
    ------
    UserError
        It names the variable.
    """
    for name in _NUMBERS:
        told = os.environ.get(name, "0")
        if not (told.isascii() and told.isdecimal() and len(told) <= _DIGITS):
            raise UserError(f"the environment variable {name} must be a whole number, not {told[:40]!r}: unset it")


def launched_by() -> str | None:
    """Return which program has started this process as one of several: torchrun, SLURM or none."""
    for launcher, (rank, size) in _VARIABLES.items():
        count = os.environ.get(size, "1")
        if os.environ.get(rank, "").isdigit() and count.isdigit() and count != "1":
            return launcher
    return None


def is_first() -> bool:
    """Return whether this process is the first of those that were started together, or the only one."""
    launcher = launched_by()
    return LEADER not in os.environ and (launcher is None or int(os.environ[_VARIABLES[launcher][0]]) == 0)


def local_processes(devices: int) -> int:
    """Return how many of a run's processes share this machine: what torchrun or SLURM says, else all of them.

    Parameters
    ----------
    devices : int
        How many processes the run has on each machine.
    """
    launcher = launched_by()
    if launcher is None:
        return min(devices, _number("LOCAL_WORLD_SIZE") or devices)
    return min(devices, _layout(launcher, int(os.environ[_VARIABLES[launcher][1]]))[1])


def _layout(launcher: str, count: int) -> tuple[int, int]:
    """Return on how many machines processes were started, and how many on each, or on this one if they differ."""
    if launcher == SLURM:
        machines = _number("SLURM_STEP_NUM_NODES") or _number("SLURM_NNODES")
        here = count // machines if machines else _number("SLURM_NTASKS_PER_NODE")
    else:
        machines, here = 0, _number("LOCAL_WORLD_SIZE")
    here = min(count, here or count)
    return machines or count // here, here


def _number(name: str) -> int:
    told = os.environ.get(name, "")
    return int(told) if told.isascii() and told.isdecimal() else 0


class Following:
    """Ends this process soon after its parent has ended: rank 0, or torchrun.

    Otherwise a rank that waits for another one, in a collective or at the rendezvous, would wait for half an hour.
    """

    def __init__(self) -> None:
        self.leader: int | None = None
        self.pass_on: Callable[[str], bool] | None = None  # tells it through another process, if there is a way
        self._over = False

    def start(self) -> None:
        """Begin to watch the parent. It does nothing in a process that is not one of several, or if called again."""
        self._over = False
        if self.leader is not None:
            return
        named = os.environ.get(LEADER, "")
        if named.isascii() and named.isdecimal() and os.environ.get("LOCAL_RANK", "0") != "0":
            self.leader = int(named)
        elif "TORCHELASTIC_RUN_ID" in os.environ:
            self.leader = os.getppid()
        if self.leader is not None:
            threading.Thread(target=self._look, daemon=True, name="r2mae leader").start()

    def stop(self) -> None:
        """Stop watching: the run has ended, and rank 0 may end, too."""
        self._over = True

    def await_end(self) -> None:
        """Wait a moment for rank 0 to end this process: an error that all ranks have is reported by rank 0 alone."""
        if self.leader is not None and LEADER in os.environ:
            time.sleep(_PATIENCE)

    def _look(self) -> None:
        while True:
            if os.getppid() != self.leader and not self._over:
                size = os.environ.get("WORLD_SIZE", "2")
                who = "torchrun" if "TORCHELASTIC_RUN_ID" in os.environ else f"process 1 of {size} (rank 0)"
                line = f"{who} ended, and with it the run; {GOES_ON}"
                passed = self.pass_on is not None and self.pass_on(line)
                # one tells for all
                if not passed and os.environ.get("RANK", os.environ.get("LOCAL_RANK")) in ("0", "1"):
                    print(f"r2mae: {line}", file=sys.stderr, flush=True)
                os._exit(1)
            time.sleep(_POLL)


FOLLOWING = Following()
