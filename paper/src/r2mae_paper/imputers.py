"""Imputers of tables: errors of ours and of others on real tables whose entries are hidden in three ways.

Tables are those that lie in scikit-learn and statsmodels. Rows and hidden entries are drawn by the seed. The error is
the mean square at hidden entries, in units of each column's standard deviation in the drawn rows.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from sklearn import datasets
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from threadpoolctl import threadpool_limits

from r2mae.errors import UserError
from r2mae.evaluation.statistics import paired_difference
from r2mae_paper.rows import TableRow, Tables, difference_columns, joined
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Parts, Study

OURS, GAUSSIAN = "autoencoder", "gaussian"
Table: TypeAlias = Float[np.ndarray, "rows columns"]


def load(name: str) -> Table:
    """Return the columns of numbers of a table that do not have one value only, without incomplete rows."""
    if name == "digits":  # 8 × 8 pixels, by means of four
        x = datasets.load_digits().images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    elif hasattr(datasets, f"load_{name}"):
        x = getattr(datasets, f"load_{name}")().data
    else:
        import statsmodels.datasets as more

        table = getattr(more, name).load_pandas().data.select_dtypes("number")
        x = table.dropna(axis="columns", how="all").dropna().to_numpy(float)
    return np.asarray(x[:, x.std(axis=0) > 0], dtype=np.float64)


def drawn(whole: Float[np.ndarray, "all every"], seed: int, rows: int, columns: int) -> Table:
    """Return a sample of the rows, and columns at equal distances; standardised."""
    rng = np.random.default_rng([seed, 1])
    x = whole[np.sort(rng.choice(len(whole), min(rows, len(whole)), replace=False))]
    x = x[:, x.std(axis=0) > 0]
    x = x[:, np.unique(np.linspace(0, x.shape[1] - 1, columns).astype(int))]
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def hide(x: Table, mechanism: str, share: float, seed: int) -> Bool[np.ndarray, "rows columns"]:
    """Return hidden entries.

    ``random``: each with the same probability. ``high``: with a probability that grows with the rank of the value
    in its column, from 0 to twice the share. ``blocks``: columns are in three groups, drawn at random, and a row
    lacks each group with the same probability. A column keeps at least two entries.
    """
    rng = np.random.default_rng([seed, 2])
    n, d = x.shape
    if mechanism == "blocks":
        hidden = (rng.random((n, 3)) < share)[:, rng.permutation(d) % 3]
    else:
        rank = (x.argsort(axis=0).argsort(axis=0) + 0.5) / n
        hidden = rng.random((n, d)) < (share if mechanism == "random" else 2 * share * rank)
    hidden[:2, hidden.sum(axis=0) > n - 2] = False
    return np.asarray(hidden)


def imputers(seed: int) -> dict[str, Callable[[Table], Table]]:
    """Return a function for each imputer."""
    from r2mae.integrations.sklearn import GaussianImputer, MaskedAutoencoderImputer

    forest = ExtraTreesRegressor(30, n_jobs=1, random_state=seed)
    made: dict[str, Any] = {
        "mean": SimpleImputer(),
        "knn": KNNImputer(),
        "iterative": IterativeImputer(random_state=seed),
        "forest": IterativeImputer(forest, max_iter=5, random_state=seed),
        GAUSSIAN: GaussianImputer(random_state=seed),
        OURS: MaskedAutoencoderImputer(random_state=seed),
        "table-patterns": MaskedAutoencoderImputer(masks="table-patterns", random_state=seed),
    }
    return {**{name: one.fit_transform for name, one in made.items()}, "miceforest": partial(_miceforest, seed=seed)}


def _miceforest(x: Table, seed: int) -> Table:
    """Return the table as filled in by miceforest: predictions of LightGBM (no mean matching), five rounds."""
    try:
        from miceforest import ImputationKernel
    except ImportError:
        raise UserError("this study needs miceforest: pip install './paper[imputers]'") from None
    table = pd.DataFrame(x, columns=[f"x{number}" for number in range(x.shape[1])])
    kernel = ImputationKernel(table, num_datasets=1, mean_match_candidates=0, random_state=seed)
    kernel.mice(5, verbose=False, num_threads=1)
    return np.asarray(kernel.complete_data(0))


def parts(size: Size) -> Parts:
    """Return a part for each share, imputer and table."""
    return {
        f"{name}-{table}-{share:g}".replace("_", "-"): partial(measure, name, table, share, size)
        for share in size.shares
        for name in size.imputers
        for table in size.tables
    }


def measure(imputer: str, table: str, share: float, size: Size, jobs: int = 1) -> list[TableRow]:
    """Return error and seconds of processor time of an imputer, for each way of hiding and seed."""
    whole, rows = load(table), []
    for mechanism in size.mechanisms:
        for seed in range(size.seeds):
            x = drawn(whole, seed, size.rows, size.columns)
            hidden = hide(x, mechanism, share, seed)
            with warnings.catch_warnings(), threadpool_limits(1):
                warnings.simplefilter("ignore")  # of rounds that did not converge, and of names of columns
                begun = time.process_time()
                filled = imputers(seed)[imputer](np.where(hidden, np.nan, x))
                seconds = time.process_time() - begun
            error = float(((filled - x)[hidden] ** 2).mean())
            known = {"table": table, "rows": len(x), "columns": x.shape[1], "hidden": mechanism, "share": share}
            rows.append({**known, "seed": seed, "imputer": imputer, "error": error, "seconds": round(seconds, 2)})
    return rows


def tables_of(results: Any) -> Tables:
    """Return all errors; differences by table and by kind of table (how entries are hidden, which share), pooled.

    A difference is the imputer's error minus that of the masked autoencoder, in per cent of the latter, paired over
    seeds: a seed's error is the mean over ways of hiding and shares, of a kind over tables. `percent_above_ours_is`
    judges the imputer, so "worse" is in our favour.
    """
    rows = joined(results)
    found = pd.DataFrame(rows)
    by_table = [row for name, own in found.groupby("table", sort=False) for row in _compared({"table": name}, own)]
    by_kind = [
        row
        for (mechanism, share), own in found.groupby(["hidden", "share"], sort=False)
        for row in _compared({"hidden": mechanism, "share": share}, own)
    ]
    return {"imputers": rows, "by-table": by_table, "by-kind": by_kind}


def _compared(known: TableRow, found: pd.DataFrame) -> list[TableRow]:
    """Return a row for each imputer."""
    errors = found.groupby(["imputer", "seed"], sort=False)["error"].mean().unstack()
    seconds, ours, rows = found.groupby("imputer")["seconds"].mean(), errors.loc[OURS], []
    for name, own in errors.iterrows():
        row = {**known, "imputer": name, "error": float(own.mean()), "seconds": float(seconds[str(name)])}
        if name != OURS:
            percent = 100 / float(ours.mean())
            judged = paired_difference(own.to_numpy() * percent, ours.to_numpy() * percent, higher_is_better=False)
            row |= difference_columns("percent_above_ours", judged)
        rows.append(row)
    return rows


STUDIES = (Study(ENTRIES["imputers"], parts=parts, table=tables_of),)
