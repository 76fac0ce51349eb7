"""Does the formula hold on real data? Masked ridgeless regression fitted on samples of MNIST, digits and single cells.

All rows of a set are the population, with their plain covariance as Σ. Samples of n rows are drawn, masked and fitted
without a ridge; the risk is computed exactly from Σ. Each sample is compared with one of Gaussian rows with the same
Σ. This separates two errors: that of finite sizes (formula against Gaussian), and that of Gaussian equivalence, from
the shape of the data's distribution (Gaussian against real).
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Float32, Int
from matplotlib.lines import Line2D
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from r2mae.catalogue import data_root
from r2mae.compare.style import BLUE, GREEN, ORANGE, PURPLE, VERMILION
from r2mae.matrices import load_matrix
from r2mae.theory import Dense, direction_risk, feature_risk, from_data
from r2mae_paper.drawing import Axes, Figures, panels, plain_log
from r2mae_paper.rows import TableRow, Tables, records
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Parts, Study

RATIOS = np.arange(1, 10) / 10
PLACES = (0, 1, 4, 9, 49)
FEATURES = 20
NEAR = 0.25  # relative distance of n·p from d that counts as near the peak
_JITTER = 1e-10  # ridge relative to the mean eigenvalue, used instead of a pseudo-inverse for singular designs
_COLOURS = (VERMILION, ORANGE, GREEN, BLUE, PURPLE)
_FEATURE, _TEXT = "#9a9a9a", "#333333"


def measure(
    data: str, *, standardised: bool, wide: bool, max_features: int, repetitions: int, jobs: int = 1, seed: int = 0
) -> pd.DataFrame:
    """Measure and predict one set of data, scaling and sample size.

    `data` is a named set, or a file below the data folder, of which the most variable features are kept. Wide samples
    have n = d/5 rows (at least 10), others n = 3d. There are as many samples of Gaussian rows.

    Returns
    -------
    DataFrame
        A row for each target (directions, then features) and ratio. `kind` and `target` name the target, `kurtosis`
        is its own (3 for a Gaussian). `near_peak`: whether n·p is close to d. Normalised risks: `predicted` by the
        formula, `real` and `gaussian` measured on the data and on Gaussian rows of the same Σ, as means over
        repetitions, with standard errors (`_se`). Of the case: `top_share`, the fraction of the variance in the first
        direction; `norm_spread`, Var ‖x‖² over (E ‖x‖²)², divided by what Gaussian rows have, 2 tr Σ²/(tr Σ)².
    """
    matrix = load_matrix(data_root() / data if "/" in data else data, max_features=max_features)
    x = matrix.values
    with threadpool_limits(1):
        cov = from_data(x, "plain", scale=standardised)
        x = x - x.mean(axis=0)
        if standardised:
            x /= x.std(axis=0)
        d = cov.d
        n = max(10, round(d / 5)) if wide else 3 * d
        ranks = np.array([rank for rank in PLACES if rank < d])
        chosen = np.linspace(0, d - 1, FEATURES).astype(int)
        targets = np.hstack([cov.eigenvectors(ranks), np.eye(d)[:, chosen]])
        predicted = np.hstack(
            [direction_risk(cov, n, RATIOS, which=ranks).normalised, feature_risk(cov, n, RATIOS).normalised[:, chosen]]
        )

        def once(repetition: int) -> tuple[np.ndarray, np.ndarray]:
            rng = np.random.default_rng([seed, repetition])
            rows = x[rng.choice(len(x), n, replace=False)]
            keep, entries = rng.random(n), rng.random((n, d), dtype=np.float32)
            normal = cov.sample(n, rng)
            real, gaussian = (fit_risks(cov, sample, keep, entries, targets, chosen) for sample in (rows, normal))
            return real, gaussian

        with ThreadPoolExecutor(jobs) as pool:
            measured = np.array(list(pool.map(once, range(repetitions))))
        projected, norms = x @ targets, (x * x).sum(axis=1)
    gaussian_spread = 2 * (cov.eigenvalues**2).sum() / cov.eigenvalues.sum() ** 2
    names = [("direction", str(rank + 1)) for rank in ranks] + [("feature", matrix.features[j]) for j in chosen]
    mean, error = measured.mean(axis=0), measured.std(axis=0, ddof=1) / np.sqrt(len(measured))
    kurtosis = (projected**4).mean(axis=0) / (projected**2).mean(axis=0) ** 2
    risks = {"predicted": predicted, "real": mean[0], "real_se": error[0], "gaussian": mean[1], "gaussian_se": error[1]}
    return pd.DataFrame(
        {
            "scaling": "standardised" if standardised else "raw",
            "n": n,
            "d": d,
            "top_share": float(cov.eigenvalues[0] / cov.eigenvalues.sum()),
            "norm_spread": float(norms.var() / norms.mean() ** 2 / gaussian_spread),
            "kind": np.repeat([kind for kind, _ in names], len(RATIOS)),
            "target": np.repeat([name for _, name in names], len(RATIOS)),
            "kurtosis": np.repeat(kurtosis, len(RATIOS)),
            "ratio": np.tile(RATIOS, len(names)),
            "near_peak": np.tile(np.abs(n * RATIOS / d - 1) < NEAR, len(names)).astype(int),
            **{name: values.T.ravel() for name, values in risks.items()},
        }
    )


def fit_risks(
    cov: Dense,
    x: Float[np.ndarray, "n d"],
    keep: Float[np.ndarray, " n"],
    entries: Float32[np.ndarray, "n d"],
    targets: Float[np.ndarray, "d m"],
    excluded: Int[np.ndarray, " f"],
) -> Float[np.ndarray, "P m"]:
    """Fit one sample of centred rows at every ratio of ``RATIOS`` and return exact normalised risks.

    `keep` and `entries` are uniform numbers, common to all ratios: a row is kept if its number is below the ratio, and
    an entry is hidden if its number is. Fitted is y = xβ for each column β of the targets; the last ones are unit
    vectors of the `excluded` features, each of which is left out of its own inputs.
    """
    null, y = cov.quadratic(targets), x @ targets
    risks = np.empty((len(RATIOS), targets.shape[1]))
    for index, p in enumerate(RATIOS):
        kept = np.flatnonzero(keep < p)
        b = leave_out_fit(x[kept] * (entries[kept] >= p), y[kept], excluded)
        risks[index] = cov.quadratic(b - targets) / null
    return risks


def leave_out_fit(
    x: Float[np.ndarray, "kept d"], y: Float[np.ndarray, "kept m"], excluded: Int[np.ndarray, " f"]
) -> Float[np.ndarray, "d m"]:
    """Fit minimum-norm least squares; each of the last f targets leaves one feature out, by a rank-one downdate.

    All fits use one factorisation of the smaller Gram matrix. Without feature j, X̃X̃ᵀ loses u_j u_jᵀ (Sherman and
    Morrison), and X̃ᵀX̃ a row and a column.
    """
    kept, d = x.shape
    f = len(excluded)
    own = np.arange(y.shape[1] - f, y.shape[1])
    if kept == 0:
        return np.zeros((d, y.shape[1]))
    gram = x @ x.T if kept <= d else x.T @ x
    gram.flat[:: len(gram) + 1] += _JITTER * max(float(np.trace(gram)) / len(gram), 1e-300)
    factor = cho_factor(gram, lower=True, check_finite=False)
    if kept <= d:
        out = x[:, excluded]
        solved = cho_solve(factor, np.hstack([y, out]), check_finite=False)
        alpha, beta = solved[:, : y.shape[1]], solved[:, y.shape[1] :]
        alpha[:, own] += beta * ((out * alpha[:, own]).sum(axis=0) / (1 - (out * beta).sum(axis=0)))
        b = x.T @ alpha
    else:
        right = x.T @ y
        right[excluded, own] = 0.0
        columns = np.zeros((d, f))
        columns[excluded, np.arange(f)] = 1.0
        solved = cho_solve(factor, np.hstack([right, columns]), check_finite=False)
        b, inverse = solved[:, : y.shape[1]], solved[:, y.shape[1] :]
        b[:, own] -= inverse * (b[excluded, own] / inverse[excluded, np.arange(f)])
    b[excluded, own] = 0.0
    return np.asarray(b)


def parts(size: Size) -> Parts:
    """Return a part for each set of a size, wide and tall, standardised and raw."""
    cases = itertools.product(size.sets, (True, False), (True, False))
    return {f"case-{number}": partial(compute, size, *case) for number, case in enumerate(cases)}


def compute(size: Size, known: tuple[str, str, int, int], wide: bool, standardised: bool, jobs: int) -> Tables:
    """Return the tables of a case; of a set its data, its name in tables, and how many features there are at most."""
    data, name, most, fewer = known
    most, repetitions = most if wide else fewer, size.of_digits if data == "digits" else size.repetitions
    found = measure(data, standardised=standardised, wide=wide, max_features=most, repetitions=repetitions, jobs=jobs)
    return tables_of(found.assign(data=name))


def tables_of(found: pd.DataFrame) -> Tables:
    """Return every measured and predicted risk of a case; medians of their errors by kind, direction and ratio.

    The latter are of measured over predicted risk, less one: for each direction over ratios away from the peak, and at
    each ratio, with the neighbourhood of the peak, over directions and features.
    """
    risks = ("predicted", "real", "real_se", "gaussian", "gaussian_se")
    places = {"kurtosis": "{:.4g}", "ratio": "{:g}", **dict.fromkeys(risks, "{:.5g}")}
    details = found[[*_CASE, "kind", "target", "kurtosis", "ratio", "near_peak", *risks]]
    off = found["real"] / found["predicted"] - 1
    directions = "direction " + found["target"][(found["kind"] == "direction") & (found["near_peak"] == 0)]
    by_direction, by_ratio = (
        {
            **_case_of(found),
            **{str(name): f"{value:.3g}" for name, value in off.groupby(key, sort=False).median().items()},
        }
        for key in (directions, details["ratio"].map("{:g}".format))
    )
    return {
        "results": records(details.assign(**{name: details[name].map(form.format) for name, form in places.items()})),
        "summary": summarise(found),
        "by-direction": [by_direction],
        "by-ratio": [by_ratio],
    }


_CASE = ["data", "scaling", "n", "d"]


def _case_of(found: pd.DataFrame) -> TableRow:
    return records(found[_CASE])[0]


def summarise(found: pd.DataFrame) -> list[TableRow]:
    """Return a case's median relative errors away from the peak, and how good the advised ratios are, by kind.

    `best_ratio_agrees` is the share of targets whose lowest measured risk is within 0.1 of the ratio that the formula
    advises; `regret` the measured normalised risk there minus the lowest measured one, mean over targets.
    """
    rows = []
    for kind, own in found.groupby("kind", sort=False):
        near = own["near_peak"].to_numpy(bool).reshape(-1, len(RATIOS))[0]
        real, gaussian, predicted = (
            own[name].to_numpy().reshape(-1, len(RATIOS)).T for name in ("real", "gaussian", "predicted")
        )
        error, far = np.abs(real / predicted - 1), ~near
        advised, truly = predicted[far].argmin(axis=0), real[far].argmin(axis=0)
        regret = np.take_along_axis(real[far], advised[None], axis=0)[0] - real[far].min(axis=0)
        medians = {
            "formula_vs_real": error,
            "formula_vs_gaussian": np.abs(gaussian / predicted - 1),
            "gaussian_vs_real": np.abs(real / gaussian - 1),
            "real_over_formula": real / predicted,
        }
        rows.append(
            {
                **_case_of(own),
                "top_share": f"{own['top_share'].iloc[0]:.3f}",
                "norm_spread": f"{own['norm_spread'].iloc[0]:.3g}",
                "kind": kind,
                **{name: f"{np.median(values[far]):.3g}" for name, values in medians.items()},
                "within_10_percent": f"{(error[far] < 0.1).mean():.2f}",
                "near_peak_formula_vs_real": f"{np.median(error[near]):.3g}" if near.any() else "",
                "best_ratio_agrees": f"{(np.abs(advised - truly) <= 1).mean():.2f}",
                "regret": f"{regret.mean():.3g}",
            }
        )
    return rows


def plot(tables: Tables, size: Size) -> Figures:
    """Draw measured against predicted normalised risk, one panel per data set and sample size."""
    numbers = ("ratio", "predicted", "real", "real_se")
    rows = pd.DataFrame(tables["results"]).astype(dict.fromkeys(numbers, float))
    groups = list(rows.groupby(["data", "n", "d"], sort=False))
    lines = -(-len(groups) // 4)
    figure, grid = panels(4, lines, width=2.6, height=2.7 + 0.8 / lines)
    for axes, ((data, n, d), group) in zip(grid, groups, strict=False):
        for (scaling, kind, target), own in group.groupby(["scaling", "kind", "target"], sort=False):
            _scatter(axes, own, str(kind), str(target), "none" if scaling == "raw" else None)
        axes.plot([0.005, 20], [0.005, 20], color=_TEXT, lw=0.8, zorder=0)
        plain_log(axes, "x", (1.0,))
        plain_log(axes, "y", (1.0,))
        axes.set(xlim=(0.012, 8), ylim=(0.012, 8))
        axes.grid()
        axes.set_title(f"{data}\nn = {n}, d = {d}", fontsize=10)
    for axes in grid[len(groups) :]:
        axes.set_visible(False)
    for axes in grid[-4:]:
        axes.set_xlabel("risk by the formula", fontsize=9)
    for axes in grid[::4]:
        axes.set_ylabel("measured on real rows", fontsize=9)
    ranks = [rank + 1 for rank in PLACES if f"{rank + 1}" in set(rows.loc[rows["kind"] == "direction", "target"])]
    directions = zip(ranks, _COLOURS, strict=False)
    marks: dict[str, dict[str, Any]] = {f"direction {rank}": {"color": colour} for rank, colour in directions}
    marks |= {"feature": {"color": _FEATURE}, "standardised": {}, "raw": {"mfc": "none"}}
    marks |= {"n·p within 25 % of d": {"marker": "x"}, "beyond the panel": {"marker": "^"}}
    handles = [
        Line2D([], [], **{"ls": "", "marker": "o", "ms": 5, "color": _TEXT, **look}, label=label)
        for label, look in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return {"measured_vs_predicted": figure}


def _scatter(axes: Axes, rows: pd.DataFrame, kind: str, target: str, face: str | None) -> None:
    """Draw the risks of one target: near the peak as crosses, those far above the null risk as arrows at the top."""
    direction = kind == "direction"
    colour = _COLOURS[PLACES.index(int(target) - 1) % len(_COLOURS)] if direction else _FEATURE
    look: dict[str, Any] = {"color": colour, "mfc": face or colour, "ms": 4.0 if direction else 2.5}
    look["rasterized"] = not direction
    style = {**look, "mew": 0.7, "elinewidth": 0.6, "zorder": 3 if direction else 2}
    inside, near = rows["real"] < 8, rows["near_peak"] == 1
    for which, marker in ((inside & ~near, "o"), (inside & near, "x")):
        if which.any():
            own = rows[which]
            axes.errorbar(own["predicted"], own["real"], own["real_se"], fmt=marker, **style)
    beyond = rows.loc[~inside, "predicted"]
    axes.plot(beyond, np.full(len(beyond), 6.8), "^", **look)


STUDIES = (Study(ENTRIES["realdata"], plot, parts=parts),)
