"""A callback for Lightning's ``Trainer``: a new mask ratio for every optimiser step, on a module that has one."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from r2mae.integrations.ratios import RatioGiven, RatioSetter


class MaskRatioCallback(Callback):
    """Set ``mask_ratio`` of a module for every optimiser step.

    Validation and test have the module's own ratio, and so has the module after training, however that ends.

    Under accumulation all micro-batches of a step have the same ratio, and so have all processes. It is a function of
    seed and ``global_step``, so that a resumed training continues with the same ratios. A ratio with a schedule needs
    the number of steps: the Trainer knows it from ``max_steps``, or from epochs and the length of the loader. With
    manual optimisation ``max_steps`` is needed, since the Trainer does not know how often the module steps.

    Parameters
    ----------
    ratio : MaskRatio, number, pair or Ratio
        ``(0.5, 0.9)`` is R²MAE.
    seed : int
        Of a MaskRatio it is its own.
    attribute : str
        Name of the ratio in the module, in its parts, or in their `config`.

    Examples
    --------
    >>> Trainer(callbacks=[MaskRatioCallback((0.5, 0.9))])  # doctest: +SKIP
    """

    def __init__(self, ratio: RatioGiven, seed: int = 0, attribute: str = "mask_ratio") -> None:
        self.ratio = RatioSetter(ratio, seed, attribute)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the ratio of the module."""
        counted = pl_module.automatic_optimization
        steps = trainer.estimated_stepping_batches if counted else trainer.max_steps
        hint = "give the Trainer max_steps=" + ", or max_epochs= and limit_train_batches= (a number)" * counted
        self.ratio.begin(pl_module, steps, hint)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Set the ratio of the step to which the batch belongs."""
        value = self.ratio.set(trainer.global_step)
        pl_module.log(self.ratio.attribute, value, batch_size=1)

    def _restore(self, *given: Any, **named: Any) -> None:
        """Set the module's own ratio."""
        self.ratio.restore()

    on_train_batch_end = on_train_epoch_end = on_validation_start = on_exception = on_train_end = teardown = _restore
