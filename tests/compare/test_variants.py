import math
from pathlib import Path
from typing import Any

import pytest

from r2mae.compare.runs import against_label, default_schemes, plan_variants, runs_of, variant_of
from r2mae.domains.lookup import domain_of, get_domain, public_sets
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.masking.schemes import scheme_kind, scheme_names
from r2mae.registry import BUILT_IN, DOMAINS

BASE = ImagesConfig.make(data="digits")


def test_fixed_stands_for_three_rows() -> None:
    rows = plan_variants(BASE, ["fixed", "r2mae"])
    assert [row.label for row in rows] == ["fixed 0.50", "fixed 0.70", "fixed 0.90", "r2mae"]
    assert [row.values["ratio"] for row in rows[:3]] == [0.5, 0.7, 0.9] and math.isnan(rows[3].values["ratio"])
    assert [(row.values["low"], row.values["high"]) for row in rows] == [(0.5, 0.5), (0.7, 0.7), (0.9, 0.9), (0.5, 0.9)]


def test_a_ratio_or_a_scheme_names_a_variant() -> None:
    variants = plan_variants(BASE, ["fixed", "r2mae"], ratios=[0.5, 0.75])
    assert [against_label(word, variants) for word in (None, "0.75", ".50", "fixed 0.50", "r2mae")] == [
        None, "fixed 0.75", "fixed 0.50", "fixed 0.50", "r2mae",
    ]  # fmt: skip
    for word, hint in (
        ("0.8", "choose from"),
        ("r2ma", "did you mean 'r2mae'"),
        ("fixed", "did you mean"),
        ("nan", ""),
    ):
        with pytest.raises(UserError, match=rf"^--against '{word}' is not one fixed ratio or scheme.*{hint}"):
            against_label(word, variants)


def test_every_scheme_has_a_row_with_its_ends() -> None:
    rows = {row.label: row for row in plan_variants(BASE, scheme_names())}
    assert [name for name in scheme_names() if name in rows] == [name for name in scheme_names() if name != "fixed"]
    assert (rows["mdlm"].values["low"], rows["mdlm"].values["high"]) == (0, 1)
    assert (rows["cl"].values["low"], rows["cl"].values["high"]) == (0.7, 0.7)
    for name in ("dynamic", "r2mae", "r2mae-dynamic", "r2mae-cl", "r2mae-cl-k0"):
        assert (rows[name].values["low"], rows[name].values["high"]) == (0.5, 0.9)


def test_spread_ratios_are_a_row_where_they_can_be() -> None:
    assert "r2mae-per-sample" in default_schemes(BASE)
    assert "r2mae-per-sample" not in default_schemes(ImagesConfig.make(data="digits", weighting="inverse-ratio"))
    (row,) = plan_variants(ImagesConfig.make(data="digits", low=0.2), ["r2mae-per-sample"])
    assert (row.label, row.values["low"], row.values["high"]) == ("r2mae-per-sample", 0.2, 0.9)
    for word in ("per", "sampling"):
        option = {"per": "sample", "sampling": "stratified"}[word]
        with pytest.raises(UserError, match=f"does not take '{word}'"):
            plan_variants(BASE, ["r2mae-per-sample"], {word: option})
    with pytest.raises(UserError, match="needs one ratio for the mini-batch"):
        plan_variants(ImagesConfig.make(data="digits", weighting="inverse-ratio"), ["r2mae", "r2mae-per-sample"])


def test_a_schedule_in_epochs_does_not_fall_in_the_first() -> None:
    for epochs, low in ((1.0, 0.9), (2.0, 0.5)):
        base = ImagesConfig.make(data="digits", epochs=epochs)
        (row,) = plan_variants(base, ["dynamic"], {"decay_in": "epochs"})
        assert (row.values["low"], row.values["high"]) == (low, 0.9)


def test_own_numbers_reach_the_rows_that_listen() -> None:
    options = {"ratio": 0.6, "low": 0.2, "high": 0.8}
    rows = {row.label: row for row in plan_variants(BASE, ["fixed", "mdlm", "r2mae", "cl"], options)}
    assert list(rows) == ["fixed 0.20", "fixed 0.60", "fixed 0.80", "mdlm", "r2mae", "cl"]
    given = {label: row.config.scheme.given_options for label, row in rows.items()}
    assert given["mdlm"] == {}
    assert given["r2mae"] == {"low": 0.2, "high": 0.8}
    assert given["cl"] == options
    many = plan_variants(BASE, ["fixed"], ratios=[0.9, 0.1, 0.123, 0.1])
    assert [row.label for row in many] == ["fixed 0.10", "fixed 0.123", "fixed 0.90"]


