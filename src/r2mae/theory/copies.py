"""The kept copies of a row under K masks, and the functions of them that the fixed point needs.

Copy k of a row has the factor u_k = 1 − p_k and the mask variance s_k = p_k(1 − p_k): two copies have the
cross-covariance u_k u_l Σ + δ_kl s_k D. With A = e + x_D s/K and α = 1/A, all functions of the K × K matrix
B = (diag(A) + x_Σ uuᵀ/K)⁻¹ are sums over the copies (Sherman and Morrison), so only the numbers of copies of each
ratio matter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, xlog1py, xlogy

from r2mae.theory.inputs import Inputs
from r2mae.theory.rows import Keep, RatioLike, kept_rows

_MOST_PATTERNS = 50_000  # numbers of copies by ratio that are enumerated, with three ratios or more
MOST_MASKS = 4096  # of a distribution of ratios
_NEGLIGIBLE = 1e-14  # probability below which a pattern is left out
_POWERS = np.array([1, 1, 1, 2, 2, 2, 2, 3])[:, None]
_LEAST = 1e-60  # in place of A = 0, where nothing is hidden


@dataclass(frozen=True)
class Terms:
    """Functions of x = (x_Σ, x_D), with their derivatives.

    Attributes
    ----------
    coefficients : array (2,)
        E uᵀBu and E Σ_k s_k B_kk, each over K: the coefficients of Σ and D in M.
    d_coefficients : array (2, 2)
        Their derivatives; the last axis is x.
    shrink : float
        E 1ᵀBu/K, so that E b̂ = shrink · M⁻¹Σβ.
    d_shrink : array (2,)
    d_residual : array (J, 2)
        Derivatives of 1ᵀB1/K for each pattern, times its probability.
    """

    coefficients: Float[np.ndarray, " 2"]
    d_coefficients: Float[np.ndarray, "2 2"]
    shrink: float
    d_shrink: Float[np.ndarray, " 2"]
    d_residual: Float[np.ndarray, "J 2"]


@dataclass(frozen=True)
class Copies:
    """J patterns of the kept copies of one row, with their probabilities.

    Attributes
    ----------
    n : int
        Rows before masking.
    count : float
        Expected number of kept rows, copies included: n·K·E[p] (infinite for K = ∞).
    p, u, s : array (k,)
        Ratios, and the factor of Σβ and the variance of masks at each.
    share : array (J, k)
        Number of copies of each ratio, over K.
    probability : array (J,)
    inverse : float
        1/K; zero for K = ∞.
    shifts : (float, float)
        Coefficients of (μᵀb)² in M, which only K = ∞ needs, and in the risk.
    """

    n: int
    count: float
    p: Float[np.ndarray, " k"]
    u: Float[np.ndarray, " k"]
    s: Float[np.ndarray, " k"]
    share: Float[np.ndarray, "J k"]
    probability: Float[np.ndarray, " J"]
    inverse: float
    shifts: tuple[float, float] = (0.0, 0.0)

    @cached_property
    def distinct(self) -> float:
        """Expected number of kept rows that differ: copies with nothing hidden are the same row."""
        masked, same = self.s > 0, (self.share[:, self.s == 0] > 0).any(axis=1)
        if self.inverse == 0:
            return math.inf if self.share[:, masked].any() else self.n * float(same.any())
        copies = self.share[:, masked].sum(axis=1) / self.inverse
        return self.n * float(self.probability @ (copies + same))

    @property
    def unseen(self) -> Float[np.ndarray, " J"]:
        """Probability that an entry is hidden in all copies, for each pattern."""
        if self.inverse == 0:
            return np.zeros(1)
        return np.asarray(np.prod(self.p ** (self.share / self.inverse), axis=1))

    @cached_property
    def _factors(self) -> Float[np.ndarray, "8 k"]:
        """What multiplies the powers of α in the sums over copies."""
        u, s = self.u, self.s
        return np.stack([u * u, u, s, s, s * u, s * u * u, s * s, (s * u) ** 2])

    def terms(self, e: float, x: Float[np.ndarray, " 2"]) -> Terms:
        """Return the functions at x."""
        r, weight = self.inverse, self.probability
        alpha = 1 / np.maximum(e + r * x[1] * self.s, _LEAST)
        uu, u1, s1, s2, su, suu, ss, ssuu = (self._factors * alpha**_POWERS) @ self.share.T
        q = 1 / (1 + x[0] * uu)
        a, h = uu * q, u1 * q
        own, g = r * x[0] * q * suu, x[0] * h
        means = weight @ np.stack(
            [
                a,
                s1 - own,
                h,
                -a * a,
                -r * q * q * suu,
                2 * r * r * x[0] * q * ssuu - own * own - r * ss,
                -h * a,
                h * own - r * q * su,
            ],
            axis=1,
        )
        return Terms(
            coefficients=means[:2],
            d_coefficients=means[[3, 4, 4, 5]].reshape(2, 2),
            shrink=float(means[2]),
            d_shrink=means[6:],
            d_residual=weight[:, None] * np.stack([-h * h, r * (g * (2 * su - g * suu) - s2)], axis=1),
        )


def check_masks(masks: float) -> float:
    """Return K, or raise a ValueError."""
    if not (masks == math.inf or (masks >= 1 and masks == int(masks))):
        raise ValueError(f"masks must be a whole number of 1 or more, or inf, not {masks}")
    return masks


def kept_copies(n: int, ratio: float | RatioLike, keep: Keep, masks: float, inputs: Inputs) -> Copies:
    """Return the patterns of a row's kept copies: exact for one ratio, for K = 1 and for K = ∞.

    A distribution of ratios at another K is replaced by its Gauss rule of 2 to 9 ratios, the same for every mask, so
    that polynomials in each mask's ratio up to degree 3 to 17 are integrated exactly.

    Raises
    ------
    ValueError
        As :func:`~r2mae.theory.kept_rows`; if K is invalid; or if a distribution has more than 4,096 masks, or zeros in
        data with a mean, but not infinitely many masks.
    """
    check_masks(masks)
    rows = kept_rows(n, ratio, keep, masks)
    p, chance = rows.p, rows.weight * rows.share
    if rows.count == 0 or masks == math.inf:
        share, probability = chance[None], np.ones(1)
    elif masks == 1:
        share, probability = np.eye(len(p)), chance
    else:
        if len(p) > 1 and masks > MOST_MASKS:
            raise ValueError(f"masks: a distribution of ratios needs at most {MOST_MASKS:,} masks, or inf; not {masks}")
        k = int(masks)
        most = next(g for g in range(9, 1, -1) if g == 2 or math.comb(k + g, g) <= _MOST_PATTERNS)
        p, weight = gauss_rule(p, rows.weight, most)
        numbers, probability = _multinomial(k, weight * rows.share)
        share = numbers / k
    u, s = inputs.factors(p)
    variance, shift = inputs.shifts(rows.p, rows.weight)
    if masks < math.inf and variance > 1e-12:
        raise ValueError("inputs: zeros in data with a mean and several ratios need masks=inf, not a finite number")
    return Copies(n, rows.count, p, u, s, share, probability, 1 / masks, (rows.share * variance, shift))


def gauss_rule(
    p: Float[np.ndarray, " k"], weight: Float[np.ndarray, " k"], most: int
) -> tuple[Float[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """Return the Gauss rule of at most `most` nodes of a discrete distribution (Golub and Welsch)."""
    if len(p) <= most:
        return p, weight
    basis = [np.sqrt(weight)]
    diagonal, off = [], []
    for _ in range(most):
        new = p * basis[-1]
        diagonal.append(float(basis[-1] @ new))
        for _ in range(2):
            new = new - np.stack(basis).T @ (np.stack(basis) @ new)
        off.append(float(np.linalg.norm(new)))
        if off[-1] < 1e-12:
            break
        basis.append(new / off[-1])
    size = len(diagonal)
    jacobi = np.diag(diagonal) + np.diag(off[: size - 1], 1) + np.diag(off[: size - 1], -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    return nodes, vectors[0] ** 2


def _multinomial(
    k: int, chances: Sequence[float] | Float[np.ndarray, " g"]
) -> tuple[Int[np.ndarray, "J g"], Float[np.ndarray, " J"]]:
    """Return the numbers of copies of each ratio under k masks, without the case of none, and their probabilities."""
    numbers, probability, rest = np.zeros((1, 0), dtype=np.int64), np.ones(1), 1.0
    for chance in chances:
        left, own = k - numbers.sum(axis=1), min(1.0, chance / rest)
        middle, width = left * own, 9 * np.sqrt(k * own * (1 - own)) + 9
        number = np.maximum(np.floor(middle - width), 0)[:, None] + np.arange(int(2 * width) + 2)
        possible = number <= left[:, None]
        number = np.where(possible, number, 0).astype(np.int64)
        others = left[:, None] - number
        log = gammaln(left + 1.0)[:, None] - gammaln(number + 1.0) - gammaln(others + 1.0)
        chance_of = probability[:, None] * np.exp(log + xlogy(number, own) + xlog1py(others, -own)) * possible
        row, column = np.nonzero(chance_of > _NEGLIGIBLE)
        numbers = np.column_stack([numbers[row], number[row, column]])
        probability, rest = chance_of[row, column], max(rest - chance, 1e-300)
    some = numbers.any(axis=1)
    return numbers[some], probability[some]
