"""Training on counts, compared with SCVI of scvi-tools (same counts, sizes, batch and optimiser) and with a bound.

The contenders take turns. The bound is the time for the matrix products of a step alone, at the rate measured on the
machine. It counts the first layer as dense, where ours looks at counts above zero alone. SCVI does more work: it has
two heads in its encoder where ours has one, it reads all genes, and it has an output that the negative binomial does
not use. With `--stock` its decoder also has as many layers as its encoder.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from benchmarks.timing import alternate, ratio_of
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN, CellsDomain
from r2mae.masking import Key
from r2mae.masking.masks import hidden_count
from r2mae.training import task
from r2mae.training.loop import fit

WARM_UP = 5


class Batches(task.Batches):
    """Rows of a sparse matrix, with the times at which they were requested."""

    def __init__(self, counts: sparse.csr_matrix) -> None:
        self.counts = counts
        self.times: list[float] = []

    def __len__(self) -> int:
        return self.counts.shape[0]

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> dict[str, torch.Tensor]:
        self.times.append(time.perf_counter())
        rows = self.counts[np.asarray(indices)]
        arrays = {"indptr": rows.indptr.astype(np.int64), "indices": rows.indices, "values": rows.data}
        return {name: torch.from_numpy(array) for name, array in arrays.items()} | {
            "batch": torch.zeros(len(indices), dtype=torch.int64)
        }

    @property
    def seconds_a_step(self) -> float:
        """Median over the steps after the warm-up."""
        return float(np.median(np.diff(self.times)[WARM_UP:]))


class Data(task.Data):
    """The data for `fit`."""

    validation = None

    def __init__(self, counts: sparse.csr_matrix) -> None:
        self.train = Batches(counts)
        genes = [f"g{i}" for i in range(counts.shape[1])]
        self.architecture: dict[str, Any] = {"model": "mlp", "genes": genes, "batches": ["all"]}


class Domain(CellsDomain):
    """The domain `cells` with counts from memory instead of a file."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def fingerprint(self, config: CellsConfig) -> str:
        return "synthetic"

    def load(self, config: CellsConfig) -> Any:
        return self.data


def synthetic(cells: int, genes: int, density: float) -> sparse.csr_matrix:
    """Draw gamma-Poisson counts with log-normal gene means, of about this density."""
    rng = np.random.default_rng(0)
    means = rng.lognormal(0, 1.5, genes)
    low, high = 1e-6, 1e3
    for _ in range(60):  # bisection for the scale at which P(count = 0) = 1 − density on average
        scale = (low * high) ** 0.5
        low, high = (scale, high) if (1 - (1 + means * scale) ** -1.0).mean() < density else (low, scale)
    blocks = []
    for first in range(0, cells, 1000):
        rate = means * scale * rng.gamma(1.0, 1.0, (min(1000, cells - first), genes))
        blocks.append(sparse.csr_matrix(rng.poisson(rate).astype(np.float32)))
    return sparse.vstack(blocks, format="csr")


def paper_config(steps: int, scheme: str = "r2mae") -> CellsConfig:
    """Return the paper's sizes, batch and decay for so many steps."""
    fixed = {"data": "synthetic", "save_every": 10**6, "precision": "32"}
    return CellsConfig.make(**{**DOMAIN.presets["paper"], **fixed, "steps": steps, "scheme": scheme})


def ours(config: CellsConfig, counts: sparse.csr_matrix) -> float:
    """Train through `fit`; return seconds per step."""
    data = Data(counts)
    data.architecture |= {"n_hidden": config.model.n_hidden, "n_latent": config.model.n_latent}
    with tempfile.TemporaryDirectory() as folder:
        fit(config, Domain(data), Path(folder) / "run")
    return data.train.seconds_a_step


def scvi_model(config: CellsConfig, counts: sparse.csr_matrix, *, stock: bool) -> Any:
    """Make SCVI with our sizes: two hidden layers in the encoder, and one in the decoder unless `stock`."""
    import anndata
    import scvi
    from scvi.nn import DecoderSCVI

    adata = anndata.AnnData(counts)
    scvi.model.SCVI.setup_anndata(adata)
    model = scvi.model.SCVI(
        adata,
        n_hidden=config.model.n_hidden,
        n_latent=config.model.n_latent,
        n_layers=2,
        dropout_rate=0.0,
        gene_likelihood="nb",
    )
    if not stock:
        model.module.decoder = DecoderSCVI(
            config.model.n_latent, counts.shape[1], n_cat_list=[1], n_layers=1, n_hidden=config.model.n_hidden
        )
    return model


