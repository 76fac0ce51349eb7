"""Imputers on tables of scikit-learn whose entries are missing at random.

    python paper/results/imputers/compare.py

Writes `imputers.csv` next to this file: a line for each table, seed and imputer, with its mean squared error over the
missing entries, in units of each column's standard deviation. A seed draws the missing entries, and is the imputers'.
"""

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler

from r2mae.integrations.sklearn import MaskedAutoencoderImputer

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
from imputation import GaussianImputer

SEEDS = 5
TABLES = {  # and the shares of entries that are missing
    "digits": (load_digits, (0.5, 0.8)),
    "breast cancer": (load_breast_cancer, (0.5,)),
    "wine": (load_wine, (0.3,)),
    "diabetes": (load_diabetes, (0.3,)),
}


def imputers(seed: int) -> dict[str, Any]:
    """Return the imputers by name."""
    return {
        "mean": SimpleImputer(keep_empty_features=True),
        "KNNImputer": KNNImputer(keep_empty_features=True),
        "IterativeImputer": IterativeImputer(keep_empty_features=True, random_state=seed),
        "IterativeImputer, 20 nearest, 5 rounds": IterativeImputer(
            n_nearest_features=20, max_iter=5, keep_empty_features=True, random_state=seed
        ),
        "Gaussian": GaussianImputer(),
        "MaskedAutoencoderImputer": MaskedAutoencoderImputer(random_state=seed),
    }


def main() -> None:
    """Measure every imputer on every table, and write the errors."""
    rows = []
    for name, (load, shares) in TABLES.items():
        x = load().data
        x = StandardScaler().fit_transform(x[:, x.std(axis=0) > 0])
        for share in shares:
            for seed in range(SEEDS):
                hidden = np.random.default_rng(seed).random(x.shape) < share
                seen = np.where(hidden, np.nan, x)
                for imputer, model in imputers(seed).items():
                    begun = time.perf_counter()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ConvergenceWarning)
                        filled = model.fit_transform(seen)
                    error = float(((filled - x)[hidden] ** 2).mean())
                    known = {"table": name, "missing": share, "seed": seed, "imputer": imputer}
                    rows.append({**known, "error": f"{error:.4f}", "seconds": f"{time.perf_counter() - begun:.1f}"})
                    print(*rows[-1].values(), flush=True)
    pd.DataFrame(rows).to_csv(Path(__file__).with_name("imputers.csv"), index=False)


if __name__ == "__main__":
    main()
