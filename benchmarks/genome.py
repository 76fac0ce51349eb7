"""The alignment store: tokenising, building, and windows a second from a store of several GB.

Peers: ``numpy.char.upper`` and a look-up for tokens, and windows of letters from a zarr group, as other DNA models read
them. All contenders give the same tokens, which is checked first.
"""

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Timing, alternate, ratio_of
from r2mae.genome import AlignmentStore, build_store, export_zarr
from r2mae.genome.store.finish import Finisher
from r2mae.genome.store.meta import ALIGNMENT, CHECKSUMS, CHUNK, Layout, Meta, content_of, digest_of
from r2mae.genome.store.tokens import LETTERS, SOFT, tokenise
from r2mae.genome.store.unfinished import unfinished

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
        store = synthetic(Path(name) / "large", options.gigabytes)
        reading(store, options.rounds)


def tokenising(rounds: int) -> None:
    """Letters to tokens, against the conversion by ``numpy.char.upper``."""
    rng = np.random.default_rng(0)
    letters = rng.choice(np.frombuffer(b"ACGTacgt-N", np.uint8), LENGTH * SPECIES * 256)
    text = letters.tobytes()
    table = np.full(256, LETTERS.index("N"), np.uint8)
    for token, letter in enumerate(LETTERS):
        table[ord(letter)] = token

    def upper() -> Any:
        return table[np.char.upper(letters.view("S1")).view(np.uint8)]

    assert (np.frombuffer(tokenise(text), np.uint8) == upper()).all()

    def many() -> float:
        began = time.perf_counter()
        for _ in range(50):
            tokenise(text)
        return (time.perf_counter() - began) / 50

    timings = alternate({"upper": lambda: _timed(upper), "ours": many}, rounds)
    for name, timing in timings.items():
        print(f"tokenising, {name}: {len(text) / timing.median / 1e6:,.0f} MB/s")
    ratio, spread = ratio_of(timings["upper"], timings["ours"])
    print(f"tokenising: {ratio:.0f} ± {spread:.0f} times the speed of numpy.char.upper and a look-up")


def _timed(run: Callable[[], Any]) -> None:
    run()


def building(folder: Path, megabytes: float) -> None:
    """From MAF to a store, with one and two processes."""
    path = folder / "a.maf"
    positions = _write_maf(path, megabytes)
    size = path.stat().st_size / 1e6
    for jobs in (1, 2):
        began = time.perf_counter()
        build_store(path, folder / f"store{jobs}", jobs=jobs)
        seconds = time.perf_counter() - began
        print(
            f"building, {jobs} process(es): {size / seconds:,.0f} MB of MAF a second, "
            f"{positions / seconds / 1e3:,.0f} thousand positions a second"
        )
    path.unlink()
    print(f"building: at most {_resident()['VmHWM']:,.0f} MB of memory in the process that reads and writes")


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

    layout = Layout(tuple(f"sp{n}" for n in range(SPECIES)), ("chr1",), (1_000_000,))
    store = _store_of(folder / "small", layout)
    export_zarr(store, folder / "small.zarr")
    array = zarr.open_group(str(folder / "small.zarr"), mode="r")["chr1"]
    table = np.full(256, LETTERS.index("N"), np.uint8)
    for token, letter in enumerate(LETTERS):
        table[ord(letter)] = token
    starts = np.random.default_rng(1).integers(0, layout.positions - LENGTH, 64)
    contigs = np.zeros(len(starts), np.int64)

    def peer() -> Any:
        letters = np.stack([np.asarray(array[start : start + LENGTH]) for start in starts.tolist()])
        return table[np.char.upper(letters).view(np.uint8)].reshape(len(starts), LENGTH, SPECIES)

    assert (store.windows(contigs, starts, LENGTH) == peer()).all()

    def ours() -> float:
        began = time.perf_counter()
        for _ in range(20):
            store.windows(contigs, starts, LENGTH)
        return (time.perf_counter() - began) / 20

    timings = alternate({"zarr": lambda: _timed(peer), "ours": ours}, rounds)
    for name, timing in timings.items():
        print(f"windows, {name}: {len(starts) / timing.median:,.0f} a second")
    ratio, spread = ratio_of(timings["zarr"], timings["ours"])
    print(f"windows: {ratio:.0f} ± {spread:.0f} times as many a second as from zarr")


