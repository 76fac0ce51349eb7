"""LinearProbe and RidgeProbe, compared with GridSearchCV of scikit-learn: same folds, strengths, scores and choice."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold
from threadpoolctl import threadpool_limits

from benchmarks.timing import alternate, ratio_of
from r2mae.evaluation.probes import PAPER_ALPHAS, PAPER_CS, LinearProbe, RidgeProbe

Data = tuple[np.ndarray, np.ndarray]


def classification() -> Data:
    """2,000 rows, 200 features of which 80 depend on the class, 10 overlapping classes."""
    return make_classification(2000, 200, n_informative=40, n_redundant=40, n_classes=10, random_state=0)


def embeddings() -> Data:
    """2,000 rows, 200 correlated, non-negative features like those of a ReLU layer, 10 partly overlapping classes."""
    rng = np.random.default_rng(0)
    deviation = np.arange(1, 201) ** -0.4
    turn = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    y, centres = rng.integers(0, 10, 2000), 0.3 * rng.standard_normal((10, 200))
    X = ((centres[y] + rng.standard_normal((2000, 200))) * deviation) @ turn
    return 3 * np.maximum(X + 0.2, 0), y


def digits() -> Data:
    """scikit-learn's digits: 1,797 rows, 64 features, 10 classes that are nearly separable."""
    return load_digits(return_X_y=True)


DATA: dict[str, Callable[[], Data]] = {
    "classification": classification,
    "embeddings": embeddings,
    "digits": digits,
}


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
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of linear algebra, for both (scikit-learn is fastest with 1)"
    )
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    options = parser.parse_args(argv)
    print(f"5 grouped folds, the paper's grids, {options.threads} thread(s), {options.repeats} rounds in turns")
    with threadpool_limits(options.threads):
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
