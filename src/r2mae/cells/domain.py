"""The domain `cells`: its interface for the layers above. torch and anndata are imported only for data or models."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cells.config import PROBES, CellsConfig, CellsDataConfig, CellsEvaluationConfig
from r2mae.cells.models import MODELS
from r2mae.cells.registered_baselines import embedding_baseline
from r2mae.cells.sets import SETS
from r2mae.domains.base import Domain
from r2mae.domains.baselines import Baseline
from r2mae.domains.options import CommandLine, Evaluation, Offered, as_in_run
from r2mae.errors import UserError, listed
from r2mae.evaluation.metrics import Metric
from r2mae.training.folder import RunFolder
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from r2mae.cells.batches import CellData
    from r2mae.cells.task import CountModel, GeneTask
    from r2mae.training.initial import Origin


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
    from r2mae.cells.table import write_h5ad

    write_h5ad(output, arrays, source)


def check_init(config: CellsConfig) -> RunFolder:
    """Return the run that `init` names; refuse one that is not finished, or has a model of other sizes."""
    folder = RunFolder(str(config.init))
    folder.read_config(CellsDomain.name)
    if not folder.trained:
        raise UserError(f"{folder.path} (init) is not finished: rerun its command to resume, then start from it")
    own, theirs = config.model.architecture(), folder.description.architecture
    for name in dict.fromkeys([*own, "mask_input"]):
        if own.get(name, False) != theirs.get(name, False):
            raise UserError(
                f"{folder.path} (init) has another {name} than the run ({str(theirs.get(name, False))[:60]}, here "
                f"{own.get(name, False)}): give the run that of the weights (--{name.replace('_', '-')})"
            )
    return folder


class CellsDomain(Domain):
    """Single-cell counts: .h5ad, AnnData, with the paper's MLP and negative binomial likelihood."""

    name = "cells"
    title = "Single cells: raw counts in .h5ad"
    config = CellsConfig
    sets = SETS
    evaluation_support = ("items", "progress")
    command_line = CommandLine(
        evaluation=Evaluation(
            "probes of the run's labels and numbers across donors, reconstruction, effective rank",
            options=as_in_run(CellsDataConfig, *PROBES, base=as_in_run(CellsEvaluationConfig, "bn_statistics")),
            examples=("runs/cells --baselines expression scvi", "runs/cells --labels tissue --donor-key donor"),
        ),
        reading=as_in_run(CellsDataConfig, "layer", base=Mapped),
        other_data="cells are mapped onto the run's genes",
        embedding=Offered(
            "`index` and `cells`, number and name of each cell, in the order of obs, and columns of the run; as .h5ad "
            'the file itself, with the embedding in .obsm["X_r2mae"]',
            examples=("runs/cells new.h5ad -o new-embedded.h5ad --layer counts",),
        ),
        baselines="keys of .obsm",
        example="cells.h5ad --batch-key batch",
    )

    def recognises(self, data: Any) -> bool:
        """Whether data are an .h5ad file or an AnnData object."""
        return data.suffix.lower() == ".h5ad" if isinstance(data, Path) else type(data).__name__ == "AnnData"

    def write_data(self, data: Any, folder: Path, config: Any = None) -> Path:
        """Write an AnnData object, or a matrix of cells by genes, which may be sparse or a data frame."""
        import numpy as np
        from anndata import AnnData

        if not isinstance(data, AnnData):
            if len(getattr(data, "shape", ())) != 2:
                return super().write_data(data, folder)
            if hasattr(data, "__array__") and not hasattr(data, "columns"):  # a tensor, say
                data = np.asarray(data)
            data = AnnData(data)
        if getattr(getattr(data.X, "dtype", None), "kind", "f") in "OSU":
            raise UserError("the data hold text or objects where counts are expected: keep numbers only")
        path = folder / "cells.h5ad"
        data.write_h5ad(path, convert_strings_to_categoricals=False)
        return path

    def metrics_of(self, config: CellsConfig) -> tuple[Metric, ...]:
        """Return the metrics of the configuration."""
        return config.metrics

    def fingerprint(self, config: CellsConfig) -> str:
        """Return a hash of the file, or for a named set with a checksum its name."""
        from r2mae.cells.table import path_of
        from r2mae.fingerprint import fingerprint

        known = config.data.source in SETS and all(file.sha256 for file in SETS[config.data.source].files)
        return config.data.source if known else fingerprint(path_of(config.data.source))

    def check_source(self, config: CellsConfig) -> None:
        """Refuse data that do not exist, without importing torch or anndata."""
        from r2mae.cells.table import path_of

        path_of(config.data.source)

    def check(self, config: CellsConfig) -> None:
        """Refuse missing data, and a run of `init` that is missing, unfinished or of other sizes."""
        super().check(config)
        if config.init is not None:
            check_init(config)

    def load_initial_weights(self, config: CellsConfig, model: "nn.Module") -> "Origin | None":
        """Let a fresh model begin with the weights of the run that `init` names; refuse one with none of its genes."""
        if config.init is None:
            return None
        from r2mae.cells.task import CountModel, copy_weights
        from r2mae.training.initial import Origin
        from r2mae.training.saving import load_model

        assert isinstance(model, CountModel)
        folder = check_init(config)
        _, _, other = load_model(folder.path, self)
        new = sorted({*model.gene_names} - {*other.gene_names})
        number = len(model.gene_names)
        if len(new) == number:
            raise UserError(
                f"{folder.path} (init) has none of the run's genes (its first is {other.gene_names[0]!r}, the first "
                f"here {model.gene_names[0]!r}): name genes in var_names as there"
            )
        copy_weights(model, other)
        notes = [f"it has {number - len(new):,} of the run's {number:,} genes"]
        if new:
            notes.append(f"new genes, with random weights: {listed(new)}")
        if len(model.batch_names) > 1 and (new := sorted({*model.batch_names} - {*other.batch_names})):
            notes.append(f"new batches, with the mean weights of its batches: {listed(new)}")
        return Origin(folder.path, (folder.weights,), "r2mae", tuple(notes))

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
        return evaluate(config, task, model, data, **options)

    def load_other_data(self, *arguments: Any, **options: Any) -> "tuple[CellsConfig, CellData]":
        """Read external cells for :meth:`evaluate`; see :func:`r2mae.cells.batches.load_other_data`."""
        from r2mae.cells.batches import load_other_data

        return load_other_data(*arguments, **options)

    def other_baselines(self, config: CellsConfig) -> Mapping[str, Baseline]:
        """Return the embeddings in ``.obsm`` of the file, by their keys."""
        from r2mae.cells.table import opened, path_of

        with opened(path_of(config.data.source)) as store:
            return {str(key): embedding_baseline(str(key)) for key in store.get("obsm", {})}

    exporters = {".h5ad": _write_h5ad, **Domain.exporters}  # noqa: RUF012

    def embed(self, *arguments: Any, **options: Any) -> "dict[str, np.ndarray]":
        """Embed the cells of a file; see :func:`r2mae.cells.batches.embed_source`."""
        from r2mae.cells.batches import embed_source

        return embed_source(*arguments, **options)


DOMAIN = CellsDomain()