def scvi_tools(config: CellsConfig, counts: sparse.csr_matrix, *, stock: bool) -> float:
    """Train SCVI by its own `train`; return seconds per step."""
    import logging
    import warnings

    from lightning.pytorch import Callback

    times: list[float] = []

    class Clock(Callback):
        def on_train_batch_start(self, *arguments: Any) -> None:
            times.append(time.perf_counter())

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model = scvi_model(config, counts, stock=stock)
    steps = config.optimizer.steps or 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.train(
            max_epochs=-(-steps * config.optimizer.batch_size // counts.shape[0]),
            accelerator="cpu",
            batch_size=config.optimizer.batch_size,
            train_size=1.0,
            plan_kwargs={"lr": config.optimizer.lr, "weight_decay": config.optimizer.weight_decay},
            enable_progress_bar=False,
            callbacks=[Clock()],
        )
    return float(np.median(np.diff(times)[WARM_UP:]))


def products(config: CellsConfig, genes: int, ratio: float) -> list[tuple[int, int, int]]:
    """Return (m, k, n) of all matrix products of a training step: forward, by the weights, and by the inputs."""
    b, h, z, kept = (
        config.optimizer.batch_size,
        config.model.n_hidden,
        config.model.n_latent,
        genes - hidden_count(genes, ratio),
    )
    layers = [(kept, h), (h, h), (h, z), (z, h), (h, genes)]
    shapes = [(b, i, o) for i, o in layers] + [(i, b, o) for i, o in layers]
    return shapes + [(b, o, i) for i, o in layers[1:]]  # no gradient with respect to the counts is needed


def matrix_rate() -> float:
    """Measure multiply-adds per second in the largest product of the step, 400 × 2000 × 5000."""
    a, b = torch.rand(400, 2000), torch.rand(2000, 5000)
    out = torch.empty(400, 5000)
    times = []
    for _ in range(12):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        times.append(time.perf_counter() - began)
    return a.shape[0] * b.shape[0] * b.shape[1] / float(np.median(times[2:]))


def bound(config: CellsConfig, genes: int) -> float:
    """Measure the rate, and return the seconds for the products of a step at this rate, as a mean over the ratios."""
    ratio = DOMAIN.config.make(data="x", scheme=config.scheme).scheme.make().bind(config.optimizer.steps or 1).ratio
    key = Key.root(config.seed).fold("ratio")
    work = [
        sum(m * k * n for m, k, n in products(config, genes, ratio(step, key)))
        for step in range(config.optimizer.steps or 1)
    ]
    return float(np.median(work)) / matrix_rate()


def main(argv: Sequence[str] | None = None) -> int:
    """Print cells per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=4000)
    parser.add_argument("--genes", type=int, default=5000)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stock", action="store_true", help="SCVI with its default decoder of two hidden layers")
    parser.add_argument("--scheme", default="r2mae")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    counts = synthetic(options.cells, options.genes, options.density)
    config = paper_config(options.steps, options.scheme)
    contenders = {
        "matrix products alone": lambda: bound(config, options.genes),
        "r2mae": lambda: ours(config, counts),
        "r2mae, bf16": lambda: ours(config.replace(precision="bf16"), counts),
    }
    if find_spec("scvi") is None:
        print("scvi-tools is missing, so that there is no comparison: pip install r2mae[scvi]", file=sys.stderr)
    else:
        contenders["SCVI"] = lambda: scvi_tools(config, counts, stock=options.stock)
    times = alternate(contenders, options.rounds)
    print(
        f"{options.genes} genes, {counts.nnz / np.prod(counts.shape):.1%} above zero, hidden {config.model.n_hidden}, "
        f"latent {config.model.n_latent}, batch {config.optimizer.batch_size}, {options.steps} steps x "
        f"{options.rounds} rounds, {options.threads} threads, scheme {config.scheme}"
    )
    for name, timing in times.items():
        ratio, spread = ratio_of(timing, times["r2mae"])
        print(
            f"{name:22} {1e3 * timing.median:7.1f} ms/step (± {1e3 * timing.spread:.1f})  "
            f"{config.optimizer.batch_size / timing.median:7.0f} cells/s   "
            f"this / r2mae in time: {ratio:.2f} ± {spread:.2f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
