import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from r2mae.masking.keys import Key
from r2mae.masking.masks import (
    column_mask,
    corrupt_tokens,
    element_mask,
    hidden_count,
    patch_mask,
    span_starts,
    token_mask,
)

keys = st.builds(lambda seed, row: Key.root(seed).fold("mask").rows(row), st.integers(0, 2**60), st.integers(0, 10**6))
ratios = st.floats(0, 1)
widths = st.integers(2, 40)


@pytest.mark.parametrize(
    ("length", "ratio", "count"),
    [
        (100, 1 - 0.8, 20),
        (100, 0.29, 29),
        (10, 0.25, 3),
        (10, 0.24, 2),
        (7, 0.0, 1),
        (7, 1.0, 6),
        (2, 0.5, 1),
        (196, 0.75, 147),
    ],
)
def test_counts_round_to_nearest_and_leave_one_of_each(length: int, ratio: float, count: int) -> None:
    assert hidden_count(length, ratio) == count


@given(st.integers(2, 5000), ratios)
def test_counts_are_within_half_an_entry(length: int, ratio: float) -> None:
    count = hidden_count(length, ratio)
    assert 1 <= count <= length - 1
    assert abs(count - ratio * length) <= 0.5 + 1e-6 or count in (1, length - 1)


@given(keys, st.integers(1, 9), widths, ratios, st.booleans())
def test_every_row_has_a_hidden_and_a_kept_entry(key: Key, rows: int, width: int, ratio: float, exact: bool) -> None:
    mask = element_mask((rows, width), ratio, key, exact=exact)
    hidden = mask.sum(1)
    assert (hidden >= 1).all()
    assert (hidden <= width - 1).all()
    if exact:
        assert (hidden == hidden_count(width, ratio)).all()


@given(keys, st.integers(2, 12), st.integers(2, 30), ratios, st.booleans(), st.data())
def test_a_rank_makes_its_rows_of_the_global_mask(
    key: Key, rows: int, width: int, ratio: float, exact: bool, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, rows - 1))
    whole = element_mask((rows, width), ratio, key, exact=exact)
    part = element_mask((rows - first, width), ratio, key.rows(key.row + first), exact=exact)
    assert torch.equal(whole[first:], part)


@given(keys, st.integers(1, 6), st.integers(2, 30), ratios)
def test_patches_split_into_kept_and_hidden(key: Key, batch: int, length: int, ratio: float) -> None:
    keep, hidden = patch_mask(batch, length, ratio, key)
    count = hidden_count(length, ratio)
    assert keep.shape == (batch, length - count)
    assert hidden.shape == (batch, count)
    both = torch.cat([keep, hidden], 1).sort(1).values
    assert torch.equal(both, torch.arange(length).expand(batch, length))
    assert (keep.diff(dim=1) > 0).all()
    mask = element_mask((batch, length), ratio, key, exact=True)
    assert torch.equal(torch.zeros(batch, length).scatter(1, hidden, 1.0).bool(), mask)


def test_columns_are_shared_by_all_rows() -> None:
    key = Key.root(0).fold("mask", 3)
    mask = column_mask(5000, 0.25, key)
    assert int(mask.sum()) == 1250
    assert torch.equal(mask, column_mask(5000, 0.25, key.rows(77)))
    assert not torch.equal(mask, column_mask(5000, 0.25, Key.root(0).fold("mask", 4)))


@st.composite
def specials(draw: st.DrawFn) -> Tensor:
    rows, length = draw(st.integers(1, 5)), draw(st.integers(1, 24))
    flags = draw(st.lists(st.booleans(), min_size=rows * length, max_size=rows * length))
    return torch.tensor(flags).view(rows, length)


@given(specials(), keys, ratios, st.booleans())
def test_special_tokens_are_never_hidden(special: Tensor, key: Key, ratio: float, exact: bool) -> None:
    mask = token_mask(special, ratio, key, exact=exact)
    assert not (mask & special).any()
    for row, flags in zip(mask, special, strict=True):
        candidates = int((~flags).sum())
        if candidates >= 2:
            assert 1 <= int(row.sum()) <= candidates - 1
            if exact:
                assert int(row.sum()) == hidden_count(candidates, ratio)
        else:
            assert int(row.sum()) == candidates


@given(specials(), keys, ratios, st.booleans(), st.data())
def test_words_are_hidden_whole_and_spans_to_the_count(
    special: Tensor, key: Key, ratio: float, cut: bool, data: st.DataObject
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=special.numel(), max_size=special.numel()))
    starts = torch.tensor(flags).view(special.shape)
    mask = token_mask(special, ratio, key, starts=starts, cut=cut)
    assert not (mask & special).any()
    for row, closed, first in zip(mask, special, starts, strict=True):
        candidates, hidden = int((~closed).sum()), int(row.sum())
        units = first.long().cumsum(0)
        parts = [row[(units == unit) & ~closed] for unit in units.unique()]
        torn = sum(bool(part.any() and not part.all()) for part in parts)
        if candidates < 2:
            assert hidden == candidates
            continue
        count = hidden_count(candidates, ratio)
        assert 1 <= hidden <= count
        sizes = [len(part) for part in parts if len(part)]
        if cut or min(sizes) > count:
            assert hidden == count
        if cut:
            assert torn <= 1
        elif min(sizes) <= count:
            assert torn == 0 and count - hidden < max(sizes)
    assert torch.equal(mask[1:], token_mask(special[1:], ratio, key.rows(key.row + 1), starts=starts[1:], cut=cut))


