"""Which defaults serve cells? Settings of training and of reading, judged by probes across donors and batch mixing.

    python -m r2mae_paper.cells_defaults prepare FOLDER              # the sets as arrays
    python -m r2mae_paper.cells_defaults run FOLDER OUT.csv --jobs 16
    python -m r2mae_paper.cells_defaults choose OUT.csv              # what would be chosen without each of the sets

`run` needs neither anndata nor scanpy, but for scVI (`--baselines pca expression scvi`), which is trained as scvi-tools
does by default: other widths, likelihood and number of steps than ours. A line of the table is a set, a setting, a seed
of training, a number of steps, a way of reading the model, and a seed of the donors' split: models and donors are drawn
apart, so that the noise of donors, which is the larger, is the same for all settings.
"""

import argparse
import csv
import logging
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.sparse import csr_matrix
from scipy.stats import t
from sklearn.metrics import silhouette_samples
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from r2mae.cells.baselines import log_normalized_expression, pca_embedding, scvi_data
from r2mae.cells.batches import embed_rows, split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.counts import Counts
from r2mae.cells.evaluate import TARGET_SUM, evaluate_embedding
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.cells.table import CellTable, load_cells
from r2mae.cells.task import CountModel, GeneTask
from r2mae.cells.trained import InMemoryDomain
from r2mae.files import atomic_write
from r2mae.training.loop import build, keyed_torch
from r2mae.training.order import BatchOrder, make_loader
from r2mae.training.run import Run
from r2mae.training.validation import masked_losses, re_estimated_statistics, to_device

SETS = ("perez-tcells", "combat", "covid-tcells", "pig-airway", "onek1k", "csle")  # the longest first
_GENES = 2000  # at most, so that two cores can afford it
_SPLITS = 4  # of the donors
_MOST = 3000  # training and test cells of a probe, at most
_NEIGHBOURS = 30
_MIXED = 1500  # cells whose mixing is measured
_MIXING = {"csle": "batch", "covid-tcells": "batch", "onek1k": "batch", "perez-tcells": "batch"}  # else the donor

Row = dict[str, Any]


_STEPS: tuple[int, ...] = (250, 500, 1000, 2000)
_DEFAULT_STEPS = {
    "csle": 500, "covid-tcells": 1930, "pig-airway": 950, "onek1k": 1000, "perez-tcells": 2000, "combat": 2000
}  # of training: about 50 epochs, at least 500 and at most 2,000; of onek1k no more than 1,000 were done  # fmt: skip
_STEPS_OF = {"csle": (125, 250, 500, 1000), "onek1k": (125, 250, 500, 1000)}  # small, and at the ceiling


@dataclass(frozen=True)
class Setting:
    """What is trained (fields of the configuration), and whether its input is scaled to one library size.

    `wide` are settings whose training and probes cost most: they are trained on a GPU if there is one, and read at the
    last two numbers of steps alone. With `epochs` the number of steps is that of these epochs.
    """

    fields: dict[str, Any]
    normalised: bool = False
    wide: bool = False
    epochs: int | None = None


_SMALL = {"n_hidden": 256, "n_latent": 64, "batch_size": 128, "weight_decay": 1e-4}
_WIDE = {**_SMALL, "n_hidden": 1000, "n_latent": 256}
_SAMPLE = {"scheme": "r2mae-per-sample"}
SETTINGS: dict[str, Setting] = {
    "before": Setting({**_SMALL, "n_hidden": 2000, "n_latent": 1000, "batch_size": 400}, wide=True, epochs=50),
    "wide": Setting(_WIDE, wide=True),
    "wide normalised per-sample": Setting({**_WIDE, **_SAMPLE}, wide=True, normalised=True),
    "small": Setting(_SMALL),
    "normalised": Setting(_SMALL, normalised=True),
    "per-sample": Setting({**_SMALL, **_SAMPLE}),
    "normalised per-sample": Setting({**_SMALL, **_SAMPLE}, normalised=True),
    "high": Setting({**_SMALL, "low": 0.5, "high": 0.9}),
    "decay 0.001": Setting({**_SMALL, "weight_decay": 0.001}),
    "decay 0": Setting({**_SMALL, "weight_decay": 0.0}),
    "per-sample decay 0": Setting({**_SMALL, **_SAMPLE, "weight_decay": 0.0}),
    "normalised per-sample decay 0": Setting({**_SMALL, **_SAMPLE, "weight_decay": 0.0}, normalised=True),
}
_READINGS = ("latent", "hidden", "latent as trained", "latent averaged")
_RATIOS = (0.1, 0.25, 0.5)  # of the validation loss
_AVERAGE = 0.99  # decay of the moving average of the weights, which is measured next to the weights


