"""``r2mae finetune RUN [DATA]``: fine-tune a pretrained model into a run folder."""

import json as json_text
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.files import jsonable
from r2mae.images.config import ImagesConfig
from r2mae.images.data import Splits
from r2mae.images.finetune.classifier import check_finetunable
from r2mae.images.finetune.config import FinetuneConfig, recipe, warmup_epochs
from r2mae.images.finetune.data import FinetuneData, weights_of
from r2mae.images.finetune.domain import FINETUNED
from r2mae.images.sets import SETS
from r2mae.training.folder import RunFolder
from r2mae.training.pretrain import pretrain
from r2mae.training.progress import ProgressBar, Reporter, RunProgress

_MIN_BATCHES = 8  # batches of an epoch
_READING = ("resize", "resize_mode", "test_fraction", "cache", "skip_broken", "draft")
_MACHINE = ("device", "precision", "threads", "workers")
MAE_BATCH: Mapping[str, Any] = {"batch_size": 1024, "accumulate": 16, "crop_from": "original"}
"""What MAE's authors do and short runs on few images do not: batches of 1,024, and crops of the original images."""


def command(run: str, data: str | None = None, *, out: str | None = None, json: bool = False, **options: Any) -> None:
    """Run the command (:class:`~r2mae.images.finetune.config.Finetuning`); rerunning it resumes an interrupted run.

    `options` are fields of :class:`~r2mae.images.finetune.config.FinetuneConfig`.
    """
    config = plan(run, options, data)
    where = Path(out or Path(run) / f"finetune-seed{config.seed}")
    was_finished = RunFolder(where).trained
    results = finetune(config, where, reporter=ProgressBar(f"{config.data.source}, finetune"))
    if json:
        print(json_text.dumps(jsonable({"run": str(where), **results}), indent=2, allow_nan=False))
        return
    if was_finished:
        print(f"{where} is finished already; nothing was trained")
    for metric in FINETUNED.metrics_of(config):
        if metric.name in results["scores"]:
            print(f"{metric.label:<16} {metric.arrow} {results['scores'][metric.name]:.4f}")
    print(config.measured_in_words())
    print(f"model and results are in {where}")


def plan(run: str | Path, options: Mapping[str, Any], data: str | None = None) -> FinetuneConfig:
    """Return the configuration of a fine-tuning run: the given options, and the model's recipe for the others.

    Parameters
    ----------
    run : path
        Folder of the finished pretraining run.
    options : mapping
        Fields of :class:`~r2mae.images.finetune.config.FinetuneConfig`.
    data : str, optional
        A named set or a path; by default the pretraining data.

    Raises
    ------
    UserError
        If there is no finished pretraining run of images, or an option does not apply.
    """
    folder = RunFolder(run)
    fields = folder.read_config()
    if fields.get("domain") != ImagesConfig.domain or "run" in fields:
        kind = "fine-tuning" if "run" in fields else fields.get("domain")
        raise UserError(f"{folder.path} is a run of {kind}: name a pretrained run of {ImagesConfig.domain}")
    weights, architecture = weights_of(run), folder.description.architecture
    check_finetunable(architecture["model"])
    pretraining = ImagesConfig.from_dict(fields, source=str(folder.config_file))
    own: dict[str, Any] = {name: pretraining[name] for name in _READING}
    own |= recipe(architecture) | {"split_seed": pretraining.seed, **options}
    if "warmup" in options or own.get("steps") is not None:
        own = {"warmup": 0.1, "warmup_epochs": None, **own}  # a run of so many steps may be shorter than any epoch
    else:
        own = {"warmup_epochs": warmup_epochs(float(own.get("epochs", FinetuneConfig.optimizer.epochs))), **own}
    return FinetuneConfig.make(
        data=_absolute_source(data) if data is not None else pretraining.data.source,
        run=str(folder.path.absolute()),
        weights=weights,
        **own,
    )


def finetune(
    config: FinetuneConfig,
    out: str | Path,
    *,
    reporter: Reporter | None = None,
    splits: Splits | None = None,
    alone: bool = False,
) -> dict[str, Any]:
    """Fine-tune into a run folder, evaluate, and write ``results.json``; finished parts are not repeated.

    `splits` are its images, if they are read already. With `alone`, this process trains on its own, even if torchrun
    started several.

    Returns
    -------
    dict
        ``scores`` by name, ``steps``, ``seconds`` of training and ``samples_per_second``.
    """
    folder = RunFolder(out)
    if folder.config_file.exists() and "run" not in folder.read_config():
        raise UserError(f"{folder.path} is a run of pretraining: choose another --out")
    data = None if folder.trained else FinetuneData(config, splits)
    return pretrain(config, FINETUNED, folder.path, reporter=reporter, data=data, single_process=alone)[1]


def finetune_scores(
    config: ImagesConfig,
    splits: Splits,
    epochs: float,
    kept: Path | None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Fine-tune a finished run in a subfolder of its run folder; return ``finetune_top1`` and so on.

    Parameters
    ----------
    config : ImagesConfig
        Configuration of the run, or of its evaluation on other data.
    splits : Splits
        Its images.
    epochs : float
        Epochs of batches of 256, or of smaller ones if an epoch would have fewer than eight; with the configuration's
        `finetune_recipe` "mae" those of :data:`MAE_BATCH`.
    kept : path, optional
        The file ``evaluation.json`` of the run folder. Fine-tuning has a run folder next to it, so that a finished
        run is not repeated and a half-finished one resumes. Without it there is a UserError.
    progress : callable, optional
        Called with the number of finished steps, and of all steps.
    """
    if kept is None:
        raise UserError("fine-tuning needs a run folder: name one, or set finetune_epochs to 0")
    name = f"finetune-{epochs:g}"
    own: dict[str, Any] = {field: config[field] for field in (*_READING, *_MACHINE, "seed")}
    if config.evaluation.finetune_recipe == "mae":
        own, name, splits_read = {**own, **MAE_BATCH}, f"{name}-mae", None
    else:
        sizes = (size for size in (256, 128, 64, 32) if len(splits.train) >= _MIN_BATCHES * size)
        own, splits_read = {**own, "batch_size": next(sizes, 16)}, splits
    if RunFolder(kept.parent).read_config()["data"]["source"] != config.data.source:
        name = f"{name}-{Path(config.data.source).stem}"
    planned = plan(kept.parent, {**own, "epochs": float(epochs)}, config.data.source)
    reporter = _ProgressReporter(progress) if progress else None
    results = finetune(planned, kept.parent / name, reporter=reporter, splits=splits_read, alone=True)
    return {f"finetune_{name}": float(value) for name, value in results["scores"].items()}


@dataclass
class _ProgressReporter:
    """Reports the progress of a run as finished steps and all steps."""

    progress: Callable[[int, int], None]
    total: int = 0

    def start(self, step: int, total: int) -> None:
        self.total = total
        self.progress(step, total)

    def update(self, pace: RunProgress) -> None:
        self.progress(pace.step, pace.total)

    def stop(self) -> None:
        self.progress(self.total, self.total)


def _absolute_source(data: str) -> str:
    """Return the absolute path of data, or the name of a named set."""
    path = Path(data)
    return data if data in SETS or not path.exists() else str(path.absolute())
