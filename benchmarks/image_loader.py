"""The loader of images alone: images a second from memory, from a memory map, and decoded from files.

The files are synthetic JPEGs of the size of Tiny-ImageNet's, made once. What is timed is a run's loader, batch after
batch in a run's order, with nothing trained; contenders take turns.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import Timing, alternate
from r2mae.images.batches import Augment, ImageBatches
from r2mae.images.data import load_images
from r2mae.images.files import Cache
from r2mae.masking import Key
from r2mae.training.order import BatchOrder, make_loader

CACHES: tuple[Cache, ...] = ("memory", "mmap", "none")


def write(folder: Path, count: int, side: int) -> None:
    """Write JPEGs of smooth noise, in one folder."""
    random = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (9, 9, 3), np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{number:06}.jpg", quality=90)


def loading(images: ImageBatches, batch_size: int, batches: int, workers: int) -> Callable[[], float]:
    """Return what measures the seconds that the loader takes for some batches, from the first that has come."""
    order = BatchOrder(len(images), batch_size, batches + 1, Key.root(0))

    def run() -> float:
        loader = iter(make_loader(images, order, Key.root(0), workers=workers))
        next(loader)  # workers have started
        began = perf_counter()
        for _ in loader:
            pass
        return perf_counter() - began

    return run


def rate(timing: Timing, images: int) -> str:
    """Return images a second, with half the distance between the quartiles."""
    middle = images / timing.median
    return f"{middle:9,.0f} ± {middle * timing.spread / timing.median:,.0f} images/s"


def main(argv: Sequence[str] | None = None) -> int:
    """Print images a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    count = options.batch_size * options.batches
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MAE_CACHE"] = str(Path(folder) / "cache")
        (Path(folder) / "set").mkdir()
        write(Path(folder) / "set", options.images, options.side)
        print(
            f"{options.images:,} JPEGs of {options.side} x {options.side}, batches of {options.batch_size}", flush=True
        )
        contenders: dict[str, Callable[[], float | None]] = {}
        for cache in CACHES:
            images = load_images(Path(folder) / "set", cache=cache)[0].images
            for augment in ("none", "crop-flip"):
                kind: Augment = "crop-flip" if augment == "crop-flip" else "none"
                for workers in options.workers:
                    name = f"{cache:6} {'' if augment == 'none' else augment:9} {workers} workers"
                    made = ImageBatches(images, augment=kind)
                    contenders[name] = loading(made, options.batch_size, options.batches, workers)
        for name, timing in alternate(contenders, options.rounds).items():
            print(f"{name}: {rate(timing, count)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
