"""Does the formula hold on real data? Masked ridgeless regression fitted on samples of MNIST, digits and single cells.

All rows of a set are the population, with their plain covariance as Σ. Samples of n rows are drawn, masked and fitted
without a ridge; the risk is computed exactly from Σ. Each sample is compared with one of Gaussian rows with the same
Σ. This separates two errors: that of finite sizes (formula against Gaussian), and that of Gaussian equivalence, from
the shape of the data's distribution (Gaussian against real).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Int
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from r2mae.catalogue import data_root
from r2mae.cli.theory_data import load_matrix
from r2mae.theory import Dense, direction_risk, feature_risk, from_data

RATIOS = np.arange(1, 10) / 10
PLACES = (0, 1, 4, 9, 49)
FEATURES = 20
_JITTER = 1e-10  # ridge relative to the mean eigenvalue, used instead of a pseudo-inverse for singular designs


@dataclass(frozen=True)
class Case:
    """One data set, scaling and sample size.

    Attributes
    ----------
    data : str
        Named set, or file below the data folder.
    short : str
        Its name in tables and figures.
    standardised : bool
        Whether features are divided by their standard deviation.
    wide : bool
        n = d/5 (at least 10) if true, else n = 3d.
    max_features : int
        At most this many features are kept, the most variable ones.
    """

    data: str
    short: str
    standardised: bool
    wide: bool
    max_features: int

    def rows(self, d: int) -> int:
        """Return n."""
        return max(10, round(d / 5)) if self.wide else 3 * d


@dataclass(frozen=True, eq=False)
class Outcome:
    """Normalised risks of a case: R repetitions, P ratios, m targets (directions, then features).

    Attributes
    ----------
    targets : tuple of (kind, name)
    predicted : array (P, m)
        Risks by the formula.
    real, gaussian : array (R, P, m)
        Measured on the data, and on Gaussian rows of the same Σ.
    top_share : float
        Fraction of the variance in the first direction.
    norm_spread : float
        Var ‖x‖² over (E ‖x‖²)², divided by what Gaussian rows have, 2 tr Σ²/(tr Σ)².
    kurtosis : array (m,)
        Of each target; 3 for a Gaussian.
    """

    case: Case
    n: int
    d: int
    targets: tuple[tuple[str, str], ...]
    predicted: Float[np.ndarray, "P m"]
    real: Float[np.ndarray, "R P m"]
    gaussian: Float[np.ndarray, "R P m"]
    top_share: float
    norm_spread: float
    kurtosis: Float[np.ndarray, " m"]


def cases(scale: Literal["full", "small"]) -> list[Case]:
    """Return the cases of the study: all sets, or digits alone.

    MNIST and digits are also studied with their most variable pixels only, without those that are empty in nearly all
    images. With n = 3d the sample must be a small part of the population, so fewer genes are used there.
    """
    perez, covid = "cells/perez_tcells_7donors.h5ad", "cells/covid_tcell_15donors.h5ad"
    sets = [("digits", "digits, all pixels", 64, 64), ("digits", "digits, 40 pixels", 40, 40)]
    if scale == "full":
        sets += [("mnist", "MNIST, all pixels", 784, 784), ("mnist", "MNIST, 300 pixels", 300, 300)]
        sets += [(perez, "T cells (perez)", 1000, 500), (covid, "T cells (covid)", 500, 180)]
    return [
        Case(data, short, standardised, wide, most if wide else fewer)
        for data, short, most, fewer in sets
        for wide in (True, False)
        for standardised in (True, False)
    ]


def study(case: Case, *, repetitions: int, jobs: int = 1, seed: int = 0) -> Outcome:
    """Measure and predict one case.

    Parameters
    ----------
    case : Case
    repetitions : int
        Number of samples of the data, and of samples of Gaussian rows.
    jobs : int
        Threads, each for some of the repetitions; results do not depend on their number.
    seed : int

    Raises
    ------
    UserError
        If the data are not there.
    """
    path = data_root() / case.data
    matrix = load_matrix(path if "/" in case.data else case.data, max_features=case.max_features)
    x = matrix.values
    with threadpool_limits(1):
        cov = from_data(x, "plain", scale=case.standardised)
        x = x - x.mean(axis=0)
        if case.standardised:
            x /= x.std(axis=0)
        n, d = case.rows(cov.d), cov.d
        ranks = np.array([rank for rank in PLACES if rank < d])
        chosen = np.linspace(0, d - 1, FEATURES).astype(int)
        targets = np.hstack([cov.eigenvectors(ranks), np.eye(d)[:, chosen]])
        predicted = np.hstack(
            [
                direction_risk(cov, n, RATIOS, which=ranks).normalised,
                feature_risk(cov, n, RATIOS).normalised[:, chosen],
            ]
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
    return Outcome(
        case, n, d, tuple(names), predicted, measured[:, 0], measured[:, 1],
        top_share=float(cov.eigenvalues[0] / cov.eigenvalues.sum()),
        norm_spread=float(norms.var() / norms.mean() ** 2 / gaussian_spread),
        kurtosis=np.asarray((projected**4).mean(axis=0) / (projected**2).mean(axis=0) ** 2),
    )  # fmt: skip


def fit_risks(
    cov: Dense,
    x: Float[np.ndarray, "n d"],
    keep: Float[np.ndarray, " n"],
    entries: Float32[np.ndarray, "n d"],
    targets: Float[np.ndarray, "d m"],
    excluded: Int[np.ndarray, " f"],
) -> Float[np.ndarray, "P m"]:
    """Fit one sample at every ratio of ``RATIOS`` and return exact normalised risks.

    Parameters
    ----------
    cov : Dense
        Σ.
    x : array (n, d)
        Centred rows.
    keep, entries : array (n,) and (n, d)
        Uniform numbers, common to all ratios: a row is kept if its number is below the ratio, and an entry is hidden if
        its number is.
    targets : array (d, m)
        y = xβ for each column; the last f are unit vectors of features.
    excluded : array (f,)
        Those features: each is left out of its own inputs.
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
