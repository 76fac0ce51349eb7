import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2mae.errors import UserError
from r2mae.integrations.ratios import RatioSetter
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.keys import Key, permutation
from r2mae.masking.ratios import (
    Fixed,
    Grid,
    LinearDecay,
    Ratio,
    Uniform,
    UniformAbove,
    as_ratio,
)
from r2mae.masking.schemes import Scheme, make_scheme, scheme_names

KEY = Key.root(0).fold("ratio")
inner = st.floats(0.01, 0.99)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), True, "0.5", None])
@pytest.mark.usefixtures("unchecked")
def test_numbers_outside_the_unit_interval_are_refused(value: object) -> None:
    for make in (Fixed, lambda v: Uniform(v, 0.9), lambda v: Uniform(0.1, v), lambda v: Grid((v,))):
        with pytest.raises(ValueError, match=r"between 0 and 1"):
            make(value)


@pytest.mark.parametrize("ratio", [0.0, 1.0, 0, 1])
def test_a_ratio_that_hides_nothing_or_everything_is_refused(ratio: float) -> None:
    for make in (Fixed, lambda r: Uniform(r, r), lambda r: Grid((r,)), lambda r: LinearDecay(r, r)):
        with pytest.raises(ValueError, match="nothing to learn from"):
            make(ratio)


def test_low_above_high_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"low \(0.9\) is above high \(0.5\): swap them"):
        Uniform(0.9, 0.5)


def test_zero_to_one_is_valid() -> None:
    ratio = Uniform(0, 1)
    draws = [ratio(step, KEY) for step in range(2000)]
    assert stats.kstest(draws, "uniform").pvalue > 1e-3


@given(inner, inner, st.integers(0, 10**9), st.integers(0, 2**40))
def test_draws_stay_in_the_range_and_repeat(a: float, b: float, step: int, seed: int) -> None:
    low, high = min(a, b), max(a, b)
    for ratio in (Uniform(low, high), Uniform(low, high, sampling="stratified")):
        key = Key.root(seed)
        first = ratio(step, key)
        assert low <= first <= high
        assert first == ratio(step, key)


def test_stratified_draws_cover_every_part_of_the_range_once_a_block() -> None:
    ratio = Uniform(0.2, 0.6, sampling="stratified")
    draws = np.array([ratio(step, KEY) for step in range(16 * 200)])
    parts = np.floor((draws - 0.2) / 0.4 * 16).astype(int).reshape(200, 16)
    assert (np.sort(parts, axis=1) == np.arange(16)).all()
    assert stats.kstest((draws - 0.2) / 0.4, "uniform").pvalue > 1e-3
    assert len({tuple(block) for block in parts}) > 190  # the order differs between blocks


def test_stratified_means_fluctuate_less() -> None:
    def spread(sampling: str) -> float:
        ratio = Uniform(0.1, 0.9, sampling=sampling)  # type: ignore[arg-type]
        draws = np.array([ratio(step, KEY) for step in range(16 * 100)])
        return float(draws.reshape(100, 16).mean(1).std())

    assert spread("stratified") < spread("independent") / 5


