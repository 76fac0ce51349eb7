import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from r2mae.cells.config import CellsConfig
from r2mae.cells.wing import WING as CELLS
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.wing import WING
from r2mae.masking.keys import Key
from r2mae.masking.ratios import LinearDecay, Uniform, UniformAbove
from r2mae.masking.schemes import RatioDefaults, scheme_names, scheme_takes
from r2mae.text.config import TextConfig
from r2mae.text.wing import WING as TEXT
from r2mae.training.config import read_config, resolved, scheme_of
from r2mae.training.folder import RunFolder


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "batch_size must be 1 or more"),
        ({"batch_size": 100, "accumulate": 3}, "does not split into 3 equal"),
        ({"lr": 0.0}, "lr must be a finite number above 0"),
        ({"lr": float("nan")}, "lr must be a finite number above 0"),
        ({"epochs": -1.0}, "epochs must be"),
        ({"steps": 0}, "steps must be 1 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"clip": 0.0}, "clip must be"),
        ({"validation": 1.0}, r"fraction in \[0, 1\)"),
        ({"patience": 3}, "hold data out with --validation"),
        ({"validate_every": 3}, "add --validation"),
        ({"hidden": 0}, "hidden must be 1 or more"),
        ({"test_fraction": 0.0}, "test_fraction must lie"),
        ({"seed": 2**63}, "seed takes numbers up to"),
        ({"warmup": 1.0}, "warmup must be a fraction"),
        ({"ema": 1.0}, "ema must be a decay"),
        ({"batch_size": 8, "accumulate": 8}, "needs two images"),
        ({"weighting": "inverse-ratio", "per": "sample"}, "one ratio for the mini-batch"),
    ],
)
def test_impossible_configurations_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImagesConfig(data="digits", **fields)  # type: ignore[arg-type]


def test_steps_of_a_run() -> None:
    assert ImagesConfig(data="mnist").total_steps(60_000) == 7031
    assert ImagesConfig(data="mnist", steps=3).total_steps(60_000) == 3
    assert ImagesConfig(data="mnist", epochs=0.001).total_steps(10) == 1


def test_plain_types_and_back() -> None:
    config = ImagesConfig(data="digits", scheme="cl", ratio=0.3)
    assert ImagesConfig.from_dict(config.to_dict()) == config
    assert config.to_dict()["wing"] == "images"


def test_unknown_fields_are_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown field 'epoch': did you mean 'epochs'"):
        ImagesConfig.from_dict({"data": "digits", "epoch": 3})
    with pytest.raises(UserError, match="'data' is missing"):
        ImagesConfig.from_dict({})


def test_differences_leave_the_machine_out() -> None:
    a = ImagesConfig(data="digits")
    b = ImagesConfig(data="digits", workers=2, save_every=3, device="cpu", lr=0.1)
    assert a.differences(b) == ["lr"]


def test_schemes_from_a_configuration() -> None:
    scheme = scheme_of(ImagesConfig(data="x", sampling="stratified", low=0.3), WING.ratios)
    assert scheme.ratio == Uniform(0.3, 0.9, sampling="stratified")
    with pytest.raises(UserError, match=r"'fixed' does not take 'per': leave it out, .*\(mdlm, r2mae\)"):
        scheme_of(ImagesConfig(data="x", scheme="fixed", per="sample"), WING.ratios)
    with pytest.raises(UserError, match="did you mean 'dynamic'"):
        scheme_of(ImagesConfig(data="x", scheme="dynamc"), WING.ratios)


def test_own_schedules_reach_the_scheme() -> None:
    dynamic = scheme_of(ImagesConfig(data="x", scheme="dynamic", decay=0.01), WING.ratios)
    assert dynamic.ratio == LinearDecay(0.9, 0.5, decay=0.01)
    above = scheme_of(ImagesConfig(data="x", scheme="r2mae-dynamic", decay=0.01), WING.ratios)
    assert above.ratio == UniformAbove(LinearDecay(0.9, 0.5, decay=0.01), 0.9)
    config = ImagesConfig(data="x", scheme="cl", cl_warmup=5, cl_start=10, cl_end=30, cl_iterations=7)
    curriculum = scheme_of(config, WING.ratios).bind(1000).curriculum
    assert curriculum is not None
    assert curriculum.iterations == 7
    assert [curriculum.frozen(step) for step in (4, 5)] == [True, False]
    assert [curriculum.multiplier_at(step) for step in (10, 20, 30, 999)] == [1, 0, -1, -1]
    for name, fields in (
        ("r2mae", {"decay": 0.1}),
        ("r2mae", {"cl_warmup": 3}),
        ("cl-k0", {"cl_start": 3}),  # its multiplier never falls
        ("r2mae-cl", {"sampling": "stratified"}),
    ):
        with pytest.raises(UserError, match=f"the scheme '{name}' does not take '{next(iter(fields))}'"):
            scheme_of(ImagesConfig(data="x", scheme=name, **fields), WING.ratios)  # type: ignore[arg-type]


def test_whole_numbers_of_yaml_are_floats_where_floats_belong() -> None:
    config = ImagesConfig.from_dict({"data": "x", "epochs": 2, "low": 0, "high": 1})
    assert [type(value) for value in (config.epochs, config.low, config.high)] == [float] * 3
    assert type(scheme_of(replace(config, scheme="dynamic"), WING.ratios).bind(5).ratio(4, Key.root(0))) is float


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
        ({"scheme": 3}, "scheme takes text, not 3"),
        ({"steps": 1.5}, "steps takes a whole number, not 1.5"),
        ({"exact": 1}, "exact takes true or false, not 1"),
        ({"optimizer": "sgd"}, "optimizer takes one of adam, adamw, not 'sgd'"),
        ({"ratio": [0.1]}, "ratio takes a number, not"),
    ],
)
def test_values_of_the_wrong_type_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        ImagesConfig.from_dict({"data": "digits", **fields})


