"""Tokens per second of masked language models: ours compared with stock transformers and with a bound, in turns.

Ours is the real loop (`fit`). Stock is ``RobertaForMaskedLM`` with ``DataCollatorForLanguageModeling`` in a bare loop
with the same optimiser: with torch's default, fused, and fused under autocast to bf16. For users of ``Trainer``, the
stock model with the stock collator is compared with ``hidden_logits`` and ``MaskCollator``. All read the same tokens.
Stock hides the mean ratio, as its time does not depend on the ratio. The bound is the time for the matrix products of a
step alone, at the rates that are measured on this machine for the two largest of them.
"""

import argparse
import copy
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    RobertaForMaskedLM,
    Trainer,
    TrainingArguments,
)

from benchmarks.timing import alternate, ratio_of
from r2mae.domains.base import Domain as BaseDomain
from r2mae.integrations.transformers import MaskCallback, MaskCollator, hidden_logits
from r2mae.masking import Key, Uniform
from r2mae.masking.masks import hidden_count
from r2mae.text.config import TextConfig
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.task import TokenTask
from r2mae.training import task
from r2mae.training.loop import fit
from r2mae.training.task import Task

PRESETS = {
    "roberta-medium": {"hidden_size": 512, "layers": 8, "heads": 8, "intermediate_size": 2048},
    "roberta-base": {"hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3072},
    "mini": {"hidden_size": 256, "layers": 4, "heads": 4, "intermediate_size": 1024},
    "tiny": {"hidden_size": 128, "layers": 2, "heads": 2, "intermediate_size": 512},
}
LOW, HIGH = 0.15, 0.4
WARM_UP = 1
STOCK_STEPS = 4  # steps of the stock model; few are enough, as its time does not depend on the ratio


class Rows(task.Batches):
    """Random tokens in rows that begin with <s>, with the times at which batches were requested."""

    def __init__(self, options: argparse.Namespace) -> None:
        rng = np.random.default_rng(0)
        count = options.rows * (options.steps + WARM_UP + 1)
        self.tokens = rng.integers(5, options.vocab_size - 1, (count, options.length))
        self.tokens[:, 0] = 0
        self.times: list[float] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.from_numpy(self.tokens[np.asarray(indices)])

    @property
    def seconds_a_step(self) -> float:
        return float(np.mean(np.diff(self.times)[WARM_UP:]))


class Data(task.Data):
    """The data for `fit`."""

    validation = None

    def __init__(self, options: argparse.Namespace) -> None:
        self.train = Rows(options)
        self.architecture = architecture(options)


class Domain(BaseDomain):
    """The domain `text` with random tokens instead of a corpus, and without a tokenizer."""

    name, config = "text", TextConfig

    def __init__(self, data: Data) -> None:
        self.data = data

    def fingerprint(self, config: Any) -> str:
        return "random"

    def load(self, config: Any) -> Any:
        return self.data

    def build(self, values: Mapping[str, Any]) -> tuple[Task, nn.Module]:
        return TokenTask.from_architecture(values), MaskedLanguageModel.from_architecture(values)


def architecture(options: argparse.Namespace) -> dict[str, Any]:
    ids = {"special_ids": [0, 1, 2, 3, options.vocab_size - 1], "mask_id": options.vocab_size - 1}
    names = {"pad_id": 1, "bos_id": 0, "eos_id": 2, "dropout": options.dropout, "corruption": "80-10-10", "exact": True}
    return {**PRESETS[options.preset], **ids, **names, "vocab_size": options.vocab_size, "length": options.length}


def tokenizer(options: argparse.Namespace) -> PreTrainedTokenizerFast:
    """Make a tokenizer of numbers, since the collators need its special tokens and its size."""
    words = {f"w{number}": number for number in range(5, options.vocab_size - 1)}
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "w4": 4, "<mask>": options.vocab_size - 1}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({**special, **words}, unk_token="<unk>")),
        cls_token="<s>",
        pad_token="<pad>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def ours(options: argparse.Namespace, *, bf16: bool = False) -> float:
    """Train through `fit`; return seconds per step."""
    data = Data(options)
    config = TextConfig.make(
        data="random",
        steps=options.steps + WARM_UP + 1,
        batch_size=options.rows,
        validation=0.0,
        save_every=10**6,
        sampling="stratified",
        compile=options.compile,
        precision="bf16" if bf16 else "32",
        lr=1e-4,
    )
    with tempfile.TemporaryDirectory() as folder:
        fit(config, Domain(data), Path(folder) / "run")
    return data.train.seconds_a_step


