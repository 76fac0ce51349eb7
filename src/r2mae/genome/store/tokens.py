"""The alphabet of an alignment: a byte for every species at every position."""

import numpy as np
from jaxtyping import UInt8

A, C, G, T, GAP, UNKNOWN = range(6)
LETTERS = "ACGT-N"
"""The letter of each token. Everything that is neither a base nor a gap is unknown."""

SOFT = 0x80
"""The bit of the reference's column that says soft-masked (a lower-case letter, usually a repeat)."""

INVALID = 0x7F
"""What :func:`tokenise` makes of a byte that no alignment holds."""

_IUPAC = b"NRYSWKMBDHVXn?"  # the ambiguity codes, and what programs write for missing data


def _tables() -> tuple[bytes, bytes]:
    plain = bytearray([INVALID]) * 256
    for letter in _IUPAC:
        plain[letter] = plain[ord(chr(letter).lower())] = UNKNOWN
    for token, letters in enumerate((b"A", b"C", b"G", b"TU", b"-")):
        for letter in letters:
            plain[letter] = plain[ord(chr(letter).lower())] = token
    soft = bytearray(plain)
    for letter in range(ord("a"), ord("z") + 1):
        if soft[letter] != INVALID:
            soft[letter] |= SOFT
    return bytes(plain), bytes(soft)


PLAIN_TABLE, SOFT_TABLE = _tables()
_LETTER_TABLE = np.full(256, ord("N"), np.uint8)
for _token, _letter in enumerate(LETTERS):
    _LETTER_TABLE[_token], _LETTER_TABLE[_token | SOFT] = ord(_letter), ord(_letter.lower())


def tokenise(text: bytes, *, soft: bool = False) -> bytes:
    """Return the tokens of a row's letters, a byte each.

    Parameters
    ----------
    text : bytes
        ASCII letters, either case; U counts as T.
    soft : bool
        Whether lower case sets the bit :data:`SOFT`; otherwise case means nothing.

    Returns
    -------
    bytes
        With :data:`INVALID` where a byte is no letter of an alignment.
    """
    return text.translate(SOFT_TABLE if soft else PLAIN_TABLE)


def letters(tokens: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Return the ASCII codes of tokens, lower case where the bit :data:`SOFT` is set."""
    found: UInt8[np.ndarray, "..."] = _LETTER_TABLE[tokens]
    return found


def complement(tokens: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Return the complementary bases; gaps, unknowns and the bit :data:`SOFT` stay."""
    # A, C, G, T are 0 to 3, and the complement of x is 3 - x, which is x with both bits changed.
    is_base = (tokens & np.uint8(0x7C)) == 0
    found: UInt8[np.ndarray, "..."] = tokens ^ (is_base.view(np.uint8) * np.uint8(3))
    return found


def reverse_complement(
    tokens: UInt8[np.ndarray, "batch length *species"],
) -> UInt8[np.ndarray, "batch length *species"]:
    """Return windows as they read on the other strand: positions reversed, bases complemented."""
    return complement(tokens[:, ::-1])
