"""For ``transformers.Trainer``: a collator of tokens with its callback, and a ratio for models that mask themselves."""

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from r2mae.integrations.ratios import RatioGiven, StepRatio
from r2mae.text.callback import MaskCallback
from r2mae.text.collator import MaskCollator
from r2mae.text.hidden import hidden_logits

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

__all__ = ["MaskCallback", "MaskCollator", "MaskRatioCallback", "hidden_logits"]


class MaskRatioCallback(TrainerCallback):
    """Set the mask ratio of a model such as ``ViTMAEForPreTraining`` for every optimiser step.

    Under accumulation all micro-batches of a step have the same ratio, and so have all processes. It is a function of
    seed and ``global_step``, so that a resumed training continues with the same ratios. Evaluation has the model's own
    ratio. The ratio is logged with the loss.

    Parameters
    ----------
    ratio : number, pair or Ratio
        ``(0.5, 0.9)`` is R²MAE.
    seed : int
    attribute : str
        Name of the ratio in the model's `config` or modules: ``mask_ratio`` of ViT-MAE and Hiera,
        ``random_mask_ratio`` of PatchTST.

    Examples
    --------
    >>> Trainer(model=ViTMAEForPreTraining(config), callbacks=[MaskRatioCallback((0.5, 0.9))])  # doctest: +SKIP
    """

    def __init__(self, ratio: RatioGiven, seed: int = 0, attribute: str = "mask_ratio") -> None:
        self.ratio = StepRatio(ratio, seed, attribute)
        self._used: list[float] = []

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Find the ratio of the model."""
        self._used = []
        self.ratio.begin(kwargs["model"], state.max_steps)

    def on_step_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Set the ratio of an optimiser step."""
        self._used.append(self.ratio.set(state.global_step))

    def on_step_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Set the model's own ratio: an evaluation or a saved model may follow."""
        self.ratio.restore()

    def on_log(
        self,
        args: "TrainingArguments",
        state: "TrainerState",
        control: "TrainerControl",
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the mean ratio of the steps since the last log."""
        if logs is None or "loss" not in logs or not self._used:
            return
        logs[self.ratio.attribute] = sum(self._used) / len(self._used)
        if state.log_history:
            state.log_history[-1][self.ratio.attribute] = logs[self.ratio.attribute]
        self._used = []