def stock_model(options: argparse.Namespace) -> RobertaForMaskedLM:
    torch.manual_seed(0)
    return RobertaForMaskedLM(MaskedLanguageModel.from_architecture(architecture(options)).config).train()


def stock(options: argparse.Namespace, words: PreTrainedTokenizerFast, *, fused: bool, bf16: bool = False) -> float:
    """Train the stock model in a bare loop, for bf16 under autocast; return seconds per step."""
    model, data = stock_model(options), Rows(options)
    collate = DataCollatorForLanguageModeling(words, mlm_probability=(LOW + HIGH) / 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=fused or None)
    times = []
    for step in range(min(options.steps, STOCK_STEPS) + WARM_UP):
        began = time.perf_counter()
        first = step * options.rows
        batch = collate([{"input_ids": row} for row in data.tokens[first : first + options.rows].tolist()])
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
    return float(np.mean(times[WARM_UP:]))


class Timed(Trainer):
    """The stock Trainer, with the times at which steps began."""

    def training_step(self, *arguments: Any, **others: Any) -> torch.Tensor:
        self.times = [*getattr(self, "times", []), time.perf_counter()]
        return super().training_step(*arguments, **others)


class Hidden(Timed):
    """Computes logits at labels alone."""

    def compute_loss(self, model: Any, inputs: Any, *others: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        logits, labels = hidden_logits(model, inputs)
        return cross_entropy(logits, labels, reduction="sum") / num_items_in_batch


def trainer(options: argparse.Namespace, words: PreTrainedTokenizerFast, *, fast: bool) -> float:
    """Train by ``transformers.Trainer``; return seconds per step."""
    model, data = stock_model(options), Rows(options)
    collate: Callable[..., Any] = DataCollatorForLanguageModeling(words, mlm_probability=(LOW + HIGH) / 2)
    if fast:
        collate = MaskCollator(words, Uniform(LOW, HIGH))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            per_device_train_batch_size=options.rows,
            max_steps=(options.steps if fast else min(options.steps, STOCK_STEPS)) + WARM_UP + 1,
            learning_rate=1e-4,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        rows = [{"input_ids": row} for row in data.tokens.tolist()]
        callbacks = [MaskCallback(collate)] if isinstance(collate, MaskCollator) else None
        run = (Hidden if fast else Timed)(
            model, arguments, train_dataset=rows, data_collator=collate, callbacks=callbacks
        )
        run.train()
    return float(np.mean(np.diff(run.times)[WARM_UP:]))


def products(options: argparse.Namespace, units: int) -> tuple[float, float]:
    """Return the multiply-adds of a step in the encoder and in the head, forward and twice backward."""
    values = architecture(options)
    width, inner, layers = values["hidden_size"], values["intermediate_size"], values["layers"]
    tokens = options.rows * options.length
    whole = tokens * (4 * width**2 + 2 * width * inner + 2 * options.length * width)
    # The last layer is computed at hidden tokens only, which attend to the keys and values of all tokens.
    last = tokens * 2 * width**2 + units * (2 * width**2 + 2 * width * inner + 2 * options.length * width)
    return 3.0 * ((layers - 1) * whole + last), 3.0 * units * (width**2 + width * values["vocab_size"])


def rate(m: int, k: int, n: int) -> float:
    """Measure multiply-adds per second in a matrix product."""
    a, b, out, times = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n), []
    for _ in range(7):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        times.append(time.perf_counter() - began)
    return m * k * n / float(np.median(times[2:]))


