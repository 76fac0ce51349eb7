"""From a configuration to its scheme."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN as CELLS
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.ratios import LinearDecay, Uniform, UniformAbove
from r2mae.masking.schemes import SCHEME_OPTIONS, scheme_names, scheme_takes
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN as TEXT
from r2mae.training.config import read_config
from r2mae.training.folder import RunFolder
from r2mae.training.scheme_options import (
    OPTION_DEFAULTS,
    OPTION_FIELDS,
    as_used,
    check_typed,
    chosen_options,
    effective_options,
    resolved,
    scheme_of,
)


def test_schemes_from_a_configuration() -> None:
    scheme = scheme_of(ImagesConfig(data="x", sampling="stratified", low=0.3), DOMAIN.ratios)
    assert scheme.ratio == Uniform(0.3, 0.9, sampling="stratified")
    with pytest.raises(UserError, match=r"'fixed' does not take 'per': omit it, .*\(mdlm, r2mae\)"):
        scheme_of(ImagesConfig(data="x", scheme="fixed", per="sample"), DOMAIN.ratios)
    with pytest.raises(UserError, match="did you mean 'dynamic'"):
        scheme_of(ImagesConfig(data="x", scheme="dynamc"), DOMAIN.ratios)


def test_a_typed_option_that_no_scheme_takes_is_refused_even_if_its_value_is_the_default() -> None:
    for scheme, option in (("r2mae-per-sample", "per"), ("fixed", "sampling"), ("mdlm", "low")):
        with pytest.raises(UserError, match=f"the scheme '{scheme}' does not take '{option}'"):
            check_typed([option, "steps"], [scheme])
    with pytest.raises(UserError, match="none of fixed, r2mae-per-sample takes 'per'"):
        check_typed(["per"], ["fixed", "r2mae-per-sample"])
    check_typed(["per"], ["fixed", "r2mae"])  # one of them does
    check_typed(["per"], ["no such scheme"])  # refused where it is made


def test_own_schedules_reach_the_scheme() -> None:
    dynamic = scheme_of(ImagesConfig(data="x", scheme="dynamic", decay=0.01), DOMAIN.ratios)
    assert dynamic.ratio == LinearDecay(0.9, 0.5, decay=0.01)
    above = scheme_of(ImagesConfig(data="x", scheme="r2mae-dynamic", decay=0.01), DOMAIN.ratios)
    assert above.ratio == UniformAbove(LinearDecay(0.9, 0.5, decay=0.01), 0.9)
    config = ImagesConfig(data="x", scheme="cl", cl_warmup=5, cl_start=10, cl_end=30, cl_iterations=7)
    curriculum = scheme_of(config, DOMAIN.ratios).bind(1000).curriculum
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
            scheme_of(ImagesConfig(data="x", scheme=name, **fields), DOMAIN.ratios)  # type: ignore[arg-type]


DOMAINS = {
    "images": (ImagesConfig, DOMAIN.ratios),
    "cells": (CellsConfig, CELLS.ratios),
    "text": (TextConfig, TEXT.ratios),
}


@pytest.mark.parametrize("scheme", scheme_names())
@pytest.mark.parametrize("domain", DOMAINS)
def test_open_numbers_become_the_domains_and_mean_the_same(domain: str, scheme: str) -> None:
    kind, ratios = DOMAINS[domain]
    open_ = kind(data="x", scheme=scheme)
    used = resolved(open_, ratios)
    assert scheme_of(used, ratios) == scheme_of(open_, ratios)
    for name in ("ratio", "low", "high"):
        assert (getattr(used, name) is not None) == (name in scheme_takes(scheme))
    assert (used.cl_iterations is not None) == (scheme_of(used, ratios).curriculum is not None)
    assert resolved(used, ratios) == used
    assert kind.from_dict(used.to_dict()) == used
    assert as_used(open_, ratios) == as_used(used, ratios) == used


def test_numbers_of_ones_own_stay() -> None:
    assert resolved(ImagesConfig(data="x", low=0.3), DOMAIN.ratios) == ImagesConfig(data="x", low=0.3, high=0.9)
    with pytest.raises(UserError, match="does not take 'low'"):
        resolved(ImagesConfig(data="x", scheme="fixed", low=0.3), DOMAIN.ratios)


def test_ends_of_the_dynamic_ratio_may_be_its_own() -> None:
    ratios = RatioDefaults(fixed=0.25, low=0.1, high=0.5, dynamic=(0.6, 0.2), falling_floor=(0.4, 0.1))
    used = resolved(ImagesConfig(data="x", scheme="dynamic"), ratios)
    assert (used.low, used.high) == (0.2, 0.6)
    assert scheme_of(used, ratios).ratio == LinearDecay(0.6, 0.2)
    # A floor that begins below high cannot be said by low and high: they stay open.
    used = resolved(ImagesConfig(data="x", scheme="r2mae-dynamic"), ratios)
    assert (used.low, used.high) == (None, None)


def test_an_open_number_is_that_of_the_domain_and_no_other(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "old")
    folder.claim(ImagesConfig(data="digits"), "digits")  # as earlier versions wrote it
    assert read_config(folder.config_file)["low"] is None
    folder.check_config(ImagesConfig(data="digits", low=0.5), DOMAIN.ratios)
    folder.claim(resolved(ImagesConfig(data="digits"), DOMAIN.ratios), "digits", DOMAIN.ratios)
    with pytest.raises(UserError, match=r"low is 0\.5 there and 0\.6 here"):
        folder.check_config(ImagesConfig(data="digits", low=0.6), DOMAIN.ratios)
    new = RunFolder(tmp_path / "new")
    new.claim(ImagesConfig(data="digits"), "digits", DOMAIN.ratios)
    assert [read_config(new.config_file)[name] for name in ("ratio", "low", "high")] == [None, 0.5, 0.9]
    new.check_config(ImagesConfig(data="digits"), DOMAIN.ratios)


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
        folder.check_config(config, DOMAIN.ratios)


def test_options_have_defaults_that_say_nothing() -> None:
    assert set(OPTION_DEFAULTS) == set(OPTION_FIELDS) == {*SCHEME_OPTIONS, "scheme_options"}
    assert all(scheme_of(ImagesConfig(data="x", scheme=name), DOMAIN.ratios) for name in scheme_names())


@pytest.mark.parametrize(
    ("scheme", "fields", "used"),
    [
        ("fixed", {}, {"ratio": 0.7}),
        ("mdlm", {}, {"sampling": "independent", "per": "batch"}),
        ("r2mae", {"low": 0.6}, {"low": 0.6, "high": 0.9, "sampling": "independent", "per": "batch"}),
        (
            "r2mae",
            {"sampling": "stratified", "strata": 8},
            {"low": 0.5, "high": 0.9, "sampling": "stratified", "per": "batch", "strata": 8},
        ),
        ("dynamic", {"decay": 0.1}, {"low": 0.5, "high": 0.9, "decay": 0.1}),
        ("dynamic", {}, {"low": 0.5, "high": 0.9, "decay": pytest.approx(0.4 / (0.9 * 99))}),
        ("r2mae-dynamic", {}, {"low": 0.5, "high": 0.9, "decay": pytest.approx(0.4 / (0.9 * 99))}),
        ("cl-k0", {"cl_warmup": 3}, {"ratio": 0.7, "low": 0.5, "high": 0.9, "cl_warmup": 3, "cl_iterations": 4}),
        (
            "r2mae-cl",
            {"cl_end": 70, "cl_iterations": 2},
            {"low": 0.5, "high": 0.9, "cl_warmup": 2, "cl_start": 12, "cl_end": 70, "cl_iterations": 2},
        ),
    ],
)
def test_options_as_a_run_uses_them(scheme: str, fields: dict[str, Any], used: dict[str, Any]) -> None:
    config = ImagesConfig(data="x", scheme=scheme, **fields)
    found = effective_options(config, DOMAIN.ratios, steps=100)
    assert found == used
    assert list(found) == [option for option in scheme_takes(scheme) if option in found]
    assert chosen_options(config, DOMAIN.ratios) == [option for option in SCHEME_OPTIONS if option in fields]


def test_strata_are_of_stratified_sampling() -> None:
    with pytest.raises(UserError, match="add --sampling stratified"):
        scheme_of(ImagesConfig(data="x", strata=8), DOMAIN.ratios)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("power",), "takes NAME=NUMBER"),
        (("power=high",), "takes NAME=NUMBER"),
        (("power=nan",), "takes NAME=NUMBER"),
        (("power=1", "power=2"), "each name once"),
        (("cl_end=3",), "give cl_end=3 as --cl-end"),
    ],
)
def test_options_of_a_schemes_own_are_numbers_by_name(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImagesConfig(data="x", scheme_options=words)


def test_an_option_that_no_scheme_takes_is_refused() -> None:
    with pytest.raises(UserError, match="no scheme takes 'pwoer': omit it"):
        scheme_of(ImagesConfig(data="x", scheme_options=("pwoer=3",)), DOMAIN.ratios)
