"""Train a masked autoencoder on your cells with random mask ratios, embed and denoise them, then add a new data set.

    python examples/cells.py --cells atlas.h5ad --batch-key donor --query new.h5ad --out runs/cells

Counts must be raw: in X, or in a layer named with --layer. The query may have other genes, which are mapped by name.
Without files, cells are simulated. Needs `pip install '.[cells]'`.
"""

import argparse
from pathlib import Path

import anndata
import numpy as np
import pandas as pd

from r2mae.cells import MaskedAutoencoder


def simulate(cells: int, batches: list[str], seed: int, types: int = 4, genes: int = 200) -> anndata.AnnData:
    """Draw counts of some cell types, which all data sets share; each batch measures its genes with other rates."""
    rng, shared = np.random.default_rng(seed), np.random.default_rng(0)
    profiles = shared.gamma(0.5, 1.0, (types, genes))
    kind, batch = rng.integers(0, types, cells), np.arange(cells) % len(batches)
    rates = profiles[kind] * rng.lognormal(0, 0.3, (len(batches), genes))[batch] * rng.lognormal(0, 0.3, (cells, 1))
    obs = pd.DataFrame({"type": kind.astype(str), "batch": np.array(batches)[batch]})
    obs.index = [f"{batches[0]}-{cell}" for cell in range(cells)]
    return anndata.AnnData(
        rng.poisson(rates).astype(np.float32), obs=obs, var=pd.DataFrame(index=[f"gene{gene}" for gene in range(genes)])
    )


def main() -> None:
    """Train, embed, denoise and map a query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, help="your .h5ad file")
    parser.add_argument("--query", type=Path, help="an .h5ad file of other batches")
    parser.add_argument("--batch-key", default="batch", help="column of obs with the batch")
    parser.add_argument("--layer", help="layer of raw counts; by default X")
    parser.add_argument("--out", type=Path, default=Path("runs/cells"))
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--hidden", type=int, default=256, help="width of the hidden layers")
    given = parser.parse_args()

    adata = anndata.read_h5ad(given.cells) if given.cells else simulate(1000, ["a", "b"], seed=1)
    MaskedAutoencoder.setup_anndata(adata, layer=given.layer, batch_key=given.batch_key)
    model = MaskedAutoencoder(
        adata,
        n_hidden=given.hidden,
        n_latent=max(2, given.hidden // 4),
        scheme="r2mae-per-sample",  # each cell has a ratio from U(low, high), and hides other genes
        low=0.1,
        high=0.5,
        norm="layer",  # batch statistics of mixed ratios would not fit any single one
    )
    model.train(given.epochs, batch_size=100)
    adata.obsm["X_r2mae"] = model.get_latent_representation()  # then scanpy.pp.neighbors(adata, use_rep="X_r2mae")

    gene = adata.var_names[0]
    for ratio in (0.0, 0.25):  # seen by the model, and predicted from the other genes alone
        frame = model.get_normalized_expression(genes=gene, library_size=1e4, mask_ratio=ratio)
        print(f"{gene}: {frame[gene].mean():.1f} of 10,000 counts, {frame.attrs['hidden']:.0%} of the genes hidden")

    given.out.mkdir(parents=True, exist_ok=True)
    model.save(given.out / "model", overwrite=True)
    adata.write_h5ad(given.out / "cells.h5ad")
    if given.cells and not given.query:
        return
    query = anndata.read_h5ad(given.query) if given.query else simulate(300, ["c"], seed=2)[:, 20:].copy()
    mapped = MaskedAutoencoder.load_query_data(query, given.out / "model")  # genes by name, missing ones hidden
    mapped.train(given.epochs, batch_size=100, lr=0.01)  # the decoder's weights of the new batches alone
    query.obsm["X_r2mae"] = mapped.get_latent_representation()
    query.write_h5ad(given.out / "query.h5ad")
    print(f"{query.n_obs:,} cells of the query are embedded as the {adata.n_obs:,} of the model, in {given.out}")


if __name__ == "__main__":
    main()
