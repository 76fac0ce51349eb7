"""Batches that draw: the same whatever makes them, in which process, in how many parts, after how many stops."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from r2mae.images.batches import ImageBatches
from r2mae.masking.keys import Key
from r2mae.training.loop import fit
from r2mae.training.order import BatchOrder, make_loader
from r2mae.training.validation import masked_losses

from .conftest import DimmedBatches, InterruptAt, Interrupted, ToyConfig, ToyDomain, equal_bytes

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
    assert masked_losses(task, model, data, (0.2, 0.8), seed=1) != first
