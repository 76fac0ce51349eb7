"""A callback for Lightning's ``Trainer``: a new mask ratio for every optimiser step, on a module that has one."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from r2mae.integrations.ratios import RatioGiven, StepRatio


class MaskRatioCallback(Callback):
    """Set ``mask_ratio`` of a module for every optimiser step; validation and test have the module's own ratio.

    Under accumulation all micro-batches of a step have the same ratio, and so have all processes. It is a function of
    seed and ``global_step``, so that a resumed training continues with the same ratios.

    Parameters
    ----------
    ratio : number, pair or Ratio
        ``(0.5, 0.9)`` is R²MAE.
    seed : int
    attribute : str
        Name of the ratio in the module, in its parts, or in their `config`.

    Examples
    --------
    >>> Trainer(callbacks=[MaskRatioCallback((0.5, 0.9))])  # doctest: +SKIP
    """

    def __init__(self, ratio: RatioGiven, seed: int = 0, attribute: str = "mask_ratio") -> None:
        self.ratio = StepRatio(ratio, seed, attribute)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the ratio of the module."""
        steps = trainer.estimated_stepping_batches
        self.ratio.begin(pl_module, int(steps) if steps != float("inf") else trainer.max_steps)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Set the ratio of the step to which the batch belongs."""
        value = self.ratio.set(trainer.global_step)
        pl_module.log(self.ratio.attribute, value, batch_size=1)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Set the module's own ratio."""
        self.ratio.restore()
