"""Fine-tuning: ``r2mae finetune RUN [DATA]`` learns labels in a run of the one loop that hides nothing.

The command, the domain that opens such runs, and the functions that make them; the classifiers, their data and scores
are in :mod:`r2mae.images.classifier`. torch is imported only for a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from math import inf
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from r2mae.domains.base import Domain
from r2mae.domains.baselines import Baseline
from r2mae.domains.lookup import get_domain
from r2mae.domains.options import Command, CommandLine, as_in_run
from r2mae.environment import standard_session
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.fields import argument
from r2mae.images.config import FinetuneConfig, ImagesConfig, ImagesDataConfig, recipe, weights_of
from r2mae.images.models import MODELS, VIT
from r2mae.images.sets import SETS
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from r2mae.images.classifier import ClassificationTask, Classifier, FinetuneData
    from r2mae.images.data import Splits
    from r2mae.images.models.vit_mae.model import VisionTransformerMAE
    from r2mae.progress import Reporter

_MIN_BATCHES = 8  # batches of an epoch
_WARMUP_EPOCHS = 5.0  # MAE's, at most a tenth of the run
_READING = ("resize", "cache", "skip_broken")
_MACHINE = ("device", "precision", "threads", "workers")


@dataclass(frozen=True)
class Finetuning:
    """Fine-tune a pretrained model of images on labels.

    The same command resumes an interrupted run. What is not given is as in MAE's recipes for the model: 100 epochs, of
    large models 50, in batches of 1,024, of small models 256; warm-up over 5 epochs, at most a tenth of the run. How
    images are read is by default as in the run.

    Parameters
    ----------
    run : str
        The folder of a finished run of images, from r2mae pretrain.
    data : str, optional
        A named set or a path of images with classes; by default what the run was pretrained on.
    out : str, optional
        Run folder; by default `finetune` within RUN, with the seed.

    Examples
    --------
    r2mae finetune runs/vit --epochs 20 --out runs/vit-finetuned
    r2mae finetune runs/vit path/to/images --resize 64
    """

    run: str = argument()
    data: str | None = argument(None)
    out: str | None = None


FINETUNE = Command(
    "r2mae.images.finetune:command",
    Finetuning,
    config=FinetuneConfig,
    fields=(
        *("epochs", "steps", "batch_size", "base_lr", "layer_decay", "weight_decay", "warmup"),
        *("schedule", "min_lr", "optimizer", "clip", "ema", "drop_path", "smoothing"),
        *("crop", "crop_from", "flip", "randaugment", "mixup", "cutmix", "erasing", "resize", "cache"),
        *("skip_broken", "validation", "validate_every", "patience", "keep", "seed", "accumulate"),
        *("precision", "device", "devices", "workers", "threads", "save_every"),
    ),
)


class ImagesBase(Domain):
    """What the domain of autoencoders and that of classifiers have alike: where their images are from."""

    name = ImagesConfig.domain
    sets = SETS
    command_line = CommandLine(reading=as_in_run(ImagesDataConfig, "resize", "skip_broken"))

    def fingerprint(self, config: RunConfig) -> str:
        """Return a hash of the file or folder, or for a named set its name."""
        from r2mae.fingerprint import fingerprint

        return config.data.source if config.data.source in SETS else fingerprint(config.data.source, hidden=False)

    def check_source(self, config: RunConfig) -> None:
        """Refuse data that do not exist, without importing torch."""
        from r2mae.images.data import check_source

        check_source(config.data.source)


class FinetunedImages(ImagesBase):
    """The domain of images for classifiers in place of autoencoders: they are measured, and embed images."""

    title = "Fine-tuned classifiers of images"
    config = FinetuneConfig

    def default_baselines_of(self, config: FinetuneConfig) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def baseline(self, config: FinetuneConfig, name: str) -> Baseline:
        """Refuse baselines, which are those of autoencoders."""
        raise UserError("a fine-tuned classifier has no baselines: omit --baselines")

    def metrics_of(self, config: FinetuneConfig) -> tuple[Metric, ...]:
        """Return accuracies and the loss."""
        return (
            Metric("top1", "top-1 accuracy", bounds=(0, 1)),
            Metric("top5", "top-5 accuracy", bounds=(0, 1), optional=True),
            Metric("cross_entropy", "cross entropy", higher_is_better=False, bounds=(0, inf)),
        )

    def load(self, config: FinetuneConfig) -> "FinetuneData":
        """Return images and pretrained model, each read on access."""
        from r2mae.images.classifier import FinetuneData

        return FinetuneData(config)

    def load_initial_weights(self, config: FinetuneConfig, model: "nn.Module") -> None:
        """Load the weights of the pretrained run into a fresh classifier."""
        from r2mae.training.saving import load_model

        pretrained = load_model(config.run, get_domain(self.name), unmasked=True)[2].state_dict()
        own = model.state_dict()
        model.load_state_dict({name: value for name, value in pretrained.items() if name in own}, strict=False)

    def build(self, architecture: Mapping[str, Any]) -> "tuple[ClassificationTask, Classifier]":
        """Make the task and a fresh classifier."""
        from r2mae.images.classifier import ClassificationTask, Classifier

        _, pretrained = build_model(MODELS, architecture["encoder"])
        classes, drop_path = len(architecture["classes"]), float(architecture["drop_path"])
        model = Classifier(cast("VisionTransformerMAE", pretrained), classes, drop_path=drop_path)
        return ClassificationTask(tuple(architecture["encoder"]["shape"])), model

    def evaluate(
        self, config: FinetuneConfig, task: "ClassificationTask", model: "Classifier", data: "FinetuneData"
    ) -> dict[str, float]:
        """Measure a classifier on the test images."""
        from r2mae.images.classifier import evaluate

        return evaluate(model, data.splits.test)

    def embed(
        self, config: FinetuneConfig, task: "ClassificationTask", model: "Classifier", source: str, **reading: Any
    ) -> "dict[str, np.ndarray]":
        """Embed images as a pretrained model does: what the last layer classifies."""
        same = {name: config[name] for name in ("data", "resize", "skip_broken")}
        read = ImagesConfig.make(seed=config.split_seed, **same)
        return get_domain(self.name).embed(read, task, model, source, **reading)


FINETUNED = FinetunedImages()


def command(run: str, data: str | None = None, *, out: str | None = None, **options: Any) -> None:
    """Run the command (:class:`Finetuning`); `options` are fields of :class:`FinetuneConfig`."""
    from r2mae.progress import ProgressBar
    from r2mae.terminal import Terminal
    from r2mae.training.ranks import is_first

    config = plan(run, options, data)
    with Terminal(stderr=True, quiet=not is_first()).status("loading torch"):
        import_module("r2mae.images.classifier")
    where = Path(out or Path(run) / f"finetune-seed{config.seed}")
    was_finished = RunFolder(where).trained
    results = finetune(config, where, reporter=ProgressBar(f"{config.data.source}, finetune"))
    if not is_first():
        return
    if was_finished:
        print(f"{where} is finished already; nothing was trained")
    for metric in FINETUNED.metrics_of(config):
        if metric.name in results["scores"]:
            print(f"{metric.label:<16} {metric.arrow} {results['scores'][metric.name]:.4f}")
    print(config.measured_in_words())
    print(f"model and results are in {where}")


def plan(run: str | Path, options: Mapping[str, Any], data: str | None = None) -> FinetuneConfig:
    """Return the configuration of fine-tuning `run`: the given options, and the model's recipe for the others.

    `data` is a named set or a path; by default the pretraining data.
    """
    folder = RunFolder(run)
    fields = folder.read_config()
    if fields.get("domain") != ImagesConfig.domain or "run" in fields:
        kind = "fine-tuning" if "run" in fields else fields.get("domain")
        raise UserError(f"{folder.path} is a run of {kind}: name a pretrained run of {ImagesConfig.domain}")
    weights, architecture = weights_of(run), folder.description.architecture
    if architecture["model"] != VIT:
        raise UserError(
            f"the model {architecture['model']!r} cannot be fine-tuned ({VIT} can): r2mae evaluate probes it"
        )
    pretraining = ImagesConfig.from_dict(fields, source=str(folder.config_file))
    own: dict[str, Any] = {name: pretraining[name] for name in _READING}
    own |= recipe(architecture["width"]) | {"split_seed": pretraining.seed, **options}
    if "warmup" not in own:
        epochs = float(own.get("epochs", FinetuneConfig.optimizer.epochs))
        own["warmup"] = 0.1 if own.get("steps") is not None else min(0.1, _WARMUP_EPOCHS / epochs)
    if data is None:
        data = pretraining.data.source
    elif data not in SETS and Path(data).exists():
        data = str(Path(data).absolute())
    config = FinetuneConfig.make(data=data, run=str(folder.path.absolute()), weights=weights, **own)
    config.check_given(options)
    return config


@standard_session()
def finetune(
    config: FinetuneConfig,
    out: str | Path,
    *,
    reporter: "Reporter | None" = None,
    splits: "Splits | None" = None,
    alone: bool = False,
) -> dict[str, Any]:
    """Fine-tune into a run folder, evaluate, and return and write ``results.json``; finished parts are not repeated.

    `splits` are its images, if they are read already. With `alone`, this process trains by itself, also under torchrun.
    """
    from r2mae.images.classifier import FinetuneData
    from r2mae.training.pretraining import pretrain

    folder = RunFolder(out)
    if folder.config_file.exists() and "run" not in folder.read_config():
        raise UserError(f"{folder.path} is a run of pretraining: choose another --out")
    data = None if folder.trained else FinetuneData(config, splits)
    return pretrain(config, FINETUNED, folder.path, reporter=reporter, data=data, single_process=alone)[1]


def finetune_scores(config: ImagesConfig, splits: "Splits", epochs: float, kept: Path | None) -> dict[str, float]:
    """Fine-tune a finished run in a subfolder of its run folder; return ``finetune_top1`` and so on.

    `config` is that of the run, and `splits` are its images. Batches are those of the recipe, or smaller if an epoch
    would have fewer than eight. The run is next to `kept`, the file ``evaluation.json`` of the run folder. The
    processes of a comparison show no progress.
    """
    from r2mae.progress import ProgressBar

    if kept is None:
        raise UserError("fine-tuning needs a run folder: name one, or set finetune_epochs to 0")
    own: dict[str, Any] = {field: config[field] for field in (*_READING, *_MACHINE, "seed")}
    most, enough = recipe(config.model.width).get("batch_size", 256), len(splits.train) // _MIN_BATCHES
    own["batch_size"] = next((size for size in (1024, 256, 128, 64, 32) if size <= min(most, enough)), 16)
    if own["batch_size"] < most:
        own["accumulate"] = 1
    planned = plan(kept.parent, {**own, "epochs": float(epochs)}, config.data.source)
    out, read = kept.parent / f"finetune-{epochs:g}", None if planned.crops_files else splits
    reporter = None if parent_process() else ProgressBar(f"{config.data.source}, finetune")
    results = finetune(planned, out, reporter=reporter, splits=read, alone=True)
    return {f"finetune_{name}": float(value) for name, value in results["scores"].items()}
