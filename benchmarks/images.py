"""Images per second of ViT-MAE: ours against stock transformers, in turns; and against a bound.

Ours is the task and model of the domain in a bare loop, as is the stock ``ViTMAEForPreTraining``, whose ratio is set
for every step to the same draw; both have the same weights and AdamW, the stock one once as torch has it by default and
once fused. All read the same bytes and standardise them. The bound is the time that the matrix products of a step alone
would take, at the rate that this machine has in the largest of them. With one thread the processor's time is counted,
which other processes on the machine disturb least.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from benchmarks.timing import alternate, ratio_of
from r2mae.images.models.vit_mae import Settings, build
from r2mae.images.patches import standardised
from r2mae.images.presets import PRESETS
from r2mae.masking import Fixed, Key, Uniform
from r2mae.masking.masks import hidden_count
from r2mae.masking.ratios import Ratio

_KEY = Key.root(0)


def settings_of(options: argparse.Namespace) -> tuple[Settings, int]:
    """Return a preset's settings, and the side of its images."""
    fields = PRESETS[options.preset]
    own = {name.removeprefix("model."): value for name, value in fields.items() if name.startswith("model.")}
    return Settings(**own), int(fields["resize"])


def stock_of(settings: Settings, side: int) -> ViTMAEForPreTraining:
    return ViTMAEForPreTraining(
        ViTMAEConfig(
            hidden_size=settings.width,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            intermediate_size=4 * settings.width,
            image_size=side,
            patch_size=settings.patch,
            decoder_hidden_size=settings.decoder_width,
            decoder_num_hidden_layers=settings.decoder_layers,
            decoder_num_attention_heads=settings.decoder_heads,
            decoder_intermediate_size=4 * settings.decoder_width,
            layer_norm_eps=1e-6,
            norm_pix_loss=True,
        )
    ).train()


class Contest:
    """The contenders, which take the same steps on the same images."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.settings, self.side = settings_of(options)
        self.images = torch.randint(0, 256, (options.rows, self.side, self.side, 3), dtype=torch.uint8)
        architecture: dict[str, Any] = {"shape": [self.side, self.side, 3]}
        architecture |= asdict(self.settings)
        self.task, self.model = build(architecture)
        self.stock = stock_of(self.settings, self.side)
        self.ratio: Ratio = Fixed(options.ratio) if options.ratio else Uniform(0.6, 0.9, "stratified")

    def ours(self, ratio: Any, step: int) -> Tensor:
        corrupted = self.task.corrupt(self.images, ratio, _KEY.fold("mask", step))
        return self.task.losses(self.task.forward(self.model, corrupted), corrupted).sum() / corrupted.count

    def theirs(self, ratio: float, step: int) -> Tensor:
        for config in (self.stock.config, self.stock.vit.config, self.stock.vit.embeddings.config):
            config.mask_ratio = ratio
        loss: Tensor = self.stock(pixel_values=standardised(self.images).movedim(3, 1)).loss
        return loss

    def steps(self, loss_of: Callable[[Any, int], Tensor], model: torch.nn.Module, fused: bool | None) -> float:
        """Train; return seconds a step."""
        weights = [one for one in model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.05, fused=fused)
        clock = time.process_time if self.options.threads == 1 else time.perf_counter
        began = 0.0
        for step in range(-1, self.options.steps):
            if step == 0:
                began = clock()
            ratio = self.ratio.draw(max(step, 0), _KEY.fold("ratio"), self.options.rows)
            with torch.autocast("cpu", torch.bfloat16, enabled=self.options.bf16):
                loss = loss_of(ratio, step + 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return (clock() - began) / self.options.steps

    def run_ours(self) -> float:
        return self.steps(self.ours, self.model, True)

    def bound(self) -> float:
        """Return the seconds that the matrix products of a step take at the mean ratio."""
        one, rows = self.settings, self.options.rows
        patches = (self.side // one.patch) ** 2
        hidden = hidden_count(patches, self.options.ratio or 0.75)
        seen, pixels = patches - hidden + 1, 3 * one.patch**2
        encoder = rows * (seen * 12 * one.width**2 * one.layers + (seen - 1) * pixels * one.width)
        wide, both = one.decoder_width, seen + hidden
        square = wide**2 * one.decoder_layers * both * 12
        decoder = rows * (square + seen * one.width * wide + hidden * pixels * wide)
        return 3 * (encoder + decoder) / self.rate(rows * seen)

    def rate(self, tokens: int) -> float:
        """Measure multiply-adds a second in the largest product of the encoder."""
        kind = torch.bfloat16 if self.options.bf16 else torch.float32
        width, times = self.settings.width, []
        a, b = torch.rand(tokens, width, dtype=kind), torch.rand(width, 4 * width, dtype=kind)
        out = torch.empty(tokens, 4 * width, dtype=kind)
        clock = time.process_time if self.options.threads == 1 else time.perf_counter
        for _ in range(9):
            began = clock()
            torch.mm(a, b, out=out)
            times.append(clock() - began)
        return tokens * width * 4 * width / sorted(times)[4]


def main(argv: Sequence[str] | None = None) -> int:
    """Print images per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=[name for name in PRESETS if "vit" in name], default="vit-mae-tiny")
    parser.add_argument("--rows", type=int, default=64, help="images of a step")
    parser.add_argument("--ratio", type=float, help="a fixed ratio; by default U(0.6, 0.9), spread evenly")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    contest = Contest(options)
    contenders: dict[str, Callable[[], float]] = {
        "matrix products alone": contest.bound,
        "r2mae": contest.run_ours,
        "stock": partial(contest.steps, contest.theirs, contest.stock, None),
        "stock, fused AdamW": partial(contest.steps, contest.theirs, contest.stock, True),
    }
    times = alternate(contenders, options.rounds)
    drawn = f"ratio {options.ratio}" if options.ratio else "U(0.6, 0.9)"
    number = "bf16" if options.bf16 else "fp32"
    print(
        f"{options.preset}, {options.rows} images a step, {drawn}, {number}, "
        f"{options.threads} threads, {options.steps} steps x {options.rounds} rounds"
    )
    for name, timing in times.items():
        ratio, spread = ratio_of(timing, times["r2mae"])
        print(
            f"{name:24} {options.rows / timing.median:7.1f} images/s  {timing.median:6.3f} s/step "
            f"(± {timing.spread:.3f})   this / r2mae in time: {ratio:.2f} ± {spread:.2f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
