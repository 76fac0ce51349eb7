"""Batch statistics that were re-estimated: equal to a calculation by hand, deterministic, and gone after use."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from r2mae import load
from r2mae.images.batches import ImageBatches, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import evaluate
from r2mae.images.task import PixelTask
from r2mae.masking.keys import Key
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit
from r2mae.training.saving import load_model
from r2mae.training.validation import (
    estimate_statistics,
    re_estimated_statistics,
    set_statistics,
    statistics_at_ratios,
    statistics_of,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("run") / "a"
    return fit(
        ImagesConfig.make(data="digits", hidden=32, latent=16, ratio=0.9, scheme="fixed", epochs=10), DOMAIN, folder
    ).folder


def images(count: int = 300) -> ImageBatches:
    return ImageBatches(np.random.default_rng(0).integers(0, 256, (count, 4, 4, 1), dtype=np.uint8))


def small_model() -> tuple[PixelTask, nn.Module]:
    torch.manual_seed(0)
    task, model = DOMAIN.build({"model": "mlp", "shape": [4, 4, 1], "hidden": 6, "latent": 3, "exact": False})
    return task, model.eval()


def test_first_layer_has_the_mean_and_variance_of_its_inputs() -> None:
    task, model = small_model()
    data = images(256)  # one batch
    found = estimate_statistics(task, model, data)
    with torch.no_grad():
        first = model.encoder[0](data.batch(np.arange(256), Key.root(0)).flatten(1).float() / 255)
    torch.testing.assert_close(found["encoder.1.running_mean"], first.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["encoder.1.running_var"], first.var(0), rtol=1e-4, atol=1e-5)


def test_masked_inputs_have_statistics_of_their_own() -> None:
    task, model = small_model()
    whole, half = estimate_statistics(task, model, images()), estimate_statistics(task, model, images(), 0.5)
    assert not torch.allclose(whole["encoder.1.running_mean"], half["encoder.1.running_mean"], atol=1e-3)


def test_estimates_repeat_and_leave_the_model_as_it_was() -> None:
    task, model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (estimate_statistics(task, model, images(), 0.3) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not model.training
    assert model.encoder[1].momentum == 0.1


def test_statistics_hold_within_a_block_alone() -> None:
    task, model = small_model()
    own = statistics_of(model)
    with re_estimated_statistics(task, model, images()):
        inside = statistics_of(model)
        assert not torch.equal(inside["encoder.1.running_mean"], own["encoder.1.running_mean"])
    with statistics_at_ratios(task, model, images(), (0.1, 0.9)) as prepare:
        prepare(0.1)
        low = statistics_of(model)
        prepare(0.9)
        assert not torch.equal(low["encoder.1.running_mean"], statistics_of(model)["encoder.1.running_mean"])
    with re_estimated_statistics(task, model, images(), wanted=False):
        pass
    assert all(torch.equal(own[name], value) for name, value in statistics_of(model).items())


def test_nothing_is_estimated_from_one_sample_or_without_batch_normalisation() -> None:
    task, model = small_model()
    assert estimate_statistics(task, model, images(1)) == {}
    assert estimate_statistics(task, nn.Linear(3, 3), images()) == {}


@pytest.mark.slow
def test_a_run_stores_the_statistics_of_unmasked_images(run: RunFolder) -> None:
    config, task, trained = load_model(run.path, DOMAIN)
    _, _, whole = load_model(run.path, DOMAIN, unmasked=True)
    expected = estimate_statistics(task, trained, load_data(config).train)
    assert statistics_of(whole).keys() == expected.keys()
    for name, value in statistics_of(whole).items():
        torch.testing.assert_close(value, expected[name])
    torch.testing.assert_close(statistics_of(load(run.path).model), statistics_of(whole))


@pytest.mark.slow
def test_re_estimated_statistics_lower_both_errors_of_a_model_trained_at_a_high_ratio(run: RunFolder) -> None:
    config, task, model = load_model(run.path, DOMAIN)
    assert isinstance(config, ImagesConfig)
    data = load_data(config)
    both = evaluate(config.replace(bn_statistics="both"), task, model, data)
    assert both["clean_mse"] < both["as_trained_clean_mse"]
    assert both["masked_mse"] < both["as_trained_masked_mse"]
    for wanted, prefix in (("yes", ""), ("no", "as_trained_")):
        alone = evaluate(config.replace(bn_statistics=wanted), task, model, data)
        assert alone == {name: both[prefix + name] for name in alone}
    metrics = DOMAIN.metrics_of(config.replace(bn_statistics="both"))
    assert {metric.name for metric in metrics if not metric.optional} <= both.keys()


@pytest.mark.slow
def test_a_run_of_an_older_version_is_used_as_trained_and_says_so(
    run: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import shutil

    old = RunFolder(shutil.copytree(run.path, tmp_path / "old"))
    old.statistics.unlink()
    _, _, model = load_model(old.path, DOMAIN, unmasked=True)
    torch.testing.assert_close(statistics_of(model), statistics_of(load_model(run.path, DOMAIN)[2]))
    assert "no batch statistics of unmasked inputs" in caplog.text


@pytest.mark.slow
def test_damaged_statistics_are_named(run: RunFolder, tmp_path: Path) -> None:
    import shutil

    from r2mae.errors import UserError

    broken = RunFolder(shutil.copytree(run.path, tmp_path / "broken"))
    broken.statistics.write_bytes(b"\x00" * 50)
    with pytest.raises(UserError, match=r"statistics\.safetensors is damaged"):
        load_model(broken.path, DOMAIN, unmasked=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("statistics", "embed broken digits -o out.npz"),
        ("model", "embed broken digits -o out.npz"),
        ("model", "evaluate broken"),
        ("model", "pictures broken -o out.svg"),
    ],
)
def test_a_model_that_is_not_finite_is_used_for_nothing(
    run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    line: str,
) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    from r2mae.cli.main import main

    monkeypatch.chdir(tmp_path)
    file = shutil.copytree(run.path, tmp_path / "broken") / f"{name}.safetensors"
    tensors = load_file(file)
    next(tensor for tensor in tensors.values() if tensor.is_floating_point()).view(-1)[0] = float("nan")
    save_file(tensors, file)
    assert main(line.split()) == 2
    *_, told = capsys.readouterr().err.splitlines()
    assert told.startswith(f"r2mae: broken/{name}.safetensors is damaged")
    assert "it is not the file that the run wrote" in told
    assert not list(tmp_path.glob("out*"))


def test_statistics_of_another_model_are_refused() -> None:
    _, model = small_model()
    with pytest.raises(KeyError):
        set_statistics(model, {"encoder.1.running_mean": torch.zeros(6)})