def test_dynamic_can_reach_its_floor_before_the_end() -> None:
    """The shape is a part of the run, whatever its length; the floor then stays."""
    ratio = LinearDecay(0.5, 0.1, end=0.25)
    for total in (401, 4001):
        bound = ratio.bind(total)
        quarter = (total - 1) // 4
        at = [bound(step, KEY) for step in (0, quarter // 2, quarter, quarter + 1, total - 1)]
        assert at == pytest.approx([0.5, 0.3, 0.1, 0.1, 0.1])
        assert bound(quarter - 4, KEY) > 0.1
    for end in (0.0, 1.5, -1.0, math.nan):
        with pytest.raises(ValueError, match="end must be a fraction of the run"):
            LinearDecay(0.5, 0.1, end=end)


def test_dynamic_follows_the_formula_of_the_paper() -> None:
    ratio = LinearDecay(0.5, 0.1).bind(1001)
    lam = (0.5 - 0.1) / (0.5 * 1000)
    for step in (0, 1, 250, 999, 1000):
        assert ratio(step, KEY) == pytest.approx(max(0.1, 0.5 - 0.5 * step * lam))
    assert ratio(0, KEY) == 0.5
    assert ratio(1000, KEY) == pytest.approx(0.1)


def test_a_schedule_needs_the_number_of_steps() -> None:
    with pytest.raises(ValueError, match="bind"):
        LinearDecay(0.5, 0.1)(3, KEY)
    with pytest.raises(ValueError, match="total_steps must be"):
        LinearDecay(0.5, 0.1).bind(0)
    assert LinearDecay(0.5, 0.1).bind(1)(0, KEY) == 0.5


@pytest.mark.parametrize("ratio", [LinearDecay, UniformAbove])
def test_both_ends_in_either_way_and_the_others_by_name(ratio: Any) -> None:
    assert ratio(0.9, 0.3) == ratio(high=0.9, low=0.3) == ratio(low=0.3, high=0.9)
    with pytest.raises(ValueError, match=rf"swap them: its order is {ratio.__name__}\(high, low\)"):
        ratio(0.3, 0.9)
    with pytest.raises(TypeError):  # the third number was once the decay
        ratio(0.5, 0.1, 0.01)


def test_uniform_above_rises_out_of_a_falling_floor() -> None:
    ratio = UniformAbove(0.5, 0.1).bind(4000)
    draws = np.array([ratio(step, KEY) for step in range(4000)])
    floors = np.array([LinearDecay(0.5, 0.1).bind(4000)(step, KEY) for step in range(4000)])
    assert (draws >= floors).all()
    assert (draws <= 0.5).all()
    place = (draws - floors)[1:] / (0.5 - floors)[1:]
    assert stats.kstest(place, "uniform").pvalue > 1e-3


def test_grid_draws_its_values_alike_and_finds_the_nearest() -> None:
    grid = Grid.spaced(0.1, 0.5)
    assert grid.values == (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    draws = [grid(step, KEY) for step in range(9000)]
    counts = [draws.count(value) for value in grid.values]
    assert stats.chisquare(counts).pvalue > 1e-3
    assert grid.nearest_column(0.26) == 3
    assert grid.nearest_column(0.9) == 8
    with pytest.raises(ValueError, match="increase"):
        Grid((0.3, 0.2))
    with pytest.raises(ValueError, match="at least one"):
        Grid(())
    assert Grid.spaced(0.3, 0.3).values == (0.3,)


@pytest.mark.parametrize(
    "ratio",
    [
        Fixed(0.3),
        Uniform(0.2, 0.8),
        Uniform(0, 1, sampling="stratified"),
        LinearDecay(0.9, 0.5),
        LinearDecay(0.9, 0.5, end=0.3),
        UniformAbove(0.5, 0.1),
        UniformAbove(0.5, 0.1, end=0.25),
        Grid((0.1, 0.4, 0.9)),
    ],
)
def test_nodes_integrate_over_what_a_run_draws(ratio: Ratio) -> None:
    bound = ratio.bind(4000)
    p, weight = bound.nodes()
    assert weight.sum() == pytest.approx(1)
    draws = np.array([bound(step, KEY) for step in range(4000)])
    for moment in (1, 2, 3):
        error = 5 * (draws**moment).std() / math.sqrt(4000) + 1e-3
        assert (weight * p**moment).sum() == pytest.approx((draws**moment).mean(), abs=error)


def test_per_sample_draws_one_ratio_a_row_keyed_by_the_global_row() -> None:
    ratio = Uniform(0.2, 0.8, per="sample")
    whole = ratio.draw(3, KEY, 64)
    assert isinstance(whole, np.ndarray)
    np.testing.assert_array_equal(ratio.draw(3, KEY.rows(48), 16), whole[48:])
    assert len(set(whole.tolist())) == 64
    assert isinstance(Uniform(0.2, 0.8).draw(3, KEY, 64), float)


PER_SAMPLE = Uniform(0.2, 0.6, "stratified", "sample")


@given(inner, inner, st.integers(1, 300), st.integers(0, 10**6), st.integers(0, 2**40))
def test_ratios_stratified_per_sample_have_one_row_in_each_part_of_the_range(
    a: float, b: float, rows: int, step: int, seed: int
) -> None:
    low, high = min(a, b), max(a, b)
    found = Uniform(low, high, "stratified", "sample").with_rows(rows).draw(step, Key.root(seed), rows)
    assert isinstance(found, np.ndarray)
    edges = low + (high - low) * np.arange(rows + 1) / rows
    ordered = np.sort(found)
    assert (ordered >= edges[:-1] - 1e-12).all()
    assert (ordered <= edges[1:] + 1e-12).all()


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 10**6))
def test_ratios_stratified_per_sample_are_the_same_in_every_part_of_a_batch(size: int, parts: int, step: int) -> None:
    """Micro-batches and processes."""
    ratio, rows = PER_SAMPLE.with_rows(size * parts), size * parts
    whole = ratio.draw(step, KEY, rows)
    pieces = [ratio.draw(step, KEY.rows(first), size) for first in range(0, rows, size)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_every_row_of_ratios_stratified_per_sample_is_uniform(rows: int) -> None:
    """Also in a batch of few rows, such as the last of a loader."""
    draws = np.array([PER_SAMPLE.draw(step, KEY, rows) for step in range(2000)])
    for row in {0, rows - 1}:
        assert stats.kstest((draws[:, row] - 0.2) / 0.4, "uniform").pvalue > 1e-3
    if rows == 3:  # every order of the three parts comes, about as often
        orders = ["".join(map(str, order)) for order in ((draws - 0.2) / 0.4 * 3).astype(int)]
        assert stats.chisquare(np.unique(orders, return_counts=True)[1]).pvalue > 1e-3
        assert len(set(orders)) == 6


def test_the_mean_of_ratios_stratified_per_sample_hardly_varies() -> None:
    means = [float(np.mean(PER_SAMPLE.draw(step, KEY, 64))) for step in range(200)]
    plain = [float(np.mean(Uniform(0.2, 0.6, per="sample").draw(step, KEY, 64))) for step in range(200)]
    assert np.std(means) < np.std(plain) / 30  # √B·√3 times less: 1/(√12·B^1.5) of the range


def test_ratios_stratified_per_sample_know_their_batch() -> None:
    bound = PER_SAMPLE.with_rows(8)
    assert bound.bind(100) == bound != PER_SAMPLE
    assert Uniform(0.2, 0.6).with_rows(8) == Uniform(0.2, 0.6)
    assert bound.stratified_per_sample
    assert PER_SAMPLE.stratified_per_sample
    for other in (Uniform(0.2, 0.6, "stratified"), Uniform(0.2, 0.6, per="sample"), Fixed(0.3)):
        assert not other.stratified_per_sample
    for ratio, first in ((bound, 4), (PER_SAMPLE, 1)):
        with pytest.raises(ValueError, match=r"are not in a batch of"):
            ratio.draw(0, KEY.rows(first), 6)
    for stratified, independent in zip(PER_SAMPLE.nodes(), Uniform(0.2, 0.6).nodes(), strict=True):
        np.testing.assert_array_equal(stratified, independent)
    assert not PER_SAMPLE.scheduled
    for one in (PER_SAMPLE, Uniform(0.2, 0.6, per="sample")):
        with pytest.raises(ValueError, match=r"call draw\(step, key, rows\)"):
            one(3, KEY)


@pytest.mark.usefixtures("unchecked")
def test_unknown_options_are_refused() -> None:
    for options in (
        {"sampling": "sobol"},
        {"per": "token"},
        {"rows": 4},
        {"per": "sample", "sampling": "stratified", "rows": 0},
    ):
        with pytest.raises(ValueError, match=r"must be|for ratios stratified per sample"):
            Uniform(0.1, 0.5, **options)  # type: ignore[arg-type]


def test_as_ratio_reads_numbers_and_ranges() -> None:
    assert as_ratio(0.4) == Fixed(0.4)
    assert as_ratio([0.2, 0.4]) == Uniform(0.2, 0.4)
    assert as_ratio(Grid((0.2,))) == Grid((0.2,))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, Fraction, np.array, torch.tensor])
