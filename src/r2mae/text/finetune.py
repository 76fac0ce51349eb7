"""GLUE fine-tuning: a pretrained encoder with a new head.

The paper gives (appendix "RoBERTa models"): 5 epochs, learning rate 2e-5, batch size 32, the mean of three runs. The
rest is our choice: AdamW, linear decay after 6 % of warm-up (as RoBERTa was fine-tuned), weight decay 0.01, gradients
clipped at 1, 128 tokens, and the head of ``RobertaForSequenceClassification``. The model of the last step is measured:
choosing among epochs by the held-out examples would favour models that fluctuate more.

The loop is separate from that of pretraining: it has labels and no masks, splits a batch by the lengths of its
examples, and starts from a model in memory. The two loops share the order of the data and the schedule.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils.rnn import pad_sequence

from r2mae.errors import UserError
from r2mae.files import read_confined, write_json
from r2mae.masking.keys import Key
from r2mae.text.formats import reading
from r2mae.text.glue import GlueExamples, GlueScores, GlueTask, Score, glue_task, read_glue, score
from r2mae.text.models.pretrained import PretrainedModel
from r2mae.text.task import TokenModel
from r2mae.text.tokenizer import TextTokenizer
from r2mae.training.devices import cpu_threads
from r2mae.training.optimizers import learning_rate_factor
from r2mae.training.order import BatchOrder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LENGTH = 128
"""Tokens of an example, the paper's sequence length."""
# Our choices: the paper gives none of these for fine-tuning.
WARMUP = 0.06  # fraction of the steps
WEIGHT_DECAY = 0.01  # as in pretraining; not on biases and layer norms
CLIP = 1.0  # largest gradient norm
_TEST_BATCH = 128
_FORM = 3  # version of the recipe's code, increased by changes that alter scores
_PARTS = 2  # parts of a batch on a CPU, each padded separately
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Encoded:
    """Examples as tokens.

    Attributes
    ----------
    ids : list of int64 tensor
        Token numbers with special tokens, of different lengths.
    labels : tensor, shape (n,)
        Class numbers (int64) or similarities (float32).
    pad : int
        Number of the padding token.
    """

    ids: list[Int64[Tensor, " _"]]
    labels: Num[Tensor, " n"]
    pad: int

    def by_length(self, rows: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
        """Return the rows in order of their lengths, so that parts of them need little padding."""
        ordered: np.ndarray = rows[np.argsort([len(self.ids[row]) for row in rows], kind="stable")]
        return ordered

    def batch(self, rows: Int64[np.ndarray, " m"], device: torch.device) -> dict[str, Tensor]:
        """Return the inputs of a model, padded to the longest row; no attention mask without padding."""
        chosen = [self.ids[row] for row in rows]
        padded = pad_sequence(chosen, batch_first=True, padding_value=self.pad)
        real = torch.arange(padded.shape[1]) < torch.tensor([len(ids) for ids in chosen])[:, None]
        made = {"input_ids": padded} if bool(real.all()) else {"input_ids": padded, "attention_mask": real.long()}
        return {name: value.to(device) for name, value in made.items()}


def encode(tokenizer: TextTokenizer, examples: GlueExamples, length: int) -> Encoded:
    """Tokenise sentences, ``<s> A </s>``, or pairs of sentences, ``<s> A </s></s> B </s>``, or as the tokenizer does.

    With more than `length` tokens, the longer sentence is cut first ("longest_first" in transformers).
    """
    from tokenizers.processors import TemplateProcessing

    backend = tokenizer.literal()
    if backend.encode("").ids != [tokenizer.bos_id, tokenizer.eos_id]:  # it adds none itself
        roles = {"open": "bos", "close": "eos"}
        backend.post_processor = TemplateProcessing(
            single="open $A close",
            pair="open $A close close $B close",
            special_tokens=[
                {"id": name, "ids": [getattr(tokenizer, f"{role}_id")], "tokens": [tokenizer.roles[role]]}
                for name, role in roles.items()
            ],
        )
    backend.enable_truncation(length)
    pairs = len(examples.texts) == 2
    found = backend.encode_batch_fast(list(zip(*examples.texts, strict=True)) if pairs else list(examples.texts[0]))
    labels = torch.from_numpy(examples.labels)
    return Encoded(
        [torch.tensor(one.ids) for one in found],
        labels.float() if labels.is_floating_point() else labels,
        tokenizer.pad_id,
    )


def build_classifier(model: PretrainedModel, outputs: int) -> "PreTrainedModel":
    """Return a copy of an encoder with a new head, drawn by torch's generator as in transformers.

    Parameters
    ----------
    model : PretrainedModel
        Is not changed.
    outputs : int
        Number of classes, or 1 for regression.

    Raises
    ------
    UserError
        If transformers has no classifier for such encoders.
    """
    from transformers import AutoModelForSequenceClassification

    config = copy.deepcopy(model.config)
    config.num_labels = outputs
    with reading(f"a classifier with the encoder of {type(model.stock()).__name__}", "omit the tasks of GLUE"):
        kinds: Any = AutoModelForSequenceClassification
        made: PreTrainedModel = kinds.from_config(config, dtype=torch.float32)
        made.base_model.load_state_dict(model.base_model.state_dict(), strict=False)  # a pooler is new
    return made


def finetune(
    model: TokenModel,
    task: str,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    epochs: float = 5,
    lr: float = 2e-5,
    batch_size: int = 32,
    limit: int | None = None,
    length: int = LENGTH,
    threads: int | None = None,
    kept: str | Path | None = None,
    progress: Progress | None = None,
) -> GlueScores:
    """Fine-tune an encoder on a GLUE task once for each seed, and return the scores on the held-out examples.

    Parameters
    ----------
    model : PretrainedModel
        A pretrained model with its tokenizer, as in a run. It is copied, not changed. On a GPU autocast uses bf16.
    task, folder
        See :func:`r2mae.text.glue.find_glue`.
    seeds : sequence of int
        One run each. A seed gives the same order of examples for every encoder.
    epochs, lr, batch_size : float, float, int
        Defaults are the paper's; warm-up (6 %), weight decay (0.01) and clipping (1) are ours.
    limit : int, optional
        Most training examples, the same for every seed and encoder.
    length : int
        Longer examples are cut to this many tokens, the longer sentence first.
    threads : int, optional
        CPU threads of the fine-tuning.
    kept : path, optional
        A file for the scores of finished runs: the same run (weights, examples, recipe and seed) is not repeated.
    progress : callable, optional
        Called with the number of steps done and the total.

    Raises
    ------
    UserError
        For unreadable files, training examples of one class only, another kind of model, one without positions for
        `length`, or a loss that is not finite.
    """
    glue, recipe = glue_task(task), {"epochs": epochs, "lr": lr, "batch_size": batch_size}
    for name, value in recipe.items():
        if not value > 0:
            raise UserError(f"fine-tuning: {name} must be above 0, not {value}")
    if not seeds:
        raise UserError("fine-tuning needs at least one seed")
    if not isinstance(model, PretrainedModel) or model.tokenizer is None:
        raise UserError(f"fine-tuning on GLUE needs a model with its tokenizer, not a {type(model).__name__}")
    if not 8 <= length <= (most := model.positions or length):
        raise UserError(f"fine-tuning: length {length} is outside 8 to {most}, the positions of the encoder")
    train, test = read_glue(glue, folder, limit)
    steps = max(1, round(epochs * len(train) / batch_size))
    with cpu_threads(threads):
        parts = [encode(model.tokenizer, part, length) for part in (train, test)]
        file, name = Path(kept or ""), _identity(model, parts, [glue.name, recipe]) if kept else ""
        by_seed: list[dict[Score, float]] = []
        for run, seed in enumerate(map(int, seeds)):
            report = (lambda step, run=run: progress(run * steps + step, steps * len(seeds))) if progress else None
            found = _finished(file, f"{name}-{seed}", glue) if kept else None
            if found is None:
                outputs = _run(model, glue, parts[0], parts[1], recipe, steps, seed, report)
                found = score(glue, test.labels, outputs)
                if kept:
                    write_json(file, {**_read(file), f"{name}-{seed}": {"task": glue.name, "seed": seed, **found}})
            elif report:
                report(steps)
            by_seed.append(found)
    return GlueScores(glue, train, test, tuple(by_seed), tuple(map(int, seeds)))


def _run(
    model: PretrainedModel,
    task: GlueTask,
    train: Encoded,
    test: Encoded,
    recipe: Mapping[str, float],
    steps: int,
    seed: int,
    report: Callable[[int], None] | None,
) -> Float[np.ndarray, "n outputs"]:
    """Train one classifier and return its outputs on the test examples; torch's random state is restored."""
    key, device = Key.root(seed).fold("glue", task.name), next(model.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(key.fold("torch").seed())
        classifier: nn.Module = build_classifier(model, len(task.classes) or 1)
        classifier.to(device).train()
        plain = [parameter for parameter in classifier.parameters() if parameter.ndim < 2]  # biases and norms
        decayed = [parameter for parameter in classifier.parameters() if parameter.ndim >= 2]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=recipe["lr"], weight_decay=WEIGHT_DECAY, fused=True)
        order = BatchOrder(len(train.ids), int(recipe["batch_size"]), steps, key)
        total = torch.zeros((), device=device)
        for step in range(steps):
            rows = order.indices(step)
            for group in optimizer.param_groups:
                group["lr"] = recipe["lr"] * learning_rate_factor(step, steps, "linear", WARMUP)
            optimizer.zero_grad()
            parts = min(_PARTS if device.type == "cpu" else 1, len(rows))
            for part in np.array_split(train.by_length(rows), parts):
                labels = train.labels[torch.from_numpy(part)].to(device)
                loss = _losses(_outputs(classifier, train, part, device), labels).sum() / len(rows)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
            nn.utils.clip_grad_norm_(classifier.parameters(), CLIP)
            optimizer.step()
            if report is not None:
                report(step + 1)
        if not bool(total.isfinite()):
            raise UserError(f"fine-tuning on {task.title} diverged (seed {seed}): lower lr {recipe['lr']:g}")
        return _predict(classifier.eval(), test, device)


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
    order = examples.by_length(np.arange(len(examples.ids)))
    parts = np.split(order, range(_TEST_BATCH, len(order), _TEST_BATCH))
    made = np.concatenate([_outputs(model, examples, part, device).cpu().numpy() for part in parts])
    outputs = np.empty_like(made)
    outputs[order] = made
    return outputs


def _identity(model: PretrainedModel, parts: Sequence[Encoded], recipe: Sequence[Any]) -> str:
    """Return a hash of the encoder, the examples and the values of `recipe`: equal ones give equal scores."""
    device = next(model.parameters()).device.type
    values = json.dumps([_FORM, device, *recipe, model.config.to_dict()], sort_keys=True, default=str)
    digest = hashlib.blake2b(values.encode(), digest_size=16)
    for name, tensor in sorted(model.base_model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(np.ascontiguousarray(tensor.detach().float().cpu().numpy()).data)
    for part in parts:
        digest.update(part.labels.numpy().data)
        for ids in part.ids:
            digest.update(np.int64(len(ids)).tobytes() + ids.numpy().tobytes())
    return digest.hexdigest()


def _read(file: Path) -> dict[str, Any]:
    """Return the finished runs of a file by name; one that is missing or damaged counts as empty."""
    try:
        return dict(json.loads(read_confined(file)))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _finished(file: Path, name: str, task: GlueTask) -> dict[Score, float] | None:
    """Return the scores of a finished run, or None."""
    try:
        return {one: float(_read(file)[name][one]) for one in task.scores}
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