def test_a_range_may_reach_zero_and_one() -> None:
    rows = plan_variants(ImagesConfig.make(data="digits", low=0.0, high=1.0), ["fixed", "r2mae"])
    assert [row.label for row in rows] == ["fixed 0.70", "r2mae"]


def test_schedules_reach_the_rows_that_have_them() -> None:
    rows = plan_variants(BASE, ["dynamic", "r2mae", "r2mae-cl"], {"decay_end": 0.5, "cl_warmup": 0.3})
    assert [row.config.scheme.given_options for row in rows] == [{"decay_end": 0.5}, {}, {"cl_warmup": 0.3}]


def test_cells_have_folders_and_seeds_of_their_own(tmp_path: Path) -> None:
    runs = runs_of(plan_variants(BASE, ["fixed", "r2mae"]), [3, 5], tmp_path)
    assert len({run.folder for run in runs}) == 8
    assert [run.seed for run in runs] == [3] * 4 + [5] * 4
    assert all(run.config.seed == run.seed for run in runs)


def test_options_that_no_scheme_kind_are_refused() -> None:
    with pytest.raises(UserError, match="the scheme 'mdlm' does not take 'low'"):
        plan_variants(ImagesConfig.make(data="digits", low=0.2), ["mdlm"])


@pytest.mark.parametrize(
    ("schemes", "ratios", "fields", "message"),
    [
        (["fixed"], [0.5], {"sampling": "stratified"}, r"the scheme 'fixed' does not take 'sampling': omit it"),
        (["fixed"], [0.5], {"per": "sample"}, "does not take 'per'"),
        (["fixed"], [0.5], {"decay_end": 0.5}, r"does not take 'decay_end'.*\(dynamic, r2mae-dynamic\)"),
        (["fixed", "mdlm"], None, {"cl_warmup": 0.3}, "none of fixed, mdlm takes 'cl_warmup'"),
        (["fixed", "cl-k0"], None, {"cl_end": 0.3}, r"takes 'cl_end'.*\(cl, r2mae-cl\)"),
        (
            ["fixed", "r2mae"],
            [0.5],
            {"ratio": 0.3},
            "--ratios sets the fixed ratios, so --ratio has no effect: omit it",
        ),
        (["fixed", "mdlm"], [0.5], {"low": 0.3}, "--low has no effect"),
    ],
)
def test_options_that_no_variant_would_use_are_refused(
    schemes: list[str], ratios: list[float] | None, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        plan_variants(BASE, schemes, fields, ratios)


def test_a_row_holds_the_options_of_its_scheme_alone() -> None:
    fields: dict[str, Any] = {"sampling": "stratified", "decay_end": 0.5, "cl_start": 0.3, "ratio": 0.6, "low": 0.55}
    for row in plan_variants(BASE, scheme_names(), fields):
        assert set(row.config.scheme.given) == set(fields) & set(scheme_kind(row.config.scheme.name).options)
        assert variant_of(row.config) == row


def test_domains_by_name() -> None:
    for name in DOMAINS:
        domain = get_domain(name)
        assert domain.name == name == domain.config.domain
        assert domain.metrics_of(domain.config.make(data="x"))
        assert all(entry.domain == name for entry in domain.sets.values())
        for preset, fields in domain.presets.items():
            assert domain.config.from_dict({"data": "x", "preset": preset, **fields})
    assert domain_of("digits") == "images"
    assert domain_of("nothing") is None
    assert len(public_sets()) >= 2
    with pytest.raises(UserError, match="did you mean 'images'"):
        get_domain("image")
    with pytest.raises(UserError, match="unknown preset"):
        BASE.replace(preset="vit")


def test_a_missing_library_is_named_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILT_IN, "cells", "anndata_that_is_not_there:DOMAIN")
    with pytest.raises(UserError, match=r"needs 'anndata_that_is_not_there'.*pip install 'r2mae\[cells\]'"):
        get_domain("cells")