def test_spans_have_their_mean_length() -> None:
    starts = span_starts((200, 500), Key.root(0).fold("spans"))
    assert float(starts.float().mean()) == pytest.approx(1 / 3.8, abs=0.005)
    hidden = token_mask(torch.zeros(200, 500, dtype=torch.bool), 0.15, Key.root(1), starts=starts, cut=True)
    runs = (hidden[:, 1:] & ~hidden[:, :-1]).sum() + hidden[:, 0].sum()
    assert 3.8 < float(hidden.sum() / runs) < 5.2  # neighbouring spans join


def test_wide_rows_use_wider_draws() -> None:
    for exact in (True, False):
        mask = token_mask(torch.zeros(2, 5000, dtype=torch.bool), 0.3, Key.root(9), exact=exact)
        assert abs(float(mask.float().mean()) - 0.3) < 0.03


def test_bernoulli_has_the_ratio_and_no_pattern() -> None:
    steps = [element_mask((64, 784), 0.3, Key.root(0).fold("mask", step)).float() for step in range(40)]
    stack = torch.stack(steps)
    n = stack.numel()
    assert abs(float(stack.mean()) - 0.3) < 5 * math.sqrt(0.21 / n)
    by_column = stack.mean((0, 1))
    assert float((by_column - 0.3).abs().max()) < 6 * math.sqrt(0.21 / (40 * 64))
    flat = stack.flatten(1)
    correlation = torch.corrcoef(flat) - torch.eye(40)
    assert float(correlation.abs().max()) < 6 / math.sqrt(flat.shape[1])


@pytest.mark.parametrize("exact", [True, False])
def test_no_entry_is_favoured(exact: bool) -> None:
    mask = element_mask((20_000, 10), 0.3, Key.root(4), exact=exact)
    share = mask.double().mean(0)
    assert float((share - 0.3).abs().max()) < 5 * math.sqrt(0.21 / 20_000)
    # Exact counts make entries of a row slightly exclusive: -1/(n-1) in correlation, no more.
    correlation = np.corrcoef(mask.double().numpy().T) - np.eye(10)
    expected = -1 / 9 if exact else 0.0
    assert np.abs(correlation[~np.eye(10, dtype=bool)] - expected).max() < 5 / math.sqrt(20_000)


def test_every_row_may_have_its_own_ratio() -> None:
    ratios = np.array([0.1, 0.5, 0.9, 0.0, 1.0])
    exact = element_mask((5, 100), ratios, Key.root(0), exact=True)
    assert exact.sum(1).tolist() == [10, 50, 90, 1, 99]
    rough = element_mask((5, 1000), ratios, Key.root(0))
    assert rough.sum(1).tolist() == pytest.approx([100, 500, 900, 1, 999], abs=60)
    with pytest.raises(ValueError, match="ratios for 4 rows"):
        element_mask((4, 10), ratios, Key.root(0))


@pytest.mark.usefixtures("unchecked")
def test_index_tensors_take_one_ratio() -> None:
    with pytest.raises(ValueError, match="one ratio for all rows"):
        patch_mask(2, 10, np.array([0.1, 0.5]), Key.root(0))  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", [-0.01, 1.01, float("nan")])
def test_bad_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        element_mask((2, 8), ratio, Key.root(0))


def test_a_row_of_one_entry_is_refused() -> None:
    for call in (
        lambda: element_mask((3, 1), 0.5, Key.root(0)),
        lambda: hidden_count(1, 0.5),
        lambda: column_mask(1, 0.5, Key.root(0)),
    ):
        with pytest.raises(ValueError, match="at least two"):
            call()


def test_corruption_keeps_its_shares() -> None:
    ids = torch.arange(100, 1100).repeat(64, 1)
    hidden = element_mask((64, 1000), 0.5, Key.root(0))
    out = corrupt_tokens(ids, hidden, Key.root(0).fold("replace"), mask_id=4, vocabulary=50_000)
    assert torch.equal(out[~hidden], ids[~hidden])
    n = int(hidden.sum())
    masked = int((out[hidden] == 4).sum()) / n
    same = int((out[hidden] == ids[hidden]).sum()) / n
    assert masked == pytest.approx(0.8, abs=5 * math.sqrt(0.16 / n))
    assert same == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / n) + 1e-4)
    all_masked = corrupt_tokens(ids, hidden, Key.root(0), mask_id=4, vocabulary=50_000, shares=(1, 0, 0))
    assert (all_masked[hidden] == 4).all()


def test_random_replacements_come_from_the_vocabulary_given() -> None:
    ids = torch.zeros(8, 200, dtype=torch.int64)
    hidden = torch.ones(8, 200, dtype=torch.bool)
    allowed = torch.tensor([11, 13, 17])
    out = corrupt_tokens(ids, hidden, Key.root(0), mask_id=4, vocabulary=allowed, shares=(0, 1, 0))
    assert set(out.flatten().tolist()) == {11, 13, 17}
    with pytest.raises(ValueError, match="sum to 1"):
        corrupt_tokens(ids, hidden, Key.root(0), mask_id=4, vocabulary=10, shares=(0.8, 0.1, 0.2))


def test_frozen_masks() -> None:
    """Old runs can be reproduced only while these masks stay equal."""
    key = Key.root(0).fold("mask", 0)
    assert element_mask((1, 12), 0.5, key).int().tolist() == [[0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1]]
    assert element_mask((1, 12), 0.5, key, exact=True).int().tolist() == [[1, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1]]


@settings(max_examples=30)
@given(st.integers(0, 2**40))
def test_other_seeds_give_other_masks(seed: int) -> None:
    a = element_mask((4, 300), 0.5, Key.root(seed))
    b = element_mask((4, 300), 0.5, Key.root(seed + 1))
    assert 0.35 < float((a == b).float().mean()) < 0.65
