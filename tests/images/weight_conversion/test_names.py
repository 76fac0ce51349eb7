"""Names of parameters, there and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ViTForImageClassification, ViTModel

from images.weight_conversion.small_vits import equal, ours, stock_mae, stock_vit
from r2mae.errors import UserError
from r2mae.images.weights import for_transformers, from_transformers


@settings(max_examples=15)
@given(
    heads=st.integers(1, 3),
    layers=st.integers(1, 3),
    decoder_layers=st.integers(1, 2),
    decoder_heads=st.integers(1, 2),
    patch=st.sampled_from([2, 4]),
    grid=st.tuples(st.integers(1, 3), st.integers(2, 3)),
    channels=st.sampled_from([1, 3]),
)
def test_there_and_back_is_nothing(
    heads: int, layers: int, decoder_layers: int, decoder_heads: int, patch: int, grid: tuple[int, int], channels: int
) -> None:  # fmt: skip
    sizes = {"width": 8 * heads, "layers": layers, "heads": heads, "decoder_layers": decoder_layers}
    shape = (grid[0] * patch, grid[1] * patch, channels)
    state = ours(shape, patch, **sizes, decoder_width=4 * decoder_heads, decoder_heads=decoder_heads).state_dict()
    theirs = for_transformers(state)
    assert not theirs.keys() & state.keys()
    assert sum(value.numel() for value in theirs.values()) == sum(value.numel() for value in state.values())
    assert equal(from_transformers(theirs), dict(state))


def test_our_names_are_those_of_the_stock_model() -> None:
    """Every parameter of transformers has one of ours, of the same shape, and no name is left over."""
    found = from_transformers(stock_mae().state_dict())
    assert {name: value.shape for name, value in found.items()} == {
        name: value.shape for name, value in ours().state_dict().items()
    }
    found = from_transformers(stock_vit(ViTForImageClassification, num_labels=3).state_dict())
    assert found["head.weight"].shape == (3, 32)
    left = {name for name in from_transformers(stock_vit(ViTModel).state_dict()) if name not in ours().state_dict()}
    assert left == {"pooler.dense.weight", "pooler.dense.bias"}


def test_half_a_layer_is_refused() -> None:
    state = {name: value for name, value in stock_mae().state_dict().items() if "layers.1.attention.k_proj" not in name}
    with pytest.raises(UserError, match=r"blocks\.1\.attn\.qkv\.weight has no key projection"):
        from_transformers(state)
