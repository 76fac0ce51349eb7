"""The order of samples, and batches that draw: the same in any process, in any number of parts, after any stop."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.images.batches import ImageBatches
from r2mae.masking.keys import Key
from r2mae.training.loop import fit
from r2mae.training.order import BatchOrder, make_loader
from r2mae.training.validation import masked_losses

from .conftest import DimmedBatches, InterruptAt, Interrupted, ToyConfig, ToyDomain, equal_bytes


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
    assert len(list(whole)) == steps * parts
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


WHITE = np.full((40, 3, 4, 1), 255, np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_draws_ends_with_the_same_bytes_wherever_it_was_cut_off(
    tmp_path: Path, domain: ToyDomain, workers: int
) -> None:
    options: dict[str, Any] = {"steps": 20, "validation": 0.2, "validate_every": 6}
    fit(ToyConfig.make(**options, dimmed=True), domain, tmp_path / "whole")
    config = ToyConfig.make(**options, dimmed=True, workers=workers)
    with pytest.raises(Interrupted):
        fit(config, domain, tmp_path / "cut", reporter=InterruptAt(13))
    assert fit(config, domain, tmp_path / "cut").resumed_from == 7
    assert equal_bytes(tmp_path / "whole", tmp_path / "cut")
    fit(ToyConfig.make(**options), domain, tmp_path / "plain")
    assert not equal_bytes(tmp_path / "whole", tmp_path / "plain")


@pytest.mark.slow
def test_what_a_sample_draws_does_not_hang_on_the_micro_batches(tmp_path: Path, domain: ToyDomain) -> None:
    losses = []
    for parts in (1, 4):
        fit(ToyConfig.make(steps=10, accumulate=parts, dimmed=True), domain, tmp_path / str(parts))
        losses.append(pd.read_csv(tmp_path / str(parts) / "metrics.csv")["loss"].to_numpy())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_keys_are_those_of_seed_step_and_row() -> None:
    seen: list[Key] = []

    class Spy(ImageBatches):
        def batch(self, indices: Any, key: Key) -> torch.Tensor:
            seen.append(key)
            return super().batch(indices, key)

    order = BatchOrder(40, 12, 5, Key.root(3), accumulate=2, first_step=3, rank=1, ranks=2)
    list(make_loader(Spy(WHITE), order, Key.root(3).fold("batch")))
    assert seen == [Key.root(3).fold("batch", step).rows(row) for step in (3, 4) for row in (3, 9)]


def test_the_parts_of_all_processes_make_the_batch() -> None:
    key, data, parts = Key.root(3).fold("batch"), DimmedBatches(WHITE), {}
    (whole,) = make_loader(data, BatchOrder(40, 24, 1, Key.root(3)), key)
    for rank in range(2):
        order = BatchOrder(40, 24, 1, Key.root(3), accumulate=3, rank=rank, ranks=2)
        parts |= {(number, rank): batch for number, batch in enumerate(make_loader(data, order, key))}
    assert torch.equal(torch.cat([parts[part] for part in sorted(parts)]), whole)
    assert len(set(whole.flatten(1)[:, 0].tolist())) > 12


def test_validation_draws_the_same_in_every_call(domain: ToyDomain) -> None:
    task, model = domain.build({"pixels": 12, "dropout": 0.0})
    data = domain.load(ToyConfig.make(validation=0.5, dimmed=True)).validation
    first = masked_losses(task, model, data, (0.2, 0.8))
    assert masked_losses(task, model, data, (0.2, 0.8)) == first
