"""The workers of a cluster, as a sweep sees them: which are fit for its runs, and how much room each has."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2mae.errors import UserError
from r2mae.sweep.dask_worker import about

_LOOK = 1.0  # seconds between looks at which workers there are
_JOIN = 600.0  # seconds that a scheduler which runs may be without a fit worker
_OTHERS = 10.0  # seconds that fit workers may take to join where there are others alone
_WAIT = 60.0  # seconds between lines while there is none
_ANSWER = 30.0  # seconds that the scheduler or a worker may take to answer
_LOST = (
    "the scheduler of the cluster has gone, and its workers with it: start it again, and "
    "rerun the same command to resume; "
    "finished runs are kept"
)
GPU, MEMORY = "GPU", "MEMORY"  # what workers call their resources


class LostError(UserError):
    """The scheduler went away."""


@dataclass
class _Worker:
    """A worker that has passed the checks."""

    name: str
    room: int
    resources: dict[str, float]


@dataclass
class _Check:
    """A check in progress; it begins when its worker has a thread for it."""

    future: Any
    asked: float
    begun: float | None = None


class Workers:
    """Keeps account of a cluster's workers.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    check : mapping
        The request with which a worker checks itself (:func:`r2mae.sweep.run_process.check`).
    work : callable
        The body of the task that checks.
    memory : int or None
        Bytes that each run may take.
    say : callable
        Prints a line.
    patient : bool
        Whether to wait for a fit worker as long as it takes: in the queue of a cluster it may take hours, and a bad
        node may be the first to come.
    """

    def __init__(
        self,
        client: Any,
        check: Mapping[str, Any],
        work: Callable[[Mapping[str, Any]], dict[str, Any]],
        memory: int | None,
        say: Callable[[str], None],
        *,
        patient: bool,
    ) -> None:
        self._client, self._check, self._work, self._memory, self._say = client, check, work, memory, say
        self._patient = patient
        self._fit: dict[str, _Worker] = {}
        self._taken: dict[str, int] = {}  # runs of each worker; also of one that is not fit, or not there, any more
        self._given: set[str] = set()
        self._unfit: dict[str, str] = {}
        self._checks: dict[str, _Check] = {}
        self._names: dict[str, str] = {}
        self._silent: dict[str, float] = {}  # workers that did not answer, and when
        self._there: Mapping[str, Any] = {}
        self._device = ""
        self._looked = -_LOOK
        self._empty = self._told = self._waited = time.monotonic()

    def look(self) -> list[str]:
        """Look which workers there are, now and then, and check new ones. Return those that have runs and are gone.

        Raises
        ------
        UserError
            If the scheduler has gone, no worker is fit, or there is none for long.
        """
        self.check_scheduler()
        self._end_checks()
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return []
        self._looked = now
        self._there = there = self._ask()
        self._given &= set(there)
        for gone in (self._fit, self._unfit, self._checks, self._silent):
            for address in [one for one in gone if one not in there]:
                gone.pop(address)
        new = [
            address
            for address, told in there.items()
            if told["status"] == "running"
            and not any(address in seen for seen in (self._fit, self._unfit, self._checks))
            and now - self._silent.get(address, -_WAIT) >= _WAIT
        ]
        if new:
            self._begin_checks(new)
        self._limit_checks()
        self._check_any()
        return [address for address in self._taken if address not in there]

    def _ask(self) -> Mapping[str, Any]:
        """Return what the scheduler knows of its workers, by address.

        `Client.scheduler_info` may return an answer to another question, in which there are none.
        """
        try:
            told = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWER)
        except (OSError, AttributeError):  # too late; or the second, in the moment in which the connection is lost
            raise LostError(_LOST) from None
        workers: Mapping[str, Any] = told["workers"]
        return workers

    def check_scheduler(self) -> None:
        """Raise an error if the scheduler has gone."""
        if self._client.status != "running":
            raise LostError(_LOST)

    def free(self) -> str | None:
        """Return the worker with the most room, or None if all are full."""
        room = {address: worker.room - self._taken.get(address, 0) for address, worker in self._fit.items()}
        best = max(room, key=room.__getitem__, default=None)
        return best if best is not None and room[best] > 0 else None

    def take(self, address: str) -> None:
        """Note that a worker has got a run."""
        self._taken[address] = self._taken.get(address, 0) + 1

    def give(self, address: str) -> None:
        """Note that a run of a worker has ended, or is given up."""
        self._taken[address] -= 1
        if not self._taken[address]:
            del self._taken[address]

    def drop(self, address: str) -> None:
        """Give a worker that seems to end no more runs; if it does not end, it is checked again.

        Its other runs go on.
        """
        self._fit.pop(address, None)

    def resources(self, address: str) -> dict[str, float]:
        """Return what a run takes of a worker's resources, as far as the worker names them."""
        return self._fit[address].resources

    def name(self, address: str) -> str:
        """Return machine and address of a worker."""
        return self._names.get(address, address)

    def known(self) -> list[str]:
        """Return the addresses of all workers that were given anything to do, and are there."""
        return sorted(self._given)

    def checks(self) -> list[Any]:
        """Return the futures of checks in progress."""
        return [check.future for check in self._checks.values()]

    def begun(self, address: str) -> None:
        """Note, in the thread of the client, that the check of a worker has begun."""
        if (check := self._checks.get(address)) is not None:
            check.begun = time.monotonic()

    def _begin_checks(self, addresses: list[str]) -> None:
        here = about()
        for address, told in ask(self._client, about, addresses).items():
            if isinstance(told, TimeoutError):
                self._silent[address] = time.monotonic()
                self._say(f"worker {self.name(address)} gives no answer; it is asked again in {_WAIT:.0f} s")
                continue
            self._silent.pop(address, None)
            problem = _other(told, here)
            if isinstance(told, dict):
                self._names[address] = f"{told['host']} ({address})"
            if problem:
                self._refuse(address, problem)
                continue
            self._given.add(address)
            future = self._client.submit(
                self._work,
                dict(self._check),
                key=f"{self._check['topic']}-check-{address}-{time.monotonic_ns()}",
                workers=[address],
                allow_other_workers=False,
                pure=False,
            )
            self._checks[address] = _Check(future, time.monotonic())

    def _end_checks(self) -> None:
        for address, check in list(self._checks.items()):
            if not check.future.done():
                continue
            del self._checks[address]
            try:
                outcome = check.future.result(timeout=_ANSWER)
            except Exception as error:
                outcome = {"state": "failed", "told": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
            if outcome["state"] in ("stopped", "lost"):
                continue
            if outcome["state"] != "finished":
                told = str(outcome.get("told", "its process ended while it was checked")).strip().splitlines()
                self._refuse(address, told[-1])
                continue
            self._admit(address, self._there[address], outcome["device"])

    def _limit_checks(self) -> None:
        """Say which checks take long, in a line for all, and refuse workers whose check does not end."""
        now = time.monotonic()
        for address, check in list(self._checks.items()):
            if check.begun is not None and now - check.begun > _JOIN:
                del self._checks[address]
                check.future.cancel()
                self._refuse(address, f"its check has not ended within {_JOIN:.0f} s: does it read from a slow disk?")
        late = {address: check for address, check in self._checks.items() if now - check.asked > _WAIT}
        if late and now - self._waited > _WAIT:
            self._waited = now
            address, check = min(late.items(), key=lambda one: one[1].asked)
            others = f", and those of {len(late) - 1} more" if len(late) > 1 else ""
            what = "waits: is the worker busy?" if check.begun is None else "is not at its end: it reads the data"
            asked = f"asked for {(now - check.asked) / 60:.0f} min ago"
            self._say(f"worker {self.name(address)}: its check{others}, {asked}, {what}")

    def _admit(self, address: str, told: Mapping[str, Any], device: str) -> None:
        """Work out how many runs a worker has room for."""
        if self._device and device != self._device:
            self._refuse(address, f"its device is {device}, and that of others {self._device}: say --device")
            return
        room, offered, resources = int(told["nthreads"]), dict(told["resources"]), {}
        if device == "cuda":
            if offered.get(GPU, 0) < 1:
                self._refuse(address, "it offers no GPU to tasks: start it with --resources GPU=1")
                return
            room, resources[GPU] = min(room, int(offered[GPU])), 1.0
        if self._memory is not None:
            limits = [limit for limit in (told["memory_limit"], offered.get(MEMORY)) if limit]
            if limits:
                room = min(room, int(min(limits)) // self._memory)
            if MEMORY in offered:
                resources[MEMORY] = float(self._memory)
            if room < 1:
                self._refuse(
                    address, f"it has {min(limits) / 1e9:.3g} GB of memory, and a run takes {self._memory / 1e9:.3g} GB"
                )
                return
        self._device = device
        self._fit[address] = _Worker(self.name(address), room, resources)

    def _refuse(self, address: str, why: str) -> None:
        self._unfit[address] = why
        self._say(f"worker {self.name(address)} is left out: {why}")

    def _check_any(self) -> None:
        """Raise an error if there is no worker to wait for."""
        now = time.monotonic()
        if self._fit or self._checks or self._taken:
            self._empty = self._told = now
            return
        address, why = next(iter(self._unfit.items()), ("", ""))
        if self._unfit and now - self._empty > _OTHERS and not self._patient:
            raise UserError(f"no worker of the cluster is fit for this sweep: {self.name(address)}: {why}")
        if now - self._empty > _JOIN and not self._patient:
            raise UserError(
                f"the cluster has had no worker for {_JOIN:.0f} s: start some (dask worker tcp://HOST:PORT --nthreads "
                "1), and rerun the same command to resume; finished runs are kept"
            )
        if now - self._told > _WAIT:
            self._told = now
            others = f" ({self.name(address)} is left out: {why})" if self._unfit else ""
            self._say(f"no worker yet, after {(now - self._empty) / 60:.0f} min{others}")


def ask(
    client: Any, function: Callable[..., Any], addresses: Sequence[str], *arguments: object, seconds: float = _ANSWER
) -> dict[str, Any]:
    """Call a function on workers, all at once.

    Returns
    -------
    dict
        What each worker returned, by address, or its error: a TimeoutError where none came within the time.
        A worker that has gone may be missing.
    """

    async def one(address: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                told: dict[str, Any] = await client.run(function, *arguments, workers=[address], on_error="return")
                return told
        except TimeoutError as error:
            return {address: error}

    async def every() -> dict[str, Any]:
        answers = await asyncio.gather(*map(one, addresses))
        return {address: told for answer in answers for address, told in answer.items()}

    answers: dict[str, Any] = client.sync(every, callback_timeout=2 * seconds)
    return answers


def _other(told: object, here: Mapping[str, Any]) -> str:
    """Return how a worker's versions differ from those of this machine; "" if they do not."""
    if not isinstance(told, Mapping):
        missing = isinstance(told, ModuleNotFoundError) and (told.name or "").split(".")[0] == "r2mae"
        reason = " ".join(str(told).split())[:200]
        return f"r2mae of this version is not installed there ({reason})" if missing else reason
    for name in ("r2mae", "torch"):
        if told[name] != here[name]:
            return f"it has {name} {told[name]}, and this machine {here[name]}: install the same version"
    return ""