def synthetic(folder: Path, gigabytes: float) -> AlignmentStore:
    """Make a store of random tokens."""
    positions = int(gigabytes * 1e9 / SPECIES)
    lengths = (positions // 2, positions - positions // 2)
    began = time.perf_counter()
    store = _store_of(folder, Layout(tuple(f"sp{n}" for n in range(SPECIES)), ("chr1", "chr2"), lengths))
    print(f"a store of {gigabytes:g} GB was made in {time.perf_counter() - began:.0f} s")
    return store


def _store_of(folder: Path, layout: Layout) -> AlignmentStore:
    """Write random tokens where a filler would, and finish the store."""
    rng = np.random.default_rng(0)
    tile = rng.integers(0, 6, (CHUNK, len(layout.species)), dtype=np.uint8)
    tile[:, 0] = rng.integers(0, 4, CHUNK, dtype=np.uint8) | (rng.integers(0, 2, CHUNK, dtype=np.uint8) * SOFT)
    with unfinished(folder, {"random": str(layout)}) as work:
        with work.path(ALIGNMENT).open("wb") as file:
            for first in range(0, layout.positions, CHUNK):
                file.write(np.roll(tile, first // CHUNK, axis=0)[: layout.positions - first].tobytes())
        found = Finisher(layout, work, owned=False, given=False).run(2, lambda stage, done: None)
        data = work.path(CHECKSUMS).read_bytes()
        meta = Meta(layout, CHUNK, digest_of(data).hex(), content_of(layout, data), {}, *found)
        meta.write(work.folder)
        work.remove()
    return AlignmentStore(folder)


def reading(store: AlignmentStore, rounds: int) -> None:
    """Random windows of a large store: from the system's cache and from the disk, with one process and with two."""
    before = _resident()
    for name in ("from the cache", "from the disk"):
        for jobs in (1, 2):
            rates = []
            for number in range(rounds):
                if name == "from the disk":
                    _forget(store.folder / ALIGNMENT)
                rates.append(_rate(store, jobs, 60 if name == "from the cache" else 4, number))
            timing = Timing(tuple(rates))
            print(f"windows {name}, {jobs} process(es): {timing.median:,.0f} ± {timing.spread:,.0f} a second")
        if name == "from the cache":
            _rate(store, 1, 200, 77)
            now = _resident()
            print(
                f"resident memory: {before['VmRSS']:,.0f} MB before, {now['VmRSS']:,.0f} MB after, of which "
                f"{now['RssFile']:,.0f} MB are pages of files; at most {now['VmHWM']:,.0f} MB"
            )


def _rate(store: AlignmentStore, jobs: int, batches: int, seed: int) -> float:
    """Windows a second of several processes that read at the same time."""
    if jobs == 1:
        return _read(store, batches, seed)
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return sum(pool.starmap(_read, [(store, batches, seed * 10 + job) for job in range(jobs)], chunksize=1))


def _read(store: AlignmentStore, batches: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    contigs = rng.integers(0, 2, (batches, BATCH))
    starts = rng.integers(0, int(store.lengths.min()) - LENGTH, (batches, BATCH))
    began = time.perf_counter()
    for places, first in zip(contigs, starts, strict=True):
        store.windows(places, first, LENGTH)
    return batches * BATCH / (time.perf_counter() - began)


def _forget(path: Path) -> None:
    """Drop a file from the system's cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _resident() -> dict[str, float]:
    """Return this process's memory in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: int(values[name].split()[0]) / 1024 for name in ("VmRSS", "RssFile", "VmHWM")}


if __name__ == "__main__":
    if shutil.disk_usage(tempfile.gettempdir()).free < 10e9:
        raise SystemExit("needs 10 GB of disk")
    main()
