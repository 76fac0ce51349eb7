"""Fine-tune into a run folder: plan the configuration, train with the one loop, measure, and keep the scores."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.data import Splits
from r2mae.images.evaluate import has_classes
from r2mae.images.finetune.config import WHOLE, FinetuneConfig, recipe, warmup_epochs
from r2mae.images.finetune.data import load_data, weights_of
from r2mae.images.finetune.domain import DOMAIN
from r2mae.images.sets import SETS
from r2mae.images.sources import options_that_fit
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit_run
from r2mae.training.progress import Reporter, RunProgress
from r2mae.training.ranks import FOLLOWING
from r2mae.training.rendezvous import RENDEZVOUS
from r2mae.training.run import Run
from r2mae.training.saving import load_model

_LEAST = 8  # batches of an epoch
_READING = ("resize", "resize_mode", "test_fraction", "cache", "skip_broken", "draft")


def plan(run: str | Path, options: Mapping[str, Any], data: str | None = None) -> FinetuneConfig:
    """Return the configuration of a fine-tuning run: given options, and the recipe of the model for the others.

    Parameters
    ----------
    run : path
        Folder of the finished pretraining run.
    options : mapping
        Fields of :class:`~r2mae.images.finetune.config.FinetuneConfig`.
    data : str, optional
        A named set or a path; by default what the run was pretrained on.

    Raises
    ------
    UserError
        If there is no finished run of images, or an option means nothing here.
    """
    folder = RunFolder(run)
    there = folder.read_config()
    if there.get("domain") != ImagesConfig.domain:
        raise UserError(
            f"{folder.path} is a run of {there.get('domain')}: name a pretrained run of {ImagesConfig.domain}"
        )
    described = folder.description.architecture if folder.trained else {}
    weights = weights_of(run)
    if options.get("probe", "none") == "none" and (name := described["model"]) not in WHOLE:
        whole = " and ".join(WHOLE)
        raise UserError(f"the model {name!r} cannot be fine-tuned as a whole ({whole} can): add --probe linear")
    pretraining = ImagesConfig.from_dict(there, source=str(folder.config_file))
    probe = options.get("probe", "none")
    own: dict[str, Any] = {name: getattr(pretraining, name) for name in _READING}
    if data is not None:  # files of images may have been read in a way that an array has no use for
        own |= options_that_fit(data, pretraining.cache, pretraining.skip_broken, pretraining.draft)
    own |= {"split_seed": pretraining.seed, **recipe(described, probe, cached=_cached(options))}
    own |= options
    epochs = float(own.get("epochs", FinetuneConfig.epochs))
    if "warmup" in options or own.get("steps") is not None:
        own = {"warmup": 0.1, "warmup_epochs": None, **own}  # a run of so many steps may be shorter than any epoch
    else:
        own = {"warmup_epochs": warmup_epochs(probe, epochs), **own}
    return FinetuneConfig(
        data=_lasting(data) if data is not None else pretraining.data,
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
    """Fine-tune into a run folder, measure the model and write ``results.json``; finished parts are not repeated.

    `splits` are its images, where they have been read. With `alone` it is trained by this process alone, although
    torchrun may have started others with it.

    Returns
    -------
    dict
        ``scores`` by name, ``steps``, ``seconds`` of training and ``samples_per_second``.
    """
    if alone:
        return _finetune(Run.resolve(config, DOMAIN, single_process=True), config, out, reporter, splits)
    FOLLOWING.start()  # data may take long to read
    with RENDEZVOUS.together(config):
        return _finetune(Run.resolve(config, DOMAIN), config, out, reporter, splits)


def _finetune(
    run: Run, config: FinetuneConfig, out: str | Path, reporter: Reporter | None, splits: Splits | None
) -> dict[str, Any]:
    folder = RunFolder(out)
    folder.check_config(config, run.defaults)
    results = folder.results_for(config) if folder.trained else None
    data = load_data(config, splits) if results is None else None
    fitted = fit_run(run, out, data=data, reporter=reporter)
    if run.rank > 0:
        raise SystemExit(0)  # the first process measures and reports
    if results is None and data is not None:
        _, task, model = load_model(folder.path, DOMAIN, device=config.device)
        folder.check_data(config.data, DOMAIN.fingerprint(config))
        results = fitted.write_results(config, DOMAIN.evaluate(config, task, model, data))
    assert results is not None
    return results


def scores_beside(
    config: ImagesConfig,
    splits: Splits,
    epochs: float,
    kept: Path | None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Fine-tune a finished run in a folder within its own, and return ``finetune_top1`` and so on.

    Parameters
    ----------
    config : ImagesConfig
        Of the run, or of its measurement on other data.
    splits : Splits
        Its images.
    epochs : float
        In batches of 256, and smaller ones where an epoch would have fewer than eight.
    kept : path, optional
        The file ``evaluation.json`` of the run folder; fine-tuning is a run folder beside it, so that a finished one is
        not repeated and a half-finished one goes on.
    progress : callable, optional
        Called with steps done and steps in all.

    Raises
    ------
    UserError
        For a model that is not in a folder, or images without labels.
    """
    if not has_classes(splits):
        raise UserError(f"{config.data} has no labels to fine-tune on: set finetune_epochs to 0")
    if kept is None:
        raise UserError("fine-tuning starts from a run folder: name one, or leave finetune_epochs at 0")
    there = RunFolder(kept.parent).read_config()
    own = {name: getattr(config, name) for name in (*_READING, "seed", "device", "precision", "threads")}
    batch = next((size for size in (256, 128, 64, 32) if len(splits.train) >= _LEAST * size), 16)
    planned = plan(kept.parent, {**own, "epochs": float(epochs), "batch_size": batch}, config.data)
    name = (
        f"finetune-{epochs:g}" if there.get("data") == config.data else f"finetune-{epochs:g}-{Path(config.data).stem}"
    )
    reporter = _Told(progress) if progress else None
    results = finetune(planned, kept.parent / name, reporter=reporter, splits=splits, alone=True)
    return {f"finetune_{name}": float(value) for name, value in results["scores"].items()}


@dataclass
class _Told:
    """Passes the progress of a run on as steps done and in all."""

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


def _lasting(data: str) -> str:
    """Return data as a run folder must know them from wherever it is used."""
    path = Path(data)
    return data if data in SETS or not path.exists() else str(path.absolute())
