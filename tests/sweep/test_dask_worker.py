"""What a worker counts: the processes of a sweep, and the runs that its machine does at once."""

from types import SimpleNamespace
from typing import Any

import pytest

from r2mae.sweep import dask_worker
from r2mae.sweep.dask_worker import busy


def test_only_the_processes_of_the_sweep_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_worker, "_busy", {1: "r2mae-sweep-a", 2: "r2mae-sweep-b", 3: "r2mae-sweep-b"})
    assert [busy(f"r2mae-sweep-{name}") for name in ("a", "b", "c", "")] == [1, 2, 0, 3]


@pytest.mark.parametrize(("threads", "share", "runs"), [(1, 8, 8), (2, 4, 8), (4, 1, 4), (4, 0.5, 4), (3, None, 3)])
def test_workers_that_share_a_machine(threads: int, share: float | None, runs: int) -> None:
    from distributed.system import MEMORY_LIMIT

    limit = None if share is None else int(MEMORY_LIMIT / share)
    state, manager = SimpleNamespace(nthreads=threads), SimpleNamespace(memory_limit=limit)
    worker: Any = SimpleNamespace(state=state, memory_manager=manager)
    assert dask_worker._runs(worker) == runs
