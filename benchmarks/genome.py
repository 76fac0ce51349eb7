"""The alignment store: building from MAF, and windows a second from a store of several GB.

Peers: ``numpy.char.upper`` and a look-up for tokens, and windows of letters from a zarr group, as other DNA models read
them. All contenders give the same tokens, which is checked first.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Timing, alternate, ratio_of
from r2mae.genome import AlignmentStore, build_store, export_zarr
from r2mae.genome.store.tokens import LETTERS, PLAIN_TABLE

SPECIES, LENGTH, BATCH = 61, 128, 2048


def main(words: Sequence[str] | None = None) -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0, help="Size of the synthetic store.")
    parser.add_argument("--maf-megabytes", type=float, default=60.0, help="Size of the synthetic MAF.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="Where to write; by default the temporary folder.")
    options = parser.parse_args(words)
    tokenising(options.rounds)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        building(Path(name), options.maf_megabytes)
        against_zarr(Path(name), options.rounds)
        reading(synthetic(Path(name), "large", int(options.gigabytes * 1e9 / SPECIES)), options.rounds)


def tokenising(rounds: int) -> None:
    """Letters to tokens, against the conversion by ``numpy.char.upper``."""
    rng = np.random.default_rng(0)
    letters = rng.choice(np.frombuffer(b"ACGTacgt-N", np.uint8), LENGTH * SPECIES * 256)
    text = letters.tobytes()

    def upper() -> Any:
        return _table()[np.char.upper(letters.view("S1")).view(np.uint8)]

    assert (np.frombuffer(text.translate(PLAIN_TABLE), np.uint8) == upper()).all()
    timings = alternate(
        {"upper": lambda: _timed(upper), "ours": lambda: _mean(lambda: text.translate(PLAIN_TABLE), 50)}, rounds
    )
    ratio, spread = ratio_of(timings["upper"], timings["ours"])
    print(f"tokenising: {ratio:.0f} ± {spread:.0f} times the speed of numpy.char.upper and a look-up")


def building(folder: Path, megabytes: float) -> None:
    """From MAF to a store."""
    path = folder / "a.maf"
    positions = _write_maf(path, megabytes)
    began = time.process_time()
    build_store(path, folder / "store")
    seconds = time.process_time() - began
    print(
        f"building: {path.stat().st_size / 1e6 / seconds:,.0f} MB of MAF a second of processor time, "
        f"{positions / seconds / 1e3:,.0f} thousand positions a second"
    )


def _write_maf(path: Path, megabytes: float) -> int:
    """Write blocks of 20 to 100 columns and up to 61 rows; return the positions."""
    rng = np.random.default_rng(0)
    pool = rng.choice(np.frombuffer(b"ACGTacgt", np.uint8), 1 << 20).tobytes().decode()
    sizes = rng.integers(20, 100, int(megabytes * 300)).tolist()  # blocks of about 3,300 bytes
    length = sum(sizes) + len(pool)
    place = 0
    with path.open("w") as file:
        file.write("##maf version=1\n")
        for columns in sizes:
            rows = []
            for species in [0, *(rng.permutation(SPECIES - 1)[: rng.integers(10, SPECIES - 1)] + 1)]:
                at = int(rng.integers(0, len(pool) - columns))
                start = place if species == 0 else at
                rows.append(f"s sp{species}.chr1 {start} {columns} + {length} {pool[at : at + columns]}\n")
            file.write("a score=1\n" + "".join(rows) + "\n")
            place += columns
    return place


def against_zarr(folder: Path, rounds: int) -> None:
    """The same windows from the store and from a zarr group of letters."""
    import zarr

    store = synthetic(folder, "small", 1_000_000)
    export_zarr(store, folder / "small.zarr")
    array = zarr.open_group(str(folder / "small.zarr"), mode="r")["chr1"]
    starts = np.random.default_rng(1).integers(0, store.layout.positions - LENGTH, 64)
    contigs = np.zeros(len(starts), np.int64)

    def peer() -> Any:
        letters = np.stack([np.asarray(array[start : start + LENGTH]) for start in starts.tolist()])
        return _table()[np.char.upper(letters).view(np.uint8)].reshape(len(starts), LENGTH, SPECIES)

    def ours() -> Any:
        return store.windows(contigs, starts, LENGTH)

    assert (ours() == peer()).all()
    timings = alternate({"zarr": lambda: _timed(peer), "ours": lambda: _mean(ours, 20)}, rounds)
    for name, timing in timings.items():
        print(f"windows, {name}: {len(starts) / timing.median:,.0f} a second")
    ratio, spread = ratio_of(timings["zarr"], timings["ours"])
    print(f"windows: {ratio:.0f} ± {spread:.0f} times as many a second as from zarr")


def synthetic(folder: Path, name: str, positions: int) -> AlignmentStore:
    """Make a store of random letters on one contig."""
    rng = np.random.default_rng(0)
    path = folder / f"{name}.fa"
    with path.open("wb") as file:
        for species in range(SPECIES):
            letters = np.frombuffer(b"ACGTacgt-N" if species else b"ACGTacgt", np.uint8)
            row = letters[rng.integers(0, len(letters), positions, np.uint8)]
            file.write(b">sp%d\n" % species + row.tobytes() + b"\n")
    store = build_store(path, folder / name, contig="chr1")
    path.unlink()
    return store


def reading(store: AlignmentStore, rounds: int) -> None:
    """Random windows of a large store: from the system's cache and from the disk."""
    for name, batches in (("from the cache", 60), ("from the disk", 4)):
        rates = []
        for number in range(rounds):
            if name == "from the disk":
                _forget(store.folder / "contigs" / "0.npy")
            rates.append(_rate(store, batches, number))
        timing = Timing(tuple(rates))
        print(f"windows {name}: {timing.median:,.0f} ± {timing.spread:,.0f} a second")


def _rate(store: AlignmentStore, batches: int, seed: int) -> float:
    starts = np.random.default_rng(seed).integers(0, int(store.lengths.min()) - LENGTH, (batches, BATCH))
    contigs = np.zeros(BATCH, np.int64)
    began = time.perf_counter()
    for first in starts:
        store.windows(contigs, first, LENGTH)
    return batches * BATCH / (time.perf_counter() - began)


def _forget(path: Path) -> None:
    """Drop a file from the system's cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _table() -> np.ndarray:
    table = np.full(256, LETTERS.index("N"), np.uint8)
    for token, letter in enumerate(LETTERS):
        table[ord(letter)] = token
    return table


def _timed(run: Callable[[], Any]) -> None:
    run()


def _mean(run: Callable[[], Any], times: int) -> float:
    """Return the mean time of a call."""
    began = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - began) / times


if __name__ == "__main__":
    main()