def bound(options: argparse.Namespace) -> float:
    """Return the seconds for the matrix products of a step at the mean ratio."""
    values = architecture(options)
    units = options.rows * hidden_count(options.length, (LOW + HIGH) / 2)
    encoder, head = products(options, units)
    width = values["hidden_size"]
    of_encoder = rate(options.rows * options.length, width, values["intermediate_size"])
    return encoder / of_encoder + head / rate(units, width, values["vocab_size"])


def difference(options: argparse.Namespace) -> float:
    """Return the largest difference of our loss and that of hidden_logits from stock, in training without dropout."""
    values = {**architecture(options), "dropout": 0.0}
    task, model = (kind.from_architecture(values) for kind in (TokenTask, MaskedLanguageModel))
    rows = torch.from_numpy(Rows(options).tokens[: min(options.rows, 8)])
    corrupted = task.corrupt(rows, (LOW + HIGH) / 2, Key.root(0))
    batch = {"input_ids": corrupted.inputs, "labels": rows.masked_fill(~corrupted.hidden, -100)}
    stock = copy.deepcopy(model).stock().train()
    losses = [stock(**batch).loss, task.losses(task.forward(model.train(), corrupted), corrupted).mean()]
    losses.append(cross_entropy(*hidden_logits(stock, batch)))
    return max(abs(float(one - losses[0])) for one in losses)


def compilations(options: argparse.Namespace) -> int:
    """Return how often torch.compile compiled the training step while the ratio varied."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    ours(argparse.Namespace(**{**vars(options), "compile": True}))
    return int(counters["stats"]["unique_graphs"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print tokens per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="roberta-medium")
    parser.add_argument("--vocab-size", type=int, default=50265)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rows", type=int, default=16, help="sequences per step")
    parser.add_argument("--steps", type=int, default=16, help="16 have ratios spread evenly over the range")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--compile", action="store_true", help="compile ours, and count the compilations")
    parser.add_argument("--only", nargs="*", help="only contenders whose names contain one of these words")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    words = tokenizer(options)
    contenders: dict[str, Callable[[], float]] = {
        "matrix products alone": lambda: bound(options),
        "r2mae": lambda: ours(options),
        "stock": lambda: stock(options, words, fused=False),
        "stock, fused AdamW": lambda: stock(options, words, fused=True),
        "r2mae, bf16": lambda: ours(options, bf16=True),
        "stock, fused AdamW, bf16": lambda: stock(options, words, fused=True, bf16=True),
        "Trainer, hidden_logits": lambda: trainer(options, words, fast=True),
        "Trainer, stock": lambda: trainer(options, words, fast=False),
    }
    if options.only:
        contenders = {name: run for name, run in contenders.items() if any(word in name for word in options.only)}
    print(
        f"{options.preset}, vocabulary {options.vocab_size}, {options.rows} x {options.length} tokens a step, "
        f"U({LOW}, {HIGH}), dropout {options.dropout}, {options.threads} threads, {options.steps} steps x "
        f"{options.rounds} rounds; loss differs from stock by {difference(options):.1e}"
    )
    if options.compile:
        print(f"compilations of a run: {compilations(options)}")
    times = alternate(contenders, options.rounds)
    tokens = options.rows * options.length
    for name, timing in times.items():
        peer = "Trainer, hidden_logits" if name.startswith("Trainer") else "r2mae"
        if name.endswith(", bf16") and name != "r2mae, bf16":
            peer = "r2mae, bf16"
        line = f"{name:24} {tokens / timing.median:7.0f} tokens/s  {timing.median:6.3f} s/step (± {timing.spread:.3f})"
        if peer in times:
            ratio, spread = ratio_of(timing, times[peer])
            line += f"   this / {peer} in time: {ratio:.2f} ± {spread:.2f}"
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
