"""Masked ridgeless regression simulated: the paper's protocol, with exact risks and common random numbers."""

import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from r2mae.theory.checks import check_nonnegative
from r2mae.theory.copies import check_masks
from r2mae.theory.covariance import Covariance, CovarianceLike, as_covariance, signal_columns
from r2mae.theory.inputs import ZEROS, Inputs
from r2mae.theory.masked import (
    RandomStream,
    Uniforms,
    bit_generator,
    kept_row_indices,
    masked_rows,
    minimum_norm,
    solve_normal,
)
from r2mae.theory.rows import Keep, RatioLike, kept_rows, ratios_of, ratios_of_rows

Design = tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n m"]]


@dataclass(frozen=True)
class Simulation:
    """Measured risks for R repetitions, P ratios and m signals (without the last axis if β is one vector).

    Attributes
    ----------
    risks : array (R, P, *m)
        (b̂ − β)ᵀΣ(b̂ − β) in each repetition (the paper's eq. (risk)); with entries missing in use, the expected squared
        error of predicting xβ from such a row.
    magnitudes : array (R, P, *m)
        The mean square of the predictions (Fig. 1D), b̂ᵀΣb̂ if nothing is missing.
    null : array (*m)
        βᵀΣβ, the risk of predicting zero.
    kept : array (R, P)
        Number ñ of training rows, over all masks; for K = ∞ the number of rows.
    """

    risks: Float[np.ndarray, "R P *m"]
    magnitudes: Float[np.ndarray, "R P *m"]
    null: Float[np.ndarray, "*m"]
    kept: Int[np.ndarray, "R P"]

    @property
    def risk(self) -> Float[np.ndarray, "P *m"]:
        """Mean over the repetitions."""
        return np.asarray(self.risks.mean(axis=0))

    @property
    def magnitude(self) -> Float[np.ndarray, "P *m"]:
        """Mean magnitude over the repetitions."""
        return np.asarray(self.magnitudes.mean(axis=0))

    @property
    def deviation(self) -> Float[np.ndarray, "P *m"]:
        """Standard deviation over the repetitions (the paper's error bars); NaN for one repetition."""
        return _standard_deviation(self.risks)

    @property
    def error(self) -> Float[np.ndarray, "P *m"]:
        """Standard error of `risk`; with a fixed design, that over masks."""
        return np.asarray(self.deviation / math.sqrt(len(self.risks)))

    @property
    def normalised(self) -> Float[np.ndarray, "P *m"]:
        """Mean risk over the null risk.

        Raises
        ------
        ValueError
            If a null risk is zero.
        """
        if not np.all(self.null):
            raise ValueError("beta has no variance under cov, so its null risk is zero: the risk cannot be normalised")
        return np.asarray(self.risk / self.null)

    def difference(self, i: int, j: int) -> tuple[Float[np.ndarray, "*m"], Float[np.ndarray, "*m"]]:
        """Return the mean of risk i minus risk j, and its standard error, paired by repetition.

        Parameters
        ----------
        i, j : int
            Indices of two ratios. They share designs and uniform numbers, so most of the noise cancels.
        """
        gap = self.risks[:, i] - self.risks[:, j]
        return np.asarray(gap.mean(axis=0)), np.asarray(_standard_deviation(gap) / math.sqrt(len(gap)))


@dataclass(frozen=True)
class _Protocol:
    """The settings of every repetition."""

    cov: Covariance
    beta: Float[np.ndarray, "d m"]
    n: int
    ratios: list[float | RatioLike]
    noise: float
    ridge: float
    keep: Keep
    masks: float
    inputs: Inputs
    seed: int


