"""Mask functions with the signatures of other libraries."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.integrations.masks import boolean_mask, random_masking, random_token_mask
from r2mae.masking import Key

KEY = Key.root(0)
SIZES = {"batch": st.integers(1, 5), "tokens": st.integers(2, 20), "ratio": st.floats(0, 1)}


@given(**SIZES)
def test_restored_tokens_are_in_the_order_of_the_input(batch: int, tokens: int, ratio: float) -> None:
    x = torch.arange(batch * tokens * 3.0).reshape(batch, tokens, 3)
    kept, mask, restore = random_masking(x, ratio, KEY)
    blank = torch.full((batch, tokens - kept.shape[1], 3), -1.0)
    restored = torch.cat([kept, blank], 1).gather(1, restore[..., None].expand(-1, -1, 3))  # as MAE's decoder does
    assert torch.equal(restored, torch.where(mask[..., None] == 1, -1.0, x))


@given(**SIZES)
def test_all_forms_hide_the_same_tokens(batch: int, tokens: int, ratio: float) -> None:
    mask = boolean_mask(batch, tokens, ratio, KEY)
    keep, hidden = random_token_mask((batch, tokens + 1), ratio, KEY)
    assert torch.equal(mask, torch.zeros(batch, tokens).scatter(1, hidden - 1, 1) == 1)
    assert not mask.gather(1, keep[:, 1:] - 1).any()
    assert torch.equal(random_masking(torch.zeros(batch, tokens, 1), ratio, KEY)[1] == 1, mask)


def test_the_class_token_is_kept_and_not_counted() -> None:
    keep, hidden = random_token_mask((2, 11), 0.5, KEY)
    assert keep.shape == (2, 6) and hidden.shape == (2, 5)
    assert (keep[:, 0] == 0).all() and (hidden > 0).all()


def test_a_process_draws_its_rows_of_the_global_batch() -> None:
    whole = boolean_mask(8, 10, 0.4, KEY)
    assert torch.equal(boolean_mask(4, 10, 0.4, KEY.rows(4)), whole[4:])


@pytest.mark.parametrize("ratio", [-0.1, 1.1])
def test_bad_ratios(ratio: float) -> None:
    with pytest.raises(ValueError, match="ratio must be between 0 and 1"):
        boolean_mask(2, 4, ratio, KEY)
