"""Models by name in configurations of runs."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from r2mae.cells.config import CellsConfig
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.models import MODELS, MLPSettings
from r2mae.sweep.runs import SweepParameter, grid
from r2mae.training.models import (
    MAX_LAYERS,
    architecture_of,
    check_dropout,
    check_sizes,
    saved_layers,
    settings_of,
)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "toy", "toy_image_model")


def toys(**settings: Any) -> ImagesConfig:
    return ImagesConfig(data="digits", model="toy", model_settings=settings)


def test_the_usual_model_is_written_as_ever() -> None:
    plain = ImagesConfig(data="digits", hidden=16).to_dict()
    assert (plain["model"], plain["hidden"], plain["latent"]) == ("mlp", 16, 256)
    assert not [name for name in plain if name.startswith("model.") or name == "model_settings"]
    del plain["model"]  # of older versions
    assert ImagesConfig.from_dict(plain) == ImagesConfig(data="digits", hidden=16)
    assert CellsConfig.from_dict({"data": "x", "n_latent": 7}).settings.n_latent == 7


def test_settings_of_the_usual_model_are_fields() -> None:
    wanted = ImagesConfig(data="digits", hidden=16)
    assert ImagesConfig(data="digits", model_settings={"hidden": 16}) == wanted
    assert ImagesConfig(data="digits", model_settings=MLPSettings(hidden=16)) == wanted
    assert ImagesConfig.from_dict({"data": "digits", "model": "mlp", "model.hidden": 16}) == wanted
    assert wanted.settings.hidden == 16
    assert wanted.architecture() == {"model": "mlp", "hidden": 16, "latent": 256, "norm": "batch"}


def test_another_model_is_written_with_its_own_settings() -> None:
    config = toys(latent=2, strides=[1, 2])
    plain = config.to_dict()
    assert {name: value for name, value in plain.items() if name.startswith("model")} == {
        "model": "toy", "model.latent": 2, "model.last_bias": 0.0, "model.kernels": "small", "model.strides": [1, 2],
    }  # fmt: skip
    assert not {"hidden", "latent"} & plain.keys()
    assert ImagesConfig.from_dict(plain) == config
    assert config.settings == settings_of(ImagesConfig, "toy")(latent=2, strides=(1, 2))
    assert replace(config, seed=3).settings == config.settings


def test_differences_name_models_and_settings() -> None:
    assert toys(latent=2).differences(toys()) == {"model.latent": (2, 4)}
    assert toys().differences(ImagesConfig(data="digits"))["model"] == ("toy", "mlp")
    assert ImagesConfig(data="digits").differences(toys())["model"] == ("mlp", "toy")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "resnet"}, "unknown model 'resnet': choose from: mlp"),
        ({"model": "tony"}, "did you mean 'toy'"),
        ({"model": "toy", "hidden": 16}, "hidden belongs to the model 'mlp', not to 'toy': omit it"),
        ({"model": "toy", "model_settings": {"laten": 2}}, "has no setting model.laten: did you mean 'latent'"),
        ({"model": "toy", "model_settings": {"latent": "2"}}, "model.latent takes a whole number, not '2'"),
        ({"model": "toy", "model_settings": {"latent": 0}}, "model.latent must be 1 or more"),
        ({"model": "toy", "model_settings": {"latent": 2**40}}, "model.latent takes numbers up to"),
        ({"model": "toy", "model_settings": {"kernels": "huge"}}, "model.kernels takes one of small, large"),
        ({"model": "toy", "model_settings": MLPSettings()}, "do not belong to the model 'toy'"),
        ({"hidden": 16, "model_settings": {"hidden": 32}}, "hidden is 16 and model.hidden 32: give one"),
        ({"model_settings": {"depth": 2}}, "the model 'mlp' has no setting model.depth"),
    ],
)
def test_impossible_models_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImagesConfig.make(data="digits", **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "resnet"}, "^f.yaml: unknown model 'resnet'"),
        ({"model": 3}, "^f.yaml: model takes text, not 3"),
        ({"model": ["toy"]}, "^f.yaml: model takes text"),
        ({"model": "toy", "model.laten": 2}, "^f.yaml: the model 'toy' has no setting model.laten"),
        ({"model": "toy", "model.latent": "many"}, "^f.yaml: model.latent takes a whole number"),
        ({"model_settings": {"hidden": 3}}, "^f.yaml: unknown field 'model_settings'"),
    ],
)
def test_mistakes_of_files_name_the_file(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImagesConfig.from_dict({"data": "digits", **fields}, source="f.yaml")


def test_other_values_of_settings() -> None:
    mlp = ImagesConfig(data="digits", hidden=16, seed=5)
    assert mlp.replace(**{"hidden": 32}) == mlp.replace(**{"model.hidden": 32}) == replace(mlp, hidden=32)
    other = mlp.replace(**{"model": "toy", "model.latent": 2})
    assert (other.settings.latent, other.seed) == (2, 5)
    assert other.replace(**{"model.last_bias": 1}).settings == settings_of(ImagesConfig, "toy")(latent=2, last_bias=1.0)
    assert other.replace(**{"model": "mlp"}) == ImagesConfig(data="digits", seed=5)


@pytest.mark.parametrize(
    ("width", "layers", "message"),
    [
        (0, 1, r"^model\.width must be 1 or more, not 0$"),
        (4, -1, r"^model\.layers must be 1 or more, not -1$"),
        (4, MAX_LAYERS + 1, r"^model\.layers must be at most 1,000, not 1,001$"),
    ],
)
def test_sizes_of_no_model_are_refused(width: int, layers: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_sizes(SimpleNamespace(width=width, layers=layers), ("width", "layers"), prefix="model.")


def test_sizes_of_models_are_taken() -> None:
    check_sizes(SimpleNamespace(width=MAX_LAYERS + 1, layers=MAX_LAYERS, inner=None), ("width", "layers", "inner"))
    assert saved_layers({"layers": MAX_LAYERS}) == MAX_LAYERS
    for layers in (0, MAX_LAYERS + 1):
        with pytest.raises(ValueError, match="layers must be 1 to 1,000"):
            saved_layers({"layers": layers})


def test_dropout_leaves_something() -> None:
    check_dropout(0.0)
    for dropout in (-0.1, 1.0):
        with pytest.raises(UserError, match="fraction"):
            check_dropout(dropout)


def test_the_mask_is_an_input_of_models_that_take_it() -> None:
    told = ImagesConfig(data="digits", mask_input=True)
    assert told.architecture() == {"model": "mlp", "hidden": 512, "latent": 256, "norm": "batch", "mask_input": True}
    assert architecture_of(replace(told, mask_input=False))["mask_input"] is False
    assert ImagesConfig.from_dict(told.to_dict()) == told
    # Another model keeps it, or refuses it.
    assert told.replace(**{"model": "unet", "model.channels": 2}).mask_input
    assert replace(told, hidden=16).replace(**{"model": "mlp", "latent": 3}).mask_input
    with pytest.raises(UserError, match="'toy' does not take its mask as an input"):
        told.replace(**{"model": "toy"})
    with pytest.raises(UserError, match="'vit-mae', which has mask tokens"):
        told.replace(**{"model": "vit-mae"})
    axis = SweepParameter.over("mask_input", [False, True])
    assert [row.config.mask_input for row in grid(ImagesConfig(data="digits"), [axis])] == [False, True]  # type: ignore[attr-defined]