def test_every_number_and_pair_is_a_ratio(kind: Any) -> None:
    assert as_ratio(kind(0.25)) == Fixed(0.25)
    assert as_ratio(np.float32(0.3)) == Fixed(0.3) == as_ratio(np.array(0.3, np.float32))
    pair = (np.float32(0.3), np.float32(0.7))
    assert as_ratio(pair) == Uniform(0.3, 0.7) == as_ratio(np.array(pair))
    assert type(make_scheme("fixed", SchemeDefaults(0.5, 0.0, 1.0), ratio=pair[0]).ends[0]) is float
    assert make_scheme("fixed", SchemeDefaults(0.5, 0.0, 1.0), ratio=pair[0]).ends == (0.3, 0.3)
    low, high = (kind(one) for one in (0.25, 0.75))
    assert as_ratio((low, high)) == Uniform(0.25, 0.75)
    if kind in (np.array, torch.tensor):
        assert as_ratio(kind([0.25, 0.75])) == Uniform(0.25, 0.75)
    assert all(type(end) is float for end in as_ratio([low, high]).ends)
    assert as_ratio([np.int64(0), np.int32(1)]) == Uniform(0, 1)


class Duck:
    """What was a ratio before its class had to inherit."""

    def bind(self, total_steps: int) -> "Duck":
        return self

    def __call__(self, step: int, key: Key) -> float:
        return 0.5

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0.5]), np.array([1.0])


