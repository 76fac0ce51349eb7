"""Models that begin with the weights of others, and runs of them."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import ViTForImageClassification, ViTModel

from images.weight_conversion.small_vits import config, equal, finished, ours, picture_file, pth, stock_mae, stock_vit
from r2mae.cli.main import main
from r2mae.domains.lookup import check_run
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.models.vit_mae.model import positions
from r2mae.images.weights import Weights, fit_weights, from_transformers, load_initial_weights
from r2mae.training.folder import RunFolder
from r2mae.training.initial import INIT, read_initial_weights
from r2mae.training.loop import fit
from training.conftest import InterruptAt, Interrupted

State = dict[str, torch.Tensor]


def encoder_of(state: State) -> State:
    return {name: value for name, value in state.items() if not name.startswith(("decoder_", "mask_token"))}


def test_all_weights_of_a_checkpoint(tmp_path: Path) -> None:
    theirs = dict(ours(seed=1).state_dict())
    model = ours(seed=2)
    origin = load_initial_weights(pth(tmp_path / "mae.pth", {"model": theirs}), model)
    assert equal(dict(model.state_dict()), theirs)
    load_initial_weights(pth(tmp_path / "named.pth", {"model": "mae", "state_dict": theirs}), model := ours(seed=3))
    assert equal(dict(model.state_dict()), theirs)
    assert (origin.layout, origin.notes) == ("mae", ())
    stock = stock_mae()
    stock.save_pretrained(tmp_path / "stock")
    origin = load_initial_weights(tmp_path / "stock", model)
    assert equal(dict(model.state_dict()), from_transformers(stock.state_dict()))
    assert (origin.layout, origin.notes) == ("transformers", ())


def test_an_encoder_leaves_the_decoder_fresh(tmp_path: Path) -> None:
    theirs = encoder_of(dict(ours(seed=1).state_dict()))
    head = {"head.weight": torch.ones(3, 32), "head.bias": torch.ones(3)}
    save_file({**theirs, **head}, tmp_path / "timm.safetensors")
    model, before = ours(seed=2), dict(ours(seed=2).state_dict())
    origin = load_initial_weights(tmp_path / "timm.safetensors", model)
    assert equal(dict(model.state_dict()), {**before, **theirs})
    assert origin.notes == ("the decoder is fresh", "head.bias, head.weight not used")
    stock = stock_vit(ViTForImageClassification, num_labels=3)
    stock.save_pretrained(tmp_path / "stock")
    assert load_initial_weights(tmp_path / "stock", model).notes == origin.notes


def test_a_global_pool_has_no_last_norm_of_tokens(tmp_path: Path) -> None:
    theirs = encoder_of(dict(ours(seed=1).state_dict()))
    theirs |= {f"fc_norm.{kind}": theirs.pop(f"norm.{kind}") for kind in ("weight", "bias")}
    notes = load_initial_weights(pth(tmp_path / "pooled.pth", theirs), ours()).notes
    assert "norm.weight, norm.bias fresh" in notes


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    theirs = {name: value.bfloat16() for name, value in ours(seed=1).state_dict().items()}
    model = ours(seed=2)
    load_initial_weights(pth(tmp_path / "mae.pth", theirs), model)
    assert equal(dict(model.state_dict()), {name: value.float() for name, value in theirs.items()})


def test_images_of_another_size(tmp_path: Path) -> None:
    """Sines are computed again, which lines say; learned positions are refused."""
    theirs = dict(ours((16, 16, 3), seed=1).state_dict())
    model = ours((24, 24, 3), seed=2)
    notes = load_initial_weights(pth(tmp_path / "mae.pth", theirs), model).notes
    assert torch.equal(model.pos_embed, positions(32, (6, 6)))
    assert torch.equal(model.decoder_pos_embed, positions(16, (6, 6)))
    assert [note.split(" for ")[0] for note in notes] == [
        "pos_embed computed again",
        "decoder_pos_embed computed again",
    ]
    stock_vit(ViTModel).save_pretrained(tmp_path / "learned")
    with pytest.raises(UserError, match="pos_embed is learned for 16 patches, and the images have 6 x 6: give images"):
        load_initial_weights(tmp_path / "learned", model)


def test_other_means_of_pixels_are_told(tmp_path: Path) -> None:
    stock_vit(ViTModel).save_pretrained(tmp_path / "stock")
    (tmp_path / "stock" / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5, 0.5, 0.5]}))
    assert any(
        "pixels around (0.5, 0.5, 0.5)" in note for note in load_initial_weights(tmp_path / "stock", ours()).notes
    )
    mean = {"image_mean": [0.485, 0.456, 0.406]}
    (tmp_path / "stock" / "preprocessor_config.json").write_text(json.dumps(mean))
    assert not any("pixels" in note for note in load_initial_weights(tmp_path / "stock", ours()).notes)


def _changed(**changes: torch.Tensor | None) -> State:
    state = {**ours(seed=1).state_dict(), **{name.replace("__", "."): value for name, value in changes.items()}}
    return {name: value for name, value in state.items() if value is not None}


REFUSED: dict[str, Callable[[], State]] = {
    r"other shapes: patch_embed.proj.weight \(32, 1, 4, 4\) for \(32, 3, 4, 4\): give": lambda: dict(
        ours((16, 16, 1)).state_dict()
    ),
    r"other shapes: cls_token \(1, 1, 16\) for \(1, 1, 32\): give the model the sizes of the": lambda: dict(
        ours(width=16).state_dict()
    ),
    "has blocks.2.attn.proj.bias, .* which our model has not: give the model": lambda: dict(
        ours(layers=3).state_dict()
    ),
    r"other shapes: mask_token \(1, 1, 8\) for": lambda: dict(
        ours(decoder_width=8).state_dict()
    ),
    "has no blocks.1.mlp.fc2.bias: it is not complete, or give": lambda: _changed(blocks__1__mlp__fc2__bias=None),
    "has no decoder_norm.weight, decoder_norm.bias:": lambda: _changed(
        decoder_norm__weight=None, decoder_norm__bias=None
    ),
    "has blocks.0.ls1.gamma, which our model has not": lambda: _changed(blocks__0__ls1__gamma=torch.ones(32)),
    "has dist_token, which": lambda: _changed(dist_token=torch.ones(1, 1, 32)),
    "norm.bias does not hold finite numbers alone": lambda: _changed(norm__bias=torch.full((32,), torch.nan)),
    "norm.bias does not hold finite": lambda: _changed(norm__bias=torch.ones(32, dtype=torch.int64)),
    r"other shapes: blocks.0.mlp.fc1.weight \(64, 32\) for \(128, 32\): give": lambda: _changed(
        blocks__0__mlp__fc1__weight=torch.ones(64, 32), blocks__0__mlp__fc1__bias=torch.ones(64)
    ),
    "pos_embed is learned for 15 patches": lambda: _changed(pos_embed=torch.randn(1, 16, 32)),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_another_architecture_is_refused(words: str, tmp_path: Path) -> None:
    model, before = ours(), dict(ours().state_dict())
    with pytest.raises(UserError, match=words) as caught:
        load_initial_weights(pth(tmp_path / "weights.pth", REFUSED[words]()), model)
    assert "\n" not in str(caught.value)
    assert equal(dict(model.state_dict()), before)


def test_heads_are_refused_where_the_source_tells_them(tmp_path: Path) -> None:
    """The shapes do not tell them: a model with other heads would load, and be another function."""
    stock_mae(num_attention_heads=2).save_pretrained(tmp_path / "two")
    with pytest.raises(UserError, match=r"has 2 heads and not 4: take --model.heads 2"):
        load_initial_weights(tmp_path / "two", ours())
    stock_mae(decoder_num_attention_heads=4).save_pretrained(tmp_path / "four")
    with pytest.raises(UserError, match=r"take --model\.decoder-heads 4"):
        load_initial_weights(tmp_path / "four", ours())


@settings(max_examples=15)
@given(data=st.data())
def test_any_mixture_gives_a_whole_state_or_a_line(data: st.DataObject) -> None:
    """Whatever weights are there: all of the model's names are either taken in its shapes, or named as fresh."""
    own = dict(ours().state_dict())
    sizes = st.fixed_dictionaries(
        {"width": st.sampled_from([16, 32]), "layers": st.integers(1, 3), "decoder_layers": st.integers(1, 2)}
    )
    side = data.draw(st.sampled_from([8, 16, 20]))
    theirs = dict(ours((side, side, 3), **data.draw(sizes)).state_dict())
    for name in data.draw(st.sets(st.sampled_from(sorted(theirs)), max_size=2)) - {"patch_embed.proj.weight"}:
        del theirs[name]
    if data.draw(st.booleans()):
        theirs = encoder_of(theirs)
    try:
        state, _ = fit_weights(Weights(Path("x"), "mae", theirs, ()), ours())
    except UserError:
        return
    assert {name: value.shape for name, value in state.items()} == {name: own[name].shape for name in state}
    assert all(name.startswith(("decoder_", "mask_token")) for name in own.keys() - state.keys())


