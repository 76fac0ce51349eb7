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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils.rnn import pad_sequence

from r2mae.environment import standard_session
from r2mae.errors import UserError, reading
from r2mae.files import read_confined, write_json
from r2mae.masking.keys import Key
from r2mae.text.glue import GlueExamples, GlueScores, GlueTask, Score, glue_task, read_glue, score
from r2mae.text.models.pretrained import PretrainedModel
from r2mae.text.task import TokenModel
from r2mae.text.tokenizer import TextTokenizer
from r2mae.training.order import BatchOrder
from r2mae.training.step import learning_rate_factor

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
_Ids = Sequence[Int64[Tensor, " _"]]


def encode(tokenizer: TextTokenizer, texts: tuple[tuple[str, ...], ...], length: int) -> list[Int64[Tensor, " _"]]:
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
    found = backend.encode_batch_fast(list(zip(*texts, strict=True)) if len(texts) == 2 else list(texts[0]))
    return [torch.tensor(one.ids) for one in found]


def build_classifier(model: PretrainedModel, outputs: int) -> "PreTrainedModel":
    """Return a copy of an encoder with a new head, drawn by torch's generator as in transformers.

    `outputs` is the number of classes, or 1 for regression. If transformers has no classifier for such encoders, a
    UserError is raised.
    """
    from transformers import AutoModelForSequenceClassification

    config = copy.deepcopy(model.config)
    config.num_labels = outputs
    with reading(f"a classifier with the encoder of {type(model.stock()).__name__}", "omit the tasks of GLUE"):
        kinds: Any = AutoModelForSequenceClassification
        made: PreTrainedModel = kinds.from_config(config, dtype=torch.float32, trust_remote_code=False)
        made.base_model.load_state_dict(model.base_model.state_dict(), strict=False)  # a pooler is new
    return made


@standard_session()
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
    kept : path, optional
        A file for the scores of finished runs: the same run (weights, examples, recipe and seed) is not repeated.
    progress : callable, optional
        Called with the number of steps done and the total.
    """
    glue, recipe = glue_task(task), {"epochs": epochs, "lr": lr, "batch_size": batch_size}
    if not isinstance(model, PretrainedModel) or model.tokenizer is None:
        raise UserError(f"fine-tuning on GLUE needs a model with its tokenizer, not a {type(model).__name__}")
    if not 8 <= length <= (most := model.positions or length):
        raise UserError(f"fine-tuning: length {length} is outside 8 to {most}, the positions of the encoder")
    train, test = read_glue(glue, folder, limit)
    steps, done = max(1, round(epochs * len(train) / batch_size)), 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, steps * len(seeds))

    ids, test_ids = (encode(model.tokenizer, part.texts, length) for part in (train, test))
    name = _identity(model, [glue.name, recipe], train, test, [*ids, *test_ids]) if kept else ""
    runs: list[Mapping[Score, float]] = []
    for seed in map(int, seeds):
        found = _read(kept).get(f"{name}-{seed}") if kept else None
        if found is None:
            outputs = _run(model, glue, ids, train.labels, test_ids, recipe, steps, seed, count)
            found = score(glue, test.labels, outputs)
            if kept:
                write_json(Path(kept), {**_read(kept), f"{name}-{seed}": found})
        else:
            count(steps)
        runs.append(found)
    return GlueScores(glue, train, test, tuple(runs), tuple(map(int, seeds)))


def _run(
    model: PretrainedModel,
    task: GlueTask,
    ids: _Ids,
    answers: Num[np.ndarray, " train"],
    test_ids: _Ids,
    recipe: Mapping[str, float],
    steps: int,
    seed: int,
    count: Callable[[int], None],
) -> Float[np.ndarray, "n outputs"]:
    """Train one classifier and return its outputs on the test examples; torch's random state is restored."""
    key, device = Key.root(seed).fold("glue", task.name), next(model.parameters()).device
    pad = model.tokenizer.pad_id  # type: ignore[union-attr]
    labels = torch.from_numpy(answers)
    labels = labels.float() if labels.is_floating_point() else labels
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(key.fold("torch").seed())
        classifier: nn.Module = build_classifier(model, len(task.classes) or 1)
        classifier.to(device).train()
        plain = [parameter for parameter in classifier.parameters() if parameter.ndim < 2]  # biases and norms
        decayed = [parameter for parameter in classifier.parameters() if parameter.ndim >= 2]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=recipe["lr"], weight_decay=WEIGHT_DECAY, fused=True)
        order = BatchOrder(len(ids), int(recipe["batch_size"]), steps, key)
        total = torch.zeros((), device=device)
        for step in range(steps):
            rows = _by_length(ids, order.indices(step))
            for group in optimizer.param_groups:
                group["lr"] = recipe["lr"] * learning_rate_factor(step, steps, "linear", WARMUP)
            optimizer.zero_grad()
            for part in np.array_split(rows, min(_PARTS if device.type == "cpu" else 1, len(rows))):
                outputs = _outputs(classifier, padded([ids[row] for row in part], pad, device))
                loss = _losses(outputs, labels[torch.from_numpy(part)].to(device)).sum() / len(rows)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
            nn.utils.clip_grad_norm_(classifier.parameters(), CLIP)
            optimizer.step()
            count(1)
        if not bool(total.isfinite()):
            raise UserError(f"fine-tuning on {task.title} diverged (seed {seed}): lower lr {recipe['lr']:g}")
        rows = _by_length(test_ids, np.arange(len(test_ids)))
        parts = np.split(rows, range(_TEST_BATCH, len(rows), _TEST_BATCH))
        classifier.eval()
        with torch.no_grad():
            found = [_outputs(classifier, padded([test_ids[row] for row in part], pad, device)).cpu() for part in parts]
        return torch.cat(found).numpy()[np.argsort(rows)]