@dataclass(frozen=True)
class NormalisedTask(GeneTask):
    """The same task, with counts scaled to one library size in the input, but not in the loss."""

    def corrupt(self, batch: Any, ratio: Any, key: Any) -> Any:
        """Hide genes of scaled cells, and keep the targets of the counts themselves."""
        return replace(super().corrupt(batch, ratio, key), inputs=super().corrupt(_scaled(batch), ratio, key).inputs)

    def embed(self, model: Any, batch: Any, hidden: Any = None) -> Tensor:
        """Return the representation of scaled cells."""
        return super().embed(model, _scaled(batch), hidden)

    def expected(self, model: Any, batch: Any, **options: Any) -> Any:
        """Return what is expected of scaled cells; the library size is theirs, too."""
        return super().expected(model, _scaled(batch), **options)


class HiddenLayerTask(GeneTask):
    """The same task, whose representation is the last hidden layer before the latent one."""

    def embed(self, model: Any, batch: Any, hidden: Any = None) -> Tensor:
        """Return what the last layer of the encoder receives."""
        received: list[Tensor] = []
        handle = model.encoder[-1].register_forward_pre_hook(lambda _, inputs: received.append(inputs[0]))
        super().embed(model, batch, hidden)
        handle.remove()
        return received[0]


def _scaled(batch: Any) -> dict[str, Tensor]:
    lengths = batch["indptr"].diff()
    cell = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    values = batch["values"].float()
    total = values.new_zeros(len(lengths)).index_add_(0, cell, values).clamp(min=1.0)
    return {**batch, "values": values * (TARGET_SUM / total)[cell]}


def prepare(folder: Path) -> None:
    """Write the chosen genes of every set as arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        known = SET_DEFAULTS[name]
        batch = known.get("batch_key")
        table = load_cells(name, batch_key=batch)
        if len(table.genes) > _GENES:
            table = load_cells(name, batch_key=batch, n_top_genes=_GENES, min_genes=1)
        matrix = table.counts.matrix
        np.savez_compressed(
            folder / f"{name}.npz", data=matrix.data.astype(np.int32), indices=matrix.indices, indptr=matrix.indptr,
            genes=np.array(table.genes), batch=table.batch, batches=np.array(table.batches),
        )  # fmt: skip
        table.obs.to_csv(folder / f"{name}.csv")


def read(folder: Path, name: str) -> CellTable:
    """Read what :func:`prepare` wrote."""
    with np.load(folder / f"{name}.npz") as arrays:
        shape = (len(arrays["indptr"]) - 1, len(arrays["genes"]))
        matrix = csr_matrix((arrays["data"].astype(np.float32), arrays["indices"], arrays["indptr"]), shape)
        genes, batches = tuple(arrays["genes"].tolist()), tuple(arrays["batches"].tolist())
        obs = pd.read_csv(folder / f"{name}.csv", index_col=0)
        return CellTable(name, Counts(matrix), genes, obs, arrays["batch"], batches)


def config_of(name: str, fields: dict[str, Any], device: str, seed: int) -> CellsConfig:
    """Return the configuration of a run on a set."""
    most = [f"{label}={_MOST}" for label in SET_DEFAULTS[name]["labels"]]
    return CellsConfig.make(data=name, device=device, seed=seed, max_cells=most, **{"n_top_genes": None, **fields})


def mixing(table: CellTable, embedding: Float[np.ndarray, "cells width"], label: str | None) -> dict[str, float]:
    """Return how well batches mix and types stay apart, as scIB's scores: each from 0 to 1, higher is better."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(embedding))[:_MIXED])
    points = embedding[chosen]
    batch = np.unique(table.obs[_MIXING.get(table.name, "donor")].astype(str).to_numpy()[chosen], return_inverse=True)[
        1
    ]
    near = NearestNeighbors(n_neighbors=_NEIGHBOURS + 1).fit(points).kneighbors(points, return_distance=False)[:, 1:]
    scores = {"ilisi": _lisi(batch, near)}
    if label is not None:
        kind = np.unique(table.obs[label].astype(str).to_numpy()[chosen], return_inverse=True)[1]
        scores["clisi"] = 1 - _lisi(kind, near)
        scores["asw_label"] = float((silhouette_samples(points, kind).mean() + 1) / 2)
        parts = []
        for value in np.unique(kind):
            own = kind == value
            if 1 < len(np.unique(batch[own])) < own.sum() - 1:
                parts.append(1 - np.abs(silhouette_samples(points[own], batch[own])).mean())
        scores["asw_batch"] = float(np.mean(parts)) if parts else float("nan")
    return scores


def _lisi(groups: np.ndarray, near: np.ndarray) -> float:
    """Return the inverse Simpson index of the neighbours' groups, scaled to 0 for one group and 1 for all alike."""
    shares = np.stack([(groups[near] == value).mean(1) for value in np.unique(groups)], 1)
    return float(((1 / (shares**2).sum(1)).mean() - 1) / max(1, shares.shape[1] - 1))


