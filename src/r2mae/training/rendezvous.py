"""The processes of a run that torchrun or SLURM has started: they meet, agree, watch each other, and end together.

They talk through torch's key-value store, which the process group uses, too. Processes that process 0 starts itself on
its own machine need none of this; see :mod:`r2mae.training.launcher`.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from r2mae import __version__
from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.ranks import FOLLOWING, GOES_ON, SLURM, launched_by, process_rank

JOIN_TIMEOUT = "R2MAE_JOIN_TIMEOUT"
"""Environment variable: seconds in which all processes must have come."""

_JOIN = 300.0  # by default
_SILENCE = 40.0  # seconds without a sign of life, after which a process counts as lost
_BEAT = 1.0  # seconds between two signs of life
_HELD = 10.0  # seconds by which a wait may be too long, before this process counts as one that was paused
_GRACE = 6.0  # seconds in which the main thread should notice by itself, and end in good order
_POLL = 0.05
_OWN = ("device", "workers", "threads", "cache", "logger")  # may differ from machine to machine


class LostProcessError(UserError):
    """Another process of the run has ended; what failed here is only the consequence."""


def external_environment() -> ClusterEnvironment | None:
    """Return what Lightning calls the launcher that started this process as one of several; None if none did."""
    launcher = launched_by()
    if launcher is None:
        return None
    return _Slurm(auto_requeue=False) if launcher == SLURM else TorchElasticEnvironment()


class _Slurm(SLURMEnvironment):
    """Tasks of SLURM, however they were laid out: :func:`~r2mae.training.ranks.process_rank` has compared that.

    Lightning asks for ``--ntasks-per-node``, and goes by it where ``srun`` was told otherwise than ``sbatch``.
    """

    @staticmethod
    def _validate_srun_variables() -> None: ...

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Accept them."""


