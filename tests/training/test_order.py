import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from r2mae.masking.keys import Key
from r2mae.training.order import BatchOrder


@given(st.integers(1, 50), st.integers(1, 30), st.integers(1, 40), st.integers(0, 2**40))
def test_every_epoch_has_each_sample_once(samples: int, batch: int, steps: int, seed: int) -> None:
    order = BatchOrder(samples, batch, steps, Key.root(seed))
    row = np.concatenate([share.indices for share in order])
    assert len(row) == steps * batch
    for epoch in range(len(row) // samples):
        assert sorted(row[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


@given(st.integers(2, 50), st.integers(1, 8), st.integers(1, 4), st.integers(1, 20), st.data())
def test_starting_late_gives_the_rest(samples: int, micro: int, parts: int, steps: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, steps - 1))
    whole = BatchOrder(samples, micro * parts, steps, Key.root(1), accumulate=parts)
    late = BatchOrder(samples, micro * parts, steps, Key.root(1), accumulate=parts, first_step=first)
    assert len(late) == len(whole) == steps * parts
    rest = list(whole)[first * parts :]
    assert all((a.indices == b.indices).all() and a[1:] == b[1:] for a, b in zip(rest, late, strict=True))
    assert all(len(share.indices) == micro for share in whole)


@given(st.integers(2, 50), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_ranks_share_out_every_micro_batch(samples: int, share: int, parts: int, ranks: int) -> None:
    batch = share * parts * ranks
    whole = BatchOrder(samples, batch, 5, Key.root(1), accumulate=parts)
    split = [BatchOrder(samples, batch, 5, Key.root(1), accumulate=parts, rank=r, ranks=ranks) for r in range(ranks)]
    for one, several in zip(whole, zip(*split, strict=True), strict=True):
        assert one.indices.tolist() == np.concatenate([share.indices for share in several]).tolist()


@given(st.integers(2, 50), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_a_share_knows_its_step_and_its_rows(samples: int, share: int, parts: int, ranks: int) -> None:
    """However a step is split, what is drawn by step and row in the global batch is the same for each sample."""
    batch = share * parts * ranks
    whole = BatchOrder(samples, batch, 3, Key.root(1))
    for rank in range(ranks):
        for part in BatchOrder(samples, batch, 3, Key.root(1), accumulate=parts, rank=rank, ranks=ranks):
            of_the_step = whole.indices(part.step)
            assert part.indices.tolist() == of_the_step[part.row : part.row + share].tolist()
    assert [one[1:] for one in whole] == [(0, 0), (1, 0), (2, 0)]


def test_epochs_and_seeds_have_other_orders() -> None:
    order = BatchOrder(100, 100, 3, Key.root(0))
    first, second, _ = (share.indices for share in order)
    assert (first != second).any()
    assert (first != BatchOrder(100, 100, 3, Key.root(1)).indices(0)).any()
