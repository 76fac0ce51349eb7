"""What opens the folder of a fine-tuned model, as a domain opens that of a pretrained one."""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from r2mae.domains.base import Domain
from r2mae.domains.lookup import get_domain
from r2mae.domains.options import CommandLine
from r2mae.evaluation.metrics import Metric
from r2mae.images.config import ImagesConfig
from r2mae.images.finetune.config import FinetuneConfig
from r2mae.images.models import MODELS
from r2mae.images.sets import SETS
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np

    from r2mae.images.finetune.classifier import Classifier
    from r2mae.images.finetune.data import FinetuneData, LazyFinetuneData, MeasuredData
    from r2mae.images.finetune.task import ClassificationTask
    from r2mae.images.resize import ResizeMode


class FinetuneDomain(Domain):
    """Classifiers of images. They are made by ``r2mae finetune``, and opened by every command that takes a run."""

    name = "images-finetune"
    title = "Classifiers of images, fine-tuned or on frozen features"
    config = FinetuneConfig
    sets = SETS

    @property
    def command_line(self) -> CommandLine:  # type: ignore[override]
        """Options of reading other images, and layouts of other libraries, as the domain of images has them."""
        images = get_domain("images").command_line
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
        from r2mae.training.fingerprint import fingerprint

        return config.data.source if config.data.source in SETS else fingerprint(config.data.source, hidden=False)

    def check_source(self, config: FinetuneConfig) -> None:
        """Refuse data that are not there, without torch; how the run reads its own says nothing of these."""
        from r2mae.images.data import check_source

        check_source(config.data.source)

    def check(self, config: FinetuneConfig) -> None:
        """Refuse data that are not there, and options that they have no use for, without torch."""
        from r2mae.images.data import check_source

        check_source(
            config.data.source, cache=config.machine.cache, skip_broken=config.data.skip_broken, draft=config.data.draft
        )

    def load(self, config: FinetuneConfig) -> "LazyFinetuneData":
        """Return images and pretrained model, each read when it is asked for."""
        from r2mae.images.finetune.data import LazyFinetuneData

        return LazyFinetuneData(config)

    def build(self, architecture: Mapping[str, Any]) -> "tuple[ClassificationTask, Classifier]":
        """Make the task and a fresh classifier."""
        from r2mae.images.finetune.classifier import make_classifier
        from r2mae.images.finetune.data import with_pool
        from r2mae.images.finetune.task import ClassificationTask

        task, pretrained = build_model(MODELS, architecture["encoder"])
        return ClassificationTask(), make_classifier(with_pool(task, architecture["pool"]), pretrained, architecture)

    def evaluate(
        self,
        config: FinetuneConfig,
        task: "ClassificationTask",
        model: "Classifier",
        data: "FinetuneData | LazyFinetuneData | MeasuredData",
    ) -> dict[str, float]:
        """Measure a classifier on the test images."""
        from r2mae.images.finetune.evaluate import evaluate

        return evaluate(model, data.splits.test)

    def load_other_data(
        self, config: FinetuneConfig, source: str, architecture: Mapping[str, Any], **options: Any
    ) -> "tuple[FinetuneConfig, MeasuredData]":
        """Read other images with the same classes, for :meth:`evaluate`: those of their test part are measured."""
        from r2mae.images.finetune.data import other_data

        return other_data(config, source, architecture, **options)

    def embed(
        self,
        config: FinetuneConfig,
        task: "ClassificationTask",
        model: "Classifier",
        source: str,
        *,
        resize: int | None = None,
        resize_mode: "ResizeMode | None" = None,
        skip_broken: bool | None = None,
    ) -> "dict[str, np.ndarray]":
        """Embed a set as the domain of images does: what the last layer classifies."""
        pretraining = ImagesConfig.make(
            data=config.data.source,
            seed=config.split_seed,
            resize=config.data.resize,
            resize_mode=config.data.resize_mode,
            test_fraction=config.data.test_fraction,
            skip_broken=config.data.skip_broken,
            draft=config.data.draft,
        )
        domain = get_domain("images")
        reading = {"resize": resize, "resize_mode": resize_mode, "skip_broken": skip_broken}
        return domain.embed(pretraining, task, model, source, **reading)


DOMAIN = FinetuneDomain()
