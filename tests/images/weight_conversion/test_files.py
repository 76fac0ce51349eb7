"""Files of weights as other libraries write them."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ViTForImageClassification, ViTMAEModel, ViTModel

from images.weight_conversion.small_vits import equal, ours, pth, stock_mae, stock_vit
from r2mae.errors import UserError
from r2mae.images.weights import for_transformers, from_transformers, read_weights


def encoder() -> dict[str, torch.Tensor]:
    return {name: value for name, value in ours().state_dict().items() if not name.startswith(("decoder_", "mask_"))}


def test_folders_that_transformers_saves(tmp_path: Path) -> None:
    """Whatever names this version saves them under."""
    model = stock_mae(image_size=[16, 16], layer_norm_eps=1e-6)
    model.save_pretrained(tmp_path / "mae")
    read = read_weights(tmp_path / "mae")
    assert (read.layout, read.heads, read.decoder_heads) == ("transformers", 4, 2)
    assert equal(read.state, from_transformers(model.state_dict()))
    for kind in (ViTModel, ViTForImageClassification):
        other = stock_vit(kind)
        other.save_pretrained(tmp_path / kind.__name__)
        read = read_weights(tmp_path / kind.__name__)
        assert equal(read.state, from_transformers(other.state_dict()))
        assert (read.has_decoder, read.decoder_heads) == (False, None)
    bare = ViTMAEModel(model.config)
    bare.save_pretrained(tmp_path / "bare")
    assert equal(read_weights(tmp_path / "bare").state, from_transformers(bare.state_dict()))


def test_older_folders(tmp_path: Path) -> None:
    model = stock_mae()
    expected = from_transformers(model.state_dict())
    model.save_pretrained(tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    pth(tmp_path / "old" / "pytorch_model.bin", for_transformers(expected))
    assert equal(read_weights(tmp_path / "old").state, expected)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state: state,
        lambda state: {"model": state},
        lambda state: {"model": state, "epoch": 3, "args": argparse.Namespace(model="mae_vit_base", lr=1e-3)},
        lambda state: {"state_dict": {f"module.{name}": value for name, value in state.items()}, "arch": "vit"},
    ],
)
def test_checkpoints(wrapped: Callable[[Any], Any], tmp_path: Path) -> None:
    state = dict(ours().state_dict())
    read = read_weights(pth(tmp_path / "mae.pth", wrapped(state)))
    assert (read.layout, read.heads) == ("mae", None)
    assert equal(read.state, state)
    read = read_weights(pth(tmp_path / "timm.pth", wrapped(encoder())))
    assert read.layout == "timm"
    assert equal(read.state, encoder())


def test_safetensors(tmp_path: Path) -> None:
    save_file(encoder(), tmp_path / "timm.safetensors")
    assert equal(read_weights(tmp_path / "timm.safetensors").state, encoder())
    save_file(for_transformers(encoder()), tmp_path / "hf.safetensors")
    with pytest.raises(UserError, match=r"hf\.safetensors holds no vision transformer .*expected .*a folder of transf"):
        read_weights(tmp_path / "hf.safetensors")


class _Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, ("it_ran",)


def _broken(folder: Path) -> dict[str, Path]:
    """Write what cannot be read, by the words of the error."""
    (folder / "config_only").mkdir()
    (folder / "config_only" / "config.json").write_text(json.dumps({"model_type": "vit"}))
    (folder / "other").mkdir()
    (folder / "other" / "config.json").write_text(json.dumps({"model_type": "beit"}))
    (folder / "empty").mkdir()
    stock_vit().save_pretrained(folder / "relu")
    config = json.loads((folder / "relu" / "config.json").read_text())
    (folder / "relu" / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    stock_vit().save_pretrained(folder / "words")
    (folder / "words" / "config.json").write_text(json.dumps({**config, "num_attention_heads": "large"}))
    (folder / "text.pth").write_text("no weights")
    (folder / "none.pth").write_bytes(b"")
    (folder / "text.safetensors").write_text("no weights")
    whole = pth(folder / "whole.pth", dict(ours().state_dict())).read_bytes()
    (folder / "cut.pth").write_bytes(whole[: len(whole) // 2])
    code, convolutions = pth(folder / "code.pth", _Runs()), pth(folder / "resnet.pth", {"conv.weight": torch.ones(2)})
    return {
        r"missing.pth: cannot be read \(No such file": folder / "missing.pth",
        "holds no weights: expected model.safetensors": folder / "config_only",
        "is of a model of the type 'beit': expected vit_mae or vit": folder / "other",
        "holds neither config.yaml nor config.json": folder / "empty",
        "num_attention_heads should be a whole number": folder / "words",
        "has the activation 'relu'": folder / "relu",
        r"more than weights \((posix|nt)\.mkdir\), and loading it could run code: save": code,
        r"text.pth: not a valid file of weights \(no weights, or damaged": folder / "text.pth",
        "none.pth.*again": folder / "none.pth",
        "text.safetensors: not a valid file of weights": folder / "text.safetensors",
        "cut.pth.*again": folder / "cut.pth",
        r"no vision transformer of a known library \(conv.weight": convolutions,
        "holds no weights by name": pth(folder / "list.pth", [torch.ones(2)]),
        "numbers.pth holds no weights by name": pth(folder / "numbers.pth", {"model": {"epoch": 3}}),
    }  # fmt: skip


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words, path in _broken(tmp_path).items():
        with pytest.raises(UserError, match=words) as caught:
            read_weights(path)
        assert "\n" not in str(caught.value)
    assert not Path("it_ran").exists()


def test_code_beside_weights_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="could run code"):
        read_weights(pth(tmp_path / "mae.pth", {"model": dict(ours().state_dict()), "args": _Runs()}))
    assert not Path("it_ran").exists()


def test_the_names_that_are_written_are_read_by_stock(tmp_path: Path) -> None:
    """With no weight missing or unexpected, whatever names this version uses itself."""
    model = stock_mae()
    model.save_pretrained(tmp_path)
    expected = model.state_dict()
    save_file(for_transformers(from_transformers(expected)), tmp_path / "model.safetensors", {"format": "pt"})
    assert "vit.encoder.layer.0.attention.attention.query.weight" in load_file(tmp_path / "model.safetensors")
    read, told = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values()), told
    assert equal(dict(read.state_dict()), dict(expected))
