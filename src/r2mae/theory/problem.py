"""A regression problem of the theory: covariance, signal, rows, noise and ratios; and its risk as rows of a table."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from r2mae import theory
from r2mae.errors import UserError, unknown
from r2mae.theory import Covariance, Dense, RatioLike, Risk, Rotated, Simulation, direction_risk, risk
from r2mae.theory.rows import Range

_MOST = 1000  # most ratios of a curve
MODELS: dict[str, tuple[str, ...]] = {
    "identity": ("d",),
    "spiked": ("d", "delta", "cosine"),
    "uniform": ("d", "direction"),
    "beta": ("d", "direction"),
    "latent": ("d", "direction"),
    "plateau": ("d",),
}
"""The options of each covariance, by its name."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One regression problem, with `title` in words, at the `fixed` ratios and perhaps a range.

    The signal is eigenvector number `place` of the covariance (0: largest eigenvalue), or `signal` if that is None.
    """

    cov: Covariance
    place: int | None
    signal: np.ndarray | None
    title: str
    n: int
    noise: float
    ridge: float
    fixed: np.ndarray
    range: Range | None

    @property
    def ratios(self) -> list[float | RatioLike]:
        """The fixed ratios, then the range if there is one."""
        return [*map(float, self.fixed), *([] if self.range is None else [self.range])]

    @property
    def beta(self) -> np.ndarray:
        """The signal."""
        if self.place is not None:
            return self.cov.eigenvectors(np.array([self.place]))[:, 0]
        assert self.signal is not None
        return self.signal

    @property
    def peak(self) -> float | None:
        """The ratio at which the risk diverges, as the number of kept rows equals that of features; or None."""
        return self.cov.d / self.n if self.ridge == 0 and self.cov.d < self.n else None

    def labels(self) -> list[str]:
        """Return each ratio in words."""
        names = [f"{p:.4g}" for p in self.fixed]
        return names if self.range is None else [*names, range_label(self.range)]

    def properties(self, null: float) -> dict[str, Any]:
        """Return the properties of the problem, for its results; `null` is the risk of predicting zero."""
        return {
            "model": self.title,
            "n": self.n,
            "d": self.cov.d,
            "noise": self.noise,
            "ridge": self.ridge,
            "null": null,
        }

    def formula(self) -> Risk:
        """Return the closed form, of shape (P, 1): one signal.

        Raises
        ------
        ValueError
            If a number is out of range.
        """
        if self.place is not None and self.cov.eigenvalues[self.place] <= 1e-12 * self.cov.eigenvalues[0]:
            raise ValueError(
                "the covariance has no variance along --direction, so nothing can be predicted: give a smaller one"
            )
        if self.place is not None and isinstance(self.cov, Rotated):  # avoids computing eigenvectors
            place = np.array([self.place])
            return direction_risk(self.cov, self.n, self.ratios, self.noise, which=place, ridge=self.ridge)
        return risk(self.cov, self.beta[:, None], self.n, self.ratios, self.noise, ridge=self.ridge)

    def simulate(self, **options: Any) -> Simulation:
        """Return the risk on random rows and masks; options are those of :func:`~r2mae.theory.simulate`."""
        return theory.simulate(self.cov, self.beta, self.n, self.ratios, noise=self.noise, ridge=self.ridge, **options)


def range_label(chosen: Range) -> str:
    """Return a range in words."""
    return f"R²MAE {chosen.low:g}–{chosen.high:g}"  # noqa: RUF001


def read_problem(
    *,
    model: str | None,
    cov: str | None,
    d: int | None,
    n: int,
    delta: float | None,
    cosine: float | None,
    direction: str | None,
    noise: float,
    ratios: str,
    low: float | None,
    high: float | None,
    ridge: float,
    seed: int,
) -> Problem:
    """Return the problem that the options of ``r2mae theory risk`` describe.

    Raises
    ------
    UserError, ValueError
        If options contradict each other or are out of range.
    """
    given = {"d": d, "delta": delta, "cosine": cosine, "direction": direction}
    if (low is None) != (high is None):
        raise UserError("--low and --high belong together: a range has two ends")
    if seed < 0:
        raise UserError(f"--seed must be 0 or more, not {seed}")
    if cov is not None and model is not None:
        raise UserError("--model and --cov exclude each other: the file determines it")
    name = "spiked" if model is None else model
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    what, takes = (f"--model {name}", MODELS[name]) if cov is None else ("--cov", ("direction",))
    for option, value in given.items():
        if value is not None and option not in takes:
            raise UserError(f"{what} does not take --{option}: see --help")
    fixed = np.array(parse_ratios(ratios))
    chosen = None if low is None or high is None else Range(low, high)
    found, signal, title = (
        _named_covariance(name, 1000 if d is None else d, seed, delta, cosine)
        if cov is None
        else (load_covariance(Path(cov)), None, Path(cov).name)
    )
    place = None if signal is not None else found.at_quantile(quantile_of(direction))
    if place is not None:
        title += f", {ordinal(place)} eigenvector"
    title += f", n = {n:,}, d = {found.d:,}"
    return Problem(found, place, signal, title, n, noise, ridge, fixed, chosen)


def _named_covariance(
    model: str, d: int, seed: int, delta: float | None, cosine: float | None
) -> tuple[Covariance, np.ndarray | None, str]:
    """Return one of the covariances of :data:`MODELS`, the signal (None for an eigenvector) and its name in words."""
    if model == "identity":
        return theory.identity(d), theory.uniform_direction(d, seed), model
    if model == "spiked":
        delta, cosine = 10.0 if delta is None else delta, 1.0 if cosine is None else cosine
        v = theory.uniform_direction(d, seed)
        return theory.spiked(delta, v), theory.signal_at(v, cosine, seed), f"spiked, δ = {delta:g}, cos = {cosine:g}"
    if model == "plateau":
        return *theory.plateau(d, min(50, d), seed), model
    if model == "latent":
        return theory.latent(d, seed), None, model
    spectrum = theory.uniform_spectrum if model == "uniform" else theory.beta_spectrum
    return spectrum(d, seed), None, model


def load_covariance(path: Path) -> Covariance:
    """Read a covariance, a d by d matrix, from a .npy file.

    Raises
    ------
    UserError
        If there is none.
    """
    try:
        matrix = np.lib.format.open_memmap(path, mode="r")  # which refuses a header of more than the file has
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; --cov takes a .npy file of a d by d matrix") from None
    except ValueError:
        raise UserError(f"{path}: not a .npy file of numbers: write one with numpy.save") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not matrix.size:
        raise UserError(f"{path}: --cov takes a d by d matrix of real numbers")
    try:
        return Dense(matrix if matrix.dtype.kind == "f" else matrix.astype(np.float64))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def risk_rows(problem: Problem, result: Risk) -> list[dict[str, Any]]:
    """Return the risk and its parts, one row for each ratio."""
    parts = {
        "kept_rows": result.rows,
        "risk": result.risk[:, 0],
        "normalised": result.normalised[:, 0],
        "bias": np.where(np.abs(result.bias) < 1e-12 * result.risk, 0.0, result.bias)[:, 0],  # no rounding errors
        "variance": result.variance[:, 0],
        "magnitude": result.magnitude[:, 0],
    }
    return _by_ratio(problem, parts)


def simulation_rows(problem: Problem, formula: Risk, measured: Simulation) -> list[dict[str, Any]]:
    """Return the measured risk next to the formula's, one row for each ratio."""
    expected = formula.risk[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(np.isfinite(expected), (measured.risk - expected) / measured.error, np.nan)
    parts = {
        "kept_rows": measured.kept.mean(axis=0),
        "risk": measured.risk,
        "normalised": measured.normalised,
        "sd": measured.deviation,
        "standard_error": measured.error,
        "formula": expected,
        "difference_in_errors": np.where(np.isfinite(gap), gap, np.nan),
        "magnitude": measured.magnitude,
    }
    return _by_ratio(problem, parts)


def _by_ratio(problem: Problem, parts: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    return [
        {"ratio": label, **{name: float(part[index]) for name, part in parts.items()}}
        for index, label in enumerate(problem.labels())
    ]


def summary_sentence(rows: Sequence[dict[str, Any]]) -> str:
    """Return a sentence that names the best ratio and compares the range with it."""
    fixed = [row for row in rows if not row["ratio"].startswith("R²MAE")]
    best = min(fixed, key=lambda row: row["risk"])
    if best["normalised"] >= 1:
        sentence = "None of these ratios predicts better than zero does."
        if best["ratio"] != "0":
            sentence += f" The closest is {best['ratio']}, with {best['normalised']:.4f} times the risk."
    else:
        sentence = (
            f"Lowest risk at ratio {best['ratio']}: {best['risk']:.4g}, {best['normalised']:.4f} of predicting zero."
        )
    for row in rows:
        if row["ratio"].startswith("R²MAE"):
            gap = row["normalised"] - best["normalised"]
            side = "above" if gap >= 0 else "below"
            sentence += (
                f" {row['ratio']}: {row['normalised']:.4f}, {abs(gap):.4f} {side} the best of these fixed ratios."
            )
    return sentence


def ordinal(index: int) -> str:
    """Return "1st" for 0."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get((index + 1) % 10 if (index + 1) % 100 not in (11, 12, 13) else 0, "th")
    return f"{index + 1}{ending}"


def parse_ratios(text: str) -> list[float]:
    """Read "0.05:0.95:0.05" or "0.1,0.5,0.9".

    Raises
    ------
    UserError
        If it is neither, or a ratio is not from 0 to below 1.
    """
    wanted = f"--ratios takes FIRST:LAST:STEP such as 0.05:0.95:0.05, or ratios such as 0.1,0.5, not {text!r}"
    parts = text.split(":")
    try:
        words = parts if len(parts) == 3 else re.split(r"[,\s]+", text.strip(", "))
        numbers = [float(word.encode("ascii")) for word in words]
    except ValueError:
        raise UserError(wanted) from None
    if len(parts) == 3:
        first, last, step = numbers
        if not (step > 0 and first <= last):
            raise UserError(f"{wanted}: LAST not below FIRST, and STEP above 0")
        steps = (last - first) / step + 1e-9
        if not steps < _MOST:
            raise UserError(f"--ratios asks for {steps + 1:,.0f} ratios: at most {_MOST:,}, take a larger STEP")
        numbers = [round(first + k * step, 10) for k in range(int(steps) + 1)]
    wrong = [number for number in numbers if not 0 <= number < 1]
    if wrong:
        raise UserError(f"--ratios must be at least 0 and below 1, not {wrong[0]:g}")
    return sorted(set(numbers))


def quantile_of(direction: str | None) -> float:
    """Return the quantile of the eigenvector that "top", or a number from 0 to 1, names.

    Raises
    ------
    UserError
        If it is neither.
    """
    if direction is None or direction == "top":
        return 0.0
    try:
        quantile = float(direction)
    except ValueError:
        quantile = -1.0
    if not 0 <= quantile <= 1:
        raise UserError(f"--direction takes top, or a quantile from the top such as 0.1, not {direction!r}")
    return quantile
