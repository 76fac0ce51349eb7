"""Comparisons without processes of their own, for tests of what is made of finished runs."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest
import torch

from r2mae.sweep import processes


class Here(Executor):
    """Runs what it is given at once, in this process: a new one would take seconds to import torch."""

    def __init__(self, jobs: int, context: object, initializer: object, values: tuple[Any, int]) -> None:
        processes._shared = values[0]
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        torch.set_num_threads(self._threads)


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """Let comparisons run their cells in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_shared", None)
        patch.setattr(processes, "ProcessPoolExecutor", Here)
        yield
