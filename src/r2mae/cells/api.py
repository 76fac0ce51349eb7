"""`MaskedAutoencoder`: methods in the style of scverse for an AnnData object, with the command line's training loop."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float32, Int64
from scipy.sparse import csr_matrix

from r2mae.cells.batches import batches_of, embed_rows, split_data
from r2mae.cells.config import LEAST_STEPS, CellsConfig, CellsDataConfig
from r2mae.cells.counts import CountDataset, DatasetCounts
from r2mae.cells.domain import DOMAIN
from r2mae.cells.table import IN_MEMORY, CellTable, align_batches, load_cells, log_notes
from r2mae.cells.trained import InMemoryDomain, QueryDomain, TrainedModel, load_trained, save_trained
from r2mae.environment import standard_session
from r2mae.errors import UserError, unknown
from r2mae.masking.keys import Key, permutation
from r2mae.progress import ProgressBar
from r2mae.training.loop import fit
from r2mae.training.validation import evaluating

if TYPE_CHECKING:
    from anndata import AnnData

_SETUP = "r2mae_setup"
_KEPT = ("n_hidden", "n_latent", "seed", "mask_input", "norm", "layer", "batch_key")
_NOT_OF_TRAINING = {*vars(CellsDataConfig()), *_KEPT, "data", "model", "preset", "epochs"} - {"source", "seed"}
_INSTEAD = {"epochs": "max_epochs", "validation": "train_size, which is 1 - validation"}


class MaskedAutoencoder:
    """Masked autoencoder for single-cell counts (the paper's section 5.2 and appendix "Single-cell … models").

    Parameters
    ----------
    adata : AnnData
        Set up by :meth:`setup_anndata`. The model keeps a copy of its counts, so later changes of `adata` (such as
        ``scanpy.pp.log1p(adata)``) do not affect it.
    n_hidden, n_latent : int
        Width of the hidden layers and of the representation (paper: 2000 and 1000).
    scheme : str
        Masking scheme. By default each cell hides genes of its own (docs/cells.md#defaults); with the others, `r2mae`,
        `fixed`, `dynamic`, `mdlm`, `r2mae-dynamic`, `cl`, `cl-k0`, `r2mae-cl`, `r2mae-cl-k0`, all cells of a mini-batch
        hide the same.
    ratio, low, high : float, optional
        Mask ratio of the schemes with one ratio; range of the others.
    seed : int
        Seed for weights, order of the cells and masks.
    mask_input : bool
        Make the model mask-aware; otherwise (mask-blind) a hidden gene looks like a count of zero.
    norm : {"batch", "layer"}
        Normalisation of the hidden layers: batch (the paper), or layer, which has no batch statistics.

    Attributes
    ----------
    adata : AnnData
        The cells that a method uses by default, with their counts and batches at the construction of the model. If
        `adata` has other cells by then, or another order of cells, it must be passed to the method.
    """

    def __init__(
        self,
        adata: "AnnData",
        *,
        n_hidden: int = 256,
        n_latent: int = 64,
        scheme: str = "r2mae-per-sample",
        ratio: float | None = None,
        low: float | None = None,
        high: float | None = None,
        seed: int = 0,
        mask_input: bool = False,
        norm: Literal["batch", "layer"] = "batch",
    ) -> None:
        self.adata = adata
        setup = adata.uns.get(_SETUP)
        if not isinstance(setup, Mapping):
            raise UserError("call MaskedAutoencoder.setup_anndata(adata) first: it records where the counts are")
        setup = {"layer": setup.get("layer"), "batch_key": setup.get("batch_key")}
        self._table = log_notes(load_cells(adata, layer=setup["layer"], batch_key=setup["batch_key"]))
        sizes = {"n_hidden": n_hidden, "n_latent": n_latent, "norm": norm}
        masking = {"scheme": scheme, "ratio": ratio, "low": low, "high": high, "mask_input": mask_input}
        # A model that sees many ratios in a mini-batch is measured with the statistics of these mini-batches.
        measured = {"bn_statistics": "no"} if scheme == "r2mae-per-sample" and norm == "batch" else {}
        self._config = _make_config({**setup, **sizes, **masking, **measured, "seed": seed})
        self._trained: TrainedModel | None = None
        self._query: QueryDomain | None = None

    @classmethod
    def from_dataset(
        cls,
        dataset: CountDataset,
        obs: pd.DataFrame,
        genes: Sequence[str],
        *,
        batch_key: str | None = None,
        **options: Any,
    ) -> "MaskedAutoencoder":
        """Make a model of counts that do not lie in one file or in memory; they are read when they are needed.

        Parameters
        ----------
        dataset : CountDataset
            ``dataset[i]`` returns the raw counts of cell i, and ``__getitems__(cells)``, if it exists, those of many.
        obs : DataFrame
            A row for each cell, in the order of the data set.
        genes : sequence of str
            The names of the counts.
        batch_key : str, optional
            Column of obs with the batch.
        **options
            As of the class.
        """
        from anndata import AnnData

        names = tuple(map(str, genes))
        if len(names) < 2 or len({*names}) < len(names):
            raise UserError("genes takes two names or more, each once")
        if len(obs) < 2:
            raise UserError(f"obs has {len(obs)} cells, and training needs two or more")
        if isinstance(dataset, Sized) and len(dataset) != len(obs):
            raise UserError(f"the data set has {len(dataset)} cells, and obs has {len(obs)}: one row for each cell")
        frame = obs.set_axis(obs.index.astype(str))
        size, shape = len(frame), (len(frame), len(names))
        columns = np.concatenate([np.arange(len(names)), np.zeros(size - 1, np.int64)])
        ends = np.concatenate([[0], np.arange(len(names), len(columns) + 1)])
        counts = csr_matrix((np.ones(len(columns), np.uint8), columns, ends), shape=shape)
        adata = AnnData(counts, obs=frame, var=pd.DataFrame(index=list(names)))  # in place of what is read later
        cls.setup_anndata(adata, batch_key=batch_key)
        self = cls(adata, **options)
        self._table = replace(self._table, name="the data set", counts=DatasetCounts(csr_matrix(shape), None, dataset))
        return self

    def __repr__(self) -> str:
        size = f"{len(self._table):,} cells of {len(self._table.genes):,} genes"
        state = "trained" if self.is_trained else "not trained"
        return f"MaskedAutoencoder({size}, scheme {self._config.scheme.name!r}, {state})"

    @staticmethod
    def setup_anndata(adata: "AnnData", *, layer: str | None = None, batch_key: str | None = None) -> None:
        """Record in ``adata.uns`` where counts and covariates are.

        Parameters
        ----------
        adata : AnnData
        layer : str, optional
            Layer of raw counts; by default X. "raw.X" is the matrix in ``adata.raw``.
        batch_key : str, optional
            Column of obs with the batch.
        """
        given = {"layer": layer, "batch_key": batch_key}
        adata.uns[_SETUP] = {name: value for name, value in given.items() if value is not None}

    @property
    def is_trained(self) -> bool:
        """Whether the model has been trained or loaded."""
        return self._trained is not None

    @property
    def history(self) -> pd.DataFrame | None:
        """Loss, ratio and validation loss by step, once trained."""
        return None if self._trained is None else self._trained.history

    @standard_session()
    def train(
        self,
        max_epochs: float | None = None,
        *,
        batch_size: int = 128,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        train_size: float = 0.9,
        early_stopping: bool = False,
        device: str = "auto",
        run: str | Path | None = None,
        progress: bool = True,
        **options: Any,
    ) -> None:
        """Train the model.

        Parameters
        ----------
        max_epochs : float, optional
            Passes over the training cells; by default 50, and as many more as 500 steps take.
        batch_size, lr, weight_decay
            Settings of Adam (paper: 400, 0.001 and 0.0001).
        train_size : float
            Fraction of the cells to train on; the others are used for the validation loss.
        early_stopping : bool
            Stop after five validations without improvement, and keep the best weights.
        device : str
            "auto", "cpu", "cuda", "cuda:1" or "mps".
        run : path, optional
            Run folder, from which an interrupted training resumes; by default the model is only in memory.
        progress : bool
            Show a progress bar with the remaining time.
        **options
            Any other field of :class:`~r2mae.cells.CellsConfig` that concerns training, such as `schedule`, `ema` or
            `threads`.

        Raises
        ------
        UserError
            For impossible options; if the loss is not finite; or if the model is trained already.
        """
        if self._trained is not None:
            raise UserError("the model is trained already: make a new model")
        for name in _NOT_OF_TRAINING & options.keys():
            own = _INSTEAD.get(name, "it to MaskedAutoencoder() or setup_anndata(), or choose genes in adata")
            raise UserError(f"train() does not take {name}: pass {own}")
        if self._query is not None and (run is not None or "init" in options):
            raise UserError("a query is trained in memory, from its reference: omit run and init; save() it afterwards")
        domain = self._query or InMemoryDomain(self._own_table())
        stopping = {"patience": 5, "keep": "best"} if early_stopping else {}
        batch_size = min(batch_size, max(2, len(domain.table)))
        if max_epochs is None:
            least = LEAST_STEPS * batch_size / max(train_size * len(domain.table), 1)
            max_epochs = max(float(CellsConfig.default_of("epochs")), least)
        config = _make_config(
            {
                **{name: self._config[name] for name in (*_KEPT, "bn_statistics")},
                "scheme": self._config.scheme.to_dict(),
                "epochs": max_epochs,
                "batch_size": batch_size,
                "lr": lr,
                "weight_decay": weight_decay,
                "validation": round(1 - train_size, 10),
                "device": device,
                **stopping,
                **options,
            }
        )
        data = split_data(log_notes(domain.table) if self._query else domain.table, config)
        reporter = ProgressBar(f"{config.scheme.name}, {len(data.train):,} cells") if progress else None
        with tempfile.TemporaryDirectory(prefix="r2mae-") as folder:
            fitted = fit(config, domain, run or Path(folder) / "run", data=data, reporter=reporter)
            trained = load_trained(fitted.folder.path, domain, device=config.machine.device)
        self._trained = trained if self._query is None else self._query.completed(trained)
        self._config = config

    @standard_session()
    def get_latent_representation(
        self, adata: "AnnData | None" = None, *, batch_size: int = 2048, transform_batch: str | None = None
    ) -> Float32[np.ndarray, "cells latent"]:
        """Return the representation of every cell, unmasked and deterministic.

        Parameters
        ----------
        adata : AnnData, optional
            Cells to embed; their genes are mapped onto the model's by name. By default the cells of the model.
        batch_size : int
            Cells at a time.
        transform_batch : str, optional
            Training batch that the encoder uses for cells whose batch is unknown to the model. For all other cells it
            uses their own batch.
        """
        trained, table = self._require_trained(), self._mapped_table(adata, transform_batch)
        return embed_rows(trained.task, trained.model, table, size=batch_size)

    @standard_session()
    def get_normalized_expression(
        self,
        adata: "AnnData | None" = None,
        *,
        genes: str | Iterable[str] | None = None,
        gene_list: str | Iterable[str] | None = None,
        library_size: float | str = 1.0,
        mask_ratio: float = 0.0,
        transform_batch: str | None = None,
        batch_size: int = 2048,
    ) -> pd.DataFrame:
        """Return the decoder's expected expression of every gene, as fractions of the library size.

        By default the cells are unmasked. With a mask ratio, the expression is denoised: a gene is predicted from the
        others, without its own noisy count. Genes that `adata` lacks are always hidden, and so imputed.

        Parameters
        ----------
        adata, batch_size
            As in :meth:`get_latent_representation`.
        genes, gene_list : str or iterable of str, optional
            Return only these genes. Both names mean the same; the second is that of scvi-tools.
        library_size : float or "observed"
            Multiply by a number, or by the total count of each cell.
        mask_ratio : float
            Share of the genes to hide at a time, such as 0.25; each gene is returned from the pass that hides it. The
            fractions of a cell then add up to one only nearly. Best within the range that the model was trained on.
        transform_batch : str, optional
            Training batch that the decoder uses for all cells: the result is the expression as if all came from this
            batch. The encoder uses it only for cells whose batch is unknown to the model.

        Returns
        -------
        DataFrame
            Cells by the model's genes, which lack those without a count in training:
            ``adata[:, table.columns]`` has the same, unless `adata` lacks genes of the model. Its ``attrs["hidden"]``
            is the share of the model's genes that were hidden at a time.
        """
        if not 0 <= mask_ratio < 1:
            raise UserError(f"mask_ratio must be 0 or more and below 1, not {mask_ratio}")
        table = self._mapped_table(adata, transform_batch)
        chosen = _one_of("genes", genes, "gene_list", gene_list)
        names = table.genes if chosen is None else _names_of(chosen)
        masks = []
        if mask_ratio:
            found = np.setdiff1d(np.arange(len(table.genes)), table.missing)
            order = found[permutation(Key.root(0).fold("denoising"), len(found))]
            size = max(1, round(mask_ratio * len(order)))
            masks = [order.take(range(first, first + size), mode="wrap") for first in range(0, len(order), size)]
        return self._expected(table, names, library_size, transform_batch, batch_size, masks)

    @standard_session()
    def impute(
        self,
        genes: str | Iterable[str] | None = None,
        adata: "AnnData | None" = None,
        *,
        gene_list: str | Iterable[str] | None = None,
        transform_batch: str | None = None,
        batch_size: int = 2048,
    ) -> pd.DataFrame:
        """Hide genes from the model and return their expected counts.

        Parameters
        ----------
        genes, gene_list : str or iterable of str
            Names of genes that the model has. Both names mean the same.
        adata, transform_batch, batch_size
            As in :meth:`get_normalized_expression`.

        Returns
        -------
        DataFrame
            Cells by these genes, scaled to each cell's observed library size. Its ``attrs["hidden"]`` is the share of
            the model's genes that were hidden.
        """
        names = _names_of(_one_of("genes", genes, "gene_list", gene_list, needed=True))
        table = self._mapped_table(adata, transform_batch)
        return self._expected(table, names, "observed", transform_batch, batch_size, [_columns_of(names, table)])

    def _expected(
        self,
        table: CellTable,
        genes: tuple[str, ...],
        library_size: float | str,
        decoder_batch: str | None,
        size: int,
        masks: Sequence[np.ndarray],
    ) -> pd.DataFrame:
        """Return the decoder's expected expression of some genes, each from the last mask that hides it, if any."""
        trained = self._require_trained()
        if isinstance(library_size, str) and library_size != "observed":
            raise UserError(f"library_size takes a number or 'observed', not {library_size!r}")
        columns = _columns_of(genes, table)
        device = next(trained.model.parameters()).device
        hidden = [torch.from_numpy(np.union1d(table.missing, mask)).to(device) for mask in masks or (table.missing,)]
        parts = []
        with evaluating(trained.model):
            for batch in batches_of(table, device, size):
                other = None
                if decoder_batch is not None:
                    other = torch.full_like(batch["batch"], table.batches.index(decoder_batch))
                share = torch.empty(0)
                for unseen in hidden:
                    found, library = trained.task.expected(
                        trained.model, batch, hidden=unseen if len(unseen) else None, decoder_batch=other
                    )
                    share = found if unseen is hidden[0] else share.index_copy_(1, unseen, found[:, unseen])
                scale = library[:, None] if library_size == "observed" else float(library_size)
                parts.append((share[:, columns] * scale).cpu().numpy())
        frame = pd.DataFrame(np.concatenate(parts), index=table.obs.index, columns=list(genes))
        frame.attrs["hidden"] = len(hidden[0]) / len(table.genes)
        return frame

    def save(
        self, folder: str | Path | None = None, *, dir_path: str | Path | None = None, overwrite: bool = False
    ) -> None:
        """Write the model as a run folder: :meth:`load` reads it, and the command line, such as ``r2mae embed``.

        Parameters
        ----------
        folder, dir_path : path
            The folder. Both names mean the same; the second is that of scvi-tools.
        overwrite : bool
            Replace a saved model.

        Raises
        ------
        UserError
            If the folder exists and `overwrite` is not given, or the model is not trained.
        OSError
            If the disk is full or the folder is read-only; an earlier saved model remains intact.
        """
        path = Path(_one_of("folder", folder, "dir_path", dir_path, needed=True))
        save_trained(path, replace(self._require_trained(), config=self._config), overwrite=overwrite)

    @classmethod
    def load(
        cls,
        folder: str | Path | None = None,
        adata: "AnnData | None" = None,
        *,
        dir_path: str | Path | None = None,
        layer: str | None = None,
        device: str = "cpu",
    ) -> "MaskedAutoencoder":
        """Load a saved model or a finished run folder, to be used on `adata`.

        Parameters
        ----------
        folder, dir_path : path
            Both names mean the same. Written by :meth:`save`, ``train(run=...)`` or ``r2mae pretrain cells``.
        adata : AnnData
            The training cells or others; genes are mapped onto the model's by name.
        layer : str, optional
            Layer with the raw counts of `adata` ("X" for X); by default as in training.
        device : str
            Device to load the model to.

        Raises
        ------
        UserError
            If the folder is damaged or was written by a newer version, or the genes do not fit.
        """
        path = Path(_one_of("folder", folder, "dir_path", dir_path, needed=True))
        if adata is None:
            raise UserError("a saved model has no cells: load(folder, adata)")
        trained = load_trained(path, DOMAIN, device=device)
        self = cls._of_reference(trained, adata, layer, None)
        self._trained = trained
        return self

    @classmethod
    def load_query_data(
        cls,
        adata: "AnnData",
        reference_model: "str | Path | MaskedAutoencoder",
        *,
        layer: str | None = None,
    ) -> "MaskedAutoencoder":
        """Return a model whose :meth:`train` adds new batches to a trained model, in the manner of scArches.

        Training fits the decoder's weights of the new batches, and nothing else; the encoder takes the mean weights of
        its batches for them. Cells of the other batches have the same representation as before. Genes are mapped by
        name; missing ones are hidden, and not predicted in training.

        Parameters
        ----------
        adata : AnnData
            Cells of new batches; their column has the name of the reference's `batch_key`. Cells of known batches are
            not trained on.
        reference_model : MaskedAutoencoder or path
            A trained model, or the folder of one.
        layer : str, optional
            As in :meth:`load`.

        Raises
        ------
        UserError
            As :meth:`load`; or if the model has no batch covariate or knows all batches, so that there is nothing to
            train.
        """
        if isinstance(reference_model, MaskedAutoencoder):
            reference = reference_model._require_trained()
        else:
            reference = load_trained(Path(reference_model), DOMAIN)
        self = cls._of_reference(reference, adata, layer, reference.config.data.batch_key)
        self._query = QueryDomain(self._table, reference)
        return self

    @classmethod
    def _of_reference(
        cls, trained: TrainedModel, adata: "AnnData", layer: str | None, batch_key: str | None
    ) -> "MaskedAutoencoder":
        """Return a model for cells mapped onto the genes of a trained one."""
        self = cls.__new__(cls)
        self.adata, self._trained, self._query = adata, None, None
        self._config = trained.config if layer is None else trained.config.replace(layer=layer)
        genes = trained.model.gene_names
        self._table = log_notes(load_cells(adata, layer=self._config.data.layer, batch_key=batch_key, genes=genes))
        return self

    def _require_trained(self) -> TrainedModel:
        if self._trained is None:
            raise UserError("the model is not trained: call train() first, or load() a saved one")
        return self._trained

    def _own_table(self) -> CellTable:
        """Return the cells that the model was made with, unless `adata` has others by now."""
        obs, kept = self.adata.obs, self._table.obs
        if not obs.index.equals(kept.index):
            raise UserError(
                f"adata has other cells ({len(obs):,}) than when the model was made ({len(kept):,}), or another order: "
                "pass adata=adata to use its current cells, or make a new model"
            )
        return self._table

    def _mapped_table(self, adata: "AnnData | None", transform_batch: str | None) -> CellTable:
        """Return cells with the model's genes, and with batches numbered as the model's encoder needs them."""
        model, data = self._require_trained().model, self._config.data
        if adata is None:
            table = self._own_table()
            batch = align_batches(table.name, table.obs, data.batch_key, model.batch_names, transform_batch)
            return replace(table, batch=batch, batches=model.batch_names)
        mapped = load_cells(
            adata, layer=data.layer, batch_key=data.batch_key, genes=model.gene_names, batches=model.batch_names,
            transform_batch=transform_batch,
        )  # fmt: skip
        return log_notes(mapped)


def _make_config(fields: Mapping[str, Any]) -> CellsConfig:
    return CellsConfig.from_dict({"data": IN_MEMORY, **fields}, source="MaskedAutoencoder")


def _one_of(name: str, value: Any, other: str, its: Any, *, needed: bool = False) -> Any:
    """Return the value of an argument that has two names."""
    if value is not None and its is not None:
        raise UserError(f"{name} and {other} are the same: give one of them")
    if needed and value is its is None:
        raise UserError(f"{name} is missing: give {name}=")
    return value if its is None else its


def _names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple, from one name or several."""
    return (names,) if isinstance(names, str) else tuple(names)


def _columns_of(genes: Sequence[str], table: CellTable) -> Int64[np.ndarray, " genes"]:
    """Return the columns of one or more genes."""
    column_of = {gene: column for column, gene in enumerate(table.genes)}
    for gene in genes:
        if gene not in column_of:
            raise unknown("gene", gene, column_of)
    if not genes:
        raise UserError("genes is empty: name one gene or more")
    return np.array([column_of[gene] for gene in genes])
