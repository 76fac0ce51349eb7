"""Which of the processes that train a run this one is, by the environment variables of torchrun. No torch."""

import os

from r2mae.errors import UserError

LAUNCHED = "R2MAE_LAUNCHED"  # set for processes that a command starts again as several
RESUMES = "rerun the same command to resume from the last checkpoint"


class NotStartedError(UserError):
    """A run of several processes in a process that torchrun has not started; the command line starts them."""

    def __init__(self, devices: int) -> None:
        super().__init__(
            f"devices={devices} needs {devices} processes: start the script with torchrun "
            f"(torchrun --nproc-per-node {devices} SCRIPT.py), or use the command r2mae pretrain"
        )
        self.devices = devices


class ProcessLostError(UserError):
    """Another process of the run ended, and with it the connection."""


def is_launched() -> bool:
    """Return whether torchrun started this process as one of several."""
    return "RANK" in os.environ and _number("WORLD_SIZE") > 1


def is_first() -> bool:
    """Return whether this process is the first of those that were started together, or the only one."""
    return not is_launched() or _number("RANK") == 0


def is_relaunched() -> bool:
    """Return whether a command of r2mae, and not the user's torchrun, started this process as one of several."""
    return LAUNCHED in os.environ


def local_rank() -> int:
    """Return the place of this process among those on this machine."""
    return _number("LOCAL_RANK")


def process_rank(devices: int, nodes: int = 1) -> int:
    """Return the rank of this process among those that train one model together; 0 for the only one.

    The run has `devices` processes on each of `nodes` machines. If torchrun started another number, or SLURM alone
    started several, or those of several machines were not started, a :class:`UserError` says so.
    """
    if not is_launched():
        tasks = _number("SLURM_STEP_NUM_TASKS")
        if nodes > 1:
            raise UserError(
                f"--nodes {nodes} needs torchrun to start the command on every machine: see docs/cluster.md"
            )
        if devices > 1 and tasks > 1:
            raise UserError(
                f"SLURM started {tasks} tasks, and each would start {devices} processes: start one task on each "
                "machine (--ntasks-per-node 1): see docs/cluster-recipes.md"
            )
        return 0
    rank, count, _ = (_number(name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))  # torch reads all of them
    if not 0 <= rank < count:  # it would wait for a process that never comes
        raise UserError(f"RANK is {rank} and WORLD_SIZE {count}: the first of {count} processes has the rank 0")
    here = _number("LOCAL_WORLD_SIZE") or count
    if (here, count) != (devices, devices * nodes):
        hint = f"say --nodes {count // here} --devices {here}"
        if count % here:
            hint = f"start as many on each machine, with --nproc-per-node {devices}"
        raise UserError(
            f"{count} processes were started, {here} of them here, for {devices} device(s) on {nodes} nodes: {hint}"
        )
    return rank


def _number(name: str) -> int:
    try:
        return int(os.environ.get(name, "0"))
    except ValueError:
        raise UserError(f"the environment variable {name} must be a whole number: unset it") from None
