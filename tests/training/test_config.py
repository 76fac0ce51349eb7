import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from r2mae.cells.config import CellsConfig
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.masking.keys import Key
from r2mae.training.folder import RunFolder
from r2mae.training.folder import read_yaml as read_config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "batch_size must be 1 or more"),
        ({"batch_size": 100, "accumulate": 3}, "does not split into 3 equal"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": float("nan")}, "lr takes a finite number"),
        ({"epochs": -1.0}, "epochs must be"),
        ({"steps": 0}, "steps must be 1 to 1,000,000,000, not 0"),
        ({"seed": -1}, "seed must be 0 to"),
        ({"clip": 0.0}, "clip must be"),
        ({"base_lr": 0.0}, "base_lr must be"),
        ({"base_lr": 1e-4, "lr": 1e-3}, "lr and base_lr exclude each other"),
        ({"betas": (0.9,)}, "betas takes two numbers"),
        ({"betas": (0.9, 1.0)}, "betas must be 0 or more and below 1"),
        ({"model": "vit-mae", "exact": True}, "exact has no effect on the model 'vit-mae'"),
        ({"model": "vit-mae", "fill": "mean"}, "fill has no effect"),
        ({"model": "vit-mae", "bn_statistics": "no"}, "bn_statistics has no effect"),
        ({"norm": "layer", "bn_statistics": "both"}, "bn_statistics has no effect"),
        ({"validation": 1.0}, "validation must be 0 or more and below 1"),
        ({"patience": 3}, "add --validation"),
        ({"validate_every": 3}, "add --validation"),
        ({"hidden": 0}, "hidden must be 1 or more"),
        ({"seed": 2**63}, "seed must be 0 to"),
        ({"warmup": 1.0}, "warmup must be 0 or more and below 1"),
        ({"ema": 1.0}, "ema must be above 0 and below 1"),
        ({"batch_size": 8, "accumulate": 8}, "needs two images"),
        ({"weighting": "inverse-ratio", "per": "sample"}, "one ratio for the mini-batch"),
    ],
)
def test_impossible_configurations_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImagesConfig.make(data="digits", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("domain", ["cells", "genome", "images", "text"])
def test_no_run_starts_from_the_current_folder_by_mistake(domain: str) -> None:
    """As a path, an empty name is that folder."""
    with pytest.raises(UserError, match=r"^init is empty: name what the run starts from"):
        get_domain(domain).config.make(data="digits", init="")


def test_steps_of_a_run() -> None:
    assert ImagesConfig.make(data="mnist").optimizer.total_steps(60_000) == 7031
    assert ImagesConfig.make(data="mnist", steps=3).optimizer.total_steps(60_000) == 3
    assert ImagesConfig.make(data="mnist", epochs=0.001).optimizer.total_steps(10) == 1


def test_plain_types_and_back() -> None:
    config = ImagesConfig.make(data="digits", scheme="cl", ratio=0.6)
    assert ImagesConfig.from_dict(config.to_dict()) == config
    assert config.to_dict()["domain"] == "images"


def test_unknown_fields_are_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown field 'epoch': did you mean 'epochs'"):
        ImagesConfig.from_dict({"data": "digits", "epoch": 3})
    with pytest.raises(UserError, match="'data' is missing"):
        ImagesConfig.from_dict({})


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    written = ImagesConfig.make(data="digits").to_dict()
    written["machine"]["activation_checkpointing"] = False
    (tmp_path / "config.yaml").touch()
    said = r"config\.yaml: written by another version of r2mae or another command, or edited: there is no field "
    said += r"'machine\.activation_checkpointing' here: train again into another --out"
    with pytest.raises(UserError, match=said):
        ImagesConfig.from_dict(written, source=str(tmp_path / "config.yaml"))


def test_differences_leave_the_machine_out() -> None:
    a = ImagesConfig.make(data="digits")
    b = ImagesConfig.make(data="digits", workers=2, save_every=3, device="cpu", lr=0.1)
    assert a.differences(b) == {"lr": (0.003, 0.1)}


def test_whole_numbers_of_yaml_are_floats_where_floats_belong() -> None:
    config = ImagesConfig.from_dict({"data": "x", "epochs": 2, "low": 0, "high": 1})
    assert [type(value) for value in (config.optimizer.epochs, *config.scheme.given_options.values())] == [float] * 3
    assert type(config.replace(scheme="dynamic").scheme.make().bind(5).ratio(4, Key.root(0))) is float


def test_numbers_as_scientists_pass_them() -> None:
    given = {
        "seed": np.int64(3), "lr": np.float32(0.25), "steps": 1e5, "batch_size": np.uint8(32), "precision": 32,
        "betas": np.array([0.5, 0.75]), "exact": np.True_, "validation": np.float16(0.5), "resize": "1e1",
        "low": np.float32(0.25), "high": np.float64(0.5), "data": Path("digits"), "hidden": np.int32(16),
    }  # fmt: skip
    plain = {
        "seed": 3, "lr": 0.25, "steps": 100_000, "batch_size": 32, "precision": "32", "betas": (0.5, 0.75),
        "exact": True, "validation": 0.5, "resize": 10, "low": 0.25, "high": 0.5, "data": "digits", "hidden": 16,
    }  # fmt: skip
    config = ImagesConfig.make(**given)
    assert config == ImagesConfig.make(**plain) == ImagesConfig.make(data="digits").replace(**given)
    assert {name: config[name] for name in plain} == plain and config["scheme"] == "r2mae"
    saved = config.to_dict()
    assert yaml.safe_load(yaml.safe_dump(saved)) == saved  # which NumPy's numbers are not
    assert config.replace(lr=np.float32(1e-3), high=np.float32(0.9)) == config.replace(lr=1e-3, high=0.9)
    named = ImagesConfig.make(data="digits", scheme=np.str_("fixed")).to_dict()
    assert yaml.safe_load(yaml.safe_dump(named)) == named
    curriculum = {"cl_iterations": np.int64(3), "cl_warmup": np.float32(0.5), "cl_grid": np.float32(0.25)}
    scheme = ImagesConfig.make(data="x", scheme="cl", **curriculum).scheme
    assert scheme == ImagesConfig.make(data="x", scheme="cl", cl_iterations=3, cl_warmup=0.5, cl_grid=0.25).scheme
    assert yaml.safe_load(yaml.safe_dump(scheme.to_dict())) == scheme.to_dict()
    with pytest.raises(KeyError):
        config["ratio"]  # which the scheme does not take


@pytest.mark.parametrize("name", ["lr", "steps", "low", "high", "epochs", "seed"])
@pytest.mark.parametrize("value", [True, np.True_, "1_0", "\uff11", " 1", "1 ", "1e", "0x1", [0.5], "", 1j])
def test_what_is_no_number(name: str, value: object) -> None:
    with pytest.raises(UserError, match=f"^{name} takes a (whole )?number, not"):
        ImagesConfig.make(data="x", **{name: value})


def test_broken_files_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "config.yaml"
    for text in ("data: [", "- 1\n- 2", "!!python/object/apply:os.system [echo]", "\x00"):
        broken.write_text(text)
        with pytest.raises(UserError, match=r"config\.yaml is not"):
            read_config(broken)
    with pytest.raises(UserError, match="there is no configuration"):
        read_config(tmp_path / "none.yaml")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_mapping_or_a_user_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    with contextlib.suppress(UserError):
        assert isinstance(read_config(path), dict)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": "fast"}, "lr takes a number, not 'fast'"),
        ({"scheme": 3}, "scheme takes a name, not 3"),
        ({"steps": 1.5}, "steps takes a whole number, not 1.5"),
        ({"exact": 1}, "exact takes true or false, not 1"),
        ({"optimizer": "rmsprop"}, "optimizer takes one of adam, adamw, sgd, not 'rmsprop'"),
        ({"low": [0.1]}, "low takes a number, not"),
    ],
)
def test_values_of_the_wrong_type_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        ImagesConfig.from_dict({"data": "digits", **fields})