def same_run(one: Path, other: Path) -> bool:
    return all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in ("model.safetensors", "metrics.csv")
    )


@pytest.mark.slow
def test_a_run_begins_with_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With almost no learning rate they stay what they were; the folder knows what it began with."""
    first = finished(tmp_path)
    with caplog.at_level(logging.WARNING, "r2mae"):
        run = fit(config(picture_file(tmp_path), init=str(first), lr=1e-12), DOMAIN, tmp_path / "second").folder
    there, here = load_file(first / "model.safetensors"), load_file(run.weights)
    assert all(torch.allclose(value, here[name], atol=1e-7) for name, value in there.items())
    assert f"begins with {first} (r2mae)" in caplog.text
    assert yaml.safe_load(run.config_file.read_text())["init"] == str(first)
    record = read_initial_weights(run)
    assert (record["path"], record["layout"]) == (str(first), "r2mae")
    assert [len(file["sha256"]) for file in record["files"]] == [64]
    fresh = fit(config(picture_file(tmp_path), lr=1e-12), DOMAIN, tmp_path / "third").folder
    assert not read_initial_weights(fresh)
    assert not same_run(run.path, fresh.path)


@pytest.mark.slow
def test_a_comparison_says_what_its_rows_began_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And needs the file only for rows that have not begun."""
    weights = pth(tmp_path / "mae.pth", dict(ours(seed=1).state_dict()))
    options = "--model vit-mae --model.patch 4 --model.width 32 --model.layers 2 --model.heads 4"
    options += " --model.decoder-width 16 --model.decoder-layers 2 --model.decoder-heads 2"
    options += " --steps 1 --batch-size 8 --threads 1 --schemes r2mae mdlm --seeds 1 --baselines none"
    out = tmp_path / "comparison"
    line = ["compare", "images", str(picture_file(tmp_path)), *options.split(), "--init", str(weights)]
    assert main([*line, "--out", str(out)]) == 0
    told = (out / "report.html").read_text()
    assert f"init: {weights}" in told
    sha = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert sha in told.split("Environment")[-1]
    weights.unlink()
    assert main([*line, "--out", str(out)]) == 0  # all runs are finished
    shutil.rmtree(out / "runs" / "mdlm")
    capsys.readouterr()
    assert main([*line, "--out", str(out)]) == 2
    assert "mae.pth (init): no such file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_resumed_run_does_not_need_the_file(tmp_path: Path) -> None:
    weights = pth(tmp_path / "mae.pth", {"model": dict(ours(seed=1).state_dict())})
    made = config(picture_file(tmp_path), init=str(weights), steps=4, save_every=2)
    fit(made, DOMAIN, tmp_path / "whole")
    with pytest.raises(Interrupted):
        fit(made, DOMAIN, tmp_path / "cut", reporter=InterruptAt(3))
    shutil.copy(weights, tmp_path / "kept.pth")
    weights.unlink()
    assert fit(made, DOMAIN, tmp_path / "cut").resumed_from == 2
    assert same_run(tmp_path / "whole", tmp_path / "cut")
    check_run(DOMAIN, made, [tmp_path / "whole"])
    for folders in (["new"], ["whole", "new"]):
        with pytest.raises(UserError, match="no such file"):
            check_run(DOMAIN, made, [tmp_path / name for name in folders])
    assert not fit(made, DOMAIN, tmp_path / "whole").trained_now
    shutil.copy(tmp_path / "kept.pth", weights)  # another time, the same bytes
    assert not fit(made, DOMAIN, tmp_path / "whole").trained_now


