"""The U-Net against the same network in a plain loop, with the colours first or last in memory; equal losses."""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from benchmarks.timing import alternate, ratio_of
from r2mae.images.batches import ImageBatches, ImageData, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.models.unet import UNet
from r2mae.masking import Key, Uniform, element_mask
from r2mae.training.loop import fit
from r2mae.training.order import BatchOrder

WARM_UP = 3


class Clocked(ImageBatches):
    """Images that note when each batch was asked for."""

    def __init__(self, images: np.ndarray) -> None:
        super().__init__(images)
        self.asked: list[float] = []

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Tensor:
        """Note the time."""
        self.asked.append(time.perf_counter())
        return super().batch(indices, key)

    @property
    def seconds(self) -> float:
        """Seconds of a step after the warm-up."""
        return (self.asked[-1] - self.asked[WARM_UP]) / (len(self.asked) - 1 - WARM_UP)


def framework(config: ImagesConfig, data: ImageData, losses: list[np.ndarray]) -> float:
    """Train through `fit`."""
    data = replace(data, train=Clocked(data.splits.train.images))
    with tempfile.TemporaryDirectory() as folder:
        fit(config, DOMAIN, Path(folder) / "run", data=data)
        losses.append(pd.read_csv(Path(folder) / "run" / "metrics.csv")["loss"].to_numpy())
    assert isinstance(data.train, Clocked)
    return data.train.seconds


def plain(config: ImagesConfig, data: ImageData, losses: list[np.ndarray], *, last: bool, fused: bool) -> float:
    """Train with a loop as anyone would write it; the masks are those of this package."""
    key, images = Key.root(config.seed), Clocked(data.splits.train.images)
    torch.manual_seed(key.fold("init").seed())
    model = DOMAIN.build(data.architecture)[1].train()
    assert isinstance(model, UNet)
    layout = torch.channels_last if last else torch.contiguous_format
    model.to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(model.parameters(), lr=config.optimizer.lr, fused=fused)
    steps = config.optimizer.steps or 0
    order = BatchOrder(len(images), config.optimizer.batch_size, steps, key)
    ratio, kept = Uniform(DOMAIN.config.ratios.low, DOMAIN.config.ratios.high).bind(steps), []
    for step in range(steps):
        batch = images.batch(order.indices(step), key)
        clean = (batch.float() / 255).permute(0, 3, 1, 2).contiguous(memory_format=layout)
        share = ratio(step, key.fold("ratio"))
        hidden = element_mask(tuple(batch.shape[:3]), share, key.fold("mask", step))[:, None]
        optimiser.zero_grad()
        loss = ((forward(model, clean * ~hidden) - clean).square() * hidden).sum() / (hidden.sum() * clean.shape[1])
        loss.backward()
        optimiser.step()
        kept.append(loss.detach())
    losses.append(torch.stack(kept).numpy())
    return images.seconds


def forward(model: UNet, state: Tensor) -> Tensor:
    """Run the network on images (batch, colours, height, width), in the layout that they have."""
    skips = []
    for block in model.down:
        skips.append(block(state))
        state = max_pool2d(skips[-1], 2)
    state = model.bottleneck(state)
    for enlarge, block in zip(model.enlarge, model.up, strict=True):
        state = block(torch.cat([skips.pop(), enlarge(state)], dim=1))
    made: Tensor = model.output(state)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Print seconds of a step and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        np.save(f"{folder}/x.npy", random.integers(0, 256, (400, options.side, options.side, 3), dtype=np.uint8))
        for channels in options.channels:
            _compare(options, channels, f"{folder}/x.npy")
    return 0


def _compare(options: argparse.Namespace, channels: int, source: str) -> None:
    config = ImagesConfig.make(
        data=source, model={"name": "unet", "channels": channels}, steps=options.steps, lr=1e-3,
        batch_size=options.batch_size, threads=options.threads, save_every=10**6, device="cpu",
    )  # fmt: skip
    data, names = load_data(config), ("framework", "plain, colours last, fused Adam", "plain, colours last", "plain")
    losses: dict[str, list[np.ndarray]] = {name: [] for name in names}
    times = alternate(
        {
            names[0]: lambda: framework(config, data, losses[names[0]]),
            names[1]: lambda: plain(config, data, losses[names[1]], last=True, fused=True),
            names[2]: lambda: plain(config, data, losses[names[2]], last=True, fused=False),
            names[3]: lambda: plain(config, data, losses[names[3]], last=False, fused=False),
        },
        options.rounds,
    )
    print(
        f"U-Net of {channels} channels, {options.side} x {options.side} x 3, batch {options.batch_size}, "
        f"{options.steps - 1 - WARM_UP} steps x {options.rounds} rounds, {options.threads} threads"
    )
    for name, timing in times.items():
        gap = max(float(np.abs(a / b - 1).max()) for a, b in zip(losses[name], losses["framework"], strict=True))
        ratio, spread = ratio_of(timing, times["framework"])
        print(
            f"{name:32} {1e3 * timing.median:7.1f} ms/step (± {1e3 * timing.spread:.1f}), "
            f"{options.batch_size / timing.median:6.1f} images/s   this / framework: {ratio:.3f} ± {spread:.3f}   "
            f"losses differ by {gap:.0e}",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