def padded(ids: _Ids, pad: int, device: torch.device) -> dict[str, Tensor]:
    """Return the inputs of a model, padded to the longest row; no attention mask without padding."""
    made = {"input_ids": pad_sequence([*ids], batch_first=True, padding_value=pad)}
    real = torch.arange(made["input_ids"].shape[1]) < torch.tensor([len(one) for one in ids])[:, None]
    if not bool(real.all()):
        made["attention_mask"] = real.long()
    return {name: value.to(device) for name, value in made.items()}


def _by_length(ids: _Ids, rows: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
    """Return the rows in order of their lengths, so that parts of them need little padding."""
    ordered: np.ndarray = rows[np.argsort([len(ids[row]) for row in rows], kind="stable")]
    return ordered


def _outputs(model: nn.Module, inputs: Mapping[str, Tensor]) -> Float[Tensor, "m outputs"]:
    device = inputs["input_ids"].device.type
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits: Tensor = model(**inputs).logits
    return logits.float()


def _losses(outputs: Float[Tensor, "m outputs"], labels: Num[Tensor, " m"]) -> Float[Tensor, " m"]:
    if labels.is_floating_point():
        return mse_loss(outputs[:, 0], labels, reduction="none")
    return cross_entropy(outputs, labels, reduction="none")


def _identity(model: PretrainedModel, recipe: Sequence[Any], train: GlueExamples, test: GlueExamples, ids: _Ids) -> str:
    """Return a hash of the encoder, the examples and the values of `recipe`: equal ones give equal scores."""
    weights = [value.detach().float().cpu() for value in model.base_model.state_dict().values()]
    values = [_FORM, next(model.parameters()).device.type, len(train), *recipe, model.config.to_dict()]
    digest = hashlib.blake2b(json.dumps(values, sort_keys=True, default=str).encode(), digest_size=16)
    for array in (train.labels, test.labels, *(tensor.numpy() for tensor in (*weights, *ids))):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read(file: str | Path) -> dict[str, dict[Score, float]]:
    """Return the scores of finished runs by name; a file that is missing or damaged counts as empty."""
    try:
        return dict(json.loads(read_confined(Path(file))))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
