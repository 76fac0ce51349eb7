"""Evaluate a masked language model: loss and accuracy by mask ratio on held-out text, and GLUE."""

import logging
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from r2mae.catalogue import data_root
from r2mae.errors import UserError
from r2mae.evaluation.items import BatchReader, ItemRecorder, item_shares
from r2mae.masking.keys import Key
from r2mae.text.config import MOST_SEQUENCES, TextConfig
from r2mae.text.finetune import LENGTH, Progress, finetune
from r2mae.text.probe import probe_glue
from r2mae.text.task import HiddenTokens, TokenModel, TokenTask
from r2mae.training.run import cpu_threads
from r2mae.training.task import Batches
from r2mae.training.validation import EVALUATION_KEY, evaluating

if TYPE_CHECKING:
    from r2mae.text.batches import TextData

RATIOS = (0.15, 0.3, 0.4, 0.5, 0.6, 0.8)  # from the default ratio to the highest of the paper's Fig. 1F
_ROWS = 64
_LOGITS = 1 << 20  # logits at a time: 4 MiB, which fit into a CPU's caches
_DEVICE_LOGITS = 1 << 25


def evaluate(
    config: TextConfig,
    task: TokenTask,
    model: TokenModel,
    data: "TextData | None",
    *,
    curve: bool = True,
    folder: str | Path | None = None,
    progress: Progress | None = None,
    items: ItemRecorder | None = None,
    **recipe: Any,
) -> dict[str, float]:
    """Return the scores of a pretrained model.

    Parameters
    ----------
    config, task, model, data
        Those of the run. The configuration says how many held-out sequences, tasks and examples are measured. Without
        data, only GLUE is.
    curve : bool
        Measure loss and accuracy by mask ratio, if documents are held out.
    folder : path, optional
        The folder of GLUE; by default ``glue`` in the data folder.
    progress : callable, optional
        Counts held-out sequences, then the sentences of each probe, then the steps of each task.
    items : ItemRecorder, optional
        Records the share of each held-out sequence in ``loss`` and ``accuracy``.
    **recipe
        Other arguments of :func:`r2mae.text.finetune.finetune`.

    Returns
    -------
    dict
        ``loss`` (nats per hidden token) and ``accuracy``: means over :data:`RATIOS`; ``loss_0.15``, ``accuracy_0.15``
        and so on. For each probe and task :meth:`r2mae.text.glue.GlueScores.by_name`. With two or more probes or tasks
        also ``glue_probe`` or ``glue``, the mean of their main scores.

    Raises
    ------
    UserError
        As :func:`r2mae.text.finetune.finetune`.
    """
    scores: dict[str, float] = {}
    chosen = config.evaluation
    if curve and data is not None and data.validation is not None and len(data.validation):
        most = chosen.eval_sequences
        curves = ratio_curve(task, model, data.validation, sequences=most, progress=progress, items=items)
        for title, values in zip(("loss", "accuracy"), curves, strict=True):
            scores[title] = float(np.mean(values))
            scores |= {f"{title}_{ratio:g}": float(value) for ratio, value in zip(RATIOS, values, strict=True)}
    where = data_root() / "glue" if folder is None else folder
    common: dict[str, Any] = {"limit": chosen.glue_limit, "length": min(LENGTH, config.data.sequence_length)}
    for mean, names in (("glue_probe", chosen.glue_probes), ("glue", chosen.glue)):
        main = []
        for name in names:
            with cpu_threads(config.machine.threads):
                if mean == "glue":
                    found = finetune(model, name, where, progress=progress, **common, **recipe)
                else:
                    found = probe_glue(task, model, name, where, progress=progress, **common)
            if multiprocessing.parent_process() is None:  # worker processes of a comparison log nothing
                logging.getLogger("r2mae").warning("%s", found)
            scores |= found.by_name()
            main.append(found.score)
        if len(main) > 1:
            scores[mean] = float(np.mean(main))
    return scores


