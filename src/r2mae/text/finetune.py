"""GLUE fine-tuning: a pretrained encoder with a new head.

The paper gives (appendix "RoBERTa models"): 5 epochs, learning rate 2e-5, batch size 32, the mean of three runs. The
rest is our choice: AdamW, linear decay after 6 % of warm-up (as RoBERTa was fine-tuned), weight decay 0.01, gradients
clipped at 1, 128 tokens, and the head of ``AutoModelForSequenceClassification``. The model of the last step is
measured: choosing among epochs by the held-out examples would favour models that fluctuate more.

The loop is separate from that of pretraining: it has labels and no masks, splits a batch by the lengths of its
examples, and may start from a model in memory, without a run folder. The two loops share the order of the data and the
schedule.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from r2mae.errors import UserError
from r2mae.files import read_confined, write_json
from r2mae.masking.keys import Key
from r2mae.text.classifier import Pretrained, build_classifier, load_pretrained
from r2mae.text.glue import GlueScores, GlueTask, Score, glue_task, read_limited, score
from r2mae.text.sentences import Encoded, encode
from r2mae.training.devices import cpu_threads, torch_device
from r2mae.training.order import BatchOrder
from r2mae.training.schedule import learning_rate_factor

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from r2mae.text.tokenizer import TextTokenizer

# Our choices: the paper gives none of these for fine-tuning.
WARMUP = 0.06  # fraction of the steps
WEIGHT_DECAY = 0.01  # as in pretraining; not on biases and layer norms
CLIP = 1.0  # largest gradient norm
_TEST_BATCH = 128
_FORM = 2  # version of the recipe's code, increased by changes that alter scores
_PARTS = 2  # parts of a batch on a CPU, each padded separately
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Recipe:
    epochs: float
    lr: float
    batch_size: int

    def __post_init__(self) -> None:
        for name in ("epochs", "lr", "batch_size"):
            if not getattr(self, name) > 0:
                raise UserError(f"fine-tuning: {name} must be above 0, not {getattr(self, name)}")

    def steps(self, examples: int) -> int:
        return max(1, round(self.epochs * examples / self.batch_size))


def finetune(
    encoder: str | Path | nn.Module,
    tokenizer: "TextTokenizer | PreTrainedTokenizerBase | None",
    task: str,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    epochs: float = 5,
    lr: float = 2e-5,
    batch_size: int = 32,
    limit: int | None = None,
    length: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    kept: str | Path | None = None,
    progress: Progress | None = None,
) -> GlueScores:
    """Fine-tune an encoder on a GLUE task once for each seed, and return the scores on the held-out examples.

    Parameters
    ----------
    encoder : str, Path or nn.Module
        A run folder, a folder or name of Hugging Face, or a model in memory (ours or any of transformers). The model
        is copied, not changed.
    tokenizer : TextTokenizer or a tokenizer of transformers, optional
        The tokenizer of pretraining. Folders, and our models that were loaded from a run folder, have their own.
    task, folder
        See :func:`r2mae.text.glue.read_glue`.
    seeds : sequence of int
        One run each. A seed gives the same order of examples for every encoder.
    epochs, lr, batch_size : float, float, int
        Defaults are the paper's; warm-up (6 %), weight decay (0.01) and clipping (1) are ours.
    limit : int, optional
        Most training examples, the same for every seed and encoder.
    length : int, optional
        Longer examples are cut to this many tokens, the longer sentence first. By default 128, or the sequence length
        of pretraining or the number of positions if smaller.
    device : str
        "auto", "cpu", "cuda" or "cuda:N"; on a GPU autocast uses bf16.
    threads : int, optional
        CPU threads of the fine-tuning.
    kept : path, optional
        A file for the scores of finished runs: the same run (weights, examples, recipe and seed) is not repeated.
    progress : callable, optional
        Called with the number of steps done and the total.

    Returns
    -------
    GlueScores

    Raises
    ------
    UserError
        For unreadable files, training examples of one class only, an encoder without positions for `length`, or a loss
        that is not finite.
    """
    glue = glue_task(task)
    if not seeds:
        raise UserError("fine-tuning needs at least one seed")
    train, test = read_limited(glue, folder, limit)
    recipe = _Recipe(epochs, lr, batch_size)
    where, given = torch_device(device), load_pretrained(encoder, tokenizer)
    length = _checked_length(given, length)
    with cpu_threads(threads):
        parts = [encode(given.tokenizer, part, length) for part in (train, test)]
        steps = recipe.steps(len(train))
        by_seed: list[dict[Score, float]] = []
        cache = _Cache(Path(kept), given.model, parts, [glue.name, vars(recipe), where.type]) if kept else None
        for run, seed in enumerate(map(int, seeds)):
            done = run * steps
            report = (lambda step, done=done: progress(done + step, steps * len(seeds))) if progress else None
            known = cache.scores(seed) if cache else None
            if known is None:
                predicted = _run(given, glue, parts[0], parts[1], recipe, seed, where, report)
                known = score(glue, test.labels, predicted)
                if cache:
                    cache.keep(seed, glue.name, known)
            elif report:
                report(steps)
            by_seed.append(known)
    return GlueScores.of(glue, train, test, by_seed, tuple(map(int, seeds)))


def _run(
    given: Pretrained,
    task: GlueTask,
    train: Encoded,
    test: Encoded,
    recipe: _Recipe,
    seed: int,
    device: torch.device,
    report: Callable[[int], None] | None,
) -> Float[np.ndarray, "n outputs"]:
    """Train one classifier and return its outputs on the test examples; torch's random state is restored."""
    key, steps = Key.root(seed).fold("glue", task.name), recipe.steps(len(train.ids))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(key.fold("torch").seed())
        classifier: nn.Module = build_classifier(given.model, len(task.classes) or 1)
        model = classifier.to(device).train()
        optimizer = _optimizer(model, recipe)
        order = BatchOrder(len(train.ids), recipe.batch_size, steps, key)
        total = torch.zeros((), device=device)
        for step in range(steps):
            rows = order.indices(step)
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr * learning_rate_factor(step, steps, "linear", WARMUP)
            optimizer.zero_grad()
            for part in train.parts(rows, _PARTS if device.type == "cpu" else 1):
                labels = train.labels[torch.from_numpy(part)].to(device)
                loss = _losses(_outputs(model, train, part, device), labels).sum() / len(rows)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            if report is not None:
                report(step + 1)
        if not bool(total.isfinite()):
            raise UserError(f"fine-tuning on {task.title} diverged (seed {seed}): lower lr {recipe.lr:g}")
        return _predict(model.eval(), test, device)


