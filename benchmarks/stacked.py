"""Many small networks at once: stacked and trained together by torch.func, compared with one after the other.

The question is whether a comparison could train the seeds of a row together. Both take the same steps from the same
weights on the same batches, with masks of their own and the fused Adam; the losses differ by rounding, which training
amplifies.
"""

import argparse
import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.functional import mse_loss

from benchmarks.timing import alternate, ratio_of
from r2mae.images.models.mlp import MLPAutoencoder
from r2mae.masking import Key, Uniform, element_mask

LR, RATIO = 1e-3, Uniform(0.5, 0.9)
Batches = list[tuple[Tensor, Tensor]]
"""For each step the clean images and what is kept of them, the first dimension that of the networks."""


def networks(count: int, pixels: int, hidden: int, latent: int) -> list[MLPAutoencoder]:
    """Return networks with weights of their own."""
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        found.append(MLPAutoencoder(pixels, hidden, latent))
    return found


def batches(count: int, steps: int, batch: int, pixels: int) -> Batches:
    """Draw images, and a mask for each network and step."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for step in range(steps):
        clean = torch.rand(count, batch, pixels, generator=generator)
        keys = [Key.root(seed) for seed in range(count)]
        masks = [element_mask((batch, pixels), RATIO(step, key.fold("ratio")), key.fold("mask", step)) for key in keys]
        found.append((clean, ~torch.stack(masks)))
    return found


def error(prediction: Tensor, clean: Tensor, kept: Tensor) -> Tensor:
    """Return the mean squared error of what is hidden."""
    return (mse_loss(prediction, clean, reduction="none") * ~kept).sum() / (~kept).sum()


def one_by_one(models: list[MLPAutoencoder], data: Batches) -> list[float]:
    """Train every network by itself; return the last losses."""
    last = []
    for place, model in enumerate(copy.deepcopy(models)):
        optimiser = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
        for clean, kept in data:
            optimiser.zero_grad()
            loss = error(model(clean[place] * kept[place])[0], clean[place], kept[place])
            loss.backward()
            optimiser.step()
        last.append(float(loss.detach()))
    return last


def together(models: list[MLPAutoencoder], data: Batches) -> list[float]:
    """Train all networks in one step each time; return the last losses."""
    copies: list[nn.Module] = [*copy.deepcopy(models)]
    weights, buffers = stack_module_state(copies)
    skeleton = copy.deepcopy(models[0]).to("meta")
    optimiser = torch.optim.Adam(weights.values(), lr=LR, fused=True)

    def loss_of(mine: dict[str, Tensor], state: dict[str, Tensor], clean: Tensor, kept: Tensor) -> Tensor:
        prediction, _ = functional_call(skeleton, (mine, state), (clean * kept,))
        return error(prediction, clean, kept)

    step = vmap(grad_and_value(loss_of))
    for clean, kept in data:
        gradients, losses = step({name: weight.detach() for name, weight in weights.items()}, buffers, clean, kept)
        for name, weight in weights.items():
            weight.grad = gradients[name]
        optimiser.step()
    return [float(loss) for loss in losses]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the time of a step of one network, both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="networks")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    for name, pixels in (("digits, make demo", 64), ("MNIST", 784)):
        measure(name, (pixels, 512, 256), options)
    return 0


def measure(name: str, widths: tuple[int, int, int], options: argparse.Namespace) -> None:
    """Print the time of a step of one network of these widths, both ways."""
    models = networks(options.count, *widths)
    data = batches(options.count, options.steps, options.batch, widths[0])
    ways: dict[str, Callable[[list[MLPAutoencoder], Batches], list[float]]] = {
        "one by one": one_by_one,
        "together": together,
    }
    losses: dict[str, list[float]] = {}

    def run(way: str) -> None:
        losses[way] = ways[way](models, data)

    times = alternate({way: partial(run, way) for way in ways}, options.rounds)
    gap = max(abs(a / b - 1) for a, b in zip(*losses.values(), strict=True))
    print(f"{name}: MLP {'-'.join(map(str, widths))}, {options.count} networks, batch {options.batch}, "
          f"{options.threads} thread(s)")  # fmt: skip
    steps = options.steps * options.count
    for way, one in times.items():
        print(f"  {way:12} {1e3 * one.median / steps:.2f} ms a step of one network (± {1e3 * one.spread / steps:.2f})")
    ratio, spread = ratio_of(times["one by one"], times["together"])
    print(f"  together {ratio:.2f} ± {spread:.2f} times as fast; last losses differ by {gap:.0e}")


if __name__ == "__main__":
    raise SystemExit(main())
