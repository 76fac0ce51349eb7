"""Coverage of 95 % intervals of a mean over seeds and test items: ``python -m tests.evaluation.coverage``.

Scores are drawn from the model of two-way random effects, x = μ + a_seed + b_item + e, of which seeds and items make
given shares of the variance of the mean. The mean squares of such a table are independent chi-squares, so no table is
drawn.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from r2mae.evaluation.crossed import components_of

SHARES = ((0.0, 0.0), (0.0, 0.5), (0.0, 0.95), (0.1, 0.1), (0.3, 0.6), (0.5, 0.25), (0.9, 0.05))
"""Shares of seeds and of items in the variance of the mean."""


def coverage_of_t(seeds: int, items: int, share: tuple[float, float], draws: int) -> dict[str, tuple[float, float]]:
    """Return coverage, and half-width in units of the true standard error, over seeds only and crossed."""
    rng = np.random.default_rng([seeds, items, *(int(100 * part) for part in share)])
    of_seeds, of_items = share
    rest = (1 - of_seeds - of_items) * seeds * items  # the variance of the mean is 1
    expected = {"a": rest + items * seeds * of_seeds, "b": rest + seeds * items * of_items, "e": rest}
    df = {"a": seeds - 1, "b": items - 1, "e": (seeds - 1) * (items - 1)}
    squares = {name: expected[name] * rng.chisquare(df[name], draws) / df[name] for name in df}
    error = np.abs(rng.normal(size=draws))
    parts = [components_of(*one, seeds, items, items) for one in zip(*squares.values(), strict=True)]
    crossed = stats.t.ppf(0.975, [part.df for part in parts]) * np.sqrt([part.variance for part in parts])
    alone = stats.t.ppf(0.975, seeds - 1) * np.sqrt(squares["a"] / (seeds * items))
    return {
        name: (float((error <= half).mean()), float(np.median(half)))
        for name, half in (("seeds only", alone), ("crossed t", crossed))
    }


def main(counts: Sequence[int] = (3, 4, 5, 10), items: int = 1000) -> None:
    """Print the table, as Markdown."""
    print("| seeds | share of seeds, items | seeds only | crossed t | its width, of seeds only |")
    print("|---|---|---|---|---|")
    for seeds in counts:
        for share in SHARES:
            found = coverage_of_t(seeds, items, share, 20_000)
            (alone, wide), (crossed, half) = found["seeds only"], found["crossed t"]
            shares = f"{share[0]:g}, {share[1]:g}"
            values = (seeds, shares, f"{alone:.3f}", f"{crossed:.3f}", f"{half / wide:.2f}")
            print(f"| {' | '.join(map(str, values))} |")


if __name__ == "__main__":
    main()
