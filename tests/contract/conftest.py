"""One entry per domain: data and sizes with which its contract is tested in seconds; registries say the rest."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from checkpoints import checkpoint
from r2mae.domains.base import Domain
from r2mae.domains.lookup import get_domain
from r2mae.registry import BUILT_IN, DOMAINS
from r2mae.training.config import RunConfig
from r2mae.training.loop import fit
from r2mae.training.saving import load_model

PAGE = Path(__file__).parents[2] / "docs" / "add-a-domain.md"


def other_numbers(batch: Tensor, hidden: Tensor) -> Tensor:
    """Return a batch with another number at every hidden place."""
    other = 255 - batch if batch.dtype == torch.uint8 else batch + 1
    return torch.where(hidden.reshape(batch.shape), other, batch)


def other_pixels(batch: Tensor, hidden: Tensor) -> Tensor:
    """Return images with other numbers wherever a pixel, or the patch it is in, is hidden."""
    if hidden.numel() != batch.numel():  # square patches, row by row
        side = round((batch[0, ..., 0].numel() / hidden.shape[1]) ** 0.5)
        grid = hidden.view(len(batch), batch.shape[1] // side, -1, 1)
        hidden = grid.repeat_interleave(side, 1).repeat_interleave(side, 2).expand(batch.shape)
    # Halved rather than turned round: patches that are normalised would only change their sign.
    other = batch // 2 + (torch.arange(batch[0].numel()).view(batch[0].shape) % 7 * 9).to(batch.dtype)
    return torch.where(hidden.reshape(batch.shape), other, batch)


@dataclass(frozen=True)
class Entry:
    """What the contract cannot know of a domain by itself.

    Parameters
    ----------
    write : callable
        Writes a few samples into a folder and returns what a run takes as `data`.
    samples : int
        How many there are for `embed`.
    fields : mapping
        Of the configuration, for short runs.
    sizes : mapping
        Settings of models by their name, to keep them small; a model that is not named has its own defaults.
    changed : callable
        ``changed(batch, hidden)`` is the batch with other values wherever something is hidden.
    made : mapping of str to callable
        For a model that needs files: ``made[model](folder)`` writes them, and returns fields of the configuration.
    hiding : mapping
        Values of the architecture with which the model sees nothing of what is hidden, where there are others.
    module : callable, optional
        For a domain that is not registered: makes it, and returns where it lives.
    variants : mapping of str to (str, mapping)
        Models with further fields of the configuration, by a label: what differs with them is tried, too.
    """

    write: Callable[[Path], str]
    samples: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: Callable[[Any, Tensor], Any] = other_numbers
    made: Mapping[str, Callable[[Path], Mapping[str, Any]]] = field(default_factory=dict)
    hiding: Mapping[str, Any] = field(default_factory=dict)
    module: Callable[[], str] | None = None
    variants: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)


def write_images(folder: Path) -> str:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = rng.integers(0, 128, (60, 4, 4, 1)) + 60 * labels[:, None, None, None]
    np.savez(folder / "images.npz", images=images.astype(np.uint8), labels=labels)
    return str(folder / "images.npz")


def write_cells(folder: Path) -> str:
    import anndata
    from scipy.sparse import csr_matrix

    cells, rng = np.arange(90), np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.5, 4.0, (3, 30))[cells % 3]).astype(np.float32)
    counts[cells, cells % 30] += 1
    obs = {
        "kind": np.array(["B", "NK", "T"])[cells % 3],
        "donor": [f"d{cell % 6}" for cell in cells // 3],
        "age": 30.0 + 5 * (cells // 3 % 6),
    }
    made = anndata.AnnData(
        csr_matrix(counts),
        pd.DataFrame(obs, index=[f"c{cell}" for cell in cells]),
        pd.DataFrame(index=[f"g{gene}" for gene in range(30)]),
    )
    made.write_h5ad(folder / "cells.h5ad")
    return str(folder / "cells.h5ad")


def other_counts(batch: Mapping[str, Tensor], hidden: Tensor) -> dict[str, Tensor]:
    """Return cells with one more count of every hidden gene."""
    from r2mae.cells.task import dense

    counts = dense(batch, hidden.shape[1]) + hidden
    cell, gene = counts.nonzero(as_tuple=True)
    ends = torch.bincount(cell, minlength=len(counts)).cumsum(0)
    changed = {"indptr": torch.cat([ends.new_zeros(1), ends]), "indices": gene, "values": counts[cell, gene]}
    return {**batch, **{name: value.to(batch[name].dtype) for name, value in changed.items()}}


def write_text(folder: Path) -> str:
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    first = np.random.default_rng(0).integers(0, 10, 60)
    texts = [" ".join(words[(start + i) % 10] for i in range(30)) for start in first]
    (folder / "corpus.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return str(folder / "corpus.txt")


def write_bert(folder: Path) -> dict[str, Any]:
    """Write a random checkpoint, unless it is there."""
    if not (folder / "bert").exists():
        checkpoint("Bert", folder / "bert", hidden_dropout_prob=0.1)
    return {"init": str(folder / "bert")}


def other_tokens(batch: Tensor, hidden: Tensor) -> Tensor:
    """Return rows with one or the other of two ordinary tokens in every hidden place."""
    return torch.where(hidden, 40 + (batch == 40).to(batch.dtype), batch)


def write_genome(folder: Path) -> str:
    from r2mae.genome import build_store

    rng = np.random.default_rng(0)
    reference = rng.choice(list("ACGT"), 640)
    rows = [reference, *(np.where(rng.random(640) < 0.8, reference, rng.choice(list("ACGT-N"), 640)) for _ in range(3))]
    text = "".join(f">species{number}\n{''.join(row)}\n" for number, row in enumerate(rows))
    (folder / "aligned.fa").write_text(text, encoding="utf-8")
    return str(build_store(folder / "aligned.fa", folder / "store").folder)


def other_bases(batch: Mapping[str, Tensor], hidden: Tensor) -> dict[str, Tensor]:
    """Return windows with another base of the target in every hidden place."""
    target = batch["target"]
    return {**batch, "target": torch.where(hidden.view(target.shape), (target + 1) % 4, target)}


def domain_of_the_page() -> str:
    """Make a module of the code on the page, up to the section that uses it."""
    text = PAGE.read_text(encoding="utf-8").split("\n## Use it")[0]
    module = ModuleType("domain_of_the_page")
    if module.__name__ not in sys.modules:
        sys.modules[module.__name__] = module
        exec("\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)), module.__dict__)
    return module.__name__


ENTRIES = {
    "images": Entry(
        write_images,
        samples=60,
        fields={"batch_size": 16},
        sizes={
            "mlp": {"hidden": 8, "latent": 4},
            "unet": {"channels": 2},
            "toy": {"latent": 3},
            "vit-mae": {
                "patch": 2,
                "width": 8,
                "layers": 1,
                "heads": 2,
                "decoder_width": 8,
                "decoder_layers": 2,
                "decoder_heads": 2,
            },
        },
        changed=other_pixels,
        variants={f"{name} on a Gaussian": (name, {"fill": "gaussian"}) for name in ("mlp", "unet")},
    ),
    "cells": Entry(
        write_cells,
        samples=90,
        fields={"batch_size": 30, "labels": ("kind",), "regress": ("age",), "donor_key": "donor"},
        sizes={"mlp": {"n_hidden": 16, "n_latent": 4}},
        changed=other_counts,
    ),
    "text": Entry(
        write_text,
        samples=60,
        fields={"batch_size": 8, "vocab_size": 300, "sequence_length": 16, "validation": 0.1},
        sizes={"roberta": {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 32}},
        changed=other_tokens,
        made={"pretrained": write_bert},
        hiding={"corruption": "mask"},  # of "80-10-10" the model sees a tenth of the hidden tokens, as it should
    ),
    "genome": Entry(
        write_genome,
        samples=40,
        fields={"batch_size": 8, "window": 16, "stride": 4},
        sizes={"gpn-msa": {"width": 16, "layers": 2, "heads": 2, "inner": 16}},
        changed=other_bases,
        hiding={"corruption": "mask"},  # as for text
    ),
    "waves": Entry(lambda folder: "sines", samples=200, fields={"batch_size": 32}, module=domain_of_the_page),
}


def entry_of(name: str) -> Entry:
    """Return the entry of a domain."""
    if name not in ENTRIES:
        pytest.fail(f"the domain {name!r} has no entry in tests/contract/conftest.py: add one, with its data and sizes")
    return ENTRIES[name]


@contextmanager
def known(name: str) -> Iterator[None]:
    """Register the domain for a while, where its entry brings it along."""
    entry = ENTRIES.get(name)
    if entry is None or entry.module is None or name in DOMAINS:
        yield
        return
    BUILT_IN[name] = f"{entry.module()}:DOMAIN"
    try:
        yield
    finally:
        del BUILT_IN[name]


def cases() -> list[tuple[str, str]]:
    """Return every domain with each of its models and variants; one without a registry of models has an empty name."""
    found = []
    for name in dict.fromkeys([*DOMAINS, *ENTRIES]):
        with known(name):
            found += [(name, model) for model in get_domain(name).config.models or {"": ""}]
            found += [(name, label) for label in entry_of(name).variants]
    return found


VARIANTS = [(name, label) for name, entry in ENTRIES.items() for label in entry.variants]


@dataclass(frozen=True)
class Case:
    """A domain with one of its models, and data that are read once.

    Parameters
    ----------
    domain : Domain
    model : str
        Its name, or the label of a variant; empty where the domain has no registry of models.
    entry : Entry
    source : str
        The data.
    folder : Path
        For what all tests of the case share.
    """

    domain: Domain
    model: str
    entry: Entry
    source: str
    folder: Path

    def config(self, **fields: Any) -> RunConfig:
        """Return the configuration of a short run."""
        model, more = self.entry.variants.get(self.model, (self.model, {}))
        values = {"data": self.source, "threads": 1, "device": "cpu", **self.entry.fields, **more, **fields}
        values |= self.entry.made.get(model, lambda folder: {})(self.folder)
        if model:
            values["model"] = {"name": model, **self.entry.sizes.get(model, {})}
        return self.domain.config.make(**values)

    @cached_property
    def data(self) -> Any:
        """What the domain loads."""
        return self.domain.load(self.config())

    @cached_property
    def unmoved(self) -> dict[str, Tensor]:
        """The parameters after a step that is too small to move them: as they are at first."""
        fit(self.config(steps=1, lr=1e-30), self.domain, self.folder / "unmoved", data=self.data)
        return dict(load_model(self.folder / "unmoved", self.domain)[2].named_parameters())

    @cached_property
    def finished(self) -> tuple[RunConfig, Any, nn.Module]:
        """Configuration, task and model of a finished run."""
        fit(self.config(steps=2), self.domain, self.folder / "finished", data=self.data)
        return load_model(self.folder / "finished", self.domain, unmasked=True)


@contextmanager
def made(name: str, model: str, folder: Path) -> Iterator[Case]:
    """Make a case; the folder has its data, which are written once, and the caches of its domain."""
    entry, source = entry_of(name), folder / "source.txt"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with known(name), pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MAE_CACHE", str(folder / "cache"))
        if not source.exists():
            source.write_text(entry.write(folder), encoding="utf-8")
        yield Case(get_domain(name), model, entry, source.read_text(encoding="utf-8"), folder)
    torch.set_num_threads(threads)


@pytest.fixture(
    scope="module",
    params=[one for one in cases() if one not in VARIANTS],
    ids=lambda pair: " ".join(pair).strip(),
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """Every domain with every model."""
    with made(*request.param, tmp_path_factory.mktemp(request.param[0])) as one:
        yield one


@pytest.fixture(scope="module", params=VARIANTS, ids=" ".join)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """Every variant of a model."""
    with made(*request.param, tmp_path_factory.mktemp("variant")) as one:
        yield one


def by_two_processes(
    folder: Path, runs: Sequence[Mapping[str, Any]], *, timeout: float
) -> "subprocess.CompletedProcess[str]":
    """Let two processes of torchrun train runs, one after the other; see `two_processes.py`."""
    plan = folder / "runs.json"
    plan.write_text(json.dumps(list(runs)))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*launcher, str(Path(__file__).with_name("two_processes.py")), str(plan)],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        check=False, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
