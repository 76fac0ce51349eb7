"""The domain of images as it opens the runs that ``r2mae finetune`` makes."""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from r2mae.domains.base import Domain
from r2mae.domains.lookup import get_domain
from r2mae.domains.options import CommandLine
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.images.config import ImagesConfig
from r2mae.images.finetune.config import FinetuneConfig
from r2mae.images.models import MODELS
from r2mae.images.sets import SETS
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np

    from r2mae.images.finetune.classifier import ClassificationTask, Classifier
    from r2mae.images.finetune.data import FinetuneData


class FinetunedImages(Domain):
    """The domain of images for classifiers in place of autoencoders: they are measured, embed images, and exported."""

    name = ImagesConfig.domain
    title = "Fine-tuned classifiers of images"
    config = FinetuneConfig
    sets = SETS

    @property
    def command_line(self) -> CommandLine:  # type: ignore[override]
        """The options of reading other images, and the layouts of other libraries."""
        images = get_domain(self.name).command_line
        return CommandLine(reading=images.reading, model_formats=images.model_formats)

    def metrics_of(self, config: FinetuneConfig) -> tuple[Metric, ...]:
        """Return accuracies and the loss."""
        return (
            Metric("top1", "top-1 accuracy", bounds=(0, 1)),
            Metric("top5", "top-5 accuracy", bounds=(0, 1), optional=True),
            Metric("cross_entropy", "cross entropy", higher_is_better=False, bounds=(0, inf)),
        )

    def fingerprint(self, config: FinetuneConfig) -> str:
        """Return that of the images; the weights are named in the configuration."""
        return get_domain(self.name).fingerprint(_reading(config))

    def check_source(self, config: FinetuneConfig) -> None:
        """Refuse missing data, without torch."""
        get_domain(self.name).check_source(_reading(config))

    def load(self, config: FinetuneConfig) -> "FinetuneData":
        """Return images and pretrained model, each read on access."""
        from r2mae.images.finetune.data import FinetuneData

        return FinetuneData(config)

    def build(self, architecture: Mapping[str, Any]) -> "tuple[ClassificationTask, Classifier]":
        """Make the task and a fresh classifier."""
        from r2mae.images.finetune.classifier import ClassificationTask, make_classifier

        _, pretrained = build_model(MODELS, architecture["encoder"])
        return ClassificationTask(tuple(architecture["encoder"]["shape"])), make_classifier(pretrained, architecture)

    def evaluate(
        self, config: FinetuneConfig, task: "ClassificationTask", model: "Classifier", data: "FinetuneData"
    ) -> dict[str, float]:
        """Measure a classifier on the test images."""
        from r2mae.images.finetune.data import evaluate

        return evaluate(model, data.splits.test)

    def load_other_data(
        self, config: FinetuneConfig, source: str, architecture: Mapping[str, Any], **reading: Any
    ) -> "tuple[FinetuneConfig, FinetuneData]":
        """Read other images with the same size and classes, for :meth:`evaluate`: their test part is measured."""
        from r2mae.images.finetune.data import FinetuneData
        from r2mae.images.task import check_images

        given = {name: value for name, value in reading.items() if value is not None}
        config = config.replace(data=source, crop_from="resized", cache="auto", **given)
        data = FinetuneData(config)
        check_images(source, data.splits.test.shape, architecture["encoder"]["shape"])
        if list(data.splits.test.classes or ()) != list(architecture["classes"]):
            raise UserError(f"{source} has other classes than the classifier: name data with those of {config.run}")
        return config, data

    def embed(
        self, config: FinetuneConfig, task: "ClassificationTask", model: "Classifier", source: str, **reading: Any
    ) -> "dict[str, np.ndarray]":
        """Embed images as a pretrained model does: what the last layer classifies."""
        return get_domain(self.name).embed(_reading(config), task, model, source, **reading)


def _reading(config: FinetuneConfig) -> ImagesConfig:
    """Return a configuration of pretraining that reads and splits the same images in the same way."""
    same = ("data", "resize", "resize_mode", "test_fraction", "skip_broken", "draft")
    return ImagesConfig.make(seed=config.split_seed, **{name: config[name] for name in same})


FINETUNED = FinetunedImages()
