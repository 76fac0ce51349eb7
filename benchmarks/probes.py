"""LinearProbe against scikit-learn's LogisticRegressionCV, and both probes against its GridSearchCV.

Folds, strengths, scores and choice are the same. LogisticRegressionCV is the nearest peer: it walks along the
strengths, too.
"""

import argparse
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold
from threadpoolctl import threadpool_limits

from benchmarks.timing import alternate, ratio_of
from r2mae.evaluation.probes import PAPER_ALPHAS, PAPER_CS, LinearProbe, RidgeProbe

Data = tuple[np.ndarray, np.ndarray]

PEERS: dict[str, dict[str, Any]] = {
    "lbfgs to 1e-6": {"solver": "lbfgs", "tol": 1e-6},
    "lbfgs to 1e-4, its default": {"solver": "lbfgs", "tol": 1e-4},
    "newton-cholesky": {"solver": "newton-cholesky", "tol": 1e-6},
}
"""How LogisticRegressionCV is asked to solve."""


def classification() -> Data:
    """2,000 rows, 200 features of which 80 depend on the class, 10 overlapping classes."""
    return make_classification(2000, 200, n_informative=40, n_redundant=40, n_classes=10, random_state=0)


def embeddings(rows: int = 2000, width: int = 200, classes: int = 10) -> Data:
    """Correlated, non-negative features as of a ReLU layer, and classes that overlap in part."""
    rng = np.random.default_rng(0)
    deviation = np.arange(1, width + 1) ** -0.4
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0]
    y, centres = rng.integers(0, classes, rows), 0.3 * rng.standard_normal((classes, width))
    X = ((centres[y] + rng.standard_normal((rows, width))) * deviation) @ turn
    return 3 * np.maximum(X + 0.2, 0), y