@pytest.mark.parametrize(
    "value",
    [None, "0.5", "ab", True, np.True_, [True, False], (), [0.1], [0.1, 0.2, 0.3], [[0.1, 0.2]], [0.1, "0.2"],
     np.eye(2), {0.1: 0.2}, {0.1, 0.2}, 1j, Duck(), Uniform],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_ratio_is_refused_in_one_line(value: Any) -> None:
    for make in (as_ratio, lambda one: Scheme("x", one), RatioSetter):
        with pytest.raises(ValueError, match=r"inherits from r2mae\.masking\.Ratio") as refused:
            make(value)
        assert "\n" not in str(refused.value)


class Toss(Ratio):
    """A ratio of a user, with what is needed only."""

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0.2, 0.6]), np.array([0.5, 0.5])


@pytest.mark.parametrize(
    ("ratio", "ends", "scheduled"),
    [
        (Fixed(0.3), (0.3, 0.3), False),
        (Uniform(0, 1), (0.0, 1.0), False),
        (Uniform(0.2, 0.4, sampling="stratified"), (0.2, 0.4), True),
        (LinearDecay(0.9, 0.5), (0.5, 0.9), True),
        (UniformAbove(0.6, 0.1), (0.1, 0.6), True),
        (Grid((0.1, 0.2, 0.5)), (0.1, 0.5), False),
        (Toss(), (0.2, 0.6), False),
    ],
)
def test_ends_are_the_lowest_and_highest_ratio(ratio: Ratio, ends: tuple[float, float], scheduled: bool) -> None:
    assert ratio.ends == ends
    assert all(type(end) is float for end in ratio.ends)
    assert ratio.scheduled == scheduled
    bound, key = ratio.bind(50), Key.root(0)
    assert all(ends[0] <= bound(step, key) <= ends[1] for step in range(50))


