"""Fine-tune into a run folder: make the configuration, train, evaluate, and save the scores."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.data import Splits
from r2mae.images.evaluate import has_classes
from r2mae.images.finetune.config import FinetuneConfig, recipe, warmup_epochs
from r2mae.images.finetune.data import load_data, weights_of
from r2mae.images.finetune.domain import DOMAIN
from r2mae.images.models import FINETUNABLE
from r2mae.images.sets import SETS
from r2mae.images.sources import applicable_options
from r2mae.training.distributed import together
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit_run
from r2mae.training.progress import Reporter, RunProgress
from r2mae.training.run import Run
from r2mae.training.saving import load_model

_MIN_BATCHES = 8  # batches of an epoch
_READING = ("resize", "resize_mode", "test_fraction", "cache", "skip_broken", "draft")


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
        If there is no finished run of images, or an option does not apply.
    """
    folder = RunFolder(run)
    fields = folder.read_config()
    if fields.get("domain") != ImagesConfig.domain:
        raise UserError(
            f"{folder.path} is a run of {fields.get('domain')}: name a pretrained run of {ImagesConfig.domain}"
        )
    described = folder.description.architecture if folder.trained else {}
    weights = weights_of(run)
    if options.get("probe", "none") == "none" and (name := described["model"]) not in FINETUNABLE:
        whole = " and ".join(FINETUNABLE)
        raise UserError(f"the model {name!r} cannot be fine-tuned as a whole ({whole} can): add --probe linear")
    pretraining = ImagesConfig.from_dict(fields, source=str(folder.config_file))
    probe = options.get("probe", "none")
    own: dict[str, Any] = {name: pretraining[name] for name in _READING}
    if data is not None:  # reader options for image files do not apply to arrays
        own |= applicable_options(data, pretraining.machine.cache, pretraining.data.skip_broken, pretraining.data.draft)
    own |= {"split_seed": pretraining.seed, **recipe(described, probe, cached=_cached(options))}
    own |= options
    epochs = float(own.get("epochs", FinetuneConfig.optimizer.epochs))
    if "warmup" in options or own.get("steps") is not None:
        own = {"warmup": 0.1, "warmup_epochs": None, **own}  # a run of so many steps may be shorter than any epoch
    else:
        own = {"warmup_epochs": warmup_epochs(probe, epochs), **own}
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
    if alone:
        return _finetune(Run.resolve(config, DOMAIN, single_process=True), config, out, reporter, splits)
    with together(config):
        return _finetune(Run.resolve(config, DOMAIN), config, out, reporter, splits)


def _finetune(
    run: Run, config: FinetuneConfig, out: str | Path, reporter: Reporter | None, splits: Splits | None
) -> dict[str, Any]:
    folder = RunFolder(out)
    folder.check_config(config)
    results = folder.results_for(config) if folder.trained else None
    data = load_data(config, splits) if results is None else None
    fitted = fit_run(run, out, data=data, reporter=reporter)
    if run.rank > 0:
        raise SystemExit(0)  # rank 0 evaluates and reports
    if results is None and data is not None:
        _, task, model = load_model(folder.path, DOMAIN, device=config.machine.device)
        folder.check_data(config.data.source, DOMAIN.fingerprint(config))
        results = fitted.write_results(config, DOMAIN.evaluate(config, task, model, data))
    assert results is not None
    return results


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
        Epochs of batches of 256, or of smaller ones if an epoch would have fewer than eight.
    kept : path, optional
        The file ``evaluation.json`` of the run folder. Fine-tuning has a run folder next to it, so that a finished
        run is not repeated and a half-finished one resumes.
    progress : callable, optional
        Called with the number of finished steps, and of all steps.

    Raises
    ------
    UserError
        For a model without a run folder, or images without labels.
    """
    if not has_classes(splits):
        raise UserError(f"{config.data.source} has no labels to fine-tune on: set finetune_epochs to 0")
    if kept is None:
        raise UserError("fine-tuning needs a run folder: name one, or set finetune_epochs to 0")
    fields = RunFolder(kept.parent).read_config()
    own = {name: config[name] for name in (*_READING, "seed", "device", "precision", "threads")}
    batch = next((size for size in (256, 128, 64, 32) if len(splits.train) >= _MIN_BATCHES * size), 16)
    planned = plan(kept.parent, {**own, "epochs": float(epochs), "batch_size": batch}, config.data.source)
    trained_on = fields["data"]["source"]
    other = "" if trained_on == config.data.source else f"-{Path(config.data.source).stem}"
    name = f"finetune-{epochs:g}{other}"
    reporter = _ProgressReporter(progress) if progress else None
    results = finetune(planned, kept.parent / name, reporter=reporter, splits=splits, alone=True)
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


def _cached(options: Mapping[str, Any]) -> bool:
    return bool(options.get("cached", False))


def _absolute_source(data: str) -> str:
    """Return the absolute path of data, or the name of a named set."""
    path = Path(data)
    return data if data in SETS or not path.exists() else str(path.absolute())
