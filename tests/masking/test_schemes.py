from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from r2mae.masking import schemes
from r2mae.masking.defaults import DNA_CURRICULUM, HLCA_CURRICULUM, SEA_AD_CURRICULUM, SchemeDefaults
from r2mae.masking.keys import Key
from r2mae.masking.ratios import Fixed, Grid, LinearDecay, Uniform, UniformAbove
from r2mae.masking.schemes import (
    Curriculum,
    Scheme,
    make_scheme,
    register,
    resolve_options,
    scheme_kind,
    scheme_names,
)

CELLS = SchemeDefaults(ratio=0.25, low=0.1, high=0.5)
GENOME = SchemeDefaults(
    ratio=0.15, low=0.05, high=0.3, of_scheme={"dynamic": {"low": 0.15}, "r2mae-dynamic": {"low": 0.0}}
)


def test_the_nine_schemes_of_the_paper() -> None:
    assert scheme_names()[:9] == [
        "fixed", "dynamic", "mdlm", "r2mae", "r2mae-dynamic", "cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0",
    ]  # fmt: skip


@pytest.mark.parametrize("name", scheme_names())
def test_every_scheme_binds_and_draws(name: str) -> None:
    scheme = make_scheme(name, CELLS).bind(100)
    key = Key.root(0)
    low, high = scheme.ends
    drawn = np.array([np.mean(scheme.ratio.draw(step, key, 4)) for step in range(100)])
    assert ((low >= 0) & (low <= drawn) & (drawn <= high) & (high <= 1)).all()
    kind = scheme_kind(name)
    assert set(resolve_options(name, {}, CELLS)) <= set(kind.options)
    if scheme.curriculum is None:
        assert not any(option.startswith("cl_") for option in kind.options)
    assert kind.summary.endswith(".")


def test_defaults_of_the_paper() -> None:
    assert make_scheme("fixed", CELLS).ratio == Fixed(0.25)
    assert make_scheme("dynamic", CELLS).ratio == LinearDecay(0.5, 0.1)
    assert make_scheme("mdlm", CELLS).ratio == Uniform(0, 1)
    assert make_scheme("r2mae", CELLS).ratio == Uniform(0.1, 0.5)
    assert make_scheme("r2mae-dynamic", CELLS).ratio == UniformAbove(0.5, 0.1)
    assert make_scheme("r2mae-cl", CELLS).ratio == Grid.spaced(0.1, 0.5)
    assert make_scheme("cl", CELLS).ratio == Fixed(0.25)
    assert make_scheme("dynamic", GENOME).ratio == LinearDecay(0.3, 0.15)
    assert make_scheme("r2mae-dynamic", GENOME).ratio == UniformAbove(0.3, 0.0)


OTHERS = {
    "sampling": "stratified", "per": "sample", "low": 0.05, "high": 0.95, "ratio": 0.33,
    "decay_in": "epochs", "decay_end": 0.5, "cl_grid": 3, "cl_warmup": 0.7, "cl_start": 0.3, "cl_end": 0.7,
}  # fmt: skip


@pytest.mark.parametrize("name", scheme_names())
def test_every_option_that_a_scheme_kind_changes_it(name: str) -> None:
    for option in scheme_kind(name).options:
        plain, changed = (make_scheme(name, CELLS, **changes) for changes in ({}, {option: OTHERS.get(option, 7)}))
        assert plain != changed, option


def test_resolved_options_are_those_of_the_scheme() -> None:
    def ends(name: str, **given: float) -> tuple[float, float]:
        used = resolve_options(name, given, GENOME)
        return used["low"], used["high"]

    assert ends("r2mae") == (0.05, 0.3)
    assert ends("dynamic") == (0.15, 0.3)  # the domain has others for it
    assert ends("r2mae-dynamic") == (0.0, 0.3)
    assert ends("dynamic", low=0.2) == (0.2, 0.3)
    third = replace(CELLS, low=1 / 3)
    assert resolve_options("cl", {}, third)["low"] == 1 / 3  # the grid itself is rounded
    assert resolve_options("cl", {"cl_warmup": None}, GENOME)["cl_warmup"] == HLCA_CURRICULUM["cl_warmup"]


