"""Models that no memory holds are refused before anything is made or written."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from r2mae.cells.config import CellsConfig
from r2mae.errors import UserError
from r2mae.images.batches import ImageBatches
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.text.config import TextConfig
from r2mae.training import run as memory
from r2mae.training.config import RunConfig
from r2mae.training.loop import fit
from r2mae.training.run import check_fits_memory, model_bytes
from r2mae.training.saving import build_from_description
from r2mae.training.task import Batches, Data

ARCHITECTURE = {"model": "mlp", "shape": [8, 8, 1], "hidden": 16, "latent": 4, "exact": False}


@dataclass
class Zeros(Data):
    train: Batches
    validation: Batches | None
    architecture: dict[str, Any]


def data(samples: int = 100, **sizes: int) -> Zeros:
    images = np.zeros((samples, 8, 8, 1), np.uint8)
    return Zeros(ImageBatches(images), None, {**ARCHITECTURE, **sizes})


def test_the_bytes_of_a_model() -> None:
    _, model = DOMAIN.build(ARCHITECTURE)
    expected = sum(p.numel() * p.element_size() for p in (*model.parameters(), *model.buffers()))
    assert model_bytes(DOMAIN, ARCHITECTURE)[0] == expected


@pytest.mark.parametrize("sizes", [{"hidden": 2**31 - 1}, {"latent": 10**9}, {"hidden": 10**30}, {"hidden": 2**40}])
def test_a_model_that_does_not_fit(sizes: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"free: make it smaller|no model of these sizes can be made"):
        check_fits_memory(ImagesConfig.make(data="digits", device="cpu"), DOMAIN, data(**sizes))


@pytest.mark.parametrize("model", ["mlp", "unet", "vit-mae"])
def test_every_model_is_measured_without_its_memory(model: str) -> None:
    """A width that makes hundreds of gigabytes, even of a table that NumPy computes, takes no time."""
    config = ImagesConfig.make(data="digits", model=model)
    wide = {name: 12 * 2**24 for name in asdict(config.model) if name in {"hidden", "width", "decoder_width"}}
    made = {**ARCHITECTURE, **asdict(config.model), "patch": 4, "channels": 2**14, **wide, "model": model}
    assert model_bytes(DOMAIN, made)[0] > 10**10


def test_it_is_found_before_anything_is_written(tmp_path: Path) -> None:
    config = ImagesConfig.make(data="digits", hidden=2**31 - 1, device="cpu")
    with pytest.raises(UserError, match="make it smaller"):
        fit(config, DOMAIN, tmp_path / "run", data=data(hidden=2**31 - 1))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        (ImagesConfig, {"steps": 10**10}, "steps must be 1 to 1,000,000,000, not 10000000000"),
        (ImagesConfig, {"hidden": 10**5000}, "hidden takes numbers up to .* not a number of more than 30 digits"),
        (ImagesConfig, {"latent": 2**31}, "latent takes numbers up to"),
        (ImagesConfig, {"threads": 10**6}, "threads must be 1 to 1,024"),
        (ImagesConfig, {"workers": 10**6}, "workers must be 0 to 1,024"),
        (ImagesConfig, {"scheme": "cl", "cl_iterations": 10**9}, "cl_iterations must be 1 to 10000"),
        (ImagesConfig, {"seed": 2**63}, "seed must be 0 to"),
        (CellsConfig, {"n_hidden": 10**12}, "n_hidden takes numbers up to"),
        (TextConfig, {"layers": 10**8}, "layers must be 1 to 1,000"),
    ],
)  # fmt: skip
def test_numbers_that_no_run_means(kind: type[RunConfig], fields: dict[str, int], told: str) -> None:
    with pytest.raises(UserError, match=told):
        kind.from_dict({"data": "x", **fields})


def test_values_of_other_kinds_are_told_in_a_line() -> None:
    for value in ([10**5000], 10**5000, ["x" * 1000], {"a": 1}):
        with pytest.raises(UserError, match="takes") as caught:
            ImagesConfig.from_dict({"data": "x", "scheme": value})
        assert len(str(caught.value)) < 300
    with pytest.raises(UserError, match="lr takes a number, not a number of more than 30 digits"):
        ImagesConfig.from_dict({"data": "x", "lr": 10**400})
    with pytest.raises(UserError, match="NUL"):
        ImagesConfig.make(data="a\0b")


class Looking(type(DOMAIN)):  # type: ignore[misc]
    """Makes models that look at their own numbers while they are made, as those with stochastic depth do."""

    def build(self, architecture: dict[str, object]) -> object:
        if torch.empty(0).device.type == "meta":  # torch refuses, too, but not once a compiler has been imported
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        return super().build(architecture)


class Broken(type(DOMAIN)):  # type: ignore[misc]
    """Makes none."""

    def build(self, architecture: dict[str, object]) -> object:
        raise RuntimeError("another reason")


def test_a_model_that_looks_at_its_numbers_while_it_is_made_is_let_through(tmp_path: Path) -> None:
    assert model_bytes(Looking(), ARCHITECTURE) == (0, 0)
    check_fits_memory(ImagesConfig.make(data="digits"), Looking(), data())
    (tmp_path / "model.safetensors").write_bytes(b"")
    _, model = build_from_description(Looking(), ARCHITECTURE, tmp_path / "model.json", tmp_path / "model.safetensors")
    assert isinstance(model, torch.nn.Module)


def test_a_model_that_fails_for_another_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="another reason"):
        model_bytes(Broken(), ARCHITECTURE)
    with pytest.raises(UserError, match=r"no model of these sizes can be made \(another reason\)"):
        check_fits_memory(ImagesConfig.make(data="digits"), Broken(), data())
    with pytest.raises(UserError, match=r"describes no model that can be built \(another reason\)"):
        build_from_description(Broken(), ARCHITECTURE, tmp_path / "model.json", tmp_path / "model.safetensors")


def test_shards_take_a_share_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight processes on one machine: whole models take 4 · 8 times the weights, shards 8 while each is made."""
    size, _ = model_bytes(DOMAIN, ARCHITECTURE)
    whole = ImagesConfig.make(data="digits", device="cpu", devices=8, batch_size=64)
    for config, most in ((whole, 32), (replace(whole, machine=replace(whole.machine, strategy="fsdp")), 8)):
        monkeypatch.setattr(memory, "available_memory", lambda most=most: most * size)
        check_fits_memory(config, DOMAIN, data())
        monkeypatch.setattr(memory, "available_memory", lambda most=most: most * size * 9 // 10)
        with pytest.raises(UserError, match="make it smaller"):
            check_fits_memory(config, DOMAIN, data())


def test_weights_count_with_what_their_training_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam: gradient and two moments; SGD: gradient and one; weights that are not trained: nothing."""
    size, _ = model_bytes(DOMAIN, ARCHITECTURE)
    config = ImagesConfig.make(data="digits", device="cpu")
    sgd = config.replace(optimizer="sgd")
    for one, copies in ((config, 4), (sgd, 3)):
        monkeypatch.setattr(memory, "available_memory", lambda copies=copies: copies * size)
        check_fits_memory(one, DOMAIN, data())
        monkeypatch.setattr(memory, "available_memory", lambda copies=copies: copies * size - size // 10)
        with pytest.raises(UserError, match="make it smaller"):
            check_fits_memory(one, DOMAIN, data())

    def frozen(architecture: Any) -> Any:
        task, model = made(architecture)
        return task, model.requires_grad_(requires_grad=False)

    made = DOMAIN.build
    monkeypatch.setattr(type(DOMAIN), "build", lambda _, architecture: frozen(architecture))
    monkeypatch.setattr(memory, "available_memory", lambda: size)
    check_fits_memory(config, DOMAIN, data())