@given(st.integers(1, 300), st.integers(1, 60))
def test_a_decay_in_epochs_is_constant_within_an_epoch(total: int, epoch: int) -> None:
    ratio = LinearDecay(0.9, 0.6, unit="epochs").bind(total).with_epochs(epoch)
    values = [ratio(step, KEY) for step in range(total)]
    epochs = [step // epoch for step in range(total)]
    assert len({round(value, 12) for value in values}) == epochs[-1] + 1
    assert values[0] == pytest.approx(0.9)
    assert ratio.never_falls == (not epochs[-1])
    assert ratio.ends == pytest.approx((values[-1], 0.9))
    if epochs[-1]:  # t runs from 0 to the number of the last epoch, where the floor is reached
        assert values[-1] == pytest.approx(0.6)
        for value, t in zip(values, epochs, strict=True):
            assert value == pytest.approx(0.9 - 0.3 * t / epochs[-1])
    nodes, weights = ratio.nodes()
    assert weights.sum() == pytest.approx(1)
    assert nodes @ weights == pytest.approx(np.mean(values))


def test_a_decay_in_epochs_is_per_epoch() -> None:
    ratio = LinearDecay(0.9, 0.6, unit="epochs").bind(100).with_epochs(12.5)  # from epoch 0 to epoch 7
    expected = [0.9, 0.9, 0.9 - 0.3 / 7, 0.9 - 0.6 / 7, 0.6]
    assert [ratio(step, KEY) for step in (0, 12, 13, 25, 99)] == pytest.approx(expected)
    above = UniformAbove(0.9, 0.6, unit="epochs").bind(100).with_epochs(50)
    assert above.ends == (0.6, 0.9)
    assert above.with_epochs(100).ends == (0.9, 0.9), "the run ends before the floor falls"
    assert above(49, KEY) == 0.9
    assert 0.6 <= above(50, KEY) < 0.9
    with pytest.raises(ValueError, match="more than 0 steps"):
        ratio.with_epochs(0)
    assert LinearDecay(0.9, 0.6).bind(10).with_epochs(5) == LinearDecay(0.9, 0.6).bind(10)  # one in steps


@pytest.mark.parametrize("name", scheme_names())
def test_micro_batches_and_processes_share_the_ratio_of_a_step(name: str) -> None:
    """A ratio of a step is that of its first row, whichever rows are drawn."""
    for changed in ({}, {"sampling": "stratified"}):
        try:
            built = make_scheme(name, SchemeDefaults(ratio=0.5, low=0.2, high=0.8), **changed).bind(40, 4.0, 12)
        except ValueError:
            continue
        if built.ratio.per_sample:
            continue
        for step in range(20):
            drawn = {float(np.mean(built.ratio.draw(step, Key.root(1).rows(first), 4))) for first in (0, 4, 8)}
            assert len(drawn) == 1, f"{name}, step {step}"


def test_a_permutation_is_the_same_for_all_rows() -> None:
    assert [*permutation(Key.root(3).rows(5), 9)] == [*permutation(Key.root(3), 9)]


NEVER_CLEAR: list[tuple[Any, str]] = [
    (lambda: LinearDecay(0.9, 0.1).bind("many"), "total_steps must be a whole number of 1 or more, not 'many'"),
    (lambda: LinearDecay(0.9, 0.1).bind(1.5), "total_steps .* 1.5"),
    (lambda: LinearDecay(0.9, 0.1).bind(0), "total_steps .* 0"),
    (lambda: LinearDecay(0.9, 0.1).with_epochs(math.inf), "an epoch .* inf"),
    (lambda: LinearDecay(0.9, 0.1, end="x"), "end .* 'x'"),
    (lambda: Scheme("x", Fixed(0.3)).bind("x"), "total_steps .* 'x'"),
    (lambda: Uniform(0.1, 0.9, "stratified", "sample").with_rows(2.5), "rows .* 2.5"),
    *((lambda one=one: Grid(one), "a grid takes a list of ratios, not") for one in (0.3, None, "abc")),
    *((lambda step=step: Grid.spaced(0.1, 0.9, step), "step of a grid") for step in (0, -0.1, math.nan, 1e-300, "a")),
    *((lambda make=make: make(10**5000), "between 0 and 1, not a number of") for make in (as_ratio, Fixed)),
]


@pytest.mark.parametrize(("call", "line"), NEVER_CLEAR)
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_ratio_or_length_is_one_line(call: Any, line: str) -> None:
    with pytest.raises(UserError, match=line):
        call()


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_scientists() -> None:
    assert LinearDecay(0.9, 0.1).bind(1e5) == LinearDecay(0.9, 0.1).bind(np.int64(100_000))  # type: ignore[arg-type]
    assert Grid(np.array([0.1, 0.3], np.float32)) == Grid((0.1, 0.3))  # type: ignore[arg-type]
    assert Uniform(np.float32(0.1), Fraction(1, 2)) == Uniform(0.1, 0.5)  # type: ignore[arg-type]
    assert Grid.spaced(0.1, 0.11, 0.01 / 9999).values[-1] == 0.11
