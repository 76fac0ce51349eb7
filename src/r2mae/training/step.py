"""One optimiser step, from the batch to the updated weights: read :class:`Pretraining` from top to bottom."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from r2mae.masking.curriculum import select_weights
from r2mae.masking.masks import RatioLike
from r2mae.masking.schemes import Scheme
from r2mae.training.config import RunConfig
from r2mae.training.distributed import local
from r2mae.training.task import MaskedBatch, ParameterGroup, Task, count_samples

SCALE = "lr_scale"
"""Entry of an optimiser's group: its factor on the learning rate."""
MOMENTUM = 0.9  # of sgd


class Pretraining(nn.Module):
    """Hides entries, predicts them, computes the loss and updates the weights.

    The loop (:mod:`r2mae.training.loop`) calls the methods of a step in the order in which they are defined here:

    1. :meth:`set_learning_rate`;
    2. :meth:`forward`, for each micro-batch: torch's seed, mask ratio, corruption, prediction, losses, their weights,
       and the normaliser; the loop differentiates the returned value;
    3. :meth:`complete_gradients`: gradients are rescaled to the complete step and clipped, then the optimiser of
       :meth:`make_optimizer` updates the weights;
    4. :meth:`end_step`: the moving average is updated.

    The loss of a step is Σ w·ℓ / Σ w over the hidden entries of all its micro-batches. With learned weights, which
    average to one, the denominator is the count. If a step has several micro-batches, their sums are differentiated,
    and the gradients are rescaled once, before clipping: the mean of the micro-batches' means would weight hidden
    entries unequally whenever their counts differ. If ratios are stratified per sample, w is divided by the number of
    hidden entries of the sample (:func:`sum_of_sample_means`).

    `scheme` is bound to the run's steps, and None if nothing is hidden (ratio 0).
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        scheme: Scheme | None,
        config: RunConfig,
        total_steps: int,
        *,
        rank: int = 0,
    ) -> None:
        super().__init__()
        self.task, self.model, self.scheme, self.config = task, model, scheme, config
        self.weights = task.weight_network(scheme.curriculum) if scheme and scheme.curriculum else None
        self._per_sample = scheme is not None and scheme.ratio.stratified_per_sample
        # With per-sample ratios, training hides fixed counts, even if the task draws entries independently.
        self._training_task = task.with_fixed_counts if self._per_sample else task
        self.average: AveragedModel | None = None
        if config.optimizer.ema is not None:
            self.average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.optimizer.ema))  # type: ignore[no-untyped-call]
            self.average.requires_grad_(False)  # DDP must not wait for its gradients
        self.total_steps, self.rank, self.ranks = total_steps, rank, config.machine.ranks
        key = config.key
        self._ratio_key, self._mask_key, self._torch_key = key.fold("ratio"), key.fold("mask"), key.fold("torch")
        self._scheduled = config.optimizer.schedule != "constant" or config.optimizer.warmup > 0
        self._sums: list[Tensor] = []  # losses of the micro-batches of this step so far
        self._denominators: list[Tensor | float] = []
        self.ratio = 0.0  # of the last micro-batch, or a mean; see _mean_ratio

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimiser of the task's parameter groups, and of the network of loss weights."""
        groups = self.task.parameter_groups(self.model, self.config)
        if self.weights is not None:
            groups = [*groups, ParameterGroup(list(self.weights.parameters()), decayed=False)]
        return make_optimizer(groups, self.config)

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Set the learning rate of a step."""
        if self._scheduled:
            config = self.config
            lowest = getattr(config, "min_lr", 0.0) / config.optimizer.peak_lr
            schedule, warmup = config.optimizer.schedule, config.optimizer.warmup
            factor = learning_rate_factor(step, self.total_steps, schedule, warmup, lowest)
            for group in optimizer.param_groups:
                group["lr"] = config.optimizer.peak_lr * factor * group[SCALE]

    def forward(self, batch: Any, step: int, part: int) -> Tensor:
        """Return the scalar to differentiate for micro-batch `part` of a step: its loss, or its sum of losses."""
        rows = count_samples(batch)
        first = (part * self.ranks + self.rank) * rows  # row of the first sample in the global batch
        self._seed_torch(step, part)
        ratio = self.scheme.ratio.draw(step, self._ratio_key.rows(first), rows) if self.scheme else 0.0
        self.ratio = self._mean_ratio(ratio, step)
        task = self._training_task
        corrupted = task.corrupt(batch, ratio, self._mask_key.fold(step).rows(first))
        output = task.forward(self.model, corrupted)
        losses = task.losses(output, corrupted)
        if self.weights is not None and self.scheme is not None and self.scheme.curriculum is not None:
            matrix = task.learned_weights(self.weights, corrupted, output)
            losses = losses * select_weights(matrix, self.scheme.curriculum, self.ratio, step)
        elif corrupted.weights is not None:
            losses = losses * corrupted.weights
        total, denominator = self._sum_losses(losses, corrupted, rows)
        if self._step_is_one_batch:
            loss = total / denominator
            self._step_loss = loss.detach()
            return loss
        self._sums.append(total.detach())
        self._denominators.append(denominator)
        return total

    def _seed_torch(self, step: int, part: int) -> None:
        """Seed torch for this step (dropout, for example), so that a resumed run draws the same numbers."""
        seed = self._torch_key.fold(step, part, self.rank).seed()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed(seed)
        if torch.backends.mps.is_available():
            torch.mps.manual_seed(seed)
        torch.default_generator.manual_seed(seed)

    def _mean_ratio(self, ratio: RatioLike, step: int) -> float:
        """Return the mean ratio: of the complete step with per-sample ratios, else of this micro-batch."""
        if self._per_sample and self.scheme is not None:
            ratio = self.scheme.ratio.draw(step, self._ratio_key, self.config.optimizer.batch_size)
        return float(np.mean(ratio))

    def _sum_losses(self, losses: Tensor, corrupted: MaskedBatch, rows: int) -> tuple[Tensor, Tensor | float]:
        """Return a micro-batch's sum of losses, and its normaliser."""
        if self._per_sample and self.config.task.weighting == "mean":
            return sum_of_sample_means(losses, corrupted, rows)
        denominator: Tensor | float
        match self.config.task.weighting:
            case "mean" if corrupted.weights is not None and self.weights is None:
                denominator = (corrupted.weights * corrupted.hidden).sum()
            case "mean":
                denominator = corrupted.count
            case "sum":
                denominator = rows
            case "inverse-ratio":
                # A row hides at least one entry and keeps at least one, at any ratio.
                least = rows / corrupted.entries
                denominator = min(max(self.ratio, least), 1 - least) * corrupted.entries
        return losses.sum(), denominator

    @property
    def _step_is_one_batch(self) -> bool:
        """Whether a step has one micro-batch, on one process."""
        return self.config.optimizer.accumulate == 1 and self.ranks == 1

    def complete_gradients(self) -> None:
        """Rescale the gradient of the sums to that of the weighted mean over the complete step, then clip it.

        The weight network is clipped separately, so that a curriculum does not change how the model is clipped.
        """
        if not self._step_is_one_batch:
            total = torch.stack(self._sums).sum()
            both = torch.stack([total, torch.zeros_like(total) + sum(self._denominators)])
            if self.ranks > 1:
                torch.distributed.all_reduce(both)
            self._step_loss = both[0] / both[1]
            self._sums, self._denominators = [], []
            # The loop divides by the number of micro-batches, and DDP and FSDP average gradients over processes.
            scale = self.config.optimizer.accumulate * self.ranks / both[1]
            torch._foreach_mul_([local(p.grad) for p in self.parameters() if p.grad is not None], scale)
        if self.config.optimizer.clip is not None:
            for part in (self.model, self.weights):
                if part is not None:
                    nn.utils.clip_grad_norm_(part.parameters(), self.config.optimizer.clip)

    def end_step(self) -> Tensor:
        """Update the moving average; return the loss over all micro-batches and processes, still on its device."""
        if self.average is not None:
            self.average.update_parameters(self.model)
        return self._step_loss

    @property
    def evaluation_model(self) -> nn.Module:
        """The model that is validated and saved: the moving average if there is one, else the model itself."""
        return self.model if self.average is None else self.average.module


