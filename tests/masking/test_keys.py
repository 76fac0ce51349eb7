import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2mae.masking.keys import Key, permutation, uniforms, words
from r2mae.masking.masks import device_words

pytestmark = pytest.mark.slow

seeds = st.integers(0, 2**63)


def splitmix64(state: int, count: int) -> list[int]:
    """The published algorithm, in integers."""
    mask, out = 2**64 - 1, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out.append(z ^ (z >> 31))
    return out


def test_words_are_splitmix64() -> None:
    # First outputs for seed 1234567, as published with the reference implementation.
    assert words(Key(1234567), 1, 5)[0].tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(seeds, st.integers(0, 2**40), st.integers(1, 5), st.integers(1, 7))
def test_device_gives_the_bits_of_the_host(seed: int, row: int, rows: int, per_row: int) -> None:
    key = Key.root(seed).fold("mask").rows(row)
    device = device_words(key, rows, per_row, torch.device("cpu")).numpy().view(np.uint64)
    np.testing.assert_array_equal(device, words(key, rows, per_row))


@given(seeds, st.integers(0, 1000), st.integers(1, 20), st.integers(1, 5))
def test_rows_do_not_depend_on_where_a_rank_begins(seed: int, first: int, rows: int, per_row: int) -> None:
    key = Key.root(seed)
    whole = words(key, first + rows, per_row)
    np.testing.assert_array_equal(words(key.rows(first), rows, per_row), whole[first:])


@given(seeds)
def test_words_agree_with_the_reference(seed: int) -> None:
    key = Key.root(seed).fold("any")
    assert words(key, 1, 4)[0].tolist() == splitmix64(key.state, 4)


def test_frozen_reference() -> None:
    """A change of these numbers changes every mask of every old run: it needs a new major version."""
    key = Key.root(0).fold("mask", 7)
    assert key.state == Key.root(0).fold("mask").fold(7).state
    assert key.state == 0x1062099A43EC70F1
    assert permutation(key, 8).tolist() == [5, 6, 0, 2, 7, 3, 4, 1]


def test_seed_zero_is_a_seed() -> None:
    states = {Key.root(seed).state for seed in range(1000)}
    assert len(states) == 1000


def test_names_and_numbers_of_streams_differ() -> None:
    root = Key.root(3)
    keys = [root.fold("mask"), root.fold("ratio"), root.fold(0), root.fold(1), root.fold(0, 0), root.fold("0")]
    assert len({key.state for key in keys}) == len(keys)


def test_streams_and_steps_are_uncorrelated() -> None:
    draws = np.stack(
        [
            uniforms(Key.root(seed).fold(stream, step), 20_000)
            for seed in (0, 1)
            for stream in ("mask", "ratio")
            for step in (0, 1, 2)
        ]
    )
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


def test_uniforms_are_uniform() -> None:
    assert stats.kstest(uniforms(Key.root(5), 50_000), "uniform").pvalue > 1e-3
    firsts = [Key.root(0).fold("ratio", step).uniform() for step in range(20_000)]
    assert stats.kstest(firsts, "uniform").pvalue > 1e-3


@given(seeds, st.integers(0, 99), st.integers(1, 9), st.integers(1, 9))
def test_a_row_may_have_several_uniforms(seed: int, first: int, rows: int, per_row: int) -> None:
    whole = uniforms(Key.root(seed), first + rows, per_row)
    assert whole.shape == (first + rows, per_row)
    assert np.array_equal(uniforms(Key.root(seed).rows(first), rows, per_row), whole[first:])
    assert np.array_equal(uniforms(Key.root(seed), rows, 1)[:, 0], uniforms(Key.root(seed), rows))


@given(seeds, st.integers(1, 300))
def test_permutation_is_a_permutation(seed: int, n: int) -> None:
    assert sorted(permutation(Key.root(seed), n).tolist()) == list(range(n))


def test_permutation_has_no_preferred_place() -> None:
    places = np.array([permutation(Key.root(seed), 6) for seed in range(6000)])
    counts = np.stack([np.bincount(places[:, place], minlength=6) for place in range(6)])
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


def test_negative_row_is_refused() -> None:
    with pytest.raises(ValueError, match="first row"):
        Key.root(0).rows(-1)


def test_keys_are_made_of_whole_numbers_of_any_type() -> None:
    key = Key.root(3).fold("x", 5).rows(7)
    for kind in (np.int64, np.uint8, np.array, torch.tensor):
        assert Key.root(kind(3)).fold("x", kind(5)).rows(kind(7)) == key
    assert Key.root(0).fold(True) == Key.root(0).fold(1)
    for fraction in (0.3, 2.0, np.float32(0.7), np.array([0.5]), None):
        for make in (Key.root, key.fold, key.rows):
            with pytest.raises(TypeError):
                make(fraction)  # type: ignore[arg-type]
