"""What a worker counts: the runs that its machine does at once."""

from types import SimpleNamespace
from typing import Any

import pytest

from r2mae.sweep.dask_worker import runs_at_once


@pytest.mark.parametrize(("threads", "share", "runs"), [(1, 8, 8), (2, 4, 8), (4, 1, 4), (4, 0.5, 4), (3, None, 3)])
def test_workers_that_share_a_machine(threads: int, share: float | None, runs: int) -> None:
    from distributed.system import MEMORY_LIMIT

    limit = None if share is None else int(MEMORY_LIMIT / share)
    state, manager = SimpleNamespace(nthreads=threads), SimpleNamespace(memory_limit=limit)
    worker: Any = SimpleNamespace(state=state, memory_manager=manager)
    assert runs_at_once(worker) == runs