@pytest.mark.slow
def test_other_weights_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    weights = pth(tmp_path / "mae.pth", dict(ours(seed=1).state_dict()))
    data, out = picture_file(tmp_path), tmp_path / "run"
    fit(config(data, init=str(weights)), DOMAIN, out)
    for init in (None, str(pth(tmp_path / "other.pth", dict(ours(seed=1).state_dict())))):
        with pytest.raises(UserError, match=r"belongs to another configuration \(init is"):
            fit(config(data, init=init), DOMAIN, out)
    pth(weights, dict(ours(seed=3).state_dict()))
    with pytest.raises(UserError, match=r"mae\.pth has changed since .* was begun"):
        fit(config(data, init=str(weights)), DOMAIN, out)


def test_nothing_is_written_for_weights_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = picture_file(tmp_path)
    weights = pth(tmp_path / "mae.pth", dict(ours(layers=3).state_dict()))
    out = tmp_path / "run"
    options = "--model vit-mae --model.patch 4 --model.width 32 --model.layers 2 --model.heads 4 --steps 1 --threads 1"
    line = ["pretrain", "images", str(data), *options.split(), "--out", str(out)]
    for init, words in {
        str(weights): "give the model the sizes of the weights (--model.patch",
        str(tmp_path / "none.pth"): "none.pth (init): no such file",
    }.items():
        assert main([*line, "--init", str(init)]) == 2
        told = capsys.readouterr().err
        assert (words in told, told.count("\n")) == (True, 1), told
        assert not RunFolder(out).config_file.exists()


def test_init_is_for_models_that_others_have() -> None:
    with pytest.raises(UserError, match=r"init is for the model that other libraries have \(vit-mae\), not for 'mlp'"):
        ImagesConfig.make(data="digits", init="mae.pth")
    with pytest.raises(UserError, match="init is empty"):
        config(Path("x.npy"), init="")
    relative: Any = config(Path("x.npy"), init="mae.pth").init
    assert Path(relative).is_absolute()
    assert INIT == "init"
