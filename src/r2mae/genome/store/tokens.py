"""The alphabet of an alignment: a byte for every species at every position."""

import numpy as np
from jaxtyping import UInt8

A, C, G, T, GAP, UNKNOWN = range(6)
LETTERS = "ACGT-N"
"""The letter of each token. Everything that is neither a base nor a gap is unknown."""
BASES = GAP
"""A, C, G and T are the tokens below this number: those that can be hidden and predicted."""
MASK = len(LETTERS)
"""The token of a hidden base; only the target of a model has it."""
SOFT = 0x80
"""The bit of the reference's column that says soft-masked (a lower-case letter, usually a repeat)."""
TOKEN = np.uint8(SOFT - 1)
"""The other bits."""
INVALID = 0x7F
"""The token of a byte that no alignment holds."""


def _tables() -> tuple[bytes, bytes]:
    # U counts as T; the ambiguity codes, and what programs write for missing data, are unknown.
    tokens = {letter: token for token, letter in enumerate(LETTERS)} | {"U": T} | dict.fromkeys("RYSWKMBDHVX?", UNKNOWN)
    plain, soft = bytearray([INVALID]) * 256, bytearray([INVALID]) * 256
    for letter, token in tokens.items():
        plain[ord(letter)] = plain[ord(letter.lower())] = soft[ord(letter)] = token
        if letter.isalpha():
            soft[ord(letter.lower())] = token | SOFT
    return bytes(plain), bytes(soft)


PLAIN_TABLE, SOFT_TABLE = _tables()
"""From letters to tokens, for :meth:`bytes.translate`; by the second, lower case sets the bit :data:`SOFT`."""


def letters(tokens: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Return the ASCII codes of tokens, lower case where the bit :data:`SOFT` is set."""
    upper = np.frombuffer(LETTERS.encode(), np.uint8)[tokens & TOKEN]
    return np.asarray(upper | ((tokens & np.uint8(SOFT)) >> 2))  # 0x20 makes a letter lower case


def complement(tokens: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Return the complementary bases; gaps, unknowns and the bit :data:`SOFT` stay."""
    # A, C, G, T are 0 to 3, and the complement of x is 3 - x, which is x with both bits changed.
    is_base = (tokens & np.uint8(0x7C)) == 0
    return np.asarray(tokens ^ (is_base.view(np.uint8) * np.uint8(3)))


def reverse_complement(
    tokens: UInt8[np.ndarray, "batch length *species"],
) -> UInt8[np.ndarray, "batch length *species"]:
    """Return windows as they read on the other strand: positions reversed, bases complemented."""
    return complement(tokens[:, ::-1])