def sum_of_sample_means(losses: Tensor, corrupted: MaskedBatch, rows: int) -> tuple[Tensor, Tensor]:
    """Return Σ w·ℓ/h and its normaliser Σ w/h; h is the number of hidden entries in the sample of the entry.

    This is for per-sample ratios. The plain mean over the hidden entries of a step would count a sample at 0.9 nine
    times as much as one at 0.1. R²MAE takes the mean at the ratio of each mini-batch, so all ratios have equal weight.
    Here all samples have equal weight, and the expected objective is the same.

    Without weights of the task (w = 1), the normaliser is the number of samples with hidden entries. Both are sums, so
    they add up over micro-batches and processes. `losses` are those of the task, times its weights.
    """
    counts = corrupted.hidden.reshape(rows, -1).sum(1)
    inverse = torch.where(counts > 0, 1 / counts.clamp(min=1), 0.0)
    hidden = corrupted.hidden if corrupted.weights is None else corrupted.weights * corrupted.hidden
    places = corrupted.loss_rows()
    if places is not None:
        of_losses = inverse[places]
    elif corrupted.ordered_by_sample(losses, rows):
        of_losses = inverse.repeat_interleave(losses.numel() // rows)
    else:
        raise TypeError(
            f"{type(corrupted).__name__} does not assign losses to samples: add a method loss_rows (see "
            "r2mae.training.task.MaskedBatch)"
        )
    return (losses.flatten() * of_losses).sum(), (hidden.reshape(rows, -1).sum(1) * inverse).sum()


def make_optimizer(groups: Sequence[ParameterGroup], config: RunConfig) -> torch.optim.Optimizer:
    """Return the optimiser that a configuration names."""
    chosen = config.optimizer
    entries: list[dict[str, Any]] = [
        {
            "params": group.parameters,
            "lr": chosen.peak_lr * group.scale,
            "weight_decay": chosen.weight_decay if group.decayed else 0.0,
            SCALE: group.scale,
        }
        for group in groups
    ]
    if chosen.name == "sgd":
        fused = config.machine.strategy == "ddp"  # torch has no such kernel for sharded parameters
        return torch.optim.SGD(entries, momentum=MOMENTUM, fused=fused)
    kind = torch.optim.Adam if chosen.name == "adam" else torch.optim.AdamW
    return kind(entries, betas=(float(chosen.betas[0]), float(chosen.betas[1])), fused=True)


def learning_rate_factor(
    step: int, total: int, shape: Literal["constant", "linear", "cosine"], warmup: float, lowest: float = 0.0
) -> float:
    """Return the factor on the learning rate at optimiser step `step` (from 0) of `total`.

    The factor rises linearly to 1 over the first fraction `warmup` of the run. Then it stays constant, or falls to
    `lowest` at the end of the run along a line or half a cosine.
    """
    rising = warmup * total
    if step < rising:
        return (step + 1) / math.ceil(rising)
    if shape == "constant":
        return 1.0
    done = (step - rising) / max(total - rising, 1)
    falling = 1.0 - done if shape == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return lowest + (1.0 - lowest) * falling
