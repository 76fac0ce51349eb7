"""A callback that connects ``transformers.Trainer`` to a :class:`~r2mae.text.collator.MaskCollator`."""

import math
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_utils import has_length

from r2mae.text.collator import MaskCollator

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


class MaskCallback(TrainerCallback):
    """Sets the collator's epoch, so that every epoch has new masks, and logs the mean ``mask_ratio``.

    Parameters
    ----------
    collator : MaskCollator
        The collator that ``Trainer`` was given.

    Examples
    --------
    >>> collator = MaskCollator(tokenizer, Uniform(0.15, 0.4))  # doctest: +SKIP
    >>> Trainer(..., data_collator=collator, callbacks=[MaskCallback(collator)])  # doctest: +SKIP
    """

    def __init__(self, collator: MaskCollator) -> None:
        self.collator = collator
        self._epoch: int | None = None
        self._resumed = False

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Start counting epochs."""
        self._epoch, self._resumed = None, state.global_step > 0

    def on_epoch_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Set the collator's epoch, before the first batch is made.

        A resumed run starts in the epoch in which it was interrupted. If the data have no length, ``Trainer`` starts
        again with the first pass over them, and its epoch number lags behind the number of passes. Passes are
        therefore counted here.
        """
        if self._epoch is not None:
            self._epoch += 1
        else:
            loader = kwargs.get("train_dataloader")
            self._epoch = 0 if loader is not None and not has_length(loader) else math.floor((state.epoch or 0) + 1e-6)
        self.collator.set_epoch(self._epoch)

    def on_step_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Omit the batches that a resumed run has skipped from the mean ratio."""
        if self._resumed:
            self.collator.forget_skipped()
        self._resumed = False

    def on_log(
        self,
        args: "TrainingArguments",
        state: "TrainerState",
        control: "TrainerControl",
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the mean ratio of the batches made since the last log; some may be prefetched, or of evaluation."""
        if logs is None or "loss" not in logs:
            return
        ratio = self.collator.take_mean_ratio()
        if ratio is not None:
            logs["mask_ratio"] = ratio
            if state.log_history:
                state.log_history[-1]["mask_ratio"] = ratio
