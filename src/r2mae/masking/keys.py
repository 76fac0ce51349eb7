"""Keys: all randomness is a pure function of (seed, stream, step or epoch, row in the global batch).

A :class:`Key` holds no generator and no history. Its draws are SplitMix64 in counter mode: word ``i`` is the
SplitMix64 finaliser of ``state + (i + 1) * golden``. Integer arithmetic alone is involved, so NumPy on the host and
torch on a device (:func:`r2mae.masking.masks.device_words`) give the same bits. A rank or worker that starts in the
middle of the stream draws the same numbers as one that started at its beginning.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import SupportsIndex

import numpy as np
from jaxtyping import Float, Int64, UInt64

_ALL_64_BITS = (1 << 64) - 1
_MOST_CACHED = 1 << 18  # words, 2 MiB
# SplitMix64's constants (Steele, Lea and Flood 2014).
INCREMENT = 0x9E3779B97F4A7C15
MULTIPLIER_1 = 0xBF58476D1CE4E5B9
MULTIPLIER_2 = 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class Key:
    """A named stream of random numbers, from which named sub-streams are made with :meth:`fold`.

    Parameters
    ----------
    state : int
        64 bits that name the stream. Make keys with :meth:`root` and :meth:`fold`, not from states.
    row : int
        Position in the *global* batch of the first row that this key draws. A rank with rows 96 … 127 draws with
        ``key.rows(96)``, and so gets the numbers that a single process draws for these rows.

    Examples
    --------
    >>> run = Key.root(seed=0)
    >>> run.fold("mask", 7) == Key.root(0).fold("mask").fold(7)
    True
    """

    state: int
    row: int = 0

    @classmethod
    def root(cls, seed: SupportsIndex) -> "Key":
        """Return the key of a run. Different seeds give different keys; 0 is a valid seed."""
        return cls(_mix(index(seed) & _ALL_64_BITS))

    def fold(self, *parts: SupportsIndex | str) -> "Key":
        """Return the key of a sub-stream named by integers (steps, epochs) or words; fractions are a TypeError."""
        state = self.state
        for part in parts:
            word = _hash_of(part) if isinstance(part, str) else index(part) & _ALL_64_BITS
            state = _mix((_mix((word + INCREMENT) & _ALL_64_BITS) ^ state) + INCREMENT & _ALL_64_BITS)
        return Key(state, self.row)

    def rows(self, first: SupportsIndex) -> "Key":
        """Return this key for rows that start at `first` in the global batch."""
        row = index(first)
        if row < 0:
            raise ValueError(f"the first row must be 0 or more, not {row}")
        return Key(self.state, row)

    def uniform(self) -> float:
        """Return one number in [0, 1) with 53 random bits; it depends on the state alone."""
        return (_mix((self.state + INCREMENT) & _ALL_64_BITS) >> 11) * 2.0**-53

    def seed(self) -> int:
        """Return a seed in [0, 2**63) for another library's generator (dropout, weight initialisation)."""
        return self.state >> 1


def words(key: Key, rows: int, per_row: int) -> UInt64[np.ndarray, "rows per_row"]:
    """Draw 64-bit words for consecutive rows on the host.

    Parameters
    ----------
    key : Key
        ``key.row`` is the first row.
    rows, per_row : int
        Row ``r`` gets the words ``(key.row + r) * per_row + (0 … per_row - 1)`` of the stream.

    Returns
    -------
    ndarray of uint64, shape (rows, per_row)
    """
    first, count = key.row * per_row + 1, rows * per_row
    counters = _counters if count <= _MOST_CACHED else _counters.__wrapped__
    x = counters(first, count) + np.uint64(key.state)
    x ^= x >> np.uint64(30)
    x *= np.uint64(MULTIPLIER_1)
    x ^= x >> np.uint64(27)
    x *= np.uint64(MULTIPLIER_2)
    x ^= x >> np.uint64(31)
    return x.reshape(rows, per_row)


@lru_cache(maxsize=8)
def _counters(first: int, count: int) -> UInt64[np.ndarray, " count"]:
    """Return counters times the increment, cached: every step of a run needs the same ones."""
    x = np.arange(first, first + count, dtype=np.uint64)
    x *= np.uint64(INCREMENT)
    x.flags.writeable = False
    return x


def uniforms(key: Key, count: int, per_row: int | None = None) -> Float[np.ndarray, "count *per_row"]:
    """Draw numbers in [0, 1), with 53 random bits each, for `count` rows that start at ``key.row``.

    Parameters
    ----------
    key : Key
        ``key.row`` is the first row.
    count : int
        Number of rows.
    per_row : int, optional
        Numbers in a row; by default one, without an axis for it.

    Returns
    -------
    float64 ndarray of shape (count,), or (count, per_row)
    """
    drawn = words(key, count, 1)[:, 0] if per_row is None else words(key, count, per_row)
    return (drawn >> np.uint64(11)) * 2.0**-53


def permutation(key: Key, n: int) -> Int64[np.ndarray, " n"]:
    """Return a random order of ``range(n)``: the argsort of `n` words, the same in every NumPy version.

    ``key.row`` is ignored, so that all micro-batches and processes get the same order.
    """
    return np.argsort(words(key.rows(0), 1, n)[0], kind="stable").astype(np.int64, copy=False)


def _mix(word: int) -> int:
    word = (word ^ (word >> 30)) * MULTIPLIER_1 & _ALL_64_BITS
    word = (word ^ (word >> 27)) * MULTIPLIER_2 & _ALL_64_BITS
    return word ^ (word >> 31)


@lru_cache(maxsize=1024)
def _hash_of(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
