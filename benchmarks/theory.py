"""Masked ridgeless regression: the formula, the simulation, matrix products, and the paper's procedure compared."""

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import alternate, ratio_of
from r2mae.theory.covariance import Rotated
from r2mae.theory.models import beta_spectrum, identity
from r2mae.theory.risk import direction_risk
from r2mae.theory.simulate import Simulation, simulate

RATIOS = np.round(np.arange(0.05, 1, 0.05), 2)
SIZES = {"over": (2000, 10000), "under": (4000, 2000)}  # Fig. 1A


def signal(d: int) -> np.ndarray:
    """β of Fig. 1A: uniform entries, scaled to length one."""
    drawn = np.random.default_rng(0).uniform(size=d)
    return drawn / np.linalg.norm(drawn)


def operations(simulation: Simulation, d: int) -> float:
    """Floating-point operations of the draws: ñ²d + ñ³/3 each, with ñ and d exchanged where ñ > d."""
    small, large = np.minimum(simulation.kept, d).astype(float), np.maximum(simulation.kept, d).astype(float)
    return float((small**2 * large + small**3 / 3).sum())


def product_seconds(size: int = 2000) -> float:
    """Time one matrix product of 2·size³ operations."""
    a = np.random.default_rng(0).standard_normal((size, size))
    began = time.perf_counter()
    a @ a
    return time.perf_counter() - began


def throughput(name: str, repetitions: int, rounds: int) -> None:
    """Compare the rate over a whole curve, including drawing and masking, with the rate of a matrix product."""
    n, d = SIZES[name]
    beta, last = signal(d), []

    def curve() -> None:
        last[:] = [simulate(identity(d), beta, n, RATIOS, noise=0.04, repetitions=repetitions)]

    times = alternate({"curve": curve, "product": product_seconds}, rounds)
    count = operations(last[0], d)
    rates = [count / seconds / 1e9 for seconds in times["curve"].seconds]
    peak = 2 * 2000**3 / times["product"].median / 1e9
    print(
        f"Fig. 1A, n = {n}, d = {d}: {len(RATIOS)} ratios, {repetitions} draws: {times['curve'].median:6.2f} s, "
        f"{np.median(rates):5.1f} Gflop/s of the product's {peak:.1f}: {np.median(rates) / peak:.0%}",
        flush=True,
    )


def as_described(n: int, d: int, *, new_test_rows: bool) -> Callable[[], None]:
    """Return the curve by the paper's procedure, one draw per ratio: a d × d solve with λ = 1e-6, 10n test rows."""
    rng = np.random.default_rng(1)
    cov, beta = identity(d), signal(d)
    x, test = cov.sample(n, rng), cov.sample(10 * n, rng)
    y = x @ beta + 0.2 * rng.standard_normal(n)

    def curve() -> None:
        for p in RATIOS:
            rows = np.flatnonzero(rng.random(n) < p)
            masked = x[rows] * (rng.random((len(rows), d)) >= p)
            b = np.linalg.solve(masked.T @ masked + 1e-6 * np.eye(d), masked.T @ y[rows])
            rows_new = cov.sample(10 * n, rng) if new_test_rows else test
            np.mean((rows_new @ (b - beta)) ** 2)

    return curve


def against_the_paper(n: int, d: int, rounds: int, draws: int = 10) -> None:
    """Time a draw of the curve by both procedures, in turns."""

    def ours() -> float:
        began = time.perf_counter()
        simulate(identity(d), signal(d), n, RATIOS, noise=0.04, repetitions=draws)
        return (time.perf_counter() - began) / draws

    contenders = {
        "ours": ours,
        "new test rows": as_described(n, d, new_test_rows=True),
        "same test rows": as_described(n, d, new_test_rows=False),
    }
    times = alternate(contenders, rounds)
    for name in ("new test rows", "same test rows"):
        ratio, spread = ratio_of(times[name], times["ours"])
        print(
            f"n = {n}, d = {d}, a draw: simulate {times['ours'].median / len(RATIOS) * 1e3:6.3f} ms   "
            f"d-by-d solve, {name} in each draw {times[name].median / len(RATIOS) * 1e3:7.2f} ms   "
            f"ratio {ratio:5.1f} ± {spread:.1f}",
            flush=True,
        )


def formula(n: int, d: int, rounds: int, draws: int = 2, asked: int = 50) -> None:
    """Time the risk curve of all d directions by the formula and by `asked` draws, extrapolated from `draws`."""
    cov, every = beta_spectrum(d, 0), np.arange(d)
    vectors = cov.eigenvectors(every)

    def simulated() -> float:
        began = time.perf_counter()
        simulate(cov, vectors, n, RATIOS, noise=0.04, repetitions=draws)
        return (time.perf_counter() - began) / draws * asked

    times = alternate({"formula": lambda: _curve(cov, n), "simulated": simulated}, rounds)
    ratio, spread = ratio_of(times["simulated"], times["formula"])
    print(
        f"all {d} directions, {len(RATIOS)} ratios: formula {times['formula'].median * 1e3:.2f} ms   "
        f"{asked} draws {times['simulated'].median:.1f} s (from {draws})   ratio {ratio:,.0f} ± {spread:,.0f}",
        flush=True,
    )
    large = beta_spectrum(20_000, 0)
    took = alternate({"large": lambda: _curve(large, 4000)}, rounds)["large"]
    print(
        f"all 20,000 directions, {len(RATIOS)} ratios: formula {took.median * 1e3:.1f} ms (± {took.spread * 1e3:.1f})"
    )


def _curve(cov: Rotated, n: int) -> float:
    began = time.perf_counter()
    direction_risk(cov, n, RATIOS, 0.04)
    return time.perf_counter() - began


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=1, help="draws of Fig. 1A's curve in each round")
    options = parser.parse_args(argv)
    print(f"one thread, {options.rounds} rounds in turns")
    with threadpool_limits(1):
        for name in SIZES:
            throughput(name, options.repetitions, options.rounds)
        against_the_paper(200, 1000, options.rounds)
        formula(200, 1000, options.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
