from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from r2mae.errors import warn_once
from r2mae.masking.keys import Key
from r2mae.training.loop import fit
from r2mae.training.step import Pretraining
from r2mae.training.validation import masked_losses

from .conftest import ToyConfig, ToyDomain


def module_for(domain: ToyDomain, **options: Any) -> Pretraining:
    config = ToyConfig.make(**options)
    task, model = domain.build({"pixels": 12, "dropout": config.dropout})
    return Pretraining(task, model, config.scheme.bind(100), config, 100)


def batch(rows: int = 20) -> torch.Tensor:
    return torch.randint(0, 256, (rows, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def hidden_and_errors(module: Pretraining, x: torch.Tensor, ratio: float) -> tuple[torch.Tensor, torch.Tensor]:
    corrupted = module.task.corrupt(x, ratio, Key.root(module.config.seed).fold("mask").fold(0))
    prediction = module.task.forward(module.model, corrupted).prediction
    return corrupted.hidden, (prediction - x / 255).square()


def test_the_loss_is_the_mean_over_hidden_pixels(domain: ToyDomain) -> None:
    module = module_for(domain, scheme="fixed", ratio=0.3)
    loss = module(batch(), 0, 0)
    hidden, errors = hidden_and_errors(module, batch(), 0.3)
    torch.testing.assert_close(loss, errors[hidden].mean())
    torch.testing.assert_close(module.end_step(), errors[hidden].mean())


@pytest.mark.parametrize("weighting", ["sum", "inverse-ratio"])
def test_other_weightings(domain: ToyDomain, weighting: str) -> None:
    module = module_for(domain, scheme="fixed", ratio=0.3, weighting=weighting)
    loss = module(batch(), 0, 0)
    hidden, errors = hidden_and_errors(module, batch(), 0.3)
    total = errors[hidden].sum()
    expected = total / 20 if weighting == "sum" else total / (0.3 * 20 * 12)
    torch.testing.assert_close(loss, expected)


def test_inverse_ratio_counts_the_entry_that_is_always_hidden(domain: ToyDomain) -> None:
    module = module_for(domain, scheme="fixed", ratio=1e-6, weighting="inverse-ratio")
    loss = module(batch(), 0, 0)
    hidden, errors = hidden_and_errors(module, batch(), 1e-6)
    assert (hidden.sum(1) == 1).all()
    torch.testing.assert_close(loss, errors[hidden].mean())


def test_learned_weights_multiply_the_losses_and_divide_by_the_count(domain: ToyDomain) -> None:
    module = module_for(domain, scheme="cl", ratio=0.3, low=0.2, high=0.4)
    loss = module(batch(), 0, 0)
    hidden, errors = hidden_and_errors(module, batch(), 0.3)
    assert module.weights is not None
    weights = module.weights(batch() / 255)
    assert module.scheme.curriculum is not None
    column = weights[:, module.scheme.curriculum.grid.nearest_column(0.3)]
    assert module.scheme.curriculum.grid.values[module.scheme.curriculum.grid.nearest_column(0.3)] == 0.3
    torch.testing.assert_close(loss, (errors * column)[hidden].sum() / hidden.sum())


def test_the_weight_network_has_its_own_group_without_decay(domain: ToyDomain) -> None:
    module = module_for(domain, scheme="r2mae-cl", weight_decay=0.1)
    model, weights = module.make_optimizer().param_groups
    assert (model["weight_decay"], weights["weight_decay"]) == (0.1, 0.0)
    assert len(model["params"]) + len(weights["params"]) == len(list(module.parameters()))


def test_adamw_decays_neither_biases_nor_norms(domain: ToyDomain) -> None:
    module = module_for(domain, optimizer="adamw", weight_decay=0.1)
    decayed, spared = module.make_optimizer().param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert {one.ndim for one in decayed["params"]} == {2}
    assert {one.ndim for one in spared["params"]} == {1}
    assert len(decayed["params"]) + len(spared["params"]) == len(list(module.model.parameters()))
    # As in Adam, whose weight decay is a penalty on all: nothing to spare, one group.
    for options in ({"optimizer": "adam", "weight_decay": 0.1}, {"optimizer": "adamw", "weight_decay": 0.0}):
        assert len(module_for(domain, **options).make_optimizer().param_groups) == 1


@pytest.mark.slow
def test_the_weight_network_is_frozen_during_warm_up(
    tmp_path: Path, domain: ToyDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    from r2mae.training import loop

    seen: dict[str, Pretraining] = {}

    class Spy(Pretraining):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            seen["module"] = self
            assert self.weights is not None
            self.before = [p.detach().clone() for p in self.weights.parameters()]

    monkeypatch.setattr(loop, "Pretraining", Spy)
    moved = {}
    for steps in (1, 4):  # the warm-up is the first sixtieth of the run: its first step
        fit(ToyConfig.make(steps=steps, scheme="cl"), domain, tmp_path / str(steps))
        module = seen["module"]
        assert module.weights is not None
        after = list(module.weights.parameters())
        moved[steps] = any(not torch.equal(a, b) for a, b in zip(module.before, after, strict=True))  # type: ignore[arg-type]
    assert moved == {1: False, 4: True}


def test_evaluation_masks_are_frozen_and_the_mode_is_restored(domain: ToyDomain) -> None:
    module = module_for(domain, dropout=0.5)
    data = domain.load(ToyConfig.make()).train
    module.model.train()
    first = masked_losses(module.task, module.model, data, (0.2, 0.8))
    torch.manual_seed(5)
    assert masked_losses(module.task, module.model, data, (0.2, 0.8)) == first
    assert module.model.training
    assert first[0] != first[1]


def test_betas_and_the_base_rate_reach_the_optimiser(domain: ToyDomain) -> None:
    optimizer = module_for(domain, optimizer="adamw", betas=(0.9, 0.95), base_lr=1.5e-4, batch_size=512)
    (group,) = optimizer.make_optimizer().param_groups
    assert group["betas"] == (0.9, 0.95)
    assert group["lr"] == pytest.approx(3e-4)
    (default,) = module_for(domain).make_optimizer().param_groups
    assert (default["betas"], default["lr"]) == ((0.9, 0.999), 1e-2)


@pytest.mark.slow
def test_a_run_of_one_epoch_says_that_its_ratio_stays(
    domain: ToyDomain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for steps, told in ((5, True), (6, False)):  # epochs of five steps
        caplog.clear()
        warn_once.cache_clear()  # said once in a process
        config = ToyConfig.make(steps=steps, samples=100, scheme="dynamic", decay_in="epochs")
        fit(config, domain, tmp_path / str(steps))
        assert ("the ratio stays constant" in caplog.text) == told


@pytest.mark.slow
def test_a_run_warms_up_and_decays_by_epochs(domain: ToyDomain, tmp_path: Path) -> None:
    fields = {"scheme": "dynamic", "decay_in": "epochs", "warmup": 0.5, "base_lr": 0.128}
    fit(ToyConfig.make(steps=20, samples=100, **fields), domain, tmp_path)  # epochs of five steps
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    peak = 0.128 * 20 / 256
    assert metrics["lr"].tolist() == pytest.approx([peak * min(step / 10, 1) for step in range(1, 21)])
    assert metrics["ratio"].tolist() == pytest.approx([0.8 - 0.2 * (step // 5) for step in range(20)])
