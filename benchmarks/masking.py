"""The cost of masking: compared with the default double argsort for each unit, and as a fraction of a training step."""

import argparse
import statistics
from collections.abc import Callable, Sequence

import torch
from torch import nn

from benchmarks.timing import alternate, ratio_of
from r2mae.images.models.mlp import MLPAutoencoder
from r2mae.images.task import PixelTask
from r2mae.masking import Key, Uniform, column_mask, element_mask, patch_mask, token_mask

RATIO = Uniform(0.5, 0.9)


def argsort_mask(batch: int, length: int, ratio: float) -> torch.Tensor:
    """Mask as most masked autoencoders do: random noise, argsort, argsort of the result, gather."""
    noise = torch.rand(batch, length)
    restore = noise.argsort(1).argsort(1)
    mask = torch.ones(batch, length)
    mask[:, : int(length * (1 - ratio))] = 0
    return mask.gather(1, restore)


def argsort_tokens(special: torch.Tensor, ratio: float) -> torch.Tensor:
    """Mask tokens by a Bernoulli matrix, as common collators do."""
    chance = torch.full(special.shape, ratio).masked_fill_(special, 0.0)
    return torch.bernoulli(chance).bool()


def units(step: list[int]) -> dict[str, tuple[Callable[[], object], Callable[[], object], str]]:
    """Return for every unit our function, the peer, and a description of the peer."""
    key = Key.root(0)

    def now() -> tuple[float, Key]:
        step[0] += 1
        ratio = RATIO(step[0], key.fold("ratio"))
        return ratio, key.fold("mask", step[0])

    special = torch.zeros(256, 128, dtype=torch.bool)
    special[:, 0] = special[:, -1] = True
    return {
        "pixels, Bernoulli (128 x 784)": (
            lambda: element_mask((128, 784), *now()),
            lambda: torch.rand(128, 784) < RATIO(step[0], key),
            "torch.rand < ratio",
        ),
        "pixels, exact (128 x 784)": (
            lambda: element_mask((128, 784), *now(), exact=True),
            lambda: argsort_mask(128, 784, RATIO(step[0], key)),
            "double argsort",
        ),
        "patches (256 x 196)": (
            lambda: patch_mask(256, 196, *now()),
            lambda: argsort_mask(256, 196, RATIO(step[0], key)),
            "double argsort",
        ),
        "columns (5000)": (
            lambda: column_mask(5000, *now()),
            lambda: argsort_mask(1, 5000, RATIO(step[0], key)),
            "double argsort",
        ),
        "tokens, exact (256 x 128)": (
            lambda: token_mask(special, *now()),
            lambda: argsort_mask(256, 128, RATIO(step[0], key)),
            "double argsort",
        ),
        "tokens, Bernoulli (256 x 128)": (
            lambda: token_mask(special, *now(), exact=False),
            lambda: argsort_tokens(special, RATIO(step[0], key)),
            "torch.bernoulli",
        ),
    }


def step_of(model: nn.Module, task: PixelTask, batch: torch.Tensor) -> Callable[[], None]:
    """Return one whole training step with masking."""
    optimiser = torch.optim.Adam(model.parameters(), fused=True)
    key, count = Key.root(0), [0]

    def run() -> None:
        count[0] += 1
        ratio = RATIO.draw(count[0], key.fold("ratio"), len(batch))
        corrupted = task.corrupt(batch, ratio, key.fold("mask", count[0]))
        optimiser.zero_grad()
        (task.losses(task.forward(model, corrupted), corrupted).sum() / corrupted.hidden.sum()).backward()
        optimiser.step()

    return run


def masking_of(task: PixelTask, batch: torch.Tensor) -> Callable[[], None]:
    """Return the part of that step for ratio, mask and corruption (without the scaling of the bytes)."""
    key, count = Key.root(0), [0]
    clean = batch.float() / 255

    def run() -> None:
        count[0] += 1
        ratio = RATIO.draw(count[0], key.fold("ratio"), len(batch))
        hidden = element_mask(tuple(clean.shape), ratio, key.fold("mask", count[0]), exact=task.exact)
        _ = clean * ~hidden

    return run


def transformer_step() -> Callable[[], None]:
    """Return a step of a small vision transformer's encoder: 64 images, 49 kept patches, 6 layers of 192."""
    layer = nn.TransformerEncoderLayer(192, 3, 768, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.rand(64, 49, 192)

    def run() -> None:
        optimiser.zero_grad()
        model(tokens).square().mean().backward()
        optimiser.step()

    return run


def repeated(run: Callable[[], object], times: int) -> Callable[[], None]:
    """Return a call that runs `times` times, so that short work can be timed."""

    def many() -> None:
        for _ in range(times):
            run()

    return many


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    print(f"every unit against its peer ({options.threads} threads, {options.rounds} rounds, alternating)")
    for name, (ours, peer, what) in units([0]).items():
        repeated(ours, 20)(), repeated(peer, 20)()
        times = alternate({"ours": repeated(ours, 20), "peer": repeated(peer, 20)}, options.rounds)
        ratio, spread = ratio_of(times["peer"], times["ours"])
        print(
            f"  {name:32} {1e6 * times['ours'].median / 20:8.0f} us   "
            f"{what:18} {1e6 * times['peer'].median / 20:8.0f} us   {ratio:6.2f}x ± {spread:.2f}"
        )
    print("share of a training step (ratio + mask + corruption)")
    batch = torch.randint(0, 256, (128, 784), dtype=torch.uint8)
    for exact in (False, True):
        task = PixelTask(784, exact=exact)
        whole, part = step_of(MLPAutoencoder(784), task, batch), masking_of(task, batch)
        repeated(whole, 20)(), repeated(part, 20)()
        times = alternate({"step": repeated(whole, 20), "masking": repeated(part, 20)}, options.rounds)
        share, spread = ratio_of(times["masking"], times["step"])
        kind = "exact counts" if exact else "Bernoulli pixels"
        step = 1e3 * statistics.median(times["step"].seconds) / 20
        print(f"  MLP 784-512-256, {kind:24} {100 * share:5.2f} % ± {100 * spread:.2f} of {step:.2f} ms")
    whole = transformer_step()
    part_patch = repeated(lambda: patch_mask(64, 196, 0.75, Key.root(0)), 10)
    whole(), part_patch()
    times = alternate({"step": whole, "masking": part_patch}, options.rounds)
    share, spread = ratio_of(times["masking"], times["step"])
    print(
        f"  ViT encoder 6 x 192, 196 patches      {10 * share:5.2f} % ± {10 * spread:.2f} "
        f"of {1e3 * times['step'].median:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