class Rendezvous:
    """What the processes of a run tell each other beside their gradients.

    Attributes
    ----------
    store : torch.distributed.Store or None
        Of this start of the run alone; None unless a launcher started several processes.
    rank, ranks : int
        This process, and how many there are.
    """

    def __init__(self) -> None:
        self.store: Any = None
        self.rank, self.ranks, self.nodes = 0, 1, 1
        self._over = threading.Event()
        self._signs: _Signs | None = None
        self._parted = False

    @contextmanager
    def together(self, config: RunConfig) -> Iterator[None]:
        """Within the block, the processes of a run are in touch; an error of one ends all, and one process tells it.

        Raises
        ------
        UserError
            If not all processes come in time, or they differ in what they are to do.
        SystemExit
            With code 2, in a process that leaves the telling to another.
        """
        if self.store is not None or config.ranks == 1 or (environment := external_environment()) is None:
            yield
            return
        FOLLOWING.pass_on = self._pass_on
        self.rank, self.ranks, self.nodes = process_rank(config.devices, config.nodes), config.ranks, config.nodes
        self._over, self._signs, self._parted = threading.Event(), None, False
        try:
            with self._store_lost():
                self._meet(environment)
            self._signs = _Signs(self.store, self.rank, self.ranks, self._over)
            threading.Thread(target=self._watch, args=(self._signs,), daemon=True, name="r2mae rendezvous").start()
            told = {name: value for name, value in config.to_dict().items() if name not in _OWN}
            self.agree("configuration", {"version of r2mae": __version__, **told})
            yield
        except UserError as error:
            self._over.set()
            raise self._told(error) from None
        except Exception as error:  # a bug: its traceback is shown, and the others end, too
            self._over.set()
            self._raised(f"{type(error).__name__}: {error}")
            raise
        except BaseException as stop:  # a signal, or the end of a process that has done its part
            self._over.set()
            if not (self._parted or (isinstance(stop, SystemExit) and stop.code in (0, None))):
                self._raised(f"stopped; {GOES_ON}")
            raise
        finally:
            self.leave()
            self.store, self._signs, FOLLOWING.pass_on = None, None, None

    def agree(self, what: str, mine: Mapping[str, Any]) -> None:
        """Compare values with those of the other processes.

        Raises
        ------
        UserError
            If another process has others. It names the first difference.
        """
        if self.store is None:
            return
        with self._store_lost():
            self.store.set(f"{what}/{self.rank}", json.dumps(mine, default=str))
            keys = [f"{what}/{rank}" for rank in range(self.ranks)]
            while not self.store.check(keys):  # the watch ends this process if one of the others is lost
                for rank, key in enumerate(keys):
                    if self.store.check([f"left/{rank}"]) and not self.store.check([key]):
                        raise UserError(
                            f"{_named(rank, self.ranks)} has ended, and this one has not begun: see that all machines "
                            "have the same --out, on a disk that they share"
                        )
                time.sleep(_POLL)
            first, *others = (json.loads(self.store.get(key)) for key in keys)
        for rank, theirs in enumerate(others, 1):
            for name in first:
                if first[name] != theirs.get(name):
                    raise UserError(
                        f"the processes of this run differ: {name} is {first[name]!r} in process 1 of {self.ranks} "
                        f"and {theirs.get(name)!r} in {_named(rank, self.ranks)}: start the same command on the same "
                        "data on every machine"
                    )

    @contextmanager
    def _store_lost(self) -> Iterator[None]:
        """Say what it means that the store does not answer."""
        try:
            yield
        except RuntimeError:
            raise LostProcessError(f"{_named(0, self.ranks)} or its machine has ended; {GOES_ON}") from None

    def part(self) -> None:
        """Note that all processes stop at this step: it is no failure that the others should hear of."""
        self._parted = True

    def leave(self) -> None:
        """Stop watching the others, who see that this was on purpose."""
        self._over.set()
        if self.store is not None:
            _quietly(lambda: self.store.set(f"left/{self.rank}", "1"))

    def _meet(self, environment: ClusterEnvironment) -> None:
        """Connect to the store, and wait for all processes of this start of the run.

        The store of torchrun may hold what processes have left there that have ended since. So process 0 makes a name
        for this start, and says which arrivals it has seen under that name.
        """
        limit = _join_timeout()
        until = time.monotonic() + limit
        address, port = environment.main_address, environment.main_port
        store = self._connect(address, port, limit)
        nonce = os.urandom(8).hex()
        if self.rank == 0:
            name = nonce
            store.set("r2mae/start", name)
            keys = [f"r2mae/{name}/came/{rank}" for rank in range(1, self.ranks)]
            while not store.check(keys):
                if time.monotonic() > until:
                    raise self._incomplete(store, name, keys, limit)
                time.sleep(_POLL)
            store.set(f"r2mae/{name}/all", json.dumps([nonce, *(store.get(key).decode() for key in keys)]))
        else:
            name = ""
            while True:
                if store.check(["r2mae/start"]) and (named := store.get("r2mae/start").decode()) != name:
                    name = named
                    store.set(f"r2mae/{name}/came/{self.rank}", nonce)
                if name and store.check([f"r2mae/{name}/all"]):
                    seen = json.loads(store.get(f"r2mae/{name}/all"))
                    if seen[self.rank] == nonce:
                        break
                if name and _says(store, f"r2mae/{name}/late", nonce):
                    store.set(f"r2mae/{name}/heard/{self.rank}", "1")
                    raise SystemExit(2)  # process 0 tells who is missing
                if time.monotonic() > until + _GRACE:  # process 0 tells first
                    raise _late("not all processes have come", 0, limit)
                time.sleep(_POLL)
        self.store = PrefixStore(name, store)

    def _incomplete(self, store: Any, name: str, keys: list[str], limit: float) -> UserError:
        """Return who is missing, once those that have come have heard that they need not wait."""
        come = {rank: store.get(key).decode() for rank, key in enumerate(keys, 1) if store.check([key])}
        store.set(f"r2mae/{name}/late", json.dumps(list(come.values())))
        if come:
            _there(store, [f"r2mae/{name}/heard/{rank}" for rank in come], _GRACE / 2)
        missing = next(rank for rank in range(1, self.ranks) if rank not in come)
        return _late(f"only {len(come) + 1} of {self.ranks} processes have come", missing, limit)

    def _connect(self, address: str, port: int, limit: float) -> Any:
        hosts = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
        try:
            return TCPStore(
                address,
                port,
                world_size=self.ranks,
                is_master=hosts,
                timeout=timedelta(seconds=limit),
                wait_for_workers=False,
                multi_tenant=True,
            )
        except RuntimeError as error:
            if "address already in use" in str(error).lower():
                raise UserError(f"port {port} of this machine is taken: set MASTER_PORT to a free one") from None
            raise _late(f"nobody answers at {address}:{port}", 0, limit) from None

    def _told(self, error: UserError) -> BaseException:
        """Return what this process raises: the first error of them all in the one that tells it, else SystemExit."""
        if self.store is None:  # they have not met
            return error
        message = str(error)
        own = self.rank > 0 and not isinstance(error, LostProcessError)
        try:
            first = self._post(f"{_named(self.rank, self.ranks)}: {message}" if own else message)
            message = message if first.endswith(message) else first
            if self.rank == 0:
                self.store.set("told", "1")
                _there(self.store, [f"heard/{rank}" for rank in range(1, self.ranks)], _GRACE / 2)
                return UserError(message)
            self.store.set(f"heard/{self.rank}", "1")
            if _there(self.store, ["told"], 2 * _GRACE + 2):  # where process 0 hangs, its watch tells, in a while
                return SystemExit(2)
        except RuntimeError:  # the store has gone with process 0, or its machine
            if self._signs is not None and self._signs.told:
                return SystemExit(2)
        return UserError(message) if self._speaks_next else SystemExit(2)

    def _post(self, message: str) -> str:
        """Note why this process ends, unless another has done so before; return the first message."""
        self.store.compare_set("failed", "", message)
        first: bytes = self.store.get("failed")
        return first.decode()

    def _raised(self, message: str) -> None:
        """Let the others know of an error that this process raises by itself; process 0 tells it for all."""
        if self.rank == 0 and self.store is not None:
            _quietly(lambda: self.store.set("told", "1"))
        if self._leave_word(message) and self.rank == 0:
            _quietly(lambda: _there(self.store, [f"heard/{rank}" for rank in range(1, self.ranks)], _GRACE / 2))

    def _leave_word(self, message: str) -> bool:
        """Let the others know why this process ends; return False if they cannot be told."""
        if self.store is None:
            return False
        return _quietly(lambda: self._post(f"{_named(self.rank, self.ranks)}: {message}")) is not None

    def _pass_on(self, message: str) -> bool:
        """Let process 0 tell why this process ends; return False if it is this one that tells it."""
        return self.rank > 0 and self._leave_word(message)

    @property
    def _speaks_next(self) -> bool:
        """Whether this process tells what happened where process 0 cannot: the first of another machine."""
        return self.rank == (self.ranks // self.nodes if self.nodes > 1 else 1)

    def _watch(self, signs: "_Signs") -> None:
        """End this process soon after another has failed or was lost, if it does not end by itself."""
        store = signs.store
        threading.Thread(target=signs.exchange, daemon=True, name="r2mae signs of life").start()
        if not (message := signs.awaited()):
            return
        # The main thread is held by a collective, or reads data.
        if self.rank == 0:
            _quietly(lambda: store.set("told", "1"))
        elif (
            signs.told
            or (not signs.gone and _quietly(lambda: _there(store, ["told"], _GRACE)))
            or not self._speaks_next
        ):
            os._exit(1)
        print(f"r2mae: {' '.join(message.split())}", file=sys.stderr, flush=True)
        os._exit(1)


class _Signs:
    """Signs of life: of this process to the others, and of process 0 to this one (to process 0, of all others)."""

    def __init__(self, store: Any, rank: int, ranks: int, over: threading.Event) -> None:
        self.store, self.rank, self.ranks, self.over = store.clone(), rank, ranks, over
        self.told = False  # by process 0, why all end
        self._broken = False
        self._failed = ""
        self._beat = 0
        self._answered = time.monotonic()
        self._seen = dict.fromkeys([0] if rank else range(1, ranks), ("", self._answered))

    @property
    def gone(self) -> bool:
        """Whether the store, or the way to it, is lost."""
        return self._broken or time.monotonic() - self._answered > _SILENCE

    def awaited(self) -> str:
        """Wait until another process is lost, and return what has happened to it; empty if all is over before."""
        while True:
            while not self.lost():
                if self._wait(_BEAT):
                    return ""
            if self._wait(_GRACE):
                return ""
            if message := self.lost():  # still, after all that it could say meanwhile
                return message

    def lost(self) -> str:
        """Return what has happened to another process, empty as long as all is well."""
        if self._failed:
            return self._failed
        if self.gone:
            return f"{_named(0, self.ranks)} or its machine has ended; {GOES_ON}"
        now = time.monotonic()
        for rank, (_, when) in self._seen.items():
            if now - when > _SILENCE:
                return f"{_named(rank, self.ranks)} gives no sign of life; {GOES_ON}"
        return ""

    def exchange(self) -> None:
        """Give signs and look for those of the others; a store whose machine is lost may never answer."""
        while not self.over.wait(_BEAT):
            try:
                self.look()
            except RuntimeError:
                self._broken = True
                return
            if self._failed and (self.rank == 0 or self.told):
                return

    def look(self) -> None:
        """Give one sign, and look once for those of the others."""
        self._beat += 1
        self.store.set(f"alive/{self.rank}", str(self._beat))
        if not self._failed and self.store.check(["failed"]):
            self._failed = self.store.get("failed").decode()
        if self.rank and self.store.check(["told"]):
            self.told = True
            self.store.set(f"heard/{self.rank}", "1")
        for rank, (before, _) in list(self._seen.items()):
            key = f"alive/{rank}"
            sign = self.store.get(key).decode() if self.store.check([key]) else ""
            if sign != before or self.store.check([f"left/{rank}"]):
                self._seen[rank] = (sign, time.monotonic())
        self._answered = time.monotonic()

    def _wait(self, seconds: float) -> bool:
        """Wait, and return whether all is over. Silence counts again if this process itself was paused meanwhile."""
        before = time.monotonic()
        if self.over.wait(seconds):
            return True
        now = time.monotonic()
        if now - before > seconds + _HELD:
            self._answered = now
            for rank, (sign, _) in list(self._seen.items()):
                self._seen[rank] = (sign, now)
        return False


def _says(store: Any, key: str, value: str) -> bool:
    """Whether a list in the store has a value."""
    return bool(store.check([key])) and value in json.loads(store.get(key))


def _join_timeout() -> float:
    said = os.environ.get(JOIN_TIMEOUT, "")
    try:
        limit = float(said or _JOIN)
    except ValueError:
        limit = 0.0
    if not 0 < limit < 86_400:
        raise UserError(f"{JOIN_TIMEOUT} is a number of seconds, such as 300, not {said!r}")
    return limit


def _late(what: str, rank: int, limit: float) -> UserError:
    who = "process 1 (rank 0)" if rank == 0 else f"rank {rank}"
    return UserError(
        f"{what} within {limit:g} seconds ({who} is missing): start the same command on every machine, where each can "
        f"reach the first one; {JOIN_TIMEOUT} changes the limit"
    )


def _named(rank: int, ranks: int) -> str:
    return f"process {rank + 1} of {ranks} (rank {rank})"


def _there(store: Any, keys: list[str], seconds: float) -> bool:
    """Wait until the store has all these keys; return False if it has not by then."""
    until = time.monotonic() + seconds
    while not store.check(keys):
        if time.monotonic() > until:
            return False
        time.sleep(_POLL)
    return True


def _quietly(action: Callable[[], Any]) -> Any:
    """Do what needs the store, unless it has gone."""
    try:
        return action()
    except RuntimeError:
        return None


RENDEZVOUS = Rendezvous()
