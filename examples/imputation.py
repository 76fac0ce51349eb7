"""Fill in the missing entries of a table by a masked autoencoder, a Gaussian, and the imputers of scikit-learn.

    python examples/imputation.py --table mine.csv --out filled.csv

Empty cells (NaN) in columns of numbers are filled in, and other columns stay. First a tenth of the known entries is
hidden from all imputers to measure them: the error is the mean square in units of each column's standard deviation,
about 1 for the mean. The table is then filled in by the best. Without --table: the breast cancer data of scikit-learn,
half of them missing.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler

from r2mae.integrations.sklearn import MaskedAutoencoderImputer

MOST_COLUMNS, MOST_ROWS = 300, 20_000  # for the Gaussian, which solves a system for each row


class GaussianImputer:
    """The conditional mean under one Gaussian, fitted to the known entries by expectation-maximisation.

    The prior of the covariance counts as many rows of independent columns as there are columns.
    """

    def fit_transform(self, x: np.ndarray, rounds: int = 50) -> np.ndarray:
        """Return the table with its missing entries filled in."""
        n, d = x.shape
        known = ~np.isnan(x)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, x, 0.0).sum(axis=0) / count
        scale = np.sqrt((np.where(known, x - mean, 0.0) ** 2).sum(axis=0) / count)
        scale[scale == 0] = 1.0
        x = (x - mean) / scale
        filled, centre, cov = np.where(known, x, 0.0), np.zeros(d), np.eye(d)
        for _ in range(rounds):
            spread = d * np.eye(d)
            for i in range(n):
                o, h = known[i], ~known[i]
                weights = np.linalg.solve(cov[np.ix_(o, o)], cov[np.ix_(o, h)])
                filled[i, h] = centre[h] + (x[i, o] - centre[o]) @ weights
                spread[np.ix_(h, h)] += cov[np.ix_(h, h)] - cov[np.ix_(h, o)] @ weights
            centre = filled.mean(axis=0)
            cov = ((filled - centre).T @ (filled - centre) + spread) / (n + d)
        return filled * scale + mean


def read_table(file: Path | None, rng: np.random.Generator) -> pd.DataFrame:
    """Return a table with NaN."""
    if file is not None:
        return pd.read_csv(file)
    table: pd.DataFrame = load_breast_cancer(as_frame=True).data
    return table.mask(rng.random(table.shape) < 0.5)


def main() -> None:
    """Compare imputers, and fill in the table by the best one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="a CSV file with a header")
    parser.add_argument("--out", type=Path, default=Path("filled.csv"))
    parser.add_argument("--steps", type=int, default=3000, help="fewest optimiser steps of the autoencoder")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    rng = np.random.default_rng(given.seed)
    table = read_table(given.table, rng)
    columns = table.select_dtypes("number").dropna(axis="columns", how="all").columns
    scaler = StandardScaler().fit(table[columns].to_numpy(float))
    known = scaler.transform(table[columns].to_numpy(float))
    print(f"{len(known):,} rows, {len(columns)} columns of numbers, {np.isnan(known).mean():.0%} missing")

    places = np.flatnonzero(~np.isnan(known))
    hidden = np.zeros(known.shape, dtype=bool)
    hidden.flat[rng.choice(places, max(1, len(places) // 10), replace=False)] = True
    seen = np.where(hidden, np.nan, known)
    imputers: dict[str, Any] = {
        "mean": SimpleImputer(keep_empty_features=True),
        "k-nearest neighbours": KNNImputer(keep_empty_features=True),
        "IterativeImputer": IterativeImputer(
            n_nearest_features=20, max_iter=5, keep_empty_features=True, random_state=given.seed
        ),
        "Gaussian": GaussianImputer(),
        "MaskedAutoencoderImputer": MaskedAutoencoderImputer(min_steps=given.steps, random_state=given.seed),
    }
    if len(columns) > MOST_COLUMNS or len(known) > MOST_ROWS:
        del imputers["Gaussian"]
    errors = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of IterativeImputer: five rounds
        for name, imputer in imputers.items():
            errors[name] = float(((imputer.fit_transform(seen) - known)[hidden] ** 2).mean())
            print(f"{name}: error {errors[name]:.3f}")
        best = min(errors, key=lambda name: errors[name])
        table[columns] = scaler.inverse_transform(imputers[best].fit_transform(known))
    table.to_csv(given.out, index=False)
    print(f"{given.out} is filled in by {best}")


if __name__ == "__main__":
    main()