def _optimizer(model: nn.Module, recipe: _Recipe) -> torch.optim.AdamW:
    plain = [parameter for parameter in model.parameters() if parameter.ndim < 2]  # biases and norms
    decayed = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=WEIGHT_DECAY, fused=True)


def _outputs(
    model: nn.Module, examples: Encoded, rows: Int64[np.ndarray, " m"], device: torch.device
) -> Float[Tensor, "m outputs"]:
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        made = model(**examples.batch(rows, device))
    logits: Tensor = made.logits
    return logits.float()


def _losses(outputs: Float[Tensor, "m outputs"], labels: Num[Tensor, " m"]) -> Float[Tensor, " m"]:
    if labels.is_floating_point():
        return mse_loss(outputs[:, 0], labels, reduction="none")
    return cross_entropy(outputs, labels, reduction="none")


@torch.no_grad()
def _predict(model: nn.Module, examples: Encoded, device: torch.device) -> Float[np.ndarray, "n outputs"]:
    """Return the outputs for all examples, batched by similar lengths."""
    order = np.argsort([len(ids) for ids in examples.ids], kind="stable")
    parts = [
        _outputs(model, examples, order[first : first + _TEST_BATCH], device).cpu().numpy()
        for first in range(0, len(order), _TEST_BATCH)
    ]
    made = np.concatenate(parts)
    outputs = np.empty_like(made)
    outputs[order] = made
    return outputs


def _checked_length(given: Pretrained, length: int | None) -> int:
    if length is None:
        return given.length
    if not 8 <= length <= (places := given.positions):
        raise UserError(f"fine-tuning: length {length} is outside 8 to {places}, the positions of the encoder")
    return length


class _Cache:
    """Scores of finished runs by seed, in a JSON file, so that an interrupted evaluation can be resumed.

    Two runs are the same if the encoder's weights and configuration, the examples, and the values of `recipe` are
    equal. A file that cannot be read counts as empty.
    """

    def __init__(self, file: Path, encoder: "PreTrainedModel", parts: Sequence[Encoded], recipe: Sequence[Any]) -> None:
        values = json.dumps([_FORM, *recipe, encoder.config.to_dict()], sort_keys=True, default=str)
        digest = hashlib.blake2b(values.encode(), digest_size=16)
        for name, tensor in sorted(encoder.state_dict().items()):
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(np.ascontiguousarray(tensor.detach().float().cpu().numpy()).data)
        for part in parts:
            digest.update(part.labels.numpy().data)
            for ids in part.ids:
                digest.update(np.int64(len(ids)).tobytes() + ids.tobytes())
        self.file, self.name = file, digest.hexdigest()

    def scores(self, seed: int) -> dict[Score, float] | None:
        """Return the scores of a finished run, or None."""
        try:
            return {name: float(value) for name, value in self._read()[f"{self.name}-{seed}"]["scores"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # not there, or damaged
            return None

    def keep(self, seed: int, task: str, scores: dict[Score, float]) -> None:
        """Save the scores of a run."""
        write_json(self.file, {**self._read(), f"{self.name}-{seed}": {"task": task, "seed": seed, "scores": scores}})

    def _read(self) -> dict[str, Any]:
        try:
            runs = json.loads(read_confined(self.file))
        except (OSError, ValueError, RecursionError):
            return {}
        return runs if isinstance(runs, dict) else {}
