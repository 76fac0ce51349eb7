"""The gain from each shortcut of the text domain on a CPU: the time of a step without it, over that with all shortcuts.

The forward and backward pass of one micro-batch is timed. The variant and the version with all shortcuts take turns,
each first as often as second. With one thread, processor time is measured, which other processes affect least.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from benchmarks.text import PRESETS, Rows, architecture
from benchmarks.timing import Timing, ratio_of
from r2mae.masking import Key
from r2mae.text import fast, layers
from r2mae.text.fast import fast_masked_lm
from r2mae.text.models import roberta
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.task import TokenTask
from r2mae.training import dropout
from r2mae.training.memory import freed_memory_kept

RATIO = 0.275  # mean of U(0.15, 0.4)
KEPT = 1.05  # a shortcut that saves less than 5 % of the time, and no memory, should be removed


def torch_kept(shape: torch.Size, rate: float, kind: torch.dtype) -> Tensor:
    """Zeros and ones of dropout from torch's own generator, one 24-bit number per entry."""
    return torch.empty(shape.numel(), dtype=kind).bernoulli_(1 - rate)


def all_states(self: Any, states: Tensor, attention_mask: Any, columns: Any) -> Tensor:
    """Compute every layer at every token, then select the hidden tokens."""
    for layer in self.roberta.encoder.layer:
        states = self._layer(layer, states, None, None)
    return states if columns is None else states.gather(1, columns[..., None].expand(-1, -1, states.shape[-1]))


OURS: dict[str, list[tuple[Any, str, Any]]] = {
    "last layer at hidden tokens alone": [(MaskedLanguageModel, "_layers", all_states)],
    "dropout from 16 random bits": [(dropout, "_kept", torch_kept)],
    "logits turned into gradients": [
        (
            roberta,
            "vocabulary_losses",
            lambda states, table, bias, targets: cross_entropy(linear(states, table, bias), targets, reduction="none"),
        )
    ],
}


def stock_but_last(this: Any, hidden_states: Tensor, attention_mask: Any = None, **others: Any) -> Any:
    """Use the stock attention in all layers but the last."""
    if this.last:
        return NARROW(this, hidden_states, attention_mask, **others)
    return super(layers.NarrowAttention, this).forward(hidden_states, attention_mask, **others)


def never_last(this: Any, *given: Any, **others: Any) -> Any:
    """Use the kernels' attention at all tokens in every layer, including the last."""
    was, this.last = this.last, False
    try:
        return NARROW(this, *given, **others)
    finally:
        this.last = was


def stock_dropout(self: Any, input: Tensor) -> Tensor:
    return nn.functional.dropout(input, self.p, self.training)


NARROW = layers.NarrowAttention.forward
TRAINER: dict[str, list[tuple[Any, str, Any]]] = {
    "last layer at labels alone": [(layers.NarrowAttention, "forward", never_last)],
    "attention by the kernels": [(layers.NarrowAttention, "forward", stock_but_last)],
    "dropout from 16 random bits": [(layers.QuickDropout, "forward", stock_dropout)],
    "one array of logits' gradients": [
        (
            fast,
            "summed_cross_entropy",
            lambda logits, targets, factor: cross_entropy(logits, targets, reduction="sum") * factor,
        )
    ],
}


def step_of(
    net: nn.Module, loss: Callable[[], Tensor], changes: Sequence[tuple[Any, str, Any]], *, bf16: bool
) -> Callable[[], float]:
    """Return a function that runs a step without some shortcuts and returns its seconds."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def run() -> float:
        with ExitStack() as stack:
            for owner, name, new in changes:
                stack.enter_context(patch.object(owner, name, new))
            net.zero_grad()
            began = clock()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                value = loss()
            value.backward()
            return clock() - began

    return run


def price(whole: Callable[[], float], without: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Return the time without shortcuts over that of the whole, and its spread; a round runs both, then in reverse."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        first, second, third, last = whole(), without(), without(), whole()
        seconds[0].append(first + last)
        seconds[1].append(second + third)
    return ratio_of(Timing(tuple(seconds[1])), Timing(tuple(seconds[0])))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the gain from every shortcut."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="roberta-medium")
    parser.add_argument("--vocab-size", type=int, default=50265)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rows", type=int, default=8, help="sequences per step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--bf16", action="store_true", help="under autocast to bf16")
    parser.add_argument("--model", choices=("ours", "trainer"), help="only one of the two")
    parser.add_argument("--only", nargs="*", help="only shortcuts whose names contain one of these words")
    options = parser.parse_args(argv)
    options.steps = 1
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    values = architecture(options)
    task = TokenTask.from_architecture(values)
    hidden = task.corrupt(torch.from_numpy(Rows(options).tokens[: options.rows]), RATIO, Key.root(0))
    labels = torch.from_numpy(Rows(options).tokens[: options.rows]).masked_fill(~hidden.hidden, -100)

    def measure(
        title: str, net: Any, loss: Callable[[], Tensor], variants: dict[str, list[tuple[Any, str, Any]]]
    ) -> None:
        chosen = {
            name: how for name, how in variants.items() if not options.only or any(w in name for w in options.only)
        }
        whole = step_of(net, loss, [], bf16=options.bf16)
        with freed_memory_kept():
            whole(), whole()  # warm up
            print(f"{title}: {whole():.3f} s a step with all shortcuts", flush=True)
            for name, changes in chosen.items():
                ratio, spread = price(whole, step_of(net, loss, changes, bf16=options.bf16), options.rounds)
                print(
                    f"  without {name:36} {ratio:.3f} ± {spread:.3f}  {'' if ratio >= KEPT else 'below 5 %'}",
                    flush=True,
                )

    print(
        f"{options.preset}, vocabulary {options.vocab_size}, {options.rows} x {options.length}, "
        f"{options.rounds} rounds, {'bf16' if options.bf16 else '32 bits'}"
    )
    if options.model != "trainer":
        ours = MaskedLanguageModel.from_architecture(values).train()
        measure("r2mae", ours, lambda: task.losses(task.forward(ours, hidden), hidden).mean(), OURS)
        del ours
    if options.model != "ours":
        stock = fast_masked_lm(MaskedLanguageModel.from_architecture(values).stock().train())
        batch = {"input_ids": hidden.inputs, "labels": labels}
        measure("fast_masked_lm", stock, lambda: stock(**batch).loss, TRAINER)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
