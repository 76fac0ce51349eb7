"""The domain `cells`: its interface for the layers above. torch and anndata are imported only for data or models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cells.config import BASELINES, CellsConfig, CellsDataConfig, CellsEvaluationConfig
from r2mae.cells.models import MODELS
from r2mae.cells.sets import SET_DEFAULTS, SETS
from r2mae.domains.base import Domain
from r2mae.domains.options import (
    NPZ,
    CommandLine,
    Embedding,
    Evaluation,
    Exporter,
    FigureColumns,
    as_in_run,
)
from r2mae.errors import UserError
from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae.evaluation.metrics import Metric
from r2mae.training.folder import RunFolder
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import nn

    from r2mae.cells.batches import CellData
    from r2mae.cells.task import CountModel, GeneTask
    from r2mae.evaluation.items import ItemRecorder
    from r2mae.training.initial import Origin

_PAPER = {"n_hidden": 2000, "n_latent": 1000, "batch_size": 400, "weight_decay": 1e-4}
# Fields of a configuration that name columns and layers of a file.
_FILE_FIELDS = ("layer", "batch_key", "donor_key", "labels", "regress", "exclude", "only", "max_cells", "auroc_labels")


@dataclass(frozen=True)
class Mapped:
    """How other cells are mapped onto the model.

    Parameters
    ----------
    transform_batch : str, optional
        The training batch to use for cells whose own is unknown to the model.
    """

    transform_batch: str | None = None


def _write_h5ad(output: Path, arrays: "Mapping[str, np.ndarray]", source: str) -> None:
    """Write the source with ``.obsm["X_r2mae"]`` as .h5ad."""
    from r2mae.cells.embed import write_h5ad

    write_h5ad(output, arrays, source)


def check_run_of_cells(folder: RunFolder) -> None:
    """Refuse a folder that is no run on cells."""
    if (name := folder.read_config()["domain"]) != CellsDomain.name:
        raise UserError(f"{folder.path} is a run of the domain {name!r}, not {CellsDomain.name!r}: name a run on cells")


def check_init(config: CellsConfig) -> None:
    """Refuse an `init` that is no finished run on cells, or has a model of other sizes."""
    folder = RunFolder(str(config.init))
    check_run_of_cells(folder)
    if not folder.trained:
        raise UserError(f"{folder.path} (init) is not finished: rerun its command to resume, then start from it")
    own, theirs = config.model.architecture(), folder.description.architecture
    for name in dict.fromkeys([*own, "mask_input"]):
        if own.get(name, False) != theirs.get(name, False):
            raise UserError(
                f"{folder.path} (init) has another {name} than the run ({str(theirs.get(name, False))[:60]}, here "
                f"{own.get(name, False)}): give the run that of the weights (--{name.replace('_', '-')})"
            )


class CellsDomain(Domain):
    """Single-cell counts: .h5ad, .zarr, AnnData, with the paper's MLP and negative binomial likelihood."""

    name = "cells"
    title = "Single cells: raw counts in .h5ad or .zarr"
    config = CellsConfig
    presets: Mapping[str, Mapping[str, Any]] = {
        "paper": _PAPER,
        "small": {**_PAPER, "n_hidden": 256, "n_latent": 64},
        "hlca": {**_PAPER, "n_top_genes": 5000, "min_genes": 20, "timing": "hlca"},
        "sea-ad": {**_PAPER, "n_top_genes": 5000, "timing": "sea-ad"},
    }
    sets = SETS
    set_defaults = SET_DEFAULTS
    evaluation_support = ("items",)
    command_line = CommandLine(
        evaluation=Evaluation(
            "probes of the run's labels and numbers across donors, reconstruction, effective rank",
            options=as_in_run(CellsEvaluationConfig, "bn_statistics"),
            examples=("runs/cells --baselines expression scvi",),
        ),
        reading=as_in_run(CellsDataConfig, "layer", base=Mapped),
        other_data="cells are mapped onto the run's genes",
        embedding=Embedding(
            '`cells` and columns of the run; as .h5ad the file itself, with the embedding in .obsm["X_r2mae"]',
            examples=("runs/cells new.h5ad -o new-embedded.h5ad --layer counts",),
        ),
        baselines="expression, pca, scvi, mean, gaussian, and keys of obsm",
        example="cells.h5ad --batch-key batch",
        several="join the files first (anndata.concat)",
    )

    def metrics_of(self, config: CellsConfig) -> tuple[Metric, ...]:
        """Return the metrics of the configuration."""
        return config.metrics

    def fingerprint(self, config: CellsConfig) -> str:
        """Return a hash of the file, or for a named set with a checksum its name."""
        from r2mae.cells.sources import path_of
        from r2mae.fingerprint import fingerprint

        known = config.data.source in SETS and all(file.sha256 for file in SETS[config.data.source].files)
        return config.data.source if known else fingerprint(path_of(config.data.source))

    def check_source(self, config: CellsConfig) -> None:
        """Refuse data that do not exist, without importing torch or anndata."""
        from r2mae.cells.sources import path_of

        path_of(config.data.source)

    def check(self, config: CellsConfig) -> None:
        """Refuse missing data, and a run of `init` that is missing, unfinished or of other sizes."""
        super().check(config)
        if config.init is not None:
            check_init(config)

    def load_initial_weights(self, config: CellsConfig, model: "nn.Module") -> "Origin | None":
        """Load the weights that `init` names into a fresh model."""
        if config.init is None:
            return None
        from r2mae.cells.trained import load_initial_weights

        check_init(config)
        return load_initial_weights(config, model)

    def load(self, config: CellsConfig) -> "CellData":
        """Read the cells of a run."""
        from r2mae.cells.batches import load_data

        return load_data(config)

    def build(self, architecture: Mapping[str, Any]) -> "tuple[GeneTask, CountModel]":
        """Make the task and a fresh model."""
        built: tuple[GeneTask, CountModel] = build_model(MODELS, architecture)
        return built

    def evaluate(
        self, config: CellsConfig, task: "GeneTask", model: "CountModel", data: "CellData", **options: Any
    ) -> dict[str, float]:
        """Measure a pretrained model; see :func:`r2mae.cells.evaluate.evaluate`."""
        from r2mae.cells.evaluate import evaluate

        if (data.table.genes, data.table.batches) != (model.gene_names, model.batch_names):
            raise UserError(
                f"{config.data.source} has other genes or batches than the run was trained on: restore the file, or "
                "embed it with `r2mae embed`, which maps genes by name"
            )
        if options.get("bn_statistics") is not None and "bn_statistics" in config.model.ignores:
            raise UserError("this model has no batch statistics: omit --bn-statistics")
        return evaluate(config, task, model, data, **options)

    def load_other_data(
        self,
        config: CellsConfig,
        source: str,
        architecture: Mapping[str, Any],
        *,
        transform_batch: str | None = None,
        layer: str | None = None,
    ) -> "tuple[CellsConfig, CellData]":
        """Read external cells for :meth:`evaluate`, mapped onto the model's genes and batches by name.

        Probes predict the run's columns, or for a named set the columns of that set, and are fitted on training donors
        of these cells. A probe that is impossible for them is omitted with a note. Reconstruction is measured on all
        cells. `transform_batch` and `layer` are as in :meth:`embed`.
        """
        from r2mae.cells.batches import load_other_data

        own: dict[str, Any] = {}
        if source in SET_DEFAULTS:  # columns that a named set does not declare do not exist in it
            own = {name: CellsConfig.default_of(name) for name in _FILE_FIELDS}
            own |= {name: value for name, value in SET_DEFAULTS[source].items() if name in _FILE_FIELDS}
        config = config.replace(data=source, **own)
        config = config if layer is None else config.replace(layer=layer)
        genes, batches = tuple(architecture["genes"]), tuple(architecture["batches"])
        return load_other_data(config, genes, batches, transform_batch)

    default_baselines = ("mean",)

    def baselines_of(self, config: CellsConfig) -> tuple[str, ...]:
        """Return :data:`BASELINES` and the keys of the file's ``.obsm``; mean and gaussian need validation cells."""
        from r2mae.cells.sources import opened, path_of

        with opened(path_of(config.data.source)) as store:
            stored = tuple(str(key) for key in store.get("obsm", {}))
        return (*(BASELINES if config.data.validation else BASELINES[:3]), *stored)

    def default_baselines_of(self, config: CellsConfig) -> tuple[str, ...]:
        """Return mean if there are validation cells; the file is not opened."""
        return self.default_baselines if config.data.validation else ()

    def check_baselines(self, names: Sequence[str]) -> None:
        """Refuse a baseline whose package is missing, before hours of other work."""
        if "scvi" in names and find_spec("scvi") is None:
            raise UserError("the baseline scvi needs scvi-tools: pip install 'r2mae[scvi]', or omit it")

    def check_baseline_sizes(self, config: CellsConfig, names: Sequence[str], data: "CellData") -> None:
        """Refuse expression, or a covariance, that does not fit into memory; other baselines are narrow."""
        from r2mae.cells.baselines import check_memory

        for name in names:
            check_memory(data.table, config, name)

    def item_metrics(self, config: CellsConfig) -> tuple[str, ...]:
        """Return the masked loss, the only score that is a mean over cells."""
        both = config.evaluation.bn_statistics == "both"
        return ("masked_loss", AS_TRAINED + "masked_loss") if both else ("masked_loss",)

    def score_baseline(
        self,
        config: CellsConfig,
        name: str,
        data: "CellData",
        *,
        items: "ItemRecorder | None" = None,
        **options: Any,
    ) -> dict[str, float]:
        """Measure a baseline by those scores of :meth:`evaluate` that it can have."""
        from r2mae.cells.baselines import baseline_scores

        return baseline_scores(data.table, config, name, items=items, **options)

    exporters = (Exporter(".h5ad", _write_h5ad), NPZ)

    def figure_columns(self, config: CellsConfig) -> FigureColumns:
        """Return which columns are numbers, and which have too many values for a figure (cells and donors)."""
        donors = () if config.data.donor_key is None else (config.data.donor_key,)
        return FigureColumns(numbers=config.data.regress, omitted=("cells", "split", *donors))

    def annotations(self, source: str) -> "pd.DataFrame":
        """Return obs of a file, without its counts."""
        from r2mae.cells.sources import read_obs

        return read_obs(source)

    def embed(
        self,
        config: CellsConfig,
        task: "GeneTask",
        model: "CountModel",
        source: str,
        *,
        transform_batch: str | None = None,
        layer: str | None = None,
    ) -> "dict[str, np.ndarray]":
        """Embed the cells of a file, mapped onto the training genes and batches.

        The encoder uses `transform_batch` for cells whose batch is unknown to the model. `layer` is the layer with the
        counts of this file ("X" for X), by default that of the run.
        """
        from r2mae.cells.embed import embed_source

        return embed_source(config, task, model, source, transform_batch=transform_batch, layer=layer)


DOMAIN = CellsDomain()
