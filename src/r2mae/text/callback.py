"""What ``transformers.Trainer`` tells a :class:`~r2mae.text.collator.MaskCollator`, and what it logs of it."""

import math
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_utils import has_length

from r2mae.text.collator import MaskCollator
from r2mae.training.memory import keep_freed_memory, release_freed_memory

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


class MaskCallback(TrainerCallback):
    """Tells the collator each epoch, so that masks are new in every one, and logs the mean ratio as ``mask_ratio``.

    While a CPU trains, the process keeps the memory that it frees (:func:`~r2mae.training.memory.keep_freed_memory`):
    a vocabulary's logits are too large to be asked for anew in every step. After an error it goes on to do so.

    Parameters
    ----------
    collator : MaskCollator
        The one that ``Trainer`` has.

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
        """Keep freed memory, and begin to count epochs."""
        self._epoch, self._resumed = None, state.global_step > 0
        if args.device.type == "cpu":
            keep_freed_memory()

    def on_train_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Give the memory back."""
        if args.device.type == "cpu":
            release_freed_memory()

    def on_epoch_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Tell the epoch, before its first batch is made.

        A resumed run begins with the epoch that it was cut off in. Over data without a length ``Trainer`` begins again
        from the first pass, and its own count of epochs lags behind the passes: they are counted here.
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
        """Leave what a resumed run has skipped out of the mean ratio."""
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
        """Add the mean ratio of the batches made since the last record; some may be loaded ahead, or of evaluation."""
        if logs is None or "loss" not in logs:
            return
        ratio = self.collator.take_mean_ratio()
        if ratio is not None:
            logs["mask_ratio"] = ratio
            if state.log_history:
                state.log_history[-1]["mask_ratio"] = ratio
