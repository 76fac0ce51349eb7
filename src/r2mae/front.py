"""Pretrain, compare and load in one call: ``r2mae.pretrain``, ``r2mae.compare`` and ``r2mae.load``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from r2mae.cli import compare as compare_command
from r2mae.cli import pretrain as pretrain_command
from r2mae.cli.configs import config_options, read_sources
from r2mae.compare.analysis import analyse
from r2mae.compare.comparison import Comparison
from r2mae.compare.gather import gather_again
from r2mae.domains.base import Domain
from r2mae.domains.given import domain_of_data, kept, passing
from r2mae.domains.lookup import check_run, domain_of_run, get_domain
from r2mae.domains.sources import Sources
from r2mae.environment import standard_session
from r2mae.errors import UserError, reading, unknown
from r2mae.evaluation.metrics import label_of
from r2mae.fields import options_of, plain, read_fields, several, short_repr
from r2mae.progress import ProgressBar
from r2mae.spawned import end_if_started_by_script
from r2mae.terminal import Terminal
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, read_json
from r2mae.training.pretraining import pretrain as pretrain_run
from r2mae.training.saving import load_model
from r2mae.training.task import Task

_Options = TypeVar("_Options")
_MODES = ("config", "print_config", "json", "dry_run", "plan_power")  # of the command line alone


@dataclass(frozen=True)
class PretrainedRun:
    """A finished run, ready to use.

    Parameters
    ----------
    folder : Path
        The run folder.
    config : RunConfig
        Its configuration.
    task : Task
        Hides, predicts and embeds.
    model : nn.Module
        In evaluation mode, with re-estimated batch statistics of unmasked inputs if the run has them.
    """

    folder: Path
    config: RunConfig
    task: Task
    model: nn.Module

    @property
    def domain(self) -> Domain:
        """The domain of its data."""
        return domain_of_run(self.config.to_dict(), self.folder)

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the run by name; empty if it was not measured."""
        return dict((RunFolder(self.folder).results or {}).get("scores", {}))

    @standard_session()
    def embed(self, data: Any, **options: Any) -> Any:
        """Return the representation of unmasked data, a row for each sample, in their order.

        Parameters
        ----------
        data : Any
            As :func:`pretrain` takes them. A tensor, or tensors by name, is a batch in the domain's own form (for
            images: bytes, or numbers from 0 to 1): its representation is a tensor, with gradients where these are on.
        **options
            How the data are read: the options of ``r2mae embed``.

        Returns
        -------
        ndarray or tensor, shape (samples, width)
        """
        tensors = isinstance(data, Mapping) and any(isinstance(one, torch.Tensor) for one in data.values())
        if isinstance(data, torch.Tensor) or tensors:
            with reading("the batch", "give it in the form of the domain's own batches"):
                return self.task.embed(self.model, data)
        domain = self.domain
        kinds = (domain.command_line.reading, domain.command_line.embedding.options)
        known = {one.name: kind for kind in kinds for one in options_of(kind)}
        if strange := [name for name in options if name not in known]:
            raise unknown("option", strange[0], known)
        read = {name: read_fields(known[name], {name: value})[name] for name, value in options.items()}
        with passing(domain, data, self.config) as source:
            domain.check_source(self.config.replace(data=source))
            arrays = domain.embed(self.config, self.task, self.model, source, **read)
        return np.asarray(arrays["embedding"])

    def __repr__(self) -> str:
        return f"PretrainedRun({str(self.folder)!r}, {self.config.scheme.name}, {self.config.model.name})"

    def _repr_html_(self) -> str:
        metrics = self.domain.metrics_of(self.config)
        rows = "".join(
            f"<tr><td>{escape(label_of(name, metrics))}</td><td>{value:.4g}</td></tr>"
            for name, value in self.scores.items()
            if value is not None
        )
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"


@dataclass(frozen=True, kw_only=True, repr=False)
class ComparisonInFolder(Comparison):
    """A comparison and its output; `table` has a line for each run. Its parameters are those of the comparison.

    Parameters
    ----------
    folder : Path
        Folder of the comparison.
    """

    folder: Path

    @property
    def report(self) -> Path:
        """The report, one HTML file."""
        return self.folder / "report.html"

    def __repr__(self) -> str:
        return f"Comparison({self.title!r}, {len(self.labels)} variants, {str(self.folder)!r}): {self.verdict}"

    def _repr_html_(self) -> str:
        found = analyse(self)
        means = found.summary.pivot(index="label", columns="metric", values="mean")
        means = means.reindex(index=self.labels, columns=[metric.name for metric in found.metrics])
        means = means.rename(columns={metric.name: metric.label for metric in found.metrics})
        shown = means.rename_axis(index=None, columns=None).to_html(float_format="{:.4g}".format, na_rep="")
        report = escape(str(self.report))
        return f'<p><b>{escape(self.verdict)}</b></p>{shown}<p>report: <a href="{report}">{report}</a></p>'


