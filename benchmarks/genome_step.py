"""A training step of GPN-MSA: ours against transformers' RoFormer with logits at all positions.

The peer is what a plain script does. Both have the same weights, batch, hidden bases and fused AdamW. The peer makes
one-hot vectors, and a loss that ignores positions which are not hidden. Losses are compared first, without dropout
(1e-5).
"""

import argparse
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from transformers import RoFormerConfig
from transformers.models.roformer.modeling_roformer import RoFormerEncoder, RoFormerOnlyMLMHead

from benchmarks.timing import alternate, ratio_of
from r2mae.genome.batches import WindowBatch
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.store.tokens import BASES, LETTERS, MASK
from r2mae.genome.task import AlignmentTask, HiddenBases
from r2mae.masking.keys import Key

SPECIES, LENGTH, RATIO = 61, 128, 0.15
SIZES = {"tiny": (128, 2, 4, 64), "mini": (256, 4, 8, 32)}  # width, layers, heads, windows of a step
_IGNORED = -100


def main(words: Sequence[str] | None = None) -> None:
    """Measure each size in 32 bits, and under bfloat16 autocast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    options = parser.parse_args(words)
    for size in options.sizes:
        for bf16 in (False, True):
            step(size, options.rounds, bf16=bf16)


def step(size: str, rounds: int, *, bf16: bool) -> None:
    """Forward, loss, backward and AdamW."""
    width, layers, heads, rows = SIZES[size]
    torch.manual_seed(0)
    ours = AlignmentTransformer(
        others=SPECIES - 1, length=LENGTH, width=width, layers=layers, heads=heads, inner=4 * width
    )
    plain = Plain(ours)
    task = AlignmentTask(SPECIES - 1, corruption="80-10-10", exact=True, repeat_weight=1)
    corrupted = task.corrupt(_windows(rows), RATIO, Key.root(0))
    with torch.no_grad():
        both = (_ours(ours.eval(), task, corrupted), plain.eval().loss(corrupted))
    assert abs(both[0] - both[1]) < 1e-5, both
    contenders = {
        "plain": _stepping(plain.train(), lambda: plain.loss(corrupted), bf16),
        "ours": _stepping(ours.train(), lambda: _ours(ours, task, corrupted), bf16),
    }
    for run in contenders.values():
        run()
    timings = alternate(contenders, rounds)
    title = f"step, {size}, {'bf16' if bf16 else '32 bits'}"
    for name, timing in timings.items():
        print(f"{title}, {name}: {rows / timing.median:,.0f} windows a second")
    ratio, spread = ratio_of(timings["plain"], timings["ours"])
    print(f"{title}: {ratio:.2f} ± {spread:.2f} times the speed of logits at all positions", flush=True)


def _windows(rows: int) -> WindowBatch:
    draw = torch.Generator().manual_seed(0)
    return {
        "target": torch.randint(0, BASES, (rows, LENGTH), generator=draw, dtype=torch.uint8),
        "aligned": torch.randint(0, len(LETTERS), (rows, LENGTH, SPECIES - 1), generator=draw, dtype=torch.uint8),
        "soft": torch.zeros(rows, LENGTH, dtype=torch.bool),
        "weights": torch.ones(rows, LENGTH),
    }


def _ours(model: AlignmentTransformer, task: AlignmentTask, corrupted: HiddenBases) -> Tensor:
    found: Tensor = task.losses(task.forward(model, corrupted), corrupted).sum() / corrupted.real.sum()
    return found


def _stepping(model: nn.Module, loss: Callable[[], Tensor], bf16: bool) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            found = loss()
        found.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


class Plain(nn.Module):
    """The same network from transformers' parts: one-hot vectors, a matrix, RoFormer's layers, logits everywhere."""

    def __init__(self, model: AlignmentTransformer) -> None:
        super().__init__()
        width, first = model.decoder.in_features, model.layers[0]
        config = RoFormerConfig(
            vocab_size=BASES, hidden_size=width, embedding_size=width, num_hidden_layers=len(model.layers),
            num_attention_heads=first.heads, intermediate_size=first.inner.out_features,
            max_position_embeddings=model.length,
        )  # fmt: skip
        self.encoder, self.head = RoFormerEncoder(config), RoFormerOnlyMLMHead(config)
        positions = self.encoder.embed_positions
        with torch.no_grad():
            positions.weight.copy_(positions.create_weight())
        for mine, theirs in zip(model.layers, self.encoder.layer, strict=True):
            own = theirs.attention.self
            pairs = {
                "query": own.query, "key": own.key, "value": own.value,
                "output": theirs.attention.output.dense, "attention_norm": theirs.attention.output.LayerNorm,
                "inner": theirs.intermediate.dense, "outer": theirs.output.dense, "norm": theirs.output.LayerNorm,
            }  # fmt: skip
            for name, module in pairs.items():
                module.load_state_dict(getattr(mine, name).state_dict())
        self.head.predictions.transform.dense.load_state_dict(model.transform.state_dict())
        self.head.predictions.transform.LayerNorm.load_state_dict(model.transform_norm.state_dict())
        self.head.predictions.decoder.load_state_dict(model.decoder.state_dict())
        tables = [table for table in (model.embedding.target, model.embedding.aligned) if table is not None]
        self.matrix = nn.Parameter(torch.cat(tables).detach().clone())
        self.norm = nn.LayerNorm(width, eps=model.embedding.norm.eps)
        self.norm.load_state_dict(model.embedding.norm.state_dict())
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, target: Tensor, aligned: Tensor) -> Tensor:
        """Return logits at all positions."""
        flags = torch.cat([one_hot(target, MASK + 1), one_hot(aligned.long(), len(LETTERS)).flatten(2)], -1).float()
        states = self.encoder(self.dropout(self.norm(flags @ self.matrix))).last_hidden_state
        logits: Tensor = self.head(states)
        return logits

    def loss(self, corrupted: HiddenBases) -> Tensor:
        """Return the mean cross entropy of hidden bases, by labels at all positions."""
        labels = torch.full_like(corrupted.inputs, _IGNORED)
        targets = corrupted.targets.masked_fill(~corrupted.real, _IGNORED)
        labels.scatter_(1, corrupted.columns, targets)
        logits = self(corrupted.inputs, corrupted.aligned)
        return cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=_IGNORED)