def simulate(
    cov: CovarianceLike,
    beta: ArrayLike,
    n: int,
    ratios: Sequence[float | RatioLike] | Float[np.ndarray, " P"],
    *,
    noise: float = 0.0,
    repetitions: int = 50,
    design: Literal["fixed", "fresh"] = "fixed",
    ridge: float = 0.0,
    keep: Keep = "ratio",
    masks: float = 1,
    inputs: Inputs = ZEROS,
    seed: int = 0,
    jobs: int = 1,
) -> Simulation:
    """Measure the test risk of masked ridgeless regression (section "Reduced linear model", appendix "Simulations").

    Rows of X are drawn from N(0, Σ), and y = Xβ + ε. Row i has a ratio pᵢ and is kept with probability pᵢ; each of its
    entries is kept with probability 1 − pᵢ. b̂ is the minimum-norm solution of ỹ on X̃. All ratios use the same uniform
    numbers, so ``Uniform(p, p)`` and the number p give bit-equal results. Results are bit-equal for any `jobs`.

    Parameters
    ----------
    cov : Covariance or array (d, d)
        Σ.
    beta : array (d,) or (d, m)
        One signal, or one per column; all share X, ε and the masks.
    n : int
        Rows before masking.
    ratios : sequence of P floats in [0, 1), or distributions
        With a distribution each row draws its own ratio (R²MAE, Tables 5 and 9):
        :func:`~r2mae.theory.rows.ratios_of_rows`.
    noise : float
        Variance σ² of ε.
    repetitions : int
        R.
    design : {"fixed", "fresh"}
        Draw X and ε once for all repetitions of the masks (the paper), or again in each repetition.
    ridge : float
        λ, with the mean over masks of the squared errors; zero means the ridgeless limit.
    keep : "ratio", float or KeepRule
        Probability of keeping a row: its mask ratio, or a constant; or a rule.
    masks : int or inf
        Number K of masks of each row, drawn independently with their ratios and kept rows. For inf the average over
        masks is computed exactly, by the rows' Gram matrix; the rows are then the only random numbers.
    inputs : Inputs
        How hidden entries are filled, and what is missing in use.
    seed : int
        Seed for all random numbers.
    jobs : int
        Number of threads. Each stores the masked rows, n·d/2 words of uniform numbers and, with fresh designs, X.
        Linear algebra of the entire process is limited to one thread meanwhile: run one simulation at a time.

    Returns
    -------
    Simulation

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    """
    cov = as_covariance(cov)
    columns = signal_columns(cov, beta)
    values = ratios_of(ratios)
    if values is None:
        raise ValueError(f"ratios must be several, as a list, not {ratios!r}")
    for ratio in values:
        kept_rows(n, ratio, keep, check_masks(masks))  # raises if one of the four is invalid
    check_nonnegative(noise=noise, ridge=ridge)
    for name, value, least in (("repetitions", repetitions, 1), ("jobs", jobs, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be {least} or more, not {value}")
    if inputs.mean is not None:
        raise ValueError("inputs: simulated rows are centred, so mean must be None")
    if design not in ("fixed", "fresh"):
        raise ValueError(f"design must be 'fixed' or 'fresh', not {design!r}")
    protocol = _Protocol(cov, columns, n, values, noise, ridge, keep, masks, inputs, seed)
    with threadpool_limits(1):
        null = cov.quadratic(columns)
        cov.sample(1, np.random.default_rng(0))  # factorises the covariance once, before the threads start
        drawn = _draw_design(protocol, 0) if design == "fixed" else None
        once = partial(_run_repetition, protocol, drawn, threading.local())
        with ThreadPoolExecutor(jobs) as pool:  # an error or interrupt cancels repetitions that have not started
            results = list(pool.map(once, range(repetitions)))
    risks, magnitudes, kept = (np.stack(part) for part in zip(*results, strict=True))
    if np.ndim(beta) == 1:
        risks, magnitudes, null = risks[..., 0], magnitudes[..., 0], null[0]
    return Simulation(risks, magnitudes, np.asarray(null), kept)


_Result = tuple[Float[np.ndarray, "P m"], Float[np.ndarray, "P m"], Int[np.ndarray, " P"]]


def _draw_design(protocol: _Protocol, repetition: int) -> Design:
    """Draw X, and y for each signal; all signals share the noise."""
    x = protocol.cov.sample(
        protocol.n, np.random.Generator(bit_generator(protocol.seed, repetition, RandomStream.DESIGN))
    )
    noise = np.random.Generator(bit_generator(protocol.seed, repetition, RandomStream.NOISE)).standard_normal(
        protocol.n
    )
    return x, x @ protocol.beta + math.sqrt(protocol.noise) * noise[:, None]


def _run_repetition(protocol: _Protocol, drawn: Design | None, local: threading.local, repetition: int) -> _Result:
    """Fit all ratios on one draw of the uniform numbers."""
    x, y = _draw_design(protocol, repetition) if drawn is None else drawn
    if not hasattr(local, "buffer"):
        local.buffer = np.empty_like(x)
    u = Uniforms.draw(protocol.n, x.shape[1], protocol.seed, repetition)
    fitted = [_fit(protocol, x, y, ratio, repetition, u, local.buffer) for ratio in protocol.ratios]
    measured = np.stack([_measure(protocol, b) for b, _ in fitted], axis=1)
    return measured[0], measured[1], np.array([count for _, count in fitted])


def _fit(
    protocol: _Protocol,
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n m"],
    ratio: float | RatioLike,
    repetition: int,
    first: Uniforms,
    buffer: Float[np.ndarray, "n d"],
) -> tuple[Float[np.ndarray, "d m"], int]:
    """Return b̂ and the number of kept rows."""
    (n, d), masks, ridge = x.shape, protocol.masks, protocol.ridge
    rows = kept_rows(n, ratio, protocol.keep, masks)
    if masks == math.inf:
        u, s = protocol.inputs.factors(rows.p)
        gram = float(rows.share * rows.weight @ u**2) * (x.T @ x)
        gram.flat[:: d + 1] += float(rows.share * rows.weight @ s) * np.einsum("ij,ij->j", x, x) + ridge
        return solve_normal(gram, float(rows.share * rows.weight @ u) * (x.T @ y)), n

    def masked(mask: int) -> Design:
        u = first if mask == 0 else Uniforms.draw(n, d, protocol.seed, repetition, mask)
        p = ratios_of_rows(ratio, u.ratio)
        kept = kept_row_indices(p, u, protocol.keep)
        rows = masked_rows(x, u.entries, p, kept, buffer)
        if protocol.inputs.rule == "rescaled":
            rows /= 1 - p[kept, None]
        return rows, y[kept]

    if masks == 1:
        one, target = masked(0)
        return minimum_norm(one, target, ridge), len(one)
    if rows.count <= d:  # the stacked rows are at most about as large as their d x d Gram matrix
        drawn = [(rows.copy(), target) for rows, target in map(masked, range(int(masks)))]
        stacked, targets = (np.concatenate(part) for part in zip(*drawn, strict=True))
        return minimum_norm(stacked, targets, masks * ridge), len(stacked)
    gram, right, count = masks * ridge * np.eye(d), np.zeros((d, y.shape[1])), 0
    for mask in range(int(masks)):
        one, target = masked(mask)
        gram += one.T @ one
        right += one.T @ target
        count += len(one)
    return solve_normal(gram, right), count


def _measure(protocol: _Protocol, b: Float[np.ndarray, "d m"]) -> Float[np.ndarray, "2 m"]:
    """Return the exact risk and magnitude of b̂."""
    risk, magnitude = protocol.cov.quadratic(np.hstack([b - protocol.beta, b])).reshape(2, -1)
    u2, s, u = protocol.inputs.in_use()
    if (u2, s, u) == (1.0, 0.0, 1.0):
        return np.stack([risk, magnitude])
    null = protocol.cov.quadratic(protocol.beta)
    seen = u2 * magnitude + s * (protocol.cov.diagonal @ b**2)
    return np.stack([seen - u * (magnitude + null - risk) + null, seen])


def _standard_deviation(values: Float[np.ndarray, "R *rest"]) -> Float[np.ndarray, "*rest"]:
    if len(values) == 1:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(axis=0, ddof=1))
