"""Models by name in configurations of runs."""

from typing import Any

import pytest

from r2mae.cells.config import CellsConfig
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.models import MODELS, MLPSettings
from r2mae.training.models import MAX_LAYERS, saved_layers


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "toy", "toy_image_model")


def toys(**settings: Any) -> ImagesConfig:
    return ImagesConfig.make(data="digits", model="toy", **{f"model.{name}": value for name, value in settings.items()})


def test_the_default_model_is_a_group_like_every_other() -> None:
    config = ImagesConfig.make(data="digits", hidden=16)
    assert config.model == MLPSettings(hidden=16)
    assert config.to_dict()["model"] == {
        "name": "mlp", "mask_input": False, "hidden": 16, "latent": 256, "norm": "batch",
    }  # fmt: skip
    for form in ({"model.hidden": 16}, {"model": "mlp", "hidden": 16}, {"model": {"hidden": 16}}):
        assert ImagesConfig.from_dict({"data": "digits", **form}) == config
    assert config.model.architecture() == {"model": "mlp", "hidden": 16, "latent": 256, "norm": "batch"}
    assert CellsConfig.from_dict({"data": "x", "n_latent": 7}).model.n_latent == 7


def test_another_model_has_its_own_settings() -> None:
    config = toys(latent=2, strides=[1, 2])
    assert config.to_dict()["model"] == {
        "name": "toy", "mask_input": False, "latent": 2, "last_bias": 0.0, "kernels": "small", "strides": [1, 2],
    }  # fmt: skip
    assert ImagesConfig.from_dict(config.to_dict()) == config
    assert config.model == ImagesConfig.settings_of("toy")(latent=2, strides=(1, 2), name="toy")
    assert config.replace(seed=3).model == config.model
    assert ImagesConfig.make(data="digits", model="toy", last_bias=1).model.last_bias == 1.0


def test_differences_name_models_and_settings() -> None:
    assert toys(latent=2).differences(toys()) == {"model.latent": (2, 4)}
    assert toys().differences(ImagesConfig.make(data="digits"))["model"] == ("toy", "mlp")
    assert ImagesConfig.make(data="digits").differences(toys())["model"] == ("mlp", "toy")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "resnet"}, "unknown model 'resnet': choose from: mlp"),
        ({"model": "tony"}, "did you mean 'toy'"),
        ({"model": 3}, "model takes a name, not 3"),
        ({"model": ["toy"]}, "model takes a name"),
        ({"model": "toy", "hidden": 16}, "hidden belongs to the model 'mlp', not to 'toy': omit it"),
        ({"model": "toy", "model.laten": 2}, "unknown field 'model.laten' of the model 'toy': did you mean 'latent'"),
        ({"model": {"name": "toy", "latent": "many"}}, "model.latent takes a whole number, not 'many'"),
        ({"model": "toy", "model.latent": 0}, "model.latent must be 1 or more, not 0"),
        ({"model": "toy", "model.latent": 2**40}, "latent takes numbers up to"),
        ({"model": "toy", "model.kernels": "huge"}, "model.kernels takes one of small, large"),
        ({"hidden": 16, "model.hidden": 32}, "model.hidden is given twice"),
        ({"model.depth": 2}, "unknown field 'model.depth' of the model 'mlp'"),
    ],
)
def test_impossible_models_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImagesConfig.make(data="digits", **fields)
    with pytest.raises(UserError, match=r"^f\.yaml: ") as caught:
        ImagesConfig.from_dict({"data": "digits", **fields}, source="f.yaml")
    assert str(caught.value).count("f.yaml") == 1


def test_other_values_of_settings() -> None:
    mlp = ImagesConfig.make(data="digits", hidden=16, seed=5)
    assert mlp.replace(**{"hidden": 32}) == mlp.replace(**{"model.hidden": 32})
    assert mlp.replace(hidden=32).model.hidden == 32
    other = mlp.replace(**{"model": "toy", "model.latent": 2})
    assert (other.model.latent, other.seed) == (2, 5)
    assert other.replace(**{"model.last_bias": 1}).model == toys(latent=2, last_bias=1.0).model
    assert other.replace(**{"model": "mlp"}) == ImagesConfig.make(data="digits", seed=5)


def test_saved_layers_are_few() -> None:
    assert saved_layers({"layers": MAX_LAYERS}) == MAX_LAYERS
    for layers in (0, MAX_LAYERS + 1):
        with pytest.raises(ValueError, match="layers must be 1 to 1,000"):
            saved_layers({"layers": layers})


def test_the_mask_is_an_input_of_models_that_take_it() -> None:
    aware = ImagesConfig.make(data="digits", mask_input=True)
    assert aware.model.architecture() == {
        "model": "mlp", "hidden": 512, "latent": 256, "norm": "batch", "mask_input": True,
    }  # fmt: skip
    assert "mask_input" not in aware.replace(mask_input=False).model.architecture()
    assert ImagesConfig.from_dict(aware.to_dict()) == aware
    # Another model refuses it.
    with pytest.raises(UserError, match="'unet' does not take its mask as an input"):
        aware.replace(**{"model": "unet"})
    assert aware.replace(hidden=16).replace(**{"model": "mlp", "latent": 3}).model.mask_input
    with pytest.raises(UserError, match="'toy' does not take its mask as an input"):
        aware.replace(**{"model": "toy"})
    with pytest.raises(UserError, match="'vit-mae', which has mask tokens"):
        aware.replace(**{"model": "vit-mae"})
