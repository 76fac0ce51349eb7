"""The training loop, compared with a bare PyTorch loop: same network, data, order, masks, steps and losses."""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.timing import alternate, ratio_of
from r2mae.images.batches import ImageData, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.models.mlp import MLPAutoencoder
from r2mae.masking import Key, Uniform, element_mask
from r2mae.progress import RunProgress
from r2mae.training.loop import fit
from r2mae.training.order import BatchOrder

WARM_UP = 50
FIRST = 20  # steps whose losses are compared; later, differences in rounding have grown


class Stopwatch:
    """A progress reporter that records the times at the end of the warm-up and at the end of training."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def start(self, step: int, total: int) -> None:
        self.total = total

    def update(self, pace: RunProgress) -> None:
        self.times[pace.step] = time.perf_counter()

    def stop(self) -> None:
        return

    @property
    def seconds(self) -> float:
        return self.times[self.total] - self.times[WARM_UP]


def framework(config: ImagesConfig, data: ImageData, losses: list[np.ndarray]) -> float:
    """Train through `fit`; return the seconds after the warm-up."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        fit(config, DOMAIN, out, data=data, reporter=watch)
        losses.append(pd.read_csv(out / "metrics.csv")["loss"].to_numpy())
    return watch.seconds


def bare(config: ImagesConfig, data: ImageData, losses: list[np.ndarray], *, fused: bool) -> float:
    """Train with a plain loop; only the masks come from this package."""
    key = Key.root(config.seed)
    torch.manual_seed(key.fold("init").seed())
    model = MLPAutoencoder(784, config.model.hidden, config.model.latent)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.optimizer.lr, fused=fused or None)
    order = BatchOrder(len(data.train), config.optimizer.batch_size, config.optimizer.steps or 0, key)
    images = torch.from_numpy(data.train.images).flatten(1)
    ratio = Uniform(0.5, 0.9)
    kept = []
    for step in range(config.optimizer.steps or 0):
        if step == WARM_UP:
            began = time.perf_counter()
        clean = images[torch.from_numpy(order.indices(step))].float() / 255
        hidden = element_mask((128, 784), ratio(step, key.fold("ratio")), key.fold("mask", step))
        optimiser.zero_grad()
        prediction, _ = model(clean * ~hidden)
        loss = (((prediction - clean) ** 2) * hidden).sum() / hidden.sum()
        loss.backward()
        optimiser.step()
        kept.append(loss.detach())
    seconds = time.perf_counter() - began
    losses.append(torch.stack(kept).numpy())
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Print the cost of the loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", default="mnist")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    config = ImagesConfig.make(data=options.data, steps=options.steps, scheme="r2mae", save_every=10**6)
    data = load_data(config)
    losses: dict[str, list[np.ndarray]] = {"framework": [], "bare": [], "bare, fused Adam": []}
    times = alternate(
        {
            "framework": lambda: framework(config, data, losses["framework"]),
            "bare": lambda: bare(config, data, losses["bare"], fused=False),
            "bare, fused Adam": lambda: bare(config, data, losses["bare, fused Adam"], fused=True),
        },
        options.rounds,
    )
    steps = options.steps - WARM_UP
    print(f"MLP 784-512-256-784, batch 128, {steps} steps x {options.rounds} rounds, {options.threads} threads")
    for name, timing in times.items():
        pairs = zip(losses[name], losses["bare"], strict=True)
        gap = max(float(np.abs(a[:FIRST] / b[:FIRST] - 1).max()) for a, b in pairs)
        ratio, spread = ratio_of(times["framework"], timing)
        print(
            f"{name:18} {1e3 * timing.median / steps:7.3f} ms/step (± {1e3 * timing.spread / steps:.3f})   "
            f"framework / this: {ratio:.3f} ± {spread:.3f}   losses of the first {FIRST} steps differ by {gap:.0e}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
