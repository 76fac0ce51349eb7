"""Batches that draw: the same whatever makes them, in which process, in how many parts, after how many stops."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from r2mae.images.batches import ImageBatches
from r2mae.masking.keys import Key, uniforms
from r2mae.training.loader import make_loader
from r2mae.training.loop import fit
from r2mae.training.order import BatchOrder
from r2mae.training.validation import masked_losses

from .conftest import InterruptAt, Interrupted, ToyConfig, ToyWing, equal_bytes


class Dimmed(ImageBatches):
    """Images, each made darker by a number of its own."""

    def batch(self, indices: Any, key: Key) -> torch.Tensor:
        light = torch.from_numpy(uniforms(key, len(indices)))[:, None]
        return (super().batch(indices, key) * light).to(torch.uint8)


class DimmedWing(ToyWing):
    def load(self, config: ToyConfig) -> Any:
        data = super().load(config)
        train, held_out = data.train, data.validation
        images = train.flat.reshape(-1, 3, 4, 1)
        return SimpleNamespace(
            train=Dimmed(images, train.rows),
            validation=None if held_out is None else Dimmed(images, held_out.rows),
            architecture=data.architecture,
        )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_draws_ends_with_the_same_bytes_wherever_it_was_cut_off(tmp_path: Path, workers: int) -> None:
    fit(ToyConfig(steps=20, validation=0.2, validate_every=6), DimmedWing(), tmp_path / "whole")
    config = ToyConfig(steps=20, validation=0.2, validate_every=6, workers=workers)
    with pytest.raises(Interrupted):
        fit(config, DimmedWing(), tmp_path / "cut", reporter=InterruptAt(13))
    assert fit(config, DimmedWing(), tmp_path / "cut").resumed_from == 7
    assert equal_bytes(tmp_path / "whole", tmp_path / "cut")
    fit(ToyConfig(steps=20, validation=0.2, validate_every=6), ToyWing(), tmp_path / "plain")
    assert not equal_bytes(tmp_path / "whole", tmp_path / "plain")


def test_what_a_sample_draws_does_not_hang_on_the_micro_batches(tmp_path: Path) -> None:
    losses = []
    for parts in (1, 4):
        fit(ToyConfig(steps=10, accumulate=parts), DimmedWing(), tmp_path / str(parts))
        losses.append(pd.read_csv(tmp_path / str(parts) / "metrics.csv")["loss"].to_numpy())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_the_parts_of_all_processes_make_the_batch() -> None:
    data = Dimmed(np.full((40, 3, 4, 1), 255, np.uint8))
    (whole,) = make_loader(data, BatchOrder(40, 24, 1, Key.root(3)), Key.root(3).fold("batch"))
    parts = {}
    for rank in range(2):
        order = BatchOrder(40, 24, 1, Key.root(3), accumulate=3, rank=rank, ranks=2)
        parts |= {
            (number, rank): batch for number, batch in enumerate(make_loader(data, order, Key.root(3).fold("batch")))
        }
    assert torch.equal(torch.cat([parts[part] for part in sorted(parts)]), whole)
    assert len(set(whole[:, 0].tolist())) > 12


def test_steps_and_seeds_draw_anew() -> None:
    data = Dimmed(np.full((8, 3, 4, 1), 255, np.uint8))
    seen = [
        batch[:, 0].tolist()
        for seed in (0, 1)
        for batch in make_loader(data, BatchOrder(8, 8, 3, Key.root(0)), Key.root(seed).fold("batch"))
    ]
    assert len({tuple(one) for one in seen}) == 6


def test_validation_draws_the_same_in_every_call() -> None:
    wing = DimmedWing()
    task, model = wing.build({"pixels": 12, "dropout": 0.0})
    data = wing.load(ToyConfig(validation=0.5)).validation
    first = masked_losses(task, model, data, (0.2, 0.8))
    assert masked_losses(task, model, data, (0.2, 0.8)) == first
    assert masked_losses(task, model, data, (0.2, 0.8), seed=1) != first
