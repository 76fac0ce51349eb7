"""Sweeps on Dask: how soon 10,000 simulated runs start, what one costs against Dask alone, the display's pauses."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

from benchmarks.timing import alternate, ratio_of
from r2mae.compare import dask_runner
from r2mae.compare.checks import check_folders, run_missing
from r2mae.compare.cluster_options import ClusterOptions
from r2mae.compare.dask_runner import DaskRunner
from r2mae.compare.progress_display import ProgressDisplay
from r2mae.compare.run import Outcome
from r2mae.compare.runs import SweepRun, Variant, runs_of
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN

MINUTE = 60.0  # the length of the cell of which the overhead is a part


def simulated(*_: object) -> Outcome:
    """Do nothing, in place of a cell: what is left is what the sweep costs."""
    return 0.0, {}


class EnoughError(Exception):
    """So many cells have ended as are asked for."""


class Timed(ProgressDisplay):
    """A display that notes when it was updated, and the times, of the clock and the processor, at which cells ended.

    It breaks the sweep off when `enough` have.
    """

    def __init__(self, *words: Any, enough: int) -> None:
        super().__init__(*words)
        self.enough = enough
        self.at: list[float] = []
        self.ends: list[tuple[float, float]] = []

    def update(self, steps: Sequence[tuple[int, int]]) -> None:
        self.at.append(time.perf_counter())
        super().update(steps)

    def finished(self, cell: SweepRun, seconds: float, scores: dict[str, float]) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))
        super().finished(cell, seconds, scores)
        if len(self.ends) >= self.enough:
            raise EnoughError


def main(argv: Sequence[str] | None = None) -> int:
    """Print seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument(
        "--ended", type=int, default=300, help="how many of them are run to their end, and by Dask alone"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)

    from distributed import Client, LocalCluster

    config = ImagesConfig.make(data="digits", device="cpu", steps=10)
    rows = [Variant(f"row {number}", config) for number in range(-(-options.cells // 10))]
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as local,
        Client(local, set_as_default=False) as client,
        patch.object(dask_runner, "compute", simulated),
        patch.object(dask_runner, "finished", lambda cell: True),
    ):
        began, used = time.perf_counter(), time.process_time()
        cells = runs_of(rows, range(10), Path(name))[: options.cells]
        check_folders(cells, DOMAIN)
        runner = DaskRunner(ClusterOptions(local.scheduler_address), Path(name))
        display = Timed(cells, cells, _terminal(), DOMAIN.metrics_of(config)[0], enough=min(options.ended, len(cells)))
        few = cells[: options.ended]

        def sweep() -> None:
            run_missing(few, DOMAIN, runner, console=_terminal())

        def alone() -> None:
            client.gather([client.submit(simulated, {"index": index}, pure=False) for index in range(len(few))])

        with display, suppress(EnoughError):
            runner.run(cells, DOMAIN, display)
        pauses = [later - before for before, later in zip(display.at, display.at[1:], strict=False)] or [0.0]
        first, last = display.ends[0], display.ends[-1]
        each, work = ((late - early) / max(1, len(display.ends) - 1) for early, late in zip(first, last, strict=True))
        soon, work_before = first[0] - began, first[1] - used
        print(f"{f'{len(cells):,} cells: the first has ended':34} {soon:8.2f} s, {work_before:.2f} s of a core")
        print(
            f"{'the display, between two updates':34} {statistics.median(pauses):8.2f} s, at most {max(pauses):.2f} s"
        )
        part = f"{work / MINUTE:.3%} of a minute"
        print(f"{'each cell':34} {1000 * each:8.2f} ms, {1000 * work:.2f} ms of a core: {part}")
        times = alternate({"sweep": sweep, "Dask alone": alone}, options.rounds)
        ratio, spread = ratio_of(times["sweep"], times["Dask alone"])
        print(f"{f'{len(few):,} cells, sweep / Dask alone':34} {ratio:8.2f} ± {spread:.2f}")
    return 0


def _terminal() -> Console:
    """Return a console that draws bars as on a terminal, into memory."""
    return Console(file=StringIO(), force_terminal=True, width=100, height=40)


if __name__ == "__main__":
    raise SystemExit(main())