def unequal(rows: int = 2000, width: int = 300, classes: int = 7) -> Data:
    """Features of unequal scale, and classes of unequal size that overlap: a weak penalty needs many steps."""
    rng = np.random.default_rng(0)
    y = np.minimum(rng.geometric(0.4, rows), classes) - 1
    X = rng.standard_normal((rows, width)) * np.geomspace(1, 0.03, width)
    X[:, : width // 8] += 0.5 * rng.standard_normal((classes, width // 8))[y]
    return X, y


def embedded_digits() -> Data:
    """1,400 of scikit-learn's digits behind a random ReLU layer of 64 units."""
    X, y = load_digits(return_X_y=True)
    X = (X - X.mean(axis=0)) @ np.random.default_rng(0).standard_normal((64, 64))
    return np.maximum(X[:1400] / 64, 0), y[:1400]


def digits() -> Data:
    """scikit-learn's digits: 1,797 rows, 64 features, 10 classes that are nearly separable."""
    return load_digits(return_X_y=True)


DATA: dict[str, Callable[[], Data]] = {
    "classification": classification,
    "embeddings": embeddings,
    "digits": digits,
}


# Name, data, number of groups.
PATHS: dict[str, tuple[Callable[[], Data], int]] = {
    "1,400 x 64, 10 classes": (embedded_digits, 20),
    "5,000 x 64, 10 classes": (lambda: embeddings(5000, 64), 20),
    "2,700 x 64, 3 classes": (lambda: embeddings(2700, 64, 3), 8),
    "2,000 x 300, 7 classes of unequal size": (unequal, 20),
}


def compare_paths(title: str, X: np.ndarray, y: np.ndarray, groups: np.ndarray, repeats: int) -> None:
    """Time LinearProbe and LogisticRegressionCV in turns; say how far each is from the optimum, and the peak memory."""
    splits = list(GroupKFold(5).split(X, y, groups))
    shared = {"cv": splits, "scoring": "balanced_accuracy", "max_iter": 100_000, "use_legacy_attributes": False}
    probe = LinearProbe()
    peers = {name: LogisticRegressionCV(Cs=PAPER_CS, l1_ratios=(0,), **shared, **how) for name, how in PEERS.items()}
    runs: dict[str, Callable[[], Any]] = {"LinearProbe": lambda: probe.fit(X, y, groups)}
    runs |= {name: (lambda one=one: one.fit(X, y)) for name, one in peers.items()}
    times = alternate({name: (lambda run=run: _nothing(run())) for name, run in runs.items()}, repeats)
    optimum = LinearProbe(tol=1e-7, max_iter=10_000).fit(X, y, groups)
    print(title)
    for name, run in runs.items():
        tracemalloc.start()
        fitted = run()
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        scores = probe.cv_mean_ if fitted is probe else fitted.scores_.mean(axis=0).ravel()
        off = np.abs(scores - optimum.cv_mean_).max()
        loss = log_loss(y, fitted.predict_proba(X)) - log_loss(y, optimum.predict_proba(X))
        ratio, spread = ratio_of(times[name], times["LinearProbe"])
        print(
            f"  {name:28} {times[name].median:7.3f} ± {times[name].spread:.3f} s   ratio {ratio:5.1f} ± {spread:.1f}   "
            f"{peak:5.1f} MiB   C {fitted.C_:.3g}   scores off the optimum's by {off:.1e}, log loss by {loss:.1e}",
            flush=True,
        )


def _nothing(_: Any) -> None:
    """Return None, so that the call is timed."""


def compare(title: str, probe: Any, search: Any, X: np.ndarray, y: np.ndarray, repeats: int) -> None:
    """Time a probe and its peer in turns, and print the largest difference of their scores."""
    groups = np.random.default_rng(1).integers(0, 20, len(X))
    times = alternate({"probe": lambda: _fit(probe, X, y, groups), "peer": lambda: _fit(search, X, y, groups)}, repeats)
    ratio, spread = ratio_of(times["peer"], times["probe"])
    peer_scores = search.cv_results_["mean_test_score"]
    gaps = f"mean scores differ by {np.abs(peer_scores - probe.cv_mean_).max():.1e} at most"
    if isinstance(probe, LinearProbe):
        exact = LinearProbe(tol=1e-7, max_iter=10_000).fit(X, y, groups).cv_mean_
        off = [np.abs(scores - exact).max() for scores in (probe.cv_mean_, peer_scores)]
        gaps += f", from the converged optimum's by {off[0]:.1e} and {off[1]:.1e}"
    ours = probe.C_ if isinstance(probe, LinearProbe) else probe.alpha_
    (theirs,) = search.best_params_.values()
    print(
        f"{title:28} probe {times['probe'].median:7.3f} ± {times['probe'].spread:.3f} s   "
        f"GridSearchCV {times['peer'].median:7.2f} ± {times['peer'].spread:.2f} s   "
        f"ratio {ratio:5.1f} ± {spread:.1f}\n{'':28} {gaps}; "
        f"chosen {ours:.3g} and {theirs:.3g}",
        flush=True,
    )


def _fit(estimator: Any, X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> None:
    estimator.fit(X, y, groups=groups)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of linear algebra, for both (scikit-learn's best is 1)")
    parser.add_argument("--data", nargs="*", choices=list(DATA), default=list(DATA), help="for GridSearchCV")
    options = parser.parse_args(argv)
    print(f"5 grouped folds, the paper's grids, {options.threads} thread(s), {options.repeats} rounds in turns")
    warnings.simplefilter("ignore", ConvergenceWarning)  # the distance from the optimum is printed
    with threadpool_limits(options.threads):
        for name, (make, count) in PATHS.items():
            X, y = make()
            compare_paths(name, X, y, np.random.default_rng(1).integers(0, count, len(X)), options.repeats)
        for name in options.data:
            X, y = DATA[name]()
            # scikit-learn's L-BFGS with a tolerance of 1e-6, and enough steps to reach it
            logistic = LogisticRegression(tol=1e-6, max_iter=100_000)
            search = GridSearchCV(logistic, {"C": PAPER_CS}, cv=GroupKFold(5), scoring="balanced_accuracy")
            compare(f"logistic, {name}", LinearProbe(), search, X, y, options.repeats)
        X, _ = embeddings()
        y = X @ np.random.default_rng(2).standard_normal(200) + np.random.default_rng(3).normal(0, 10, len(X))
        search = GridSearchCV(Ridge(), {"alpha": PAPER_ALPHAS}, cv=GroupKFold(5), scoring="neg_mean_squared_error")
        compare("ridge, embeddings", RidgeProbe(), search, X, y, options.repeats)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
