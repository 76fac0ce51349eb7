"""Letters become tokens, and strands turn."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from r2mae.genome.store.tokens import (
    GAP,
    INVALID,
    LETTERS,
    PLAIN_TABLE,
    SOFT,
    SOFT_TABLE,
    UNKNOWN,
    complement,
    letters,
    reverse_complement,
)

WINDOWS = arrays.arrays(np.uint8, arrays.array_shapes(min_dims=3, max_dims=3), elements=st.integers(0, 5))


def test_every_letter_has_its_token() -> None:
    tokens = b"ACGTU-NacgtunRYSWKMBDHVX?".translate(PLAIN_TABLE)
    assert list(tokens) == [0, 1, 2, 3, 3, GAP, UNKNOWN, 0, 1, 2, 3, 3, *[UNKNOWN] * 13]
    assert [token & SOFT for token in b"Aa-nN".translate(SOFT_TABLE)] == [0, SOFT, 0, SOFT, 0]


@given(st.binary())
def test_other_bytes_are_found(text: bytes) -> None:
    wrong = [place for place, byte in enumerate(text) if chr(byte).upper() not in "ACGTUNRYSWKMBDHVX-?"]
    assert text.translate(PLAIN_TABLE).find(INVALID) == (wrong[0] if wrong else -1)
    assert all((token == INVALID) == (place in wrong) for place, token in enumerate(text.translate(SOFT_TABLE)))


@given(st.text("ACGTNacgtn-"))
def test_letters_come_back(text: str) -> None:
    tokens = np.frombuffer(text.encode().translate(SOFT_TABLE), np.uint8)
    assert letters(tokens).tobytes().decode() == text


@given(WINDOWS)
def test_the_reverse_complement_twice_is_the_identity(windows: np.ndarray) -> None:
    turned = reverse_complement(windows)
    assert (reverse_complement(turned) == windows).all()
    pairs = dict(zip("ACGT-N", "TGCA-N", strict=True))
    for window, other in zip(windows, turned, strict=True):
        for row, its in zip(window, other[::-1], strict=True):
            assert [pairs[LETTERS[token]] for token in row] == [LETTERS[token] for token in its]


def test_complements_keep_the_soft_mask() -> None:
    tokens = np.array([0, 1, 2, 3, GAP, UNKNOWN], np.uint8)
    assert complement(tokens | SOFT).tolist() == (complement(tokens) | SOFT).tolist()