@torch.no_grad()
def ratio_curve(
    task: TokenTask,
    model: TokenModel,
    rows: Batches,
    ratios: Sequence[float] = RATIOS,
    *,
    sequences: int = MOST_SEQUENCES,
    progress: Progress | None = None,
    items: ItemRecorder | None = None,
) -> tuple[Float64[np.ndarray, " ratios"], Float64[np.ndarray, " ratios"]]:
    """Return loss and accuracy at each mask ratio, on masks that are the same for every model.

    Hidden tokens are corrupted as in pretraining. In each sequence the rounded count is hidden. The mask of a sequence
    depends only on its place and the ratio, not on the other ratios, the size of batches, or the device. At most
    `sequences` rows are used, evenly spaced. `items` records the share of each in the mean of a score over the ratios.

    Returns
    -------
    losses : ndarray, shape (ratios,)
        Cross entropy of a hidden token in nats, mean over all hidden tokens.
    accuracies : ndarray, shape (ratios,)
        Fraction of hidden tokens to which the model gives the highest probability.

    Raises
    ------
    UserError
        If there are no sequences, or none has a token that can be hidden.
    """
    task = replace(task, exact=True)  # also for runs trained with exact=False
    chosen = _evenly_spaced(len(rows), sequences)
    device = next(model.parameters()).device
    key = Key.root(0).fold("ratio curve")
    sums = torch.zeros(len(ratios), 3, dtype=torch.float64, device=device)
    each = torch.zeros(2, len(ratios), len(chosen), dtype=torch.float64, device=device)
    read: BatchReader = rows if items is None else items.recording(rows)
    with evaluating(model):
        for first in range(0, len(chosen), _ROWS):
            batch = read.batch(chosen[first : first + _ROWS], EVALUATION_KEY.rows(first)).to(device)
            for place, ratio in enumerate(ratios):
                own = key.fold(round(ratio * 10_000)).rows(first)
                of_rows = None if items is None else each[:, place, first : first + _ROWS]
                sums[place] += _sums(task, model, task.corrupt(batch, ratio, own), of_rows)
            if progress is not None:
                progress(min(first + _ROWS, len(chosen)), len(chosen))
    losses, hits, counts = sums.cpu().numpy().T
    if not counts.all():
        raise UserError("the held-out sequences have no token that can be hidden: give more text")
    if items is not None:
        for name, of_rows, totals in zip(("loss", "accuracy"), each.cpu().numpy(), (losses, hits), strict=True):
            items.add(name, item_shares(of_rows, totals / counts))
    return losses / counts, hits / counts


def _sums(
    task: TokenTask, model: TokenModel, corrupted: HiddenTokens, of_rows: Float64[Tensor, "2 rows"] | None
) -> Float64[Tensor, "3"]:
    """Return the sum of losses, the number of correct predictions and the number of hidden tokens.

    The first two are also added to `of_rows`, row by row.
    """
    states, logits_of = model.at_hidden(corrupted.inputs, corrupted.columns)
    targets, counted = corrupted.targets, corrupted.real
    tally = torch.zeros(3, dtype=torch.float64, device=states.device)
    row_of = None if of_rows is None else corrupted.loss_rows()
    block = max(1, (_LOGITS if states.device.type == "cpu" else _DEVICE_LOGITS) // task.vocab_size)
    for first in range(0, len(targets), block):
        part = slice(first, first + block)
        logits = logits_of(part).float()
        chosen = logits.gather(1, targets[part, None])[:, 0]
        highest, answer = logits.max(1)
        losses = logits.sub_(highest[:, None]).exp_().sum(1).log() + highest - chosen
        hits = (answer == targets[part]).to(losses.dtype)
        found = (torch.stack([losses, hits, torch.ones_like(losses)]) * counted[part]).double()
        tally += found.sum(1)
        if of_rows is not None and row_of is not None:
            of_rows.index_add_(1, row_of[part], found[:2])
    return tally


def _evenly_spaced(rows: int, most: int) -> Int64[np.ndarray, " chosen"]:
    if rows < 1 or most < 1:
        raise UserError("there is no held-out sequence to measure on: hold documents out with --validation 0.01")
    return np.linspace(0, rows - 1, min(rows, most)).round().astype(np.int64)
