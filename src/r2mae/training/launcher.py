"""The processes that rank 0 starts for a run: when one of them ends, all end, and one line says which.

Lightning starts them. Without this module, Lightning ends everything without a message when a process is lost; or a
collective that waits for the lost one raises a traceback in each of the others, or waits for half an hour.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from lightning.fabric.utilities.distributed import _destroy_dist_connection, _set_num_threads_if_needed
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from r2mae.training.ranks import GOES_ON, LEADER
from r2mae.training.rendezvous import RENDEZVOUS, LostProcessError

_POLL = 0.25  # seconds between looks at the others
_GRACE = 5.0  # seconds in which rank 0 should notice by itself, and end in good order
_LOST = ("gloo", "nccl", "connection", "broken pipe", "store", "socket", "timed out", "process group")  # of torch


class WatchedLauncher(_SubprocessScriptLauncher):
    """Starts the other processes of a run, and watches them.

    Attributes
    ----------
    ended : str or None
        How the first lost process ended, in words.
    """

    ended: str | None = None
    _over = threading.Event()

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        """Start the processes, unless torchrun or SLURM has done so, then train."""
        self._over, self._known = threading.Event(), threading.Event()
        self.cluster_environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        if not self.cluster_environment.creates_processes_externally:
            os.environ[LEADER] = str(os.getpid())
            self._call_children_scripts()
            threading.Thread(target=self._watch, daemon=True, name="r2mae ranks").start()
        _set_num_threads_if_needed(num_processes=self.num_processes)
        return function(*args, **kwargs)

    def over(self) -> None:
        """Stop watching: the run has ended, with or without an error."""
        self._over.set()

    def end_others(self) -> None:
        """End the processes that this one started; whatever they save, they save together with this one."""
        for process in self.procs:
            if process.poll() is None:
                process.kill()

    def lost(self) -> str | None:
        """Return how a process was lost; wait for it, since its connection breaks moments before its end is seen."""
        if self.procs:
            self._known.wait(_GRACE)
        return self.ended

    def _watch(self) -> None:
        while not self._over.wait(_POLL):
            for rank, process in enumerate(self.procs, 1):
                if process.poll():
                    self.ended = _told(rank, self.num_processes, process.returncode)
                    self._known.set()
                    if not self._over.wait(_GRACE):  # rank 0 is held by a collective, or by the rendezvous before it
                        self.end_others()
                        print(f"r2mae: {self.ended}; {GOES_ON}", file=sys.stderr, flush=True)
                        os._exit(1)
                    return


class WatchedStrategy(DDPStrategy):
    """Distributed data parallelism over processes that end together."""

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = WatchedLauncher(self.cluster_environment, self.num_processes, self.num_nodes)

    def setup_distributed(self) -> None:
        """Make the process group, from the store through which the processes have met, where they have."""
        if RENDEZVOUS.store is not None and not torch.distributed.is_initialized():
            if self.root_device.type == "cuda":
                atexit.register(_destroy_dist_connection)  # as Lightning does where it makes the group
            torch.distributed.init_process_group(
                self._get_process_group_backend(),
                store=PrefixStore("group", RENDEZVOUS.store),
                rank=RENDEZVOUS.rank,
                world_size=RENDEZVOUS.ranks,
                timeout=self._timeout,
                device_id=self.root_device if self.root_device.type == "cuda" else None,
            )
        super().setup_distributed()

    @property
    def watched(self) -> WatchedLauncher | None:
        """The launcher; None before the trainer is made."""
        return self._launcher if isinstance(self._launcher, WatchedLauncher) else None


def loss_of_a_process(error: BaseException, launcher: WatchedLauncher | None) -> LostProcessError | None:
    """Return a message if an error is only the consequence of the end of another process of the run, else None."""
    if not isinstance(error, RuntimeError) or not any(word in str(error).lower() for word in _LOST):
        return None
    ended = None if launcher is None else launcher.lost()
    return LostProcessError(f"{ended or 'another process of this run ended, and none trains alone'}; {GOES_ON}")


def _told(rank: int, ranks: int, code: int) -> str:
    who = f"process {rank + 1} of {ranks} (rank {rank})"
    if code >= 0:
        return f"{who} ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"{who} was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
