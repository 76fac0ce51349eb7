"""Counts that stay on disk: memory and cells per second of one pass over a file, in random order, with workers.

The file is synthetic: cells of a small gamma-Poisson pool, drawn with replacement. Each measurement runs in a new
process, so that the peak of resident memory is that of this measurement. The system's cache of the file does not count
as memory of the process. With `evicted` this cache is dropped every 100 batches, as happens with a file larger than the
machine's memory.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import Any

import numpy as np
import torch

MiB = 1 << 20
POOL = 10_000
BLOCK = 20_000


@dataclass(frozen=True)
class Pass:
    """Result of one pass: peak memory in MiB, and cells per second."""

    name: str
    main: float
    workers: tuple[float, ...]
    opening: float
    rate: float
    batches: int


def write(path: Path, cells: int, genes: int, density: float, compression: str | None) -> None:
    """Write cells drawn from the pool in anndata's format, block by block."""
    import anndata
    import h5py
    import pandas as pd

    from benchmarks.cells import synthetic

    pool = synthetic(min(POOL, cells), genes, density)
    pool.indices = pool.indices.astype(np.int32)
    rng = np.random.default_rng(1)
    rows = rng.integers(0, pool.shape[0], cells)
    indptr = np.concatenate([[0], np.cumsum(np.diff(pool.indptr)[rows], dtype=np.int64)])
    names = pd.Index(np.char.add("cell", np.arange(cells).astype(str)), dtype=object)
    obs = pd.DataFrame(
        {"donor": pd.Categorical.from_codes(rng.integers(0, 40, cells), [f"d{i}" for i in range(40)])}, names
    )
    frame = anndata.AnnData(obs=obs, var=pd.DataFrame(index=pd.Index([f"g{i}" for i in range(genes)], dtype=object)))
    frame.write_h5ad(path)
    with h5py.File(path, "r+") as file:
        if "X" in file:
            del file["X"]
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (cells, genes)})
        chunks = None if compression is None else (100_000,)
        data, columns = (
            group.create_dataset(name, (indptr[-1],), kind, chunks=chunks, compression=compression)
            for name, kind in (("data", "float32"), ("indices", "int32"))
        )
        group["indptr"] = indptr
        for first in range(0, cells, BLOCK):
            part = pool[rows[first : first + BLOCK]]
            low = int(indptr[first])
            data[low : low + part.nnz], columns[low : low + part.nnz] = part.data, part.indices


def peak(process: int | str = "self") -> float:
    """Return the peak of a process's resident memory in MiB (Linux)."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def children() -> list[int]:
    """Return the child processes of this process."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def evict(path: Path) -> None:
    """Drop the system's cache of a file."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def read(path: Path, batch_size: int, workers: int, batches: int | None, *, evicted: bool) -> Pass:
    """Read every cell once, in the order of training."""
    from r2mae.cells.batches import CellBatches
    from r2mae.cells.table import load_cells
    from r2mae.masking import Key
    from r2mae.training.order import BatchOrder, make_loader

    torch.set_num_threads(1)
    evict(path)
    began = time.perf_counter()
    table = load_cells(path)
    cells, opening = CellBatches(table), time.perf_counter() - began
    path = path if table.counts.places is None else table.counts.places[0][0]  # of a compressed file, its copy
    evict(path)
    steps = len(cells) // batch_size if batches is None else batches
    order = BatchOrder(len(cells), batch_size, steps, Key.root(0))
    loader = make_loader(cells, order, Key.root(0), workers=workers)
    peaks: dict[int, float] = {}
    began = time.perf_counter()
    for number, batch in enumerate(loader):
        assert len(batch["batch"]) == batch_size
        if number % 100 == 99 or number == steps - 2 * workers - 1:
            peaks.update({pid: peak(pid) for pid in children()})
            if evicted:
                evict(path)
    rate = steps * batch_size / (time.perf_counter() - began)
    name = "reading, evicted" if evicted else "reading"
    return Pass(name, peak(), tuple(peaks.values()), opening, rate, steps)


def train(path: Path, batch_size: int, workers: int, batches: int | None) -> Pass:
    """Train a small network for one pass through `fit`."""
    from r2mae.cells.batches import split_data
    from r2mae.cells.config import CellsConfig
    from r2mae.cells.domain import DOMAIN
    from r2mae.cells.table import load_cells
    from r2mae.training.loop import fit

    class Watch:
        """Measures the workers' memory whenever progress is reported."""

        def __init__(self) -> None:
            self.peaks: dict[int, float] = {}

        def start(self, step: int, total: int) -> None:
            return

        def update(self, pace: Any) -> None:
            self.peaks.update({pid: peak(pid) for pid in children()})

        def stop(self) -> None:
            return

    began = time.perf_counter()
    config = CellsConfig.make(
        data=str(path),
        n_hidden=64,
        n_latent=16,
        batch_size=batch_size,
        workers=workers,
        validation=0.0,
        threads=1,
        steps=batches,
        epochs=1,
        save_every=10**6,
    )
    table = load_cells(path)
    data, opening, watch = split_data(table, config), time.perf_counter() - began, Watch()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        fitted = fit(config, DOMAIN, Path(folder) / "run", data=data, reporter=watch)
        rate = fitted.steps * batch_size / (time.perf_counter() - began)
    return Pass("training, 64-16", peak(), tuple(watch.peaks.values()), opening, rate, fitted.steps)


def alone(job: Any, *arguments: Any, **options: Any) -> Pass:
    """Run in a new process, whose workers are forked like those of a run from the command line."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_fork) as pool:
        result: Pass = pool.submit(job, *arguments, **options).result()
    return result


def _fork() -> None:
    from r2mae.cells import table

    set_start_method("fork", force=True)
    table.ENTRY = 1 << 40  # counts stay on disk


def main(argv: Sequence[str] | None = None) -> int:
    """Print peaks of memory and cells per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--genes", type=int, default=5000)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=400)
    parser.add_argument("--batches", type=int, help="stop after this many, instead of one pass")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compression", choices=["gzip", "lzf"])
    parser.add_argument("--file", type=Path, help="write the file there and keep it, or use it if it exists")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "cells.h5ad"
        if not path.exists():
            write(path, options.cells, options.genes, options.density, options.compression)
        size = (options.batch_size, options.workers, options.batches)
        print(
            f"{options.cells:,} cells x {options.genes:,} genes, {options.density:.0%} above zero, "
            f"{path.stat().st_size / 2**30:.2f} GiB; batches of {options.batch_size}, {options.workers} workers",
            flush=True,
        )
        for job, extra in ((read, {"evicted": False}), (read, {"evicted": True}), (train, {})):
            result = alone(job, path, *size, **extra)
            workers = " and ".join(f"{value:.0f}" for value in result.workers) or "none"
            print(
                f"{result.name:17} {result.rate:8,.0f} cells/s over {result.batches} batches; opened and checked in "
                f"{result.opening:.1f} s; peak of memory: main {result.main:.0f} MiB, workers {workers} MiB",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
