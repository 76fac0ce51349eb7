"""The number of cores, with and without a system that says which ones a process is bound to."""

import os

import pytest

from r2mae.cores import cores, gigabytes


def test_cores_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(os, "sched_getaffinity"):
        assert cores() == len(os.sched_getaffinity(0))
        monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cores() == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


@pytest.mark.parametrize(
    ("size", "text"),
    [(1.2e6, "0.0012 GB"), (36e8, "3.6 GB"), (9.994e11, "999 GB"), (9.996e11, "1,000 GB"), (36e11, "3,600 GB")],
)
def test_sizes_have_no_exponent(size: float, text: str) -> None:
    assert gigabytes(size) == text
