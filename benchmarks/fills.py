"""A step with hidden pixels filled in by a Gaussian, over one with the mean, by size of the image and rank."""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import alternate, ratio_of
from benchmarks.unet import Clocked
from r2mae.evaluation import conditional
from r2mae.images.batches import ImageData, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.loop import fit

RATIOS = {"scheme": "r2mae-per-sample", "low": 0.05, "high": 0.95}
MLP, UNET = {"name": "mlp", "norm": "layer"}, {"name": "unet", "channels": 4, "norm": "layer"}


@contextmanager
def rank(axes: int) -> Iterator[None]:
    """Use this number of principal axes for larger images."""
    before, conditional.RANK = conditional.RANK, axes
    try:
        yield
    finally:
        conditional.RANK = before


def seconds(config: ImagesConfig, data: ImageData) -> float:
    """Return the median seconds of a step."""
    clocked = Clocked(data.splits.train.images)
    with tempfile.TemporaryDirectory() as folder:
        fit(config, DOMAIN, Path(folder) / "run", data=replace(data, train=clocked))
    return float(np.median(np.diff(clocked.asked)))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the ratio for each size, model and rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    for model, side, colours, batch, ranks in (
        (MLP, 8, 1, 128, ()),
        (MLP, 14, 1, 128, ()),
        (MLP, 16, 3, 48, ()),
        (MLP, 28, 1, 128, ()),
        (MLP, 64, 3, 32, (16, 64, 256)),
        (UNET, 64, 3, 32, (16, 64, 256)),
    ):
        with tempfile.TemporaryDirectory() as folder:
            shape = (400, side, side, colours)
            np.save(f"{folder}/x.npy", np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
            for axes in ranks or (conditional.RANK,):
                with rank(axes):
                    title = f"{model['name']} {side} x {side} x {colours}, batch {batch}"
                    title += f", rank {axes}" if ranks else ""
                    _compare(options, model, f"{folder}/x.npy", batch, title)
    return 0


def _compare(options: argparse.Namespace, model: dict[str, object], source: str, batch: int, title: str) -> None:
    configs = {
        fill: ImagesConfig.make(
            data=source, model=model, fill=fill, steps=options.steps, batch_size=batch, threads=options.threads,
            save_every=10**6, device="cpu", **RATIOS,
        )
        for fill in ("mean", "gaussian")
    }  # fmt: skip
    data = {fill: load_data(config) for fill, config in configs.items()}  # the data say how the model is built
    times = alternate({fill: partial(seconds, configs[fill], data[fill]) for fill in configs}, options.rounds)
    ratio, spread = ratio_of(times["gaussian"], times["mean"])
    print(
        f"{title:36} mean {1e3 * times['mean'].median:7.1f} ms   gaussian {1e3 * times['gaussian'].median:7.1f} ms   "
        f"gaussian / mean: {ratio:.2f} ± {spread:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
