"""What ``transformers.Trainer`` tells a :class:`~r2mae.text.collator.MaskCollator`, and what it logs of it."""

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from r2mae.text.collator import MaskCollator
from r2mae.training.memory import freed_memory_kept

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


class MaskCallback(TrainerCallback):
    """Tells the collator each epoch, so that masks are new in every one, and logs the mean ratio as ``mask_ratio``.

    While a CPU trains, the process keeps the memory that it frees (:func:`~r2mae.training.memory.freed_memory_kept`):
    a vocabulary's logits are too large to be asked for anew in every step.

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
        self._training = ExitStack()

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Keep freed memory."""
        self._training.close()
        if args.device.type == "cpu":
            self._training.enter_context(freed_memory_kept())

    def on_train_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Give it back."""
        self._training.close()

    def on_epoch_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Tell the epoch, before its first batch is made; that of a resumed run is one with a fraction."""
        self.collator.set_epoch(math.floor((state.epoch or 0.0) + 1e-6))

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
