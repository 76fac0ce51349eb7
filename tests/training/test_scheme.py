"""From given options and defaults to the complete scheme of a run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from r2mae.cells.config import CellsConfig
from r2mae.errors import UserError
from r2mae.genome.config import GenomeConfig
from r2mae.images.config import ImagesConfig
from r2mae.masking.ratios import Fixed, LinearDecay, Uniform, UniformAbove
from r2mae.masking.schemes import SCHEME_OPTIONS, scheme_kind, scheme_names
from r2mae.text.config import TextConfig
from r2mae.training.config import Layer, RunConfig
from r2mae.training.folder import RunFolder
from r2mae.training.folder import read_yaml as read_config

CONFIGS = [ImagesConfig, CellsConfig, TextConfig, GenomeConfig]


def test_schemes_from_a_configuration() -> None:
    scheme = ImagesConfig.make(data="x", sampling="stratified", low=0.3).scheme.make()
    assert scheme.ratio == Uniform(0.3, 0.9, sampling="stratified")
    with pytest.raises(UserError, match=r"'fixed' does not take 'per': omit it, .*\(mdlm, r2mae\)"):
        ImagesConfig.make(data="x", scheme="fixed", per="sample")
    with pytest.raises(UserError, match="did you mean 'dynamic'"):
        ImagesConfig.make(data="x", scheme="dynamc")


@pytest.mark.parametrize("option", ["per", "sampling", "low"])
def test_an_option_that_the_scheme_does_not_take_is_refused_even_if_its_value_is_the_default(option: str) -> None:
    value = {"per": "batch", "sampling": "independent", "low": 0.5}[option]
    with pytest.raises(UserError, match=f"the scheme 'fixed' does not take '{option}'"):
        ImagesConfig.make(data="x", scheme="fixed", **{option: value})


def test_own_schedules_reach_the_scheme() -> None:
    above = ImagesConfig.make(data="x", scheme="r2mae-dynamic", decay_end=0.2).scheme.make()
    assert above.ratio == UniformAbove(0.9, 0.5, end=0.2)
    early = ImagesConfig.make(data="x", scheme="dynamic", decay_end=0.5).scheme.make()
    assert early.ratio == LinearDecay(0.9, 0.5, end=0.5)
    config = ImagesConfig.make(data="x", scheme="cl", cl_warmup=0.005, cl_start=0.01, cl_end=0.03, cl_iterations=7)
    curriculum = config.scheme.make().bind(1000).curriculum
    assert curriculum is not None
    assert curriculum.iterations == 7
    assert [curriculum.frozen(step) for step in (4, 5)] == [True, False]
    assert [curriculum.multiplier_at(step) for step in (10, 20, 30, 999)] == [1, 0, -1, -1]
    for name, fields in (
        ("r2mae", {"decay_end": 0.1}),
        ("r2mae", {"cl_warmup": 0.3}),
        ("cl-k0", {"cl_start": 0.3}),  # its multiplier never falls
        ("r2mae-cl", {"sampling": "stratified"}),
    ):
        with pytest.raises(UserError, match=f"the scheme '{name}' does not take '{next(iter(fields))}'"):
            ImagesConfig.make(data="x", scheme=name, **fields)


def test_times_are_fractions_of_the_run() -> None:
    times = {"cl_warmup": 0.1, "cl_start": 0.1, "cl_end": 1}
    config = ImagesConfig.make(data="x", scheme="cl", **times)
    assert config == config.replace(cl_end=1.0)
    scheme = config.scheme.bind(1000)
    assert scheme.curriculum is not None
    assert [scheme.curriculum.frozen(step) for step in (99, 100)] == [True, False]
    assert [scheme.curriculum.multiplier_at(step) for step in (100, 550, 1000)] == [1, 0, -1]
    with pytest.raises(UserError, match=r"cl_start \(0\.6\) is after cl_end \(0\.5\)"):
        ImagesConfig.make(data="x", scheme="cl", cl_start=0.6, cl_end=0.5)


@pytest.mark.parametrize("name", ["cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0"])
@pytest.mark.parametrize(("given", "count"), [(1, 1), (2, 2), (10, 10), (10.0, 10), (0.05, 9), (0.999, 2)])
def test_the_grid_of_a_curriculum(name: str, given: float, count: int) -> None:
    curriculum = ImagesConfig.make(data="x", scheme=name, cl_grid=given).scheme.make().curriculum
    assert curriculum is not None
    values = curriculum.grid.values
    assert len(values) == count
    assert (values[0], values[-1]) == pytest.approx((0.5, 0.9) if count > 1 else (0.7, 0.7))


def test_what_a_curriculum_has_no_weights_for_is_refused() -> None:
    for name in ("cl", "cl-k0"):
        for ratio in (0.95, 0.4):
            with pytest.raises(UserError, match=rf"ratio \({ratio}\) must be within low to high \(0.5 to 0.9\)"):
                ImagesConfig.make(data="x", scheme=name, ratio=ratio)
        assert ImagesConfig.make(data="x", scheme=name, ratio=0.95, high=0.95).scheme.make().ratio == Fixed(0.95)
    with pytest.raises(UserError, match=r"below 1 their distance \(0\.05\), not 2\.5"):
        ImagesConfig.make(data="x", scheme="cl", cl_grid=2.5)


@pytest.mark.parametrize("name", scheme_names())
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_holds_every_option(kind: type[RunConfig], name: str) -> None:
    config = kind.make(data="x", scheme=name)
    options = config.scheme.options
    assert set(options) == set(scheme_kind(name).options)
    assert None not in options.values()
    assert config.scheme.given == ()
    repeated = kind.make(data="x", scheme=name, **options)
    assert repeated == config
    assert repeated.scheme.given == tuple(options)
    assert kind.from_dict(config.to_dict()) == config
    assert kind.from_dict(yaml.safe_load(yaml.safe_dump(config.to_dict()))).scheme.given == ()


def test_another_scheme_has_none_of_the_options_given_before() -> None:
    config = ImagesConfig.make(data="x", low=0.3)
    assert config.replace(scheme="dynamic") == ImagesConfig.make(data="x", scheme="dynamic")
    assert config.replace(high=0.8) == ImagesConfig.make(data="x", low=0.3, high=0.8)
    assert config.replace(steps=3).scheme == config.scheme
    assert config.replace(scheme="r2mae", sampling="stratified").scheme.given == ("low", "sampling")


def test_the_scheme_of_a_run_is_one_value_until_a_later_source_changes_it() -> None:
    run = ImagesConfig.make(data="x", low=0.3)
    written = {**run.to_dict(), "scheme": {**run.scheme.to_dict(), "high": 0.7}}  # of a version with other defaults
    del written["domain"]
    of_run = ImagesConfig.from_dict(written)
    assert (of_run.scheme.options["high"], of_run.scheme.given) == (0.7, ("low",))
    for more in ({"steps": 3}, {"scheme": "r2mae"}):
        assert ImagesConfig.of_layers([Layer({"high": 0.8}), Layer(written), Layer(more)]).scheme == of_run.scheme
    for more, high in (({"low": 0.4}, 0.9), ({"model": "vit-mae"}, 0.9), ({"high": 0.8}, 0.8)):
        found = ImagesConfig.of_layers([Layer(written), Layer(more)]).scheme
        assert (found.options["low"], found.options["high"]) == (more.get("low", 0.3), high)


def test_options_that_were_not_given_follow_the_model() -> None:
    config = ImagesConfig.make(data="x", low=0.3)
    assert config.replace(model="vit-mae").scheme.options["low"] == 0.3
    plain = ImagesConfig.make(data="x").replace(model="vit-mae")
    assert (plain.scheme.options["low"], plain.scheme.options["high"]) == (0.6, 0.9)
    cells = CellsConfig.make(data="x", scheme="cl").replace(timing="sea-ad")
    assert cells.scheme == CellsConfig.make(data="x", scheme="cl", timing="sea-ad").scheme


def test_a_folder_is_compared_with_what_a_run_uses(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.claim(ImagesConfig.make(data="digits"), "digits")
    written = read_config(folder.config_file)["scheme"]
    assert written == {
        "name": "r2mae", "low": 0.5, "high": 0.9, "sampling": "independent", "per": "batch", "given": []
    }  # fmt: skip
    folder.check_config(ImagesConfig.make(data="digits", low=0.5))
    with pytest.raises(UserError, match=r"low is 0\.5 there and 0\.6 here"):
        folder.check_config(ImagesConfig.make(data="digits", low=0.6))
    with pytest.raises(UserError, match="scheme is 'r2mae' there and 'mdlm' here"):
        folder.check_config(ImagesConfig.make(data="digits", scheme="mdlm"))


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"name": "of-another-version"}, "unknown scheme 'of-another-version'"),
        ({"power": 3.0}, "no scheme takes 'power'"),
        ({"low": 0.95}, r"low \(0.95\) is above high"),
        ({"low": "a"}, "low takes a number, not 'a'"),
        ({"sampling": "sometimes"}, "sampling takes independent or stratified"),
        ({"given": 3}, "scheme takes a name and its options"),
        ({"given": ["power"]}, "scheme takes a name and its options"),
    ],
)
def test_a_scheme_that_no_run_has_written_is_refused(there: dict[str, Any], message: str) -> None:
    written = ImagesConfig.make(data="x").to_dict()
    with pytest.raises(UserError, match=message):
        ImagesConfig.from_dict({**written, "scheme": {**written["scheme"], **there}})


def test_a_scheme_that_lacks_an_option_is_refused() -> None:
    written = ImagesConfig.make(data="x").to_dict()
    del written["scheme"]["high"]
    with pytest.raises(UserError, match=re.escape("the scheme 'r2mae' has no high: the file is of another version")):
        ImagesConfig.from_dict(written)


@pytest.mark.parametrize(
    ("scheme", "fields", "used"),
    [
        ("fixed", {}, {"ratio": 0.7}),
        ("mdlm", {}, {"sampling": "independent", "per": "batch"}),
        ("r2mae", {"low": 0.6}, {"low": 0.6, "high": 0.9, "sampling": "independent", "per": "batch"}),
        ("dynamic", {}, {"low": 0.5, "high": 0.9, "decay_in": "steps", "decay_end": 1.0}),
    ],
)
def test_options_as_a_run_uses_them(scheme: str, fields: dict[str, Any], used: dict[str, Any]) -> None:
    found = ImagesConfig.make(data="x", scheme=scheme, **fields).scheme
    assert found.options == used
    assert list(found.options) == [option for option in scheme_kind(scheme).options if option in used]
    assert found.given == tuple(option for option in SCHEME_OPTIONS if option in fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scheme": "cl", "cl_iterations": 0}, "cl_iterations must be 1 to 10000, not 0"),
        ({"scheme": "cl", "cl_iterations": 2.5}, "cl_iterations takes a whole number, not 2.5"),
        ({"scheme": "dynamic", "decay_end": -1.0}, r"decay_end must be 1e-06 to 1 \(a fraction of the run\), not -1"),
        ({"scheme": "dynamic", "decay_end": "soon"}, "decay_end takes a number, not 'soon'"),
        ({"scheme": "cl", "cl_iterations": 0}, "cl_iterations must be 1 to"),
        ({"scheme": "cl", "cl_start": True}, "cl_start takes a number, not True"),
        ({"scheme": "cl", "cl_warmup": 500}, r"cl_warmup must be 0 to 1 \(a fraction of the run\), not 500"),
        ({"low": float("nan")}, "low"),
        ({"scheme.pwoer": 3}, "no scheme takes 'pwoer': did you mean"),
        ({"scheme.low": 0.3, "low": 0.2}, "low is given twice"),
    ],
)
def test_impossible_options_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImagesConfig.make(data="x", **fields)
