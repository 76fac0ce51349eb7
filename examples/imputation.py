"""Fill in the missing entries of a table by a Gaussian, masked autoencoders, and the imputers of scikit-learn.

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

from r2mae.integrations.sklearn import GaussianImputer, MaskedAutoencoderImputer


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
    parser.add_argument("--epochs", type=int, default=100, help="most passes of the autoencoders over the rows")
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
        "GaussianImputer": GaussianImputer(keep_empty_features=True, random_state=given.seed),
        "MaskedAutoencoderImputer": MaskedAutoencoderImputer(
            max_epochs=given.epochs, keep_empty_features=True, random_state=given.seed
        ),
    }
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
