"""`MaskedAutoencoder`: the scverse verbs on an AnnData object, over the same loop as the command line."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float32

from r2mae.cells.batches import CellData, split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.embed import align_batches, batches_of, embed_table
from r2mae.cells.setup import EMPTY, InMemoryWing, read_setup, write_setup
from r2mae.cells.table import NO_BATCHES, CellTable, from_anndata, tell
from r2mae.cells.wing import CellsWing
from r2mae.errors import UserError, unknown
from r2mae.training.config import RunConfig
from r2mae.training.devices import torch_device
from r2mae.training.folder import read_json, remedy_for
from r2mae.training.loop import fit
from r2mae.training.progress import ProgressBar
from r2mae.training.saving import load_model, load_weights, save_pair
from r2mae.training.validation import evaluating

if TYPE_CHECKING:
    from anndata import AnnData
    from torch import nn

    from r2mae.cells.task import GeneTask

_FORMAT = 1


class MaskedAutoencoder:
    """Masked autoencoder for single-cell counts (the paper's section 5.2 and appendix "Single-cell … models").

    Parameters
    ----------
    adata : AnnData
        Set up by :meth:`setup_anndata`.
    n_hidden, n_latent : int
        Width of the hidden layers and of the representation.
    scheme : str
        Masking scheme: `r2mae`, `fixed`, `dynamic`, `mdlm`, `r2mae-dynamic`, `cl`, `cl-k0`, `r2mae-cl`, `r2mae-cl-k0`.
    ratio, low, high : float, optional
        Mask ratio of the schemes with one; range of the others.
    seed : int
        Of weights, order and masks.

    Attributes
    ----------
    history : DataFrame or None
        Loss, ratio and validation loss by step, once trained.
    is_trained : bool
    """

    def __init__(
        self,
        adata: "AnnData",
        *,
        n_hidden: int = 2000,
        n_latent: int = 1000,
        scheme: str = "r2mae",
        ratio: float | None = None,
        low: float | None = None,
        high: float | None = None,
        seed: int = 0,
    ) -> None:
        self.adata = adata
        self._setup = read_setup(adata)
        self._table = tell(from_anndata(adata, layer=self._setup["layer"], batch_key=self._setup["batch_key"]))
        self._options: dict[str, Any] = {
            "n_hidden": n_hidden,
            "n_latent": n_latent,
            "scheme": scheme,
            "ratio": ratio,
            "low": low,
            "high": high,
            "seed": seed,
        }
        self._config = CellsConfig(data="AnnData", **self._options)
        self._genes, self._batches = self._table.genes, self._table.batches
        self._task: GeneTask | None = None
        self._model: nn.Module | None = None
        self.history: pd.DataFrame | None = None

    @staticmethod
    def setup_anndata(
        adata: "AnnData", *, layer: str | None = None, batch_key: str | None = None, labels_key: str | None = None
    ) -> None:
        """Say where counts and covariates are; written to ``adata.uns``.

        Parameters
        ----------
        adata : AnnData
        layer : str, optional
            Layer of raw counts; by default X.
        batch_key : str, optional
            Column of obs with the batch.
        labels_key : str, optional
            Column of obs with cell types, for evaluations; training ignores it.

        Raises
        ------
        UserError
            If a layer or column does not exist; the nearest name is suggested.
        """
        write_setup(adata, layer, batch_key, labels_key)

    @property
    def is_trained(self) -> bool:
        """Whether there are weights to use."""
        return self._model is not None

    def train(
        self,
        max_epochs: float = 50,
        *,
        batch_size: int = 400,
        lr: float = 1e-3,
        weight_decay: float = 1e-4,
        train_size: float = 0.9,
        early_stopping: bool = False,
        device: str = "auto",
        run: str | Path | None = None,
        progress: bool = True,
        **options: Any,
    ) -> None:
        """Train.

        Parameters
        ----------
        max_epochs : float
            Passes over the training cells.
        batch_size, lr, weight_decay
            Of Adam.
        train_size : float
            Part of the cells that is trained on; the rest gives the validation loss.
        early_stopping : bool
            Stop after five validations without improvement, and keep the best weights.
        device : str
            "auto", "cpu", "cuda" or "cuda:1".
        run : path, optional
            Run folder. With one, a training that was cut off goes on where it stopped; without, nothing is kept but
            the model.
        progress : bool
            Show a bar with the time to finish.
        **options
            Any other field of :class:`~r2mae.cells.CellsConfig`, such as `schedule`, `ema` or `threads`.

        Raises
        ------
        UserError
            For impossible options, or if the loss is not finite.
        """
        stopping = {"patience": 5, "keep": "best"} if early_stopping else {}
        config = _cells(
            CellsConfig.from_dict(
                {
                    **self._options,
                    "data": "AnnData",
                    "epochs": max_epochs,
                    "batch_size": min(batch_size, max(2, self._table.counts.shape[0])),
                    "lr": lr,
                    "weight_decay": weight_decay,
                    "validation": round(1 - train_size, 10),
                    "device": device,
                    **stopping,
                    **options,
                },
                source="train",
            )
        )
        self._table = self._own_table(self._setup["batch_key"] is not None)
        data = split_data(self._table, config)
        if run is not None:
            self._fit(config, data, Path(run), progress)
            return
        with tempfile.TemporaryDirectory(prefix="r2mae-") as folder:
            self._fit(config, data, Path(folder) / "run", progress)

    def _fit(self, config: CellsConfig, data: CellData, run: Path, progress: bool) -> None:
        wing = InMemoryWing(self._table)
        reporter = ProgressBar(f"{config.scheme}, {len(data.train):,} cells") if progress else None
        fitted = fit(config, wing, run, data=data, reporter=reporter)
        loaded = load_model(fitted.folder.path, wing, device=config.device)
        self._config, self._task, self._model = _cells(loaded[0]), loaded[1], loaded[2]  # type: ignore[assignment]
        self._genes, self._batches = self._table.genes, self._table.batches
        self.history = pd.read_csv(fitted.folder.metrics_file).set_index("step")

    def get_latent_representation(
        self, adata: "AnnData | None" = None, *, batch_size: int = 2048, transform_batch: str | None = None
    ) -> Float32[np.ndarray, "cells latent"]:
        """Return the representation of every cell, unmasked and deterministic.

        Parameters
        ----------
        adata : AnnData, optional
            Other cells; their genes are mapped onto the model's. By default those of the model.
        batch_size : int
            Cells at a time.
        transform_batch : str, optional
            Training batch to take for all cells; needed where the cells' own is new to the model.
        """
        task, model = self._trained()
        return embed_table(task, model, self._mapped(adata, transform_batch), batch_size)

    def get_normalized_expression(
        self,
        adata: "AnnData | None" = None,
        *,
        genes: Sequence[str] | None = None,
        library_size: float | str = 1.0,
        transform_batch: str | None = None,
        batch_size: int = 2048,
    ) -> pd.DataFrame:
        """Return what the decoder expects of every gene in unmasked cells: fractions of a library.

        Parameters
        ----------
        adata, transform_batch, batch_size
            As in :meth:`get_latent_representation`.
        genes : sequence of str, optional
            Only these.
        library_size : float or "observed"
            Multiply by a number, or by each cell's own total.

        Returns
        -------
        DataFrame
            Cells by genes.
        """
        return self._expected(adata, None, genes, library_size, transform_batch, batch_size)

    def impute(
        self,
        genes: Sequence[str],
        adata: "AnnData | None" = None,
        *,
        transform_batch: str | None = None,
        batch_size: int = 2048,
    ) -> pd.DataFrame:
        """Hide genes from the model and return the counts it expects of them.

        Parameters
        ----------
        genes : sequence of str
            Names among the model's genes.
        adata, transform_batch, batch_size
            As in :meth:`get_latent_representation`.

        Returns
        -------
        DataFrame
            Cells by these genes, at each cell's observed library size.
        """
        return self._expected(adata, genes, genes, "observed", transform_batch, batch_size)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write weights (safetensors) and everything needed to load them (JSON).

        Raises
        ------
        UserError
            If the folder exists and `overwrite` is not given, or the model is not trained.
        OSError
            If the disk is full or the folder read-only; what was saved there before is whole.
        """
        _, model = self._trained()
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file: name a folder")
        if folder.exists() and any(folder.iterdir()) and not overwrite:
            raise UserError(f"{folder} exists: name another folder, or pass overwrite=True")
        history = None if self.history is None else self.history.reset_index().to_dict(orient="list")
        description = {
            "format": _FORMAT,
            "setup": self._setup,
            "config": self._config.to_dict(),
            "architecture": self._architecture(),
            "history": history,
        }
        save_pair(folder / "model.safetensors", model, folder / "model.json", description)

    @classmethod
    def load(cls, folder: str | Path, adata: "AnnData", *, device: str = "cpu") -> "MaskedAutoencoder":
        """Read a saved model, to be used on `adata`.

        Parameters
        ----------
        folder : path
            Written by :meth:`save`.
        adata : AnnData
            The training cells or others; genes are mapped onto the model's by name.
        device : str
            Where the model shall be.

        Raises
        ------
        UserError
            If the folder is damaged or was written by a newer version, or the genes or batches do not fit.
        """
        folder = Path(folder)
        path = folder / "model.json"
        if not path.exists():
            raise UserError(f"{folder} holds no saved model: model.json is missing")
        stored = read_json(path)
        if stored.get("format") != _FORMAT:
            raise UserError(f"{path} has format {stored.get('format')!r}, and this version reads {_FORMAT}")
        try:
            config = CellsConfig.from_dict(stored["config"], source=str(path))
            architecture, setup = stored["architecture"], dict(stored["setup"])
            task, model = CellsWing().build(architecture)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} describes no model ({error}): {remedy_for(path)}") from None
        load_weights(folder / "model.safetensors", model)
        self = cls.__new__(cls)
        self.adata, self._setup, self._config = adata, {**EMPTY, **setup}, _cells(config)
        self._options = {name: getattr(config, name) for name in _OPTIONS}
        self._genes, self._batches = tuple(architecture["genes"]), tuple(architecture["batches"])
        self._task, self._model = task, model.to(torch_device(device)).eval()
        self._table = self._onto_genes(adata, setup.get("batch_key") in adata.obs)
        history = stored.get("history")
        self.history = None if history is None else pd.DataFrame(history).set_index("step")
        return self

    def _trained(self) -> "tuple[GeneTask, nn.Module]":
        if self._task is None or self._model is None:
            raise UserError("the model is not trained: call train() first, or load() a saved one")
        return self._task, self._model

    def _architecture(self) -> dict[str, Any]:
        return {
            "model": "mlp",
            "genes": list(self._genes),
            "batches": list(self._batches),
            "n_hidden": self._config.n_hidden,
            "n_latent": self._config.n_latent,
        }

    def _onto_genes(self, adata: "AnnData", keyed: bool) -> CellTable:
        key = self._setup["batch_key"] if keyed else None
        return tell(from_anndata(adata, layer=self._setup["layer"], batch_key=key, genes=self._genes))

    def _own_table(self, keyed: bool) -> CellTable:
        """Return the model's cells; a saved one may have been loaded for cells that lack the column of batches."""
        lacking = keyed and self._table.batches == NO_BATCHES
        return self._onto_genes(self.adata, keyed) if lacking else self._table

    def _mapped(self, adata: "AnnData | None", transform_batch: str | None) -> CellTable:
        """Return cells with the model's genes and batch numbers."""
        keyed = transform_batch is None and self._setup["batch_key"] is not None
        own = adata is None or adata is self.adata
        table = self._own_table(keyed) if own else self._onto_genes(adata, keyed)
        return replace(table, batch=align_batches(table, self._batches, transform_batch), batches=self._batches)

    @torch.no_grad()
    def _expected(
        self,
        adata: "AnnData | None",
        hidden: Sequence[str] | None,
        genes: Sequence[str] | None,
        library_size: float | str,
        transform_batch: str | None,
        batch_size: int,
    ) -> pd.DataFrame:
        if isinstance(library_size, str) and library_size != "observed":
            raise UserError(f"library_size takes a number or 'observed', not {library_size!r}")
        task, model = self._trained()
        table = self._mapped(adata, transform_batch)
        places = {gene: place for place, gene in enumerate(self._genes)}
        names = list(self._genes if genes is None else genes)
        for gene in names:
            if gene not in places:
                raise unknown("gene", gene, places)
        device = next(model.parameters()).device
        columns = torch.tensor([places[gene] for gene in names], device=device)
        masked = None if hidden is None else torch.tensor([places[gene] for gene in hidden], device=device)
        parts = []
        with evaluating(model):
            for batch in batches_of(table, device, batch_size):
                fraction, library = task.expected(model, batch, hidden=masked)
                scale = library[:, None] if library_size == "observed" else float(library_size)
                parts.append((fraction[:, columns] * scale).cpu().numpy())
        return pd.DataFrame(np.concatenate(parts), index=table.obs.index, columns=names)


_OPTIONS = ("n_hidden", "n_latent", "scheme", "ratio", "low", "high", "seed")


def _cells(config: RunConfig) -> CellsConfig:
    assert isinstance(config, CellsConfig)
    return config