def _score(
    table: CellTable, config: CellsConfig, embedding: np.ndarray, splits: int = _SPLITS, *, mixed: bool = True
) -> list[Row]:
    label = config.data.labels[0]
    more = mixing(table, embedding, None if label == "condition" else label) if mixed else {}
    rows = []
    for split in range(splits):
        found = evaluate_embedding(table, embedding, config.replace(seed=split))
        names = [name for name in found if "spectral" not in name and "_donors_" not in name]
        rows.append({"split": split, **{name: found[name] for name in names}, **more})
    return rows


def baseline(folder: Path, name: str, kind: str, splits: int) -> list[Row]:
    """Score PCA of log-normalised expression, or this expression itself."""
    torch.set_num_threads(1)
    table, config = read(folder, name), config_of(name, {}, "cpu", 0)
    if kind == "pca":
        embedding = pca_embedding(table, seed=0)
    else:
        embedding = log_normalized_expression(table, np.arange(len(table)))
    return [{"set": name, "setting": kind, **row} for row in _score(table, config, embedding, splits)]


def scvi_at_its_defaults(folder: Path, name: str, seed: int, splits: int) -> list[Row]:
    """Score scVI as scvi-tools trains it by default: 128 units, 10 of them latent, and up to 400 passes."""
    import scvi

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    table = read(folder, name)
    scvi.settings.seed = seed
    begun = time.perf_counter()
    model = scvi.model.SCVI(scvi_data(table))
    model.train(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
    seconds = round(time.perf_counter() - begun, 2)
    embedding = model.get_latent_representation()
    known = {"set": name, "setting": "scvi at its defaults", "seed": seed, "train_seconds": seconds}
    return [{**known, **row} for row in _score(table, config_of(name, {}, "cpu", 0), embedding, splits)]


def readings_of(setting: Setting, step: int, steps: tuple[int, ...]) -> list[tuple[str, int]]:
    """Return how the model is read after a step, and under how many splits at most."""
    place = len(steps) - steps.index(step)
    if setting.wide:
        few = 2 if setting.fields["n_latent"] > 500 else _SPLITS
        return [("latent", few)] if place <= 2 else []
    if place in (1, 3):
        return [(name, _SPLITS) for name in _READINGS]
    return [("latent", _SPLITS)]


def trained(folder: Path, name: str, label: str, seed: int, splits: int) -> list[Row]:
    """Train a setting on a set, with the package's own steps, and read it as it goes."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    setting, table = SETTINGS[label], read(folder, name)
    device = "cuda" if setting.wide and torch.cuda.is_available() else "cpu"
    steps = _STEPS_OF.get(name, _STEPS)
    if setting.epochs is not None:
        steps = (round(setting.epochs * 0.9 * len(table) / setting.fields["batch_size"]),)
    config = config_of(name, {**setting.fields, "steps": max(steps), "ema": _AVERAGE}, device, seed)
    data = split_data(table, config)
    run = Run.resolve(config, InMemoryDomain(table))
    begun, spent, rows = time.perf_counter(), 0.0, []
    with keyed_torch(config.key):
        module, _ = build(run, data, fresh=True)
        if setting.normalised:
            module.task, module._training_task = (
                NormalisedTask(**vars(task)) for task in (module.task, module._training_task)
            )
        module.to(run.device).train()
        optimizer = module.make_optimizer()
        order = BatchOrder(len(data.train), config.optimizer.batch_size, module.total_steps, config.key)
        loader = make_loader(data.train, order, config.key.fold("batch"), device=run.device)
        for step, batch in enumerate(loader, 1):
            module.set_learning_rate(optimizer, step - 1)
            optimizer.zero_grad()
            with torch.autocast(run.device.type, torch.bfloat16, enabled=run.bf16, cache_enabled=False):
                loss = module(to_device(batch, run.device), step - 1, 0)
            loss.backward()
            module.complete_gradients()
            optimizer.step()
            module.end_step()
            if step in steps:
                paused = time.perf_counter()
                assert data.validation is not None
                losses = masked_losses(module.task, module.model, data.validation, _RATIOS, device=str(run.device))
                for reading, most in readings_of(setting, step, steps):
                    model = module.evaluation_model if "averaged" in reading else module.model
                    assert isinstance(module.task, GeneTask)
                    assert isinstance(model, CountModel)
                    task = HiddenLayerTask(**vars(module.task)) if "hidden" in reading else module.task
                    with re_estimated_statistics(task, model, data.train, wanted="as trained" not in reading):
                        embedding = embed_rows(task, model, table)
                    known = {"set": name, "setting": label, "seed": seed, "steps": step, "reading": reading}
                    known["validation"] = sum(losses) / len(losses)
                    found = _score(table, config, embedding, min(most, splits), mixed=" " not in reading)
                    rows += [{**known, **row} for row in found]
                spent += time.perf_counter() - paused
    seconds = round(time.perf_counter() - begun - spent, 2)
    return [{**row, "train_seconds": seconds, "score_seconds": round(spent, 2)} for row in rows]


def differences_from_pca(table: pd.DataFrame) -> pd.DataFrame:
    """Return the score of each training minus that of PCA, with a column for each set and a row for (setting, seed).

    It is the mean over the splits that both have, of the latent layer after about as many steps as training has by
    default.
    """
    read = table[table["reading"].isna() | (table["reading"] == "latent")]
    wanted = read["set"].map(_DEFAULT_STEPS)
    away = (read["steps"] - wanted).abs().fillna(0)
    run = ["set", "setting", "seed"]
    read = read[away == away.groupby([read[name].fillna(-1) for name in run]).transform("min")]
    pca = read.loc[read["setting"] == "pca", ["set", "split", "score"]]
    trained = read[read["seed"].notna()].merge(pca, on=["set", "split"], suffixes=("", "_of_pca"))
    trained["gain"] = trained["score"] - trained["score_of_pca"]
    return trained.pivot_table(index=["setting", "seed"], columns="set", values="gain")


def choose(table: pd.DataFrame) -> pd.DataFrame:
    """For each set, return the setting that is best on the others, and how that one does on the set left out.

    A setting's value is the mean over sets of the mean over seeds. Settings that some set lacks are left out, and so is
    scVI.
    """
    found = differences_from_pca(table)
    found = found[[not str(name).startswith("scvi") for name, _ in found.index]]
    means = found.groupby(level="setting").mean().dropna()
    rows = []
    for name in means.columns:
        others = means.drop(columns=name).mean(axis=1)
        chosen = others.idxmax()
        here = found.xs(chosen)[name].dropna()
        half = t.ppf(0.975, len(here) - 1) * here.std() / len(here) ** 0.5
        second = others.drop(chosen).nlargest(1)
        rows.append(
            {
                "left out": name, "chosen": chosen, "on the others": others[chosen], "second": second.index[0],
                "second on the others": second.iloc[0], "here": means.loc[chosen, name], "half of 95 %": half,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def main(arguments: list[str]) -> None:
    """Run the command of this module."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("prepare", help="write the sets as arrays")
    command.add_argument("folder", type=Path)
    command = commands.add_parser("choose", help="print what would be chosen without each of the sets")
    command.add_argument("table", type=Path, help="that run wrote")
    command = commands.add_parser("run", help="train, measure, and write a table")
    command.add_argument("folder", type=Path, help="that prepare wrote")
    command.add_argument("out", type=Path, help="the table, a .csv file")
    command.add_argument("--jobs", type=int, default=16)
    command.add_argument("--seeds", type=int, default=2)
    command.add_argument("--splits", type=int, default=_SPLITS)
    command.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    command.add_argument("--settings", nargs="+", default=[*SETTINGS], choices=[*SETTINGS])
    command.add_argument("--baselines", nargs="*", default=["pca", "expression"], choices=["pca", "expression", "scvi"])
    given = parser.parse_args(arguments)
    if given.command == "prepare":
        prepare(given.folder)
        return
    if given.command == "choose":
        if not given.table.is_file():
            parser.error(f"no such file: {given.table}; name the table that run wrote")
        table = pd.read_csv(given.table)
        print(choose(table).to_string(index=False, float_format="{:+.4f}".format))
        print(differences_from_pca(table).groupby("setting").mean().to_string(float_format="{:+.4f}".format))
        return
    if missing := [name for name in given.sets if not (given.folder / f"{name}.npz").is_file()]:
        parser.error(f"{given.folder} has no {missing[0]}.npz: make it with prepare, or name other --sets")
    jobs: list[tuple[Any, ...]] = [
        (baseline, given.folder, name, kind, given.splits)
        for kind in given.baselines
        if kind != "scvi"
        for name in given.sets
    ]
    if "scvi" in given.baselines:
        jobs += [
            (scvi_at_its_defaults, given.folder, name, seed, given.splits)
            for seed in range(given.seeds)
            for name in given.sets
        ]
    jobs += [
        (trained, given.folder, name, label, seed, given.splits)
        for seed in range(given.seeds)
        for name in given.sets
        for label in given.settings
    ]
    begun, rows = time.perf_counter(), []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        futures = {pool.submit(*job): job for job in jobs}
        for done, future in enumerate(as_completed(futures), 1):
            rows += future.result()
            print(f"{done}/{len(futures)} {time.perf_counter() - begun:.0f}s", *futures[future][2:], flush=True)
            columns = list(dict.fromkeys(name for row in rows for name in row))
            with atomic_write(given.out) as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
