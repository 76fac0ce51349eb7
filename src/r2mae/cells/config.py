"""The configuration of a run on single-cell counts. This module imports neither torch nor anndata."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from r2mae.cells.models import MODELS, MLPSettings
from r2mae.cells.sets import HLCA_DYNAMIC_END, SEA_AD_DYNAMIC_END, SET_DEFAULTS
from r2mae.errors import UserError, nearest
from r2mae.evaluation.bn_statistics import add_as_trained
from r2mae.evaluation.metrics import FEATURES, FILLING_IN, Metric
from r2mae.fields import PartialFraction, Range
from r2mae.masking.defaults import HLCA_CURRICULUM, SEA_AD_CURRICULUM, SchemeDefaults
from r2mae.training.config import DataConfig, EvaluationConfig, OptimizerConfig, RunConfig
from r2mae.training.scheme import SchemeSpec

_HLCA = SchemeDefaults(ratio=0.25, low=0.1, high=0.5, options={"decay_end": HLCA_DYNAMIC_END, **HLCA_CURRICULUM})
TIMINGS: Mapping[str, SchemeDefaults] = MappingProxyType(
    {"hlca": _HLCA, "sea-ad": _HLCA.with_options(decay_end=SEA_AD_DYNAMIC_END, **SEA_AD_CURRICULUM)}
)
"""Defaults of the schemes, with the schedules of the paper's runs. Runs without `timing` used HLCA's."""
LEAST_STEPS = 500
"""After half as many, the embedding of 1,000 cells was worse than principal components, and not after as many."""
PROBES = ("labels", "regress", "donor_key")
"""The fields of the data with which a finished run can be measured again."""
_PAPER = {"n_hidden": 2000, "n_latent": 1000, "batch_size": 400, "weight_decay": 1e-4}


@dataclass(frozen=True, kw_only=True)
class CellsDataConfig(DataConfig):
    """The counts of a run, and the columns of obs that its probes use.

    Parameters
    ----------
    layer : str, optional
        Layer that holds the raw counts; by default X.
    batch_key : str, optional
        Column of obs with the batch, a covariate of encoder and decoder.
    donor_key : str, optional
        Column of obs with the donor; training and test cells of the probes come from different donors.
    labels : list of str
        Columns of obs to predict from the embedding, by logistic regression.
    regress : list of str
        Columns of obs to predict by ridge regression, such as age.
    exclude : list of str
        Cells that the probes omit, as column=value, such as condition=control. The probe of one column omits them as
        probe:column=value, such as age:condition=control.
    only : list of str
        The only cells for the probes, or for one, in the same forms; of several values of a column a cell needs one.
    auroc_labels : list of str
        Labels that count in average score and ranks with AUROC, over cells and over donors, instead of balanced
        accuracy and macro F1 (paper: ADNC, on SEA-AD).
    n_top_genes : int, optional
        Use this many highly variable genes (scanpy's default procedure); by default all.
    min_genes : int
        Omit cells that express fewer of the chosen genes (paper: 20).
    max_cells : list of str
        Largest number of training cells and of test cells of a probe, as column=number; by default 200,000 (paper;
        cell_type=100000 on SEA-AD).
    limit_first : list of str
        Labels whose cells are limited to `max_cells` before those without a known label are removed, not after it
        (paper: the cell types of HLCA).
    """

    validation: PartialFraction = 0.1
    layer: str | None = None
    batch_key: str | None = None
    donor_key: str | None = None
    labels: tuple[str, ...] = ()
    regress: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    auroc_labels: tuple[str, ...] = ()
    n_top_genes: Annotated[int, Range(2)] | None = None  # masking needs two genes
    min_genes: Annotated[int, Range(0)] = 0
    max_cells: tuple[str, ...] = ()
    limit_first: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for entry in self.max_cells:
            if not re.fullmatch(r".+=[1-9][0-9]*", entry):
                raise UserError(f"max_cells takes column=number, such as cell_type=100000, not {entry!r}")
        for name in ("exclude", "only"):
            for entry in getattr(self, name):
                column, _, value = entry.partition("=")
                if not (column and value) or ":" in (column[0], column[-1]):
                    raise UserError(
                        f"{name} takes column=value (such as condition=control) for all probes, or probe:column=value "
                        f"for one, not {entry!r}"
                    )
        limited = [entry.partition("=")[0] for entry in self.max_cells]
        for name, columns, probed in (
            ("auroc_labels", self.auroc_labels, self.labels),
            ("limit_first", self.limit_first, self.labels),
            ("max_cells", limited, (*self.labels, *self.regress)),
        ):
            for column in columns:
                if column not in probed:
                    hint = nearest(column, probed) if probed else "name it in labels, too"
                    off = f"; if it is a default of the set, --{name.replace('_', '-')} without names removes it"
                    raise UserError(f"{name} names {column!r}, which no probe predicts: {hint}{off}")


@dataclass(frozen=True, kw_only=True)
class CellsEvaluationConfig(EvaluationConfig):
    """How a model of cells is measured.

    Parameters
    ----------
    bn_statistics : {"yes", "no", "both"}
        Re-estimate batch statistics on unmasked cells for embeddings and probes, and at each mask ratio for
        reconstruction (yes), or use those of training, as in the paper (no); with both, scores are measured
        in both ways.
    """

    bn_statistics: Literal["yes", "no", "both"] = "yes"


@dataclass(frozen=True, kw_only=True)
class CellsConfig(RunConfig):
    """A run on single-cell counts. Sizes and batches are smaller than the paper's, which the preset `paper` has.

    Parameters
    ----------
    init : str, optional
        Begin with the weights of this run on cells, of the same sizes; genes and batches are mapped by name.
    timing : {"hlca", "sea-ad"}
        The schedule of `dynamic`, `r2mae-dynamic` and the curricula, in fractions of the run: that of the paper's runs
        on HLCA or on SEA-AD.
    """

    domain: ClassVar[str] = "cells"
    ratios: ClassVar[SchemeDefaults] = _HLCA
    models: ClassVar[Mapping[str, str]] = MODELS
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _PAPER,
        "small": {**_PAPER, "n_hidden": 256, "n_latent": 64},
        "hlca": {**_PAPER, "n_top_genes": 5000, "min_genes": 20, "timing": "hlca"},
        "sea-ad": {**_PAPER, "n_top_genes": 5000, "timing": "sea-ad"},
    }
    preset_sizes: ClassVar[Mapping[str, float]] = {"paper": 16, "small": 1.1, "hlca": 28, "sea-ad": 28}
    set_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = SET_DEFAULTS

    decides_scheme: ClassVar[frozenset[str]] = frozenset({"timing"})
    common_fields: ClassVar[tuple[str, ...]] = ("labels", "donor_key", "batch_key")
    measured_data: ClassVar[tuple[str, ...]] = PROBES

    init: str | None = None
    timing: Literal["hlca", "sea-ad"] = "hlca"
    data: CellsDataConfig = CellsDataConfig()
    model: Any = MLPSettings()
    optimizer: OptimizerConfig = OptimizerConfig(epochs=50, batch_size=128)
    evaluation: CellsEvaluationConfig = CellsEvaluationConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init is not None:
            object.__setattr__(self, "init", str(Path(self.init).expanduser().absolute()))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The probes' score, loss and r of hidden genes, then the others; for "both" also those as trained."""
        some = self.data.labels or self.data.regress
        metrics = [Metric("score", "average score", bounds=(-1, 1), ranked=False, question=FEATURES)] if some else []
        asked = Metric("masked_loss", "masked loss", higher_is_better=False, optional=True, question=FILLING_IN)
        metrics.append(replace(asked, ranked=not some))
        metrics.append(Metric("gene_r", "r by gene", bounds=(-1, 1), ranked=not some, optional=True))
        for column in self.data.labels:
            by = column in self.data.auroc_labels
            for end, words, ranked in (
                ("bacc", "balanced accuracy", not by),
                ("f1", "macro F1", not by),
                ("auroc", "macro AUROC", by),
                ("auroc_donor", "macro AUROC, donors", by),
            ):
                title, optional = f"{column} {words}", end == "auroc_donor"
                metrics.append(Metric(f"{column}_{end}", title, bounds=(0, 1), ranked=ranked, optional=optional))
        metrics += [
            Metric(f"{column}_spearman_{end}", f"{column} Spearman, {end}s", bounds=(-1, 1))
            for column in self.data.regress
            for end in ("cell", "donor")
        ]
        by_cell = "r by cell (constants can win)"
        metrics.append(Metric("reconstruction_r", by_cell, bounds=(-1, 1), ranked=False))
        metrics.append(Metric("effective_rank", "effective rank", higher_is_better=None, bounds=(1, inf)))
        return add_as_trained(metrics, self.evaluation.bn_statistics)

    @property
    def scheme_defaults(self) -> SchemeDefaults:
        """The defaults of the schemes, with the schedules of one of the paper's runs."""
        return TIMINGS[self.timing]

    def with_measurement(self, **options: Any) -> "CellsConfig":
        """Return the configuration with other options, without what is for columns that no probe predicts any more."""
        labels, regress = (tuple(options.get(name, self[name])) for name in ("labels", "regress"))
        lost = {*self.data.labels, *self.data.regress} - {*labels, *regress}
        kept = {name: tuple(one for one in self[name] if one in labels) for name in ("auroc_labels", "limit_first")}
        kept["max_cells"] = tuple(one for one in self.data.max_cells if one.partition("=")[0] in (*labels, *regress))
        for name in ("exclude", "only"):
            kept[name] = tuple(rule for rule in self[name] if not any(rule.startswith(f"{one}:") for one in lost))
        return super().with_measurement(**kept, **options)

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Refuse rules without a probe, and a schedule with a scheme that has none."""
        super().check_given(given)
        for name in ("exclude", "only"):
            if given.get(name) and not (self.data.labels or self.data.regress):
                raise UserError(
                    f"{name} selects cells of probes, and there is no probe: name columns in --labels or --regress, or "
                    "omit it"
                )
        name, options = self.scheme.name, self.scheme.given_options
        specs = [SchemeSpec.resolve(name, options, defaults) for defaults in TIMINGS.values()]
        if "timing" in given and "scheme" in given and all(spec == specs[0] for spec in specs):
            raise UserError(
                f"timing sets the schedules of the dynamic ratio and the curricula, and changes nothing for "
                f"{name!r} with these options: omit it"
            )
