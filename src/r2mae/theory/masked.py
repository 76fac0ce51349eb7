"""Masked least squares on actual rows: their ratios, the masked rows, and the minimum-norm solution."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jaxtyping import Float, Int, UInt32
from scipy.linalg.lapack import dpotrs

from r2mae.theory.rows import Keep, KeepRule, check_keep

Columns = Float[np.ndarray, "d *m"]
_BLOCK = 1 << 15  # entries masked at a time, so that a block stays in the processor's cache
_MIN_PIVOT = 1e-11  # relative size of a Cholesky pivot below which a Gram matrix counts as singular


class RandomStream(IntEnum):
    """Purposes of random numbers, each with its own stream: draws for one do not change those for another."""

    DESIGN = 0
    NOISE = 1
    KEEP = 2
    RATIO = 3
    MASK = 4


def bit_generator(seed: int, repetition: int, stream: RandomStream, mask: int = 0) -> np.random.SFC64:
    """Return the bit generator of one stream of one mask of one repetition."""
    key = (int(stream), repetition) if mask == 0 else (int(stream), repetition, mask)
    return np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key))


@dataclass(frozen=True)
class Uniforms:
    """The uniform numbers of one mask of one repetition, shared by all ratios (common random numbers).

    Attributes
    ----------
    keep, ratio : array (n,)
        Numbers in [0, 1) that determine whether a row is kept, and its ratio from the distribution.
    entries : array (n, d)
        A number for each entry of the data, as integers from 0 to 2³² − 1.
    """

    keep: Float[np.ndarray, " n"]
    ratio: Float[np.ndarray, " n"]
    entries: UInt32[np.ndarray, "n d"]

    @classmethod
    def draw(cls, n: int, d: int, seed: int, repetition: int = 0, mask: int = 0) -> "Uniforms":
        """Return the numbers: a pure function of the seed, the repetition and the number of the mask."""
        words = bit_generator(seed, repetition, RandomStream.MASK, mask).random_raw((n * d + 1) // 2)
        return cls(
            np.random.Generator(bit_generator(seed, repetition, RandomStream.KEEP, mask)).random(n),
            np.random.Generator(bit_generator(seed, repetition, RandomStream.RATIO, mask)).random(n),
            words.view(np.uint32)[: n * d].reshape(n, d),
        )


def kept_row_indices(ratios: Float[np.ndarray, " n"], u: Uniforms, keep: Keep = "ratio") -> Int[np.ndarray, " kept"]:
    """Return the indices of the rows kept for training.

    Parameters
    ----------
    ratios : array (n,)
        Mask ratio of each row.
    u : Uniforms
        The uniform numbers of the repetition.
    keep : "ratio", float or KeepRule
        Probability of keeping a row: its mask ratio (the target must be hidden, too), or a constant; or a rule.
    """
    if isinstance(keep, KeepRule):
        return np.flatnonzero(keep.kept(ratios, u.ratio, u.keep))
    return np.flatnonzero((ratios if keep == "ratio" else check_keep(keep)) > u.keep)


def masked_rows(
    x: Float[np.ndarray, "n d"],
    entries: UInt32[np.ndarray, "n d"],
    ratios: Float[np.ndarray, " n"],
    rows: Int[np.ndarray, " kept"],
    out: Float[np.ndarray, "rows d"] | None = None,
) -> Float[np.ndarray, "kept d"]:
    """Hide entries of the kept rows: X̃ = X_sub ⊙ Z, where an entry of Z is one with probability 1 − pᵢ.

    Parameters
    ----------
    x : array (n, d)
        All rows.
    entries, ratios
        Uniform numbers of the entries, and the rows' ratios.
    rows : array (kept,)
        Indices of the kept rows.
    out : array (rows, d), optional
        A buffer with at least as many rows; the result is a view of it.

    Returns
    -------
    array (kept, d)
    """
    out = np.empty((len(rows), x.shape[1])) if out is None else out[: len(rows)]
    # A ratio just below 1 would round to 2³², which is no uint32.
    threshold = np.minimum(np.rint(ratios * 2.0**32), 2.0**32 - 1).astype(np.uint32)[:, None]
    step = max(1, _BLOCK // max(1, x.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        part = out[start : start + len(block)]
        np.take(x, block, axis=0, out=part, mode="clip")  # the default mode, "raise", copies once more
        part *= entries[block] >= threshold[block]
    return out


def minimum_norm(
    x: Float[np.ndarray, "kept d"], y: Float[np.ndarray, "kept *m"], ridge: float = 0.0
) -> Float[np.ndarray, "d *m"]:
    """Return b̂ = X̃⁺ỹ, or (X̃ᵀX̃ + λI)⁻¹X̃ᵀỹ (section 3.2), with a column for each target; zero without rows.

    With fewer rows than features, X̃ᵀ(X̃X̃ᵀ + λI)⁻¹ỹ is computed, which factorises the smaller matrix.
    """
    kept, d = x.shape
    if kept == 0:
        return np.zeros((d, *y.shape[1:]))
    # numpy computes x @ x.T by dsyrk; unlike scipy's, this product and numpy's factorisation release the GIL.
    gram = x @ x.T if kept <= d else x.T @ x
    np.einsum("ii->i", gram)[:] += ridge
    factor = _cholesky(gram)
    if factor is None:
        return _solve_by_svd(x, y, ridge)
    if kept <= d:
        return np.asarray(x.T @ dpotrs(factor.T, y, lower=0)[0].reshape(y.shape))
    return np.asarray(dpotrs(factor.T, x.T @ y, lower=0)[0]).reshape(d, *y.shape[1:])


def solve_normal(gram: Float[np.ndarray, "d d"], right: Float[np.ndarray, "d m"]) -> Float[np.ndarray, "d m"]:
    """Return the minimum-norm solution of the normal equations; `gram` is overwritten."""
    kept = gram.copy()
    factor = _cholesky(gram)
    if factor is None:
        return np.asarray(np.linalg.pinv(kept, rcond=_MIN_PIVOT, hermitian=True) @ right)
    return np.asarray(dpotrs(factor.T, right, lower=0)[0])


def _cholesky(gram: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"] | None:
    """Return the lower factor, or None if the matrix, whose diagonal may be changed, is numerically singular."""
    diagonal = np.einsum("ii->i", gram)
    diagonal[diagonal == 0] = 1.0  # a row or feature that is hidden entirely contributes nothing to the solution
    own = diagonal.copy()
    try:
        factor: Float[np.ndarray, "k k"] = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        return None
    return factor if (np.diagonal(factor) ** 2 > _MIN_PIVOT * own).all() else None


def _solve_by_svd(x: Float[np.ndarray, "kept d"], y: Float[np.ndarray, "kept *m"], ridge: float) -> Columns:
    """Return the solution for dependent rows or features; singular values at rounding level count as zero."""
    left, values, right = np.linalg.svd(x, full_matrices=False)
    real = values > values.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    weight = np.where(real, values, 0.0) / np.where(real, values**2 + ridge, 1.0)
    return np.asarray(right.T @ (weight * (left.T @ y).T).T)
