"""What `mask_input` must do for every model of every domain: those that take the mask get it, all others refuse it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contract import test_contract as contract
from contract.conftest import Case, cases, known, made
from r2mae.cli.main import main
from r2mae.domains.lookup import get_domain
from r2mae.masking.keys import Key
from r2mae.training.folder import RunFolder
from r2mae.training.validation import estimate_statistics

pytestmark = contract.pytestmark


def takers(*, take: bool) -> list[tuple[str, str]]:
    """Return the models that take the mask, or those that do not, of the domains that have a choice of models."""
    found = []
    for name, model in cases():
        with known(name):
            kind = get_domain(name).config
        if model in kind.models and kind.settings_of(model).takes_mask == take:
            found.append((name, model))
    return found


@pytest.fixture(scope="module", params=takers(take=True), ids=" ".join)
def aware(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with made(*request.param, tmp_path_factory.mktemp("aware")) as one:
        yield replace(one, entry=replace(one.entry, fields={**one.entry.fields, "mask_input": True}))


def built(case: Case, *, mask_input: bool) -> tuple[Any, nn.Module]:
    torch.manual_seed(0)
    architecture = {key: value for key, value in case.data.architecture.items() if mask_input or key != "mask_input"}
    task, model = case.domain.build(architecture)
    return task, model


def a_batch(case: Case) -> Any:
    return case.data.train.batch(range(min(8, len(case.data.train))), Key.root(0))


def own_weights(case: Case) -> set[str]:
    """Return the names of the weights of the mask."""
    with_mask, without = (built(case, mask_input=on)[1].state_dict() for on in (True, False))
    assert without.keys() < with_mask.keys()
    return with_mask.keys() - without.keys()


def test_every_model_of_images_and_cells_but_the_transformer_takes_it() -> None:
    assert {("images", "mlp"), ("cells", "mlp")} <= set(takers(take=True))
    assert {("images", "vit-mae"), ("text", "roberta"), ("genome", "gpn-msa")} <= set(takers(take=False))


@pytest.mark.parametrize(("domain", "model"), takers(take=False), ids=str)
def test_other_models_refuse_it_in_one_line(
    domain: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with made(domain, model, tmp_path) as case:
        for command in ("pretrain", "compare"):
            line = [command, domain, case.source, "--model", model, "--mask-input", "--out", str(tmp_path / "run")]
            assert main(line) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            assert "mask_input" in error
            assert "mask tokens" in error or model == "unet"
            assert not (tmp_path / "run").exists()


def test_all_other_weights_begin_as_without_it(aware: Case) -> None:
    with_mask, without = (built(aware, mask_input=one)[1].state_dict() for one in (True, False))
    assert all(torch.equal(with_mask[name], value) for name, value in without.items())


def test_with_nothing_hidden_it_is_the_model_without(aware: Case) -> None:
    batch, found = a_batch(aware), []
    for one in (True, False):
        task, model = built(aware, mask_input=one)
        model.eval()
        found.append((task.embed(model, batch), task.reconstruct(model, batch)))
    for with_mask, without in zip(*found, strict=True):
        assert torch.equal(with_mask, without)


def test_the_mask_reaches_the_prediction_and_the_loss_reaches_its_weights(aware: Case) -> None:
    (task, model), (plain_task, plain) = built(aware, mask_input=True), built(aware, mask_input=False)
    weights = [value for name, value in model.named_parameters() if name in own_weights(aware)]
    corrupted = task.corrupt(a_batch(aware), 0.5, Key.root(1))
    model.train()
    losses = task.losses(task.forward(model, corrupted), corrupted)
    for gradient in torch.autograd.grad(losses.sum() / losses.numel(), weights):
        assert float(gradient.abs().max()) > 1e-6  # batch normalisation does not take it away
    predictions: list[Tensor] = []
    for scale in (1.0, 0.0):
        with torch.no_grad():
            for value in weights:
                value.mul_(scale)
        predictions.append(task.forward(model, corrupted).prediction)
    expected = plain_task.forward(plain.train(), corrupted).prediction
    assert not torch.allclose(predictions[0], expected)
    torch.testing.assert_close(predictions[1], expected)


def test_statistics_of_masked_inputs_are_those_of_mask_aware_ones(aware: Case) -> None:
    task, model = built(aware, mask_input=True)
    masked = estimate_statistics(task, model, aware.data.train, 0.5)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name in own_weights(aware):
                value.zero_()
    blind = estimate_statistics(task, model, aware.data.train, 0.5)
    assert any(not torch.allclose(masked[name], blind[name]) for name in masked)


def test_bf16(aware: Case) -> None:
    task, model = built(aware, mask_input=True)
    corrupted = task.corrupt(a_batch(aware), 0.5, Key.root(1))
    with torch.autocast("cpu", torch.bfloat16):
        losses = task.losses(task.forward(model, corrupted), corrupted)
    assert torch.isfinite(losses).all()
    losses.sum().backward()
    assert all(value.grad is not None for name, value in model.named_parameters() if name in own_weights(aware))


@pytest.mark.parametrize("scheme", contract.TWO)
def test_a_run_trains_and_resumes_with_the_same_bytes(aware: Case, scheme: str, tmp_path: Path) -> None:
    contract.test_a_run_that_was_cut_off_ends_with_the_same_bytes(aware, scheme, tmp_path)
    for folder in ("whole", "cut"):
        architecture = RunFolder(tmp_path / folder).description.architecture
        assert architecture["mask_input"] is True
        assert "mask_input: true" in (tmp_path / folder / "config.yaml").read_text()


def test_it_keeps_the_contract(aware: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contract.test_everything_is_there_and_a_model_is_built_from_plain_values(aware)
    for scheme in contract.TWO:
        contract.test_a_step_moves_the_model(aware, scheme, tmp_path / scheme)
        contract.test_the_model_does_not_see_hidden_values(aware, scheme)
    contract.test_embeddings_are_deterministic_with_a_row_for_each_sample(aware)
    contract.test_every_metric_is_measured_within_its_bounds(aware)
    contract.test_every_exporter_writes_a_file(aware, tmp_path / "exported")
    contract.test_every_model_format_is_written_completely_or_refused(aware, tmp_path / "formats", capsys)


def test_without_it_a_run_says_nothing_of_it_in_its_model(aware: Case) -> None:
    plain = replace(aware, entry=replace(aware.entry, fields={**aware.entry.fields, "mask_input": False}))
    assert "mask_input" not in json.dumps(plain.data.architecture)
    assert aware.config().differences(plain.config()) == {"mask_input": (True, False)}