def pretrain(
    data: Any = None, *, domain: str | None = None, out: str | PathLike[str] | None = None, progress: bool = True,
    **options: Any,
) -> PretrainedRun:  # fmt: skip
    """Pretrain one model and measure it, as ``r2mae pretrain`` does. The same call resumes.

    Parameters
    ----------
    data : Any
        A named set, a path, an array of images (n × height × width, or with colours last) or a pair of images and
        labels, an AnnData, a ``datasets.Dataset`` of texts or images, or a list of texts. Data in memory are kept as a
        file in the cache.
    domain : str, optional
        "images", "cells", "text", "genome", or one of another package; by default that of the data.
    out : path, optional
        Run folder; by default named after data, scheme and seed in runs/.
    progress : bool
        Show a bar with the remaining time.
    **options
        The options of the command, with underscores: ``scheme="r2mae", low=0.5, high=0.9, epochs=10``. Also `config`, a
        YAML file.

    Returns
    -------
    PretrainedRun
        Its `scores`, `embed`, `model` and `folder`.

    Raises
    ------
    UserError
        For options that are refused, data that cannot be read, or a folder of another run.

    Examples
    --------
    >>> run = r2mae.pretrain("digits", scheme="r2mae", low=0.5, high=0.9, steps=100)  # doctest: +SKIP
    >>> run.scores["probe_accuracy"], run.embed("digits").shape  # doctest: +SKIP
    """
    sources, own, given = _read("pretrain", pretrain_command.Options, data, domain, {**options, "out": out})
    config, folder = pretrain_command.plan(sources, own, given)
    check_run(sources.domain, config, [folder])
    reporter = ProgressBar(f"{config.data.source}, {config.scheme.name}") if progress else None
    pretrain_run(config, sources.domain, folder, reporter=reporter, before=True)
    return _load_run(folder, config.machine.device)


def compare(
    data: Any = None, *, domain: str | None = None, out: str | PathLike[str] | None = None, progress: bool = True,
    **options: Any,
) -> ComparisonInFolder:  # fmt: skip
    """Pretrain under several schemes and seeds, and say which wins, as ``r2mae compare`` does. The same call resumes.

    In a script, put the call below ``if __name__ == "__main__":``, as the processes that train run the script again.

    Parameters
    ----------
    data, domain, progress
        As of :func:`pretrain`.
    out : path, optional
        Folder of the comparison; by default runs/compare-DATA.
    **options
        The options of the command, with underscores: ``schemes=["fixed", "r2mae"], ratios=[0.25, 0.5], seeds=5``.

    Returns
    -------
    ComparisonInFolder
        Its `verdict`, a `table` with a line for each run, the path of its `report`; a notebook shows it.

    Raises
    ------
    UserError
        As :func:`pretrain`, or if a run fails.

    Examples
    --------
    >>> comparison = r2mae.compare("digits", seeds=3, steps=100)  # doctest: +SKIP
    >>> print(comparison.verdict)  # doctest: +SKIP
    """
    sources, own, given = _read("compare", compare_command.Options, data, domain, {**options, "out": out})
    # A list of one number is that seed; the command line and files mean how many.
    which = isinstance(plain(options.get("seeds")), Iterable) and not isinstance(options["seeds"], str)
    plan = compare_command.make_plan(sources, own, given, which=which)
    quiet = Terminal(quiet=True)
    found = compare_command.carry_out(plan, own, progress=None if progress else quiet, table=quiet)
    return ComparisonInFolder(**vars(found), folder=plan.out.absolute())


def load(folder: str | PathLike[str], *, device: str = "cpu") -> Any:
    """Return a finished run of any domain, a PretrainedRun, or a comparison, a ComparisonInFolder, from its folder.

    Raises
    ------
    UserError
        If the folder holds neither, is not finished or is damaged, or if this version has no such domain.
    """
    _check_text("folder", folder)
    path = Path(folder)
    if not (path / "compare.json").is_file():
        return _load_run(path, device)
    known = read_json(path / "results.json").get("looks", {}) if (path / "results.json").is_file() else {}
    return ComparisonInFolder(**{**vars(gather_again(path, examples=False)), "looks": known}, folder=path.absolute())


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str | PathLike | None):
        raise UserError(f"{name} takes text or a path, not {short_repr(value)}")


def _load_run(path: Path, device: str) -> PretrainedRun:
    domain = domain_of_run(RunFolder(path).read_config(), path)
    return PretrainedRun(path.absolute(), *load_model(path, domain, device=device, unmasked=True))


def _read(
    command: str, kind: type[_Options], data: Any, domain: str | None, options: Mapping[str, Any]
) -> tuple[Sources, _Options, dict[str, Any]]:
    """Return the sources of a command, its own options, and those given of the configuration."""
    end_if_started_by_script()
    given = {name: value for name, value in options.items() if name != "out" or value is not None}
    for name, value in {"domain": domain, **{one: given.get(one) for one in ("config", "preset", "model")}}.items():
        _check_text(name, value)
    words = [] if domain is None else [domain]
    if isinstance(data, str | PathLike):
        words.append(fspath(data))
    elif data is not None:
        words = [domain or domain_of_data(data)]
        words.append(kept(get_domain(words[0]), data))
    for name in ("config", "preset", "model"):
        if given.get(name) is not None:
            words += [f"--{name}", fspath(given[name])]
    given.pop("config", None)
    sources, filed = read_sources(command, words, kind)
    assert sources is not None, "only of a call for help"
    own = {one.name: one for one in options_of(kind) if one.name not in _MODES}
    model = sources.known.get("model")
    omitted = compare_command.VARIANT_FIELDS if command == "compare" else ()
    fields = {one.name: one for one in config_options(sources.domain.config, model) if one.name not in omitted}
    for name in given:
        if name in _MODES:
            raise UserError(f"{name} is for the command line: r2mae {command} --{name.replace('_', '-')}")
        if name not in own and name not in fields:
            raise unknown("option", name, sorted({*own, *fields}))
    for name, value in given.items():
        if (own.get(name) or fields[name]).is_list and value is not None:
            given[name] = several(name, value)
    values = {**filed, **read_fields(kind, {name: value for name, value in given.items() if name in own})}
    return sources, kind(**values), {name: value for name, value in given.items() if name not in own}