WINGS = {"images": (ImagesConfig, WING.ratios), "cells": (CellsConfig, CELLS.ratios), "text": (TextConfig, TEXT.ratios)}


@pytest.mark.parametrize("scheme", scheme_names())
@pytest.mark.parametrize("wing", WINGS)
def test_open_numbers_become_the_wings_and_mean_the_same(wing: str, scheme: str) -> None:
    kind, ratios = WINGS[wing]
    open_ = kind(data="x", scheme=scheme)
    used = resolved(open_, ratios)
    assert scheme_of(used, ratios) == scheme_of(open_, ratios)
    for name in ("ratio", "low", "high"):
        assert (getattr(used, name) is not None) == (name in scheme_takes(scheme))
    assert (used.cl_iterations is not None) == (scheme_of(used, ratios).curriculum is not None)
    assert resolved(used, ratios) == used
    assert kind.from_dict(used.to_dict()) == used
    assert open_.differences(used, ratios) == used.differences(open_, ratios) == []


def test_numbers_of_ones_own_stay() -> None:
    assert resolved(ImagesConfig(data="x", low=0.3), WING.ratios) == ImagesConfig(data="x", low=0.3, high=0.9)
    with pytest.raises(UserError, match="does not take 'low'"):
        resolved(ImagesConfig(data="x", scheme="fixed", low=0.3), WING.ratios)


def test_ends_of_the_dynamic_ratio_may_be_its_own() -> None:
    ratios = RatioDefaults(fixed=0.25, low=0.1, high=0.5, dynamic=(0.6, 0.2), above=(0.4, 0.1))
    used = resolved(ImagesConfig(data="x", scheme="dynamic"), ratios)
    assert (used.low, used.high) == (0.2, 0.6)
    assert scheme_of(used, ratios).ratio == LinearDecay(0.6, 0.2)
    # A floor that begins below high cannot be said by low and high: they stay open.
    used = resolved(ImagesConfig(data="x", scheme="r2mae-dynamic"), ratios)
    assert (used.low, used.high) == (None, None)


def test_an_open_number_is_that_of_the_wing_and_no_other(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "old")
    folder.claim(ImagesConfig(data="digits"), "digits")  # as earlier versions wrote it
    assert read_config(folder.config_file)["low"] is None
    folder.check(ImagesConfig(data="digits", low=0.5), WING.ratios)
    folder.claim(resolved(ImagesConfig(data="digits"), WING.ratios), "digits", WING.ratios)
    with pytest.raises(UserError, match=r"low is 0\.5 there and 0\.6 here"):
        folder.check(ImagesConfig(data="digits", low=0.6), WING.ratios)
    new = RunFolder(tmp_path / "new")
    new.claim(ImagesConfig(data="digits"), "digits", WING.ratios)
    assert [read_config(new.config_file)[name] for name in ("ratio", "low", "high")] == [None, 0.5, 0.9]
    new.check(ImagesConfig(data="digits"), WING.ratios)


@pytest.mark.parametrize(
    ("scheme", "there", "told", "repeatable"),
    [
        ("r2mae", {"decay": 0.001}, "decay is 0.001 there and None here", False),
        ("fixed", {"low": 0.2}, "low is 0.2 there and None here", False),
        ("fixed", {"sampling": "stratified"}, "sampling is 'stratified' there and 'independent' here", False),
        ("dynamic", {"low": 0.6, "per": "sample"}, "low is 0.6 there and 0.5 here", True),
        ("r2mae", {"scheme": "of-another-version"}, "scheme is 'of-another-version' there and 'r2mae' here", True),
    ],
)
def test_a_folder_with_what_its_scheme_does_not_take_is_refused_for_that(
    tmp_path: Path, scheme: str, there: dict[str, object], told: str, repeatable: bool
) -> None:
    """An older version may have let it pass, a later one may know it; numbers that are open there are no difference."""
    config = ImagesConfig(data="digits", scheme=scheme)
    folder = RunFolder(tmp_path)
    folder.config_file.write_text(yaml.safe_dump({**config.to_dict(), **there}))
    ending = "choose another --out, or repeat the options of that run" if repeatable else "choose another --out"
    with pytest.raises(UserError, match=re.escape(f"({told}): {ending}") + "$"):
        folder.check(config, WING.ratios)


def test_epochs_without_end_are_refused() -> None:
    with pytest.raises(UserError, match="ask for fewer"):
        ImagesConfig(data="digits", epochs=1e308).total_steps(1000)


def test_a_curriculum_of_an_earlier_version_is_not_gone_on_with(tmp_path: Path) -> None:
    config = ImagesConfig(data="digits", scheme="cl")
    folder = RunFolder(tmp_path)
    folder.claim(config, "print", WING.ratios)
    folder.check(config, WING.ratios)
    written = folder.config_file.read_text()
    assert "cl_iterations: 4" in written
    folder.config_file.write_text(written.replace("cl_iterations: 4", "cl_iterations: null"))
    with pytest.raises(UserError, match="another schedule: choose another --out"):
        folder.check(config, WING.ratios)


def test_results_of_older_versions_are_as_trained(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.results_file.write_text('{"scores": {"probe_accuracy": 0.5}}')
    assert folder.results_for(ImagesConfig(data="digits")) is None
    assert folder.results_for(ImagesConfig(data="digits", recalibrate="no")) is not None
    assert folder.results_for(CellsConfig(data="x", recalibrate="no")) is not None
    assert folder.results_for(CellsConfig(data="x", recalibrate="no", representation="hidden")) is None
    assert folder.results_for(TextConfig(data="x")) is not None
