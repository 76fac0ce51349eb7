"""Rotary positions against RoFormer's, and dropout of attention."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention, RoFormerSinusoidalPositionalEmbedding

from r2mae.genome.models.gpn_msa import attend, rotary_angles, rotate


def test_positions_turn_as_in_roformer() -> None:
    queries = torch.randn(2, 3, 11, 8)
    angles = rotary_angles(11, 8)
    stock = RoFormerSinusoidalPositionalEmbedding(11, 8)
    stock.weight.copy_(stock.create_weight())
    table = stock(torch.Size([2, 11]))[None, None]
    theirs, _ = RoFormerSelfAttention.apply_rotary_position_embeddings(table, queries, queries)
    torch.testing.assert_close(rotate(queries, angles.cos(), angles.sin()), theirs, atol=1e-5, rtol=1e-5)


@settings(max_examples=20, deadline=None)
@given(first=st.integers(0, 40), second=st.integers(0, 40), shift=st.integers(0, 40))
def test_scores_hang_on_distances_alone(first: int, second: int, shift: int) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    angles = rotary_angles(81, 8).double()

    def score(one: int, other: int) -> Tensor:
        turned = [rotate(vector, angles[[at]].cos(), angles[[at]].sin()) for vector, at in ((query, one), (key, other))]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(score(first, second), score(first + shift, second + shift), atol=1e-5, rtol=1e-5)


def test_dropout_drops_as_torch_does_on_average() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 5, 4)
    plain = attend(query, key, value, 0.0)
    many = [one.repeat(4000, 1, 1, 1) for one in (query, key, value)]  # at once: each row draws for itself
    mean = attend(*many, 0.3).unflatten(0, (4000, 2)).mean(0)
    torch.testing.assert_close(mean, plain, atol=0.06, rtol=0)
