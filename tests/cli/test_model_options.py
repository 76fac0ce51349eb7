"""`--model NAME` and `--model.NAME VALUE`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from r2mae.cli.main import main
from r2mae.images.domain import DOMAIN
from r2mae.images.models import MODELS

Print = Callable[[str], dict[str, Any]]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(MODELS, "toy", "toy_image_model")
    tiny = {"model": "toy", "model.latent": 2, "lr": 0.5}
    monkeypatch.setattr(DOMAIN.config, "presets", {**DOMAIN.presets, "toy-tiny": tiny})
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Print:
    def call(line: str) -> dict[str, Any]:
        assert main(["pretrain", "images", "digits", *line.split(), "--print-config"]) == 0
        found: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
        return found

    return call


def settings(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config["model"].items() if name not in ("name", "mask_input")}


def test_settings_have_two_names(printed: Print) -> None:
    default = printed("--hidden 16")
    assert settings(default) == {"hidden": 16, "latent": 256, "norm": "batch"}
    assert printed("--model mlp --model.hidden 16") == printed("--model.hidden=16") == default
    assert printed("--model toy --last-bias 1") == printed("--model toy --model.last-bias 1")


def test_options_of_another_model(printed: Print) -> None:
    config = printed("--model toy --model.latent 3 --model.last-bias=1 --model.strides 1 2 --seed 4")
    assert settings(config) == {"latent": 3, "last_bias": 1.0, "kernels": "small", "strides": [1, 2]}
    assert (config["model"]["name"], config["seed"]) == ("toy", 4)


def test_presets_set_model_and_settings(printed: Print) -> None:
    config = printed("--preset toy-tiny")
    assert (config["model"]["name"], config["model"]["latent"], config["optimizer"]["lr"]) == ("toy", 2, 0.5)
    assert settings(printed("--preset toy-tiny --model.latent 5"))["latent"] == 5
    assert printed("--preset toy-tiny --model toy") == config


def test_files_hold_settings(printed: Print, tmp_path: Path) -> None:
    for line in ("--preset toy-tiny --model.kernels large", "--hidden 16"):
        config = printed(line)
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        assert printed("--config c.yaml") == config
    (tmp_path / "c.yaml").write_text("model: toy\nmodel.latent: 7\n", encoding="utf-8")
    assert settings(printed("--config c.yaml --model.last_bias 2"))["latent"] == 7
    default = {"hidden": 512, "latent": 256, "norm": "batch"}
    assert settings(printed("--config c.yaml --model mlp")) == default
    (tmp_path / "c.yaml").write_text("preset: toy-tiny\n", encoding="utf-8")
    other = printed("--config c.yaml --model mlp")  # a file may be for several models
    assert (other["model"]["name"], settings(other)) == ("mlp", default)
    for text in ("model.hidden: 7\n", "hidden: 7\n", "model: {hidden: 7}\n", "model: {name: mlp, hidden: 7}\n"):
        (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
        assert settings(printed("--config c.yaml"))["hidden"] == 7


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--model resnet", "unknown model 'resnet': choose from: mlp"),
        ("--model toy --model.laten 3", "unknown option '--model.laten' of 'r2mae pretrain images': did you mean"),
        ("--model toy --model.latent x", "--model.latent takes a whole number, not 'x'"),
        ("--model toy --model.last-bias x", "--model.last-bias takes a number, not 'x'"),
        ("--model toy --hidden 3", "hidden belongs to the model 'mlp', not to 'toy': omit it"),
        ("--model mlp --preset toy-tiny", "the model 'mlp' has no preset 'toy-tiny': choose from: mlp-512-16"),
        ("--preset=mlp-16-64 --model=toy", "the model 'toy' has no preset 'mlp-16-64': choose from: toy-tiny"),
        ("--model unet --preset toy-tiny", "the model 'unet' has no preset 'toy-tiny': choose from: unet-4, unet-8"),
        ("--model.latent x", "--model.latent takes a whole number, not 'x'"),
        ("--model.seed 3", "unknown option '--model.seed'"),
        ("--data.lr 3", "unknown option '--data.lr' of 'r2mae pretrain images': did you mean '--lr'?"),
        ("--optimizer.lr 3", "did you mean '--lr'?"),
        ("--model.name mlp", "did you mean '--model'?"),
        ("--model.hidden 4 --hidden 8", "model.hidden is given twice"),
        ("--hidden 4 --model.hidden=8", "model.hidden is given twice"),
    ],
)
def test_mistakes_are_one_line(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "images", "digits", *line.split()]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_help_names_models_and_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pretrain", "images", "digits", "--model", "toy", "--help-all"])
    told = " ".join(capsys.readouterr().out.split())  # lines are broken anywhere
    assert "--model.last-bias" in told
    assert "Channels of the toy." in told
    assert "model_settings" not in told
    assert "mlp, unet, vit-mae, toy" in told
    assert ", toy" in told