def test_cl_has_the_complete_grid_and_uses_one_column() -> None:
    scheme = make_scheme("cl", CELLS)
    assert scheme.curriculum is not None
    assert len(scheme.curriculum.grid.values) == 9
    assert scheme.curriculum.grid.nearest_column(scheme.ratio.nodes()[0][0]) == 3


def test_given_options_replace_defaults() -> None:
    assert make_scheme("r2mae", CELLS, low=0.2).ratio == Uniform(0.2, 0.5)
    assert make_scheme("dynamic", GENOME, low=0.1, high=0.4).ratio == LinearDecay(0.4, 0.1)
    assert make_scheme("cl", CELLS, ratio=0.3).ratio == Fixed(0.3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("r2mea", {}, "did you mean 'r2mae'"),
        ("nonsense", {}, "choose from: fixed, dynamic"),
        (
            "r2mae",
            {"ratio": 0.5},
            r"does not take 'ratio': omit it, or choose a scheme that does \(fixed, cl, cl-k0\)",
        ),
        ("mdlm", {"low": 0.1}, "the scheme 'mdlm' does not take 'low'"),
        ("r2mae", {"low": 0.9}, r"low \(0.9\) is above high \(0.5\), and high is the default: give high, too"),
        ("r2mae", {"high": 0.01}, r"and low is the default: give low, too"),
        ("r2mae", {"low": 0.9, "high": 0.5}, "swap them"),
        ("fixed", {"ratio": 1.5}, "between 0 and 1"),
        ("fixed", {"ratio": 0.0}, "nothing to learn from"),
    ],
)
def test_mistakes_are_refused(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_scheme(name, CELLS, **options)


def test_every_built_in_scheme_has_a_colour_of_its_own() -> None:
    colours = [scheme_kind(name).colour for name in scheme_names()[:10]]
    assert None not in colours
    assert len(set(colours)) == 10


def test_per_sample_is_r2mae_with_ratios_stratified_per_sample() -> None:
    spread = make_scheme("r2mae-per-sample", CELLS, low=0.2)
    assert spread.ratio == make_scheme("r2mae", CELLS, low=0.2, per="sample", sampling="stratified").ratio
    assert spread.bind(10, 2.5, 32).ratio == Uniform(0.2, 0.5, "stratified", "sample", rows=32)
    assert make_scheme("r2mae", CELLS).bind(10, 2.5, 32).ratio == Uniform(0.1, 0.5)
    assert resolve_options("r2mae-per-sample", {}, CELLS) == {"low": 0.1, "high": 0.5}


def test_a_name_can_be_registered_once() -> None:
    with pytest.raises(ValueError, match="already"):
        register("fixed")(lambda ratio: Scheme("fixed", Fixed(ratio)))
    assert scheme_kind("fixed").options == ("ratio",)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test registers."""
    monkeypatch.setattr(schemes, "_REGISTRY", dict(schemes._REGISTRY))


@pytest.mark.usefixtures("registry")
def test_further_parameters_are_options_of_the_scheme() -> None:
    @register("bent")
    def bent(power: float = 2, low: float = 0.3) -> Scheme:
        """A ratio of a power of low."""
        return Scheme("bent", Fixed(low**power))

    assert scheme_kind("bent").options == ("low", "power")
    assert scheme_kind("bent").own == ("power",)
    assert make_scheme("bent", CELLS, low=0.5).ratio == Fixed(0.25)
    assert resolve_options("bent", {"power": 3}, CELLS) == {"low": 0.1, "power": 3.0}  # not its ratio, 0.001
    assert make_scheme("bent", CELLS, low=0.5, power=1.0).ratio == Fixed(0.5)
    with pytest.raises(ValueError, match=r"'r2mae' does not take 'power': omit it, .* \(bent\)"):
        make_scheme("r2mae", CELLS, power=1.0)


@pytest.mark.usefixtures("registry")
def test_a_function_that_is_defined_again_takes_its_place() -> None:
    for ratio in (0.2, 0.3):

        @register("again")
        def again(ratio: float = ratio) -> Scheme:
            return Scheme("again", Fixed(ratio))

    assert scheme_kind("again").defaults == {"ratio": 0.3}


@pytest.mark.usefixtures("registry")
def test_an_invalid_scheme_is_refused_at_registration() -> None:
    def without(power: float) -> Scheme:
        return Scheme("x", Fixed(power))

    def misspelt(low: float, hihg: float) -> Scheme:
        return Scheme("x", Uniform(low, hihg))

    def lacking(low: float, sampling: str) -> Scheme:
        return Scheme("x", Uniform(low, 1.0))

    for build, message in (
        (without, "'power' of the scheme 'x' needs a number as its default"),
        (misspelt, "'hihg' of the scheme 'x' needs a number as its default, or the name of a common option"),
        (lacking, "'sampling' of the scheme 'x' needs a default"),
    ):
        with pytest.raises(ValueError, match=message):
            register("x")(build)
    with pytest.raises(ValueError, match="must be #rrggbb"):
        register("x", colour="red")(lambda: Scheme("x", Fixed(0.5)))
    assert "x" not in scheme_names()


def test_gradient_multiplier_falls_from_one_to_minus_one() -> None:
    curriculum = Curriculum(Grid((0.1, 0.2)), warmup=0.1, start=0.2, end=0.6).bind(100)
    assert [curriculum.frozen(step) for step in (0, 9, 10, 99)] == [True, True, False, False]
    assert [curriculum.multiplier_at(step) for step in (0, 20, 30, 40, 60, 99)] == pytest.approx([1, 1, 0.5, 0, -1, -1])
    easy = Curriculum(Grid((0.1, 0.2)), "constant").bind(100)
    assert {easy.multiplier_at(step) for step in range(100)} == {1.0}
    with pytest.raises(ValueError, match="bind"):
        Curriculum(Grid((0.1, 0.2))).frozen(0)


@pytest.mark.parametrize(
    ("cells", "steps", "defaults"), [(2_161_082, 243_122, HLCA_CURRICULUM), (1_378_211, 155_049, SEA_AD_CURRICULUM)]
)
def test_single_cell_curricula_have_the_papers_steps_in_the_papers_run(
    cells: int, steps: int, defaults: Mapping[str, Any]
) -> None:
    assert round(50 * 0.9 * cells / 400) == steps
    curriculum = make_scheme("cl", CELLS.with_options(**defaults)).bind(steps).curriculum
    assert curriculum is not None
    assert curriculum.frozen(4999)
    assert not curriculum.frozen(5001)
    assert curriculum.multiplier_at(30_000) == pytest.approx(1)
    assert curriculum.multiplier_at(75_000) == pytest.approx(0)
    assert curriculum.multiplier_at(120_000) == pytest.approx(-1)


def test_fractions_of_the_single_cell_curricula() -> None:
    for defaults, fractions in ((HLCA_CURRICULUM, (0.021, 0.123, 0.494)), (SEA_AD_CURRICULUM, (0.032, 0.193, 0.774))):
        times = [defaults[name] for name in ("cl_warmup", "cl_start", "cl_end")]
        assert times == pytest.approx(fractions, abs=5e-4)


def test_dna_curriculum_has_ten_ratios_and_falls_throughout() -> None:
    scheme = make_scheme("r2mae-cl", GENOME.with_options(**DNA_CURRICULUM)).bind(30_000)
    assert isinstance(scheme.ratio, Grid)
    assert scheme.ratio.values == pytest.approx(np.linspace(0.05, 0.3, 10))
    assert scheme.curriculum is not None
    assert (scheme.curriculum.iterations, scheme.curriculum.floor) == (10, 0.5)
    assert scheme.curriculum.frozen(4999)
    assert not scheme.curriculum.frozen(5000)
    assert [scheme.curriculum.multiplier_at(step) for step in (0, 15_000, 30_000)] == pytest.approx([1, 0, -1])


def test_a_grid_of_columns_may_be_a_single_ratio() -> None:
    scheme = make_scheme("r2mae-cl", GENOME.with_options(**DNA_CURRICULUM), low=0.2, high=0.2)
    assert scheme.ratio == Grid((0.2,))