def test_epochs_without_end_are_refused() -> None:
    with pytest.raises(UserError, match="use fewer"):
        ImagesConfig.make(data="digits", epochs=1e308).optimizer.total_steps(1000)


def test_results_say_nothing_of_statistics_that_a_model_lacks(tmp_path: Path) -> None:
    bare, default = ImagesConfig.make(data="digits", norm="layer"), ImagesConfig.make(data="digits")
    assert "bn_statistics" in default.measurement_settings()
    assert bare.measurement_settings() == {"finetune_epochs": 0.0}
    assert CellsConfig.make(data="x", norm="layer").measurement_settings() == {}
    folder = RunFolder(tmp_path)
    own = bare.measurement_settings()
    changed = {**own, "finetune_epochs": 1.0}
    for said, known in ((own, True), (changed, False), ({}, False)):
        folder.results_file.write_text(json.dumps({"scores": {"probe_accuracy": 0.5}, "measured": said}))
        assert (folder.results_for(bare) is not None) == known
        assert folder.results_for(default) is None


def test_a_preset_without_a_model_keeps_its_name_under_another_model() -> None:
    class Config(ImagesConfig):
        presets = {"quick": {"steps": 5}}  # noqa: RUF012

    found = Config.make(data="digits", preset="quick").replace(model="unet")
    assert (found.preset, found.model.name, found.optimizer.steps) == ("quick", "unet", 5)
    assert ImagesConfig.make(data="digits", preset="mlp-512-16").replace(model="unet").preset is None
