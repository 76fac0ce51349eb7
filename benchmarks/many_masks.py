"""The formula for K masks a row against simulation: writes the agreement table of docs/theory/many-masks.md.

    python -m benchmarks.many_masks docs/theory/many-masks.csv

Every combination of size, covariance, d/n and K has one or two ratios, in turn. A case has as many repetitions as fit
into a fixed number of operations, at least four; larger ones are left out. It takes about 4 minutes of one core.
"""

import argparse
import csv
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from r2mae.masking import Uniform
from r2mae.theory import (
    Covariance,
    Dense,
    RatioLike,
    Rotated,
    beta_spectrum,
    from_data,
    latent,
    risk,
    simulate,
    spiked,
    uniform_direction,
)

SIZES = (200, 400, 800)
GAMMAS = (0.2, 0.5, 1.0, 2.0, 5.0)
MASKS = (1, 2, 4, 16, 64, math.inf)
RATIOS = (0.05, 0.1, 0.3, 0.5, 0.7, 0.9)
RANGES = (Uniform(0.1, 0.5), Uniform(0.2, 0.8))
SIGNALS, NOISE, MARGIN = 8, 0.1, 0.2  # targets of variance one; distance from n·K·p = d
OPERATIONS, MOST = {200: 1e9, 400: 3e9, 800: 1.6e10}, 24
_CASE = ("n", "d", "covariance", "ratio", "masks", "ridge", "formula", "measured", "error", "repetitions")


def models(d: int, data: dict[str, np.ndarray]) -> Iterator[tuple[str, Covariance]]:
    """Return the covariances of d features."""
    yield "spiked", spiked(10.0, uniform_direction(d, 1))
    yield "beta", beta_spectrum(d, 1)
    yield "latent", latent(d, 1)
    yield "power law", Rotated(np.arange(1, d + 1) ** -0.5, 1)
    for name, values in data.items():
        if values.shape[1] >= d:
            chosen = np.sort(np.argsort(-values.var(axis=0), kind="stable")[:d])
            yield name, Dense(from_data(values[:, chosen], scale=True).matrix())


def operations(n: int, d: int, ratio: float | RatioLike, masks: float) -> float:
    """Estimate the operations of one fit."""
    mean = ratio if isinstance(ratio, float) else 0.5
    rows = n if masks == math.inf else n * masks * mean
    small = d if masks == math.inf else min(rows, d)
    return float(rows * small * max(d, small) + small**3 / 3 + n * d * d / 4 + 200 * n * d)


def cases(data: dict[str, np.ndarray]) -> Iterator[tuple[int, str, Covariance, float | RatioLike, float, float]]:
    """Yield n, covariance, ratio, K and ridge."""
    turn = 0
    for n in SIZES:
        for gamma in GAMMAS:
            d = round(n * gamma)
            for name, cov in models(d, data):
                for masks in MASKS:
                    turn += 1
                    chosen: list[float | RatioLike] = [RATIOS[turn % len(RATIOS)]]
                    if masks in (4, 16) and turn % 3 == 0:
                        chosen.append(RANGES[turn % 2])
                    for ratio in chosen:
                        ridge = 0.0 if turn % 2 else 0.05 * n * float(cov.diagonal.mean())
                        yield n, name, cov, ratio, masks, ridge


def main(argv: Sequence[str] | None = None) -> None:
    """Compute the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="?", default=Path("docs/theory/many-masks.csv"))
    table = parser.parse_args(argv).table
    began, data = time.monotonic(), {}
    if os.environ.get("R2MAE_DATA"):
        from r2mae.matrices import load_matrix

        data = {name: load_matrix(name, max_features=800).values[:4000] for name in ("digits", "covid-tcells", "csle")}
        data = {name: values[:, np.ptp(values, axis=0) > 0] for name, values in data.items()}
    count = 0
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _CASE, lineterminator="\n")
        writer.writeheader()
        for row in rows(data):
            writer.writerow(row)
            file.flush()
            count += 1
    print(f"{count} cases in {time.monotonic() - began:.0f} s")


def rows(data: dict[str, np.ndarray]) -> Iterator[dict[str, object]]:
    """Yield the lines of the table."""
    for n, name, cov, ratio, masks, ridge in cases(data):
        mean = ratio if isinstance(ratio, float) else 0.5
        near = ridge == 0 and abs(n * masks * mean / cov.d - 1) < MARGIN
        repetitions = int(min(MOST, OPERATIONS[n] / operations(n, cov.d, ratio, masks)))
        if near or repetitions < 4 or n * masks * mean < 4:
            continue
        beta = np.random.default_rng([cov.d, 3]).standard_normal((cov.d, SIGNALS))
        beta /= np.sqrt(cov.quadratic(beta))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            formula = risk(cov, beta, n, ratio, NOISE, masks=masks, ridge=ridge).risk.mean()
        found = simulate(
            cov,
            beta,
            n,
            [ratio],
            noise=NOISE,
            masks=masks,
            ridge=ridge,
            repetitions=repetitions,
            design="fresh",
            seed=1,
        )
        each = found.risks.mean(axis=(1, 2))
        error = each.std(ddof=1) / math.sqrt(repetitions)
        words = f"{ratio.low:g}-{ratio.high:g}" if isinstance(ratio, Uniform) else f"{ratio:g}"
        values = (f"{value:.4g}" for value in (ridge, formula, each.mean(), error))
        yield dict(zip(_CASE, (n, cov.d, name, words, masks, *values, repetitions), strict=True))


if __name__ == "__main__":
    main()
