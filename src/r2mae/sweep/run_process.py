"""The process in which a worker of a cluster checks itself and runs runs: requests come in, lines of progress go out.

``python -m r2mae.sweep.run_process PARENT`` reads a request a line (JSON) from its input, and writes lines of JSON to
what was its output. A process of its own has a main thread, where a run hears signals and saves its step; it keeps the
number of threads that a run of the local runner has; and it can be ended.
"""

import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.files import read_confined

CELL_LOCK = ".run.lock"  # held while a run is trained and measured; its text names the process that holds it
MEETING = ".cluster"  # folder in the folder of a sweep, in which workers show that they see it
TOKEN = "token"

_IDLE = 300.0  # seconds without a request after which the process ends
_FOLLOW = 0.5  # seconds between looks at the parent
_RETRY = 0.5
_PATIENCE = 600.0  # seconds to wait for a run whose process has not ended yet; locks of a lost machine last minutes
_SEEN = 10.0  # seconds until a new file must be seen on a shared disk, which may remember its folders for some
_PROBE = 1 << 20  # bytes that a disk must have left

_Tell = Callable[[Mapping[str, Any]], None]


def main() -> int:
    """Answer requests until there are no more, or the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the worker's terminal: the worker ends this process
    threading.Thread(target=_follow, args=(int(sys.argv[1]),), daemon=True).start()
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to the worker's log

    def tell(message: Mapping[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    while select.select([sys.stdin], [], [], _IDLE)[0] and (line := sys.stdin.readline()):
        tell({"end": answer(json.loads(line), tell)})
        gc.collect()  # a trainer and its data are a cycle, and would stay while the next run loads its own
    return 0


def answer(request: Mapping[str, Any], tell: _Tell) -> dict[str, Any]:
    """Do what a request asks for, and return its outcome: `state`, and what belongs to it."""
    if Path(request["cwd"]).is_dir():  # relative paths of the configuration mean what they mean to the user
        os.chdir(request["cwd"])
    began = time.perf_counter()
    try:
        done = check(request) if request["do"] == "check" else _run(request, tell)
    except SystemExit:  # stopped by a signal, and saved
        return {"state": "stopped"}
    except UserError as error:
        return {"state": "failed", "told": str(error)}
    except OSError as error:
        told = f"{error.filename or 'the system'}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return {"state": "full", "told": f"{told}; free some space, and rerun the same command to resume"}
        return {"state": "failed", "told": told}
    except Exception:
        return {"state": "broken", "told": traceback.format_exc()}
    return {"state": "finished", "seconds": time.perf_counter() - began, **done}


def check(request: Mapping[str, Any]) -> dict[str, Any]:
    """Look at the folder, its locks, the data and the device as a run would on this machine.

    Parameters
    ----------
    request : mapping
        `folder` of the sweep and the `token` in it, `domain`, and `reads`: for each set of data that runs read, the
        `fields` of a configuration and the data's `fingerprint`.

    Returns
    -------
    dict
        `device`: "cpu" or "cuda".

    Raises
    ------
    UserError
        If the folder is another one or cannot be written, if its locks do not hold on this machine, or if the data are
        missing or others.
    """
    meeting = Path(request["folder"]) / MEETING
    _check_folder(meeting, request["token"])
    _check_locks(meeting)
    from r2mae.domains.lookup import get_domain
    from r2mae.training.devices import torch_device

    domain, device = get_domain(request["domain"]), "auto"
    for read in request["reads"]:
        config = domain.config.from_dict(read["fields"])
        domain.check(config)
        if domain.fingerprint(config) != read["fingerprint"]:
            raise UserError(
                f"{config.data} is not the same there: give all machines the same data (files over 1 GiB with the same "
                "modification time, as rsync -t keeps it)"
            )
        device = config.device
    return {"device": torch_device(device).type}


def _check_folder(meeting: Path, token: str) -> None:
    for _ in range(int(_SEEN / _RETRY)):
        try:
            if (meeting / TOKEN).read_text(encoding="ascii") == token:
                break
        except (OSError, UnicodeDecodeError):
            pass
        time.sleep(_RETRY)
    else:
        raise UserError(f"{meeting.parent} is not the same folder there: put --out on a disk that all machines share")
    probe = meeting / f"probe-{socket.gethostname()}-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE))
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write to {meeting.parent} there ({error.strerror})") from None
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def _check_locks(meeting: Path) -> None:
    """Refuse a disk on which the lock that the command holds on its machine is not seen on this one."""
    from r2mae.training.folder import FolderLock, InUseError

    try:
        with FolderLock(meeting):
            pass
    except InUseError:
        return
    raise UserError(
        f"locks of {meeting.parent} do not hold between machines, so that two could write one run: mount the disk with "
        "POSIX locks (NFS without nolock or local_lock, Lustre with flock)"
    )


def _run(request: Mapping[str, Any], tell: _Tell) -> dict[str, Any]:
    tell({"steps": [0, 0]})  # from now on it is watched, while it loads, and where it has no steps
    import torch

    from r2mae.sweep.measure import scores_of
    from r2mae.sweep.train_run import train_run
    from r2mae.training.folder import RunFolder

    torch.set_num_threads(1)  # as in a process of the local runner
    folder = Path(request["run"])
    with whole_cell(folder, tell):
        train_run(request["domain"], request["fields"], folder, request["baseline"], _Telling(tell))
    return {"scores": scores_of(RunFolder(folder))}


@contextmanager
def whole_cell(folder: Path, tell: _Tell, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold a cell's lock, so that it is never trained or measured twice at once.

    Where a worker was lost, its process may live a moment longer, or the disk's server has not given up its lock yet.

    Raises
    ------
    UserError
        If the lock is not free within `patience` seconds. It names the process that holds it.
    """
    from r2mae.training.folder import FolderLock, InUseError

    lock, began, told = FolderLock(folder, CELL_LOCK), time.monotonic(), False
    while True:
        try:
            lock.__enter__()
            break
        except InUseError:
            waited, holder = time.monotonic() - began, _holder(folder)
            if waited > patience:
                raise UserError(
                    f"{folder} is in use by {holder}, which the cluster has lost: end it, and "
                    "rerun the same command to resume"
                ) from None
            if waited > 10 * _RETRY and not told:
                tell({"note": f"waits until {holder} has let go of {folder}"})
                told = True
            time.sleep(_RETRY)
    try:
        lock.write_holder(f"process {os.getpid()} on {socket.gethostname()}")
        yield
    finally:
        lock.__exit__(None, None, None)


def _holder(folder: Path) -> str:
    try:
        return read_confined(folder / CELL_LOCK, 200).decode("utf-8", "replace") or "another process"
    except (OSError, ValueError):
        return "another process"


class _Telling:
    """Tells the worker how far a run is, at most five times a second."""

    def __init__(self, tell: _Tell) -> None:
        self._tell, self._last, self._total = tell, 0.0, 0

    def start(self, step: int, total: int) -> None:
        self._total = total
        self._tell({"steps": [step, total]})

    def update(self, pace: Any) -> None:
        now = time.monotonic()
        if now - self._last > 0.2 or pace.step == self._total:
            self._last = now
            self._tell({"steps": [pace.step, self._total]})

    def stop(self) -> None:
        return


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_FOLLOW)
    os._exit(1)


if __name__ == "__main__":
    raise SystemExit(main())
