import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.masking import Uniform
from r2mae.theory import (
    Covariance,
    Dense,
    Inputs,
    RatioLike,
    Rotated,
    advise,
    direction_risk,
    effective_ratio,
    equivalent,
    feature_risk,
    identity,
    latent,
    risk,
    simulate,
    uniform_spectrum,
)
from r2mae.theory.copies import gauss_rule, kept_copies
from r2mae.theory.masked import Uniforms, kept_row_indices, masked_rows
from theory.brute import Given, masked_in_use, simulate_plainly, uncentred, whole_rows_risk

pytestmark = pytest.mark.filterwarnings(
    "ignore::r2mae.theory.DominantWarning", "ignore::r2mae.theory.InterpolationWarning"
)

RULES = ("zeros", "rescaled")
COV = latent(60, 1, q=6)
BETA = np.random.default_rng(0).standard_normal(60) / 8


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found / expected - 1).max())


@pytest.mark.parametrize("n", [30, 200])
@pytest.mark.parametrize("p", [0.05, 0.4, 0.9])
@pytest.mark.parametrize("model", [COV, Dense(COV.matrix() * np.outer(np.arange(1, 61), np.arange(1, 61)) / 900)])
def test_infinitely_many_masks_are_a_ridge(model: Covariance, p: float, n: int) -> None:
    """The classical ridge with the penalty n·p/(1 − p)·diag Σ, by a bracketed root in features of variance one."""
    scale = np.sqrt(model.diagonal)
    values, vectors = np.linalg.eigh(model.matrix() / np.outer(scale, scale))
    expected = whole_rows_risk(values, vectors.T @ (scale * BETA), n, 0.3, n * p / (1 - p))
    for keep in ("ratio", 1.0):  # the same weight for every copy, if there is one ratio
        found = risk(model, BETA, n, p, 0.3, masks=math.inf, keep=keep, inputs=Inputs("rescaled"))  # type: ignore[arg-type]
        assert found.risk == pytest.approx(expected, rel=1e-9)
    zeros = risk(model, BETA, n, p, 0.3, masks=math.inf)  # predictions are larger by 1/(1 − p)
    assert zeros.magnitude == pytest.approx(found.magnitude / (1 - p) ** 2, rel=1e-9)


@pytest.mark.parametrize("inputs", [Inputs(), Inputs("rescaled", 0.3)], ids=RULES)
def test_finite_numbers_of_masks_approach_the_limit(inputs: Inputs) -> None:
    limit = risk(COV, BETA, 40, [0.2, 0.6], 0.1, masks=math.inf, inputs=inputs)
    gaps = [
        relative(risk(COV, BETA, 40, [0.2, 0.6], 0.1, masks=masks, inputs=inputs).risk, limit.risk)
        for masks in (16, 64, 256, 1024, 65_536)
    ]
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] < 1e-3
    assert gaps[-2] == pytest.approx(gaps[-3] / 4, rel=0.1)  # as 1/K


@pytest.mark.parametrize("keep", ["ratio", 0.6])
@pytest.mark.parametrize("rule", RULES)
def test_each_copy_is_one_row_if_masks_hide_nothing_or_there_is_one(rule: str, keep: float | str) -> None:
    inputs = Inputs(rule)  # type: ignore[arg-type]
    for masks in (1, 3, math.inf):
        found = risk(COV, BETA, 200, 0.0, 0.1, keep=1.0, masks=masks, inputs=inputs)
        assert found.risk == pytest.approx(float(risk(COV, BETA, 200, 0.0, 0.1, keep=1.0).risk), rel=1e-9)
    one = risk(COV, BETA, 200, 0.5, 0.1, keep=keep, ridge=1.0)  # type: ignore[arg-type]
    assert risk(COV, BETA, 200, 0.5, 0.1, keep=keep, ridge=1.0, masks=1).risk == one.risk  # type: ignore[arg-type]


CASES = [
    (1, 0.5, Inputs("zeros", 0.4)),
    (3, 0.3, Inputs()),
    (3, 0.6, Inputs("rescaled", 0.5)),
    (2, Uniform(0.2, 0.8), Inputs("zeros", Uniform(0.1, 0.7))),
    (20, 0.5, Inputs()),
]


@pytest.mark.parametrize(("masks", "ratio", "inputs"), CASES)
def test_against_plain_simulation(masks: int, ratio: float | RatioLike, inputs: Inputs) -> None:
    """Fresh rows, a list of masks each, the pseudo-inverse, and test rows whose entries are missing."""
    cov, n = latent(120, 1, q=12), 60
    beta = np.random.default_rng(0).standard_normal(120)
    beta /= np.sqrt(cov.quadratic(beta))
    ridge = 3.0

    def ratios(rng: np.random.Generator, rows: int) -> np.ndarray:
        return ratio.quantile(rng.random(rows)) if isinstance(ratio, Uniform) else np.full(rows, ratio)

    drawn = simulate_plainly(cov.matrix(), beta, n, ratios, 0.1, 40, masks=masks, inputs=inputs, ridge=ridge)[:, 0]
    formula = float(risk(cov, beta, n, ratio, 0.1, masks=masks, inputs=inputs, ridge=ridge).risk)
    error = drawn.std(ddof=1) / np.sqrt(len(drawn))
    assert abs(drawn.mean() - formula) < 3 * error + 0.03 * formula
    found = simulate(
        cov, beta, n, [ratio], noise=0.1, repetitions=40, design="fresh", masks=masks, inputs=inputs, ridge=ridge
    )
    assert abs(found.risk[0] - drawn.mean()) < 4 * np.hypot(error, found.error[0])
    assert found.kept.mean() == pytest.approx(n * masks * 0.5, rel=0.05) or ratio in (0.3, 0.6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [10, 60])  # fewer stacked rows than features, and more
def test_simulation_is_least_squares_on_the_stacked_copies(n: int, rule: str) -> None:
    inputs, masks = Inputs(rule, 0.2), 3  # type: ignore[arg-type]
    found = simulate(COV, BETA, n, [0.4, Uniform(0.2, 0.6)], repetitions=1, masks=masks, inputs=inputs, ridge=0.5)
    x = COV.sample(n, np.random.Generator(_bits("DESIGN")))
    y = x @ BETA
    for index, ratio in enumerate((0.4, Uniform(0.2, 0.6))):
        rows, targets = [], []
        for mask in range(masks):
            u = Uniforms.draw(n, 60, 0, 0, mask)
            p = ratio.quantile(u.ratio) if isinstance(ratio, Uniform) else np.full(n, ratio)
            kept = kept_row_indices(p, u)
            rows.append(masked_rows(x, u.entries, p, kept) / (1 - p[kept, None] if rule == "rescaled" else 1.0))
            targets.append(y[kept])
        stacked, target = np.concatenate(rows), np.concatenate(targets)
        b = np.linalg.solve(stacked.T @ stacked + masks * 0.5 * np.eye(60), stacked.T @ target)
        assert found.risks[0, index] == pytest.approx(masked_in_use(COV.matrix(), BETA, b, inputs), rel=1e-8)
        assert found.kept[0, index] == len(stacked)


def test_simulation_of_infinitely_many_masks_is_the_ridge_on_the_data() -> None:
    found = simulate(COV, BETA, 40, [0.3, Uniform(0.2, 0.8)], repetitions=1, masks=math.inf)
    x = COV.sample(40, np.random.Generator(_bits("DESIGN")))
    for index, p in enumerate((0.3, effective_ratio(Uniform(0.2, 0.8)))):
        b = np.linalg.solve((1 - p) * x.T @ x + p * np.diag((x**2).sum(axis=0)), x.T @ (x @ BETA))
        assert found.risks[0, index] == pytest.approx((b - BETA) @ COV.matrix() @ (b - BETA), rel=1e-9)


def _bits(stream: str) -> np.random.SFC64:
    from r2mae.theory.masked import RandomStream, bit_generator

    return bit_generator(0, 0, RandomStream[stream])


ends = st.tuples(st.floats(0.02, 0.95), st.floats(0.02, 0.95)).map(sorted)


@given(ends=ends, rule=st.sampled_from(RULES), q=st.floats(0, 0.9), n=st.integers(10, 300))
def test_a_range_is_its_effective_ratio_under_many_masks(ends: list[float], rule: str, q: float, n: int) -> None:
    inputs, cov = Inputs(rule, q), uniform_spectrum(40, 1)  # type: ignore[arg-type]
    for weighting, keep in (("rows", "ratio"), ("batches", 1.0)):
        p = effective_ratio(Uniform(*ends), weighting, rule)  # type: ignore[arg-type]
        assert ends[0] - 1e-12 <= p <= ends[1] + 1e-12
        several = direction_risk(cov, n, [Uniform(*ends), p], 0.2, masks=math.inf, keep=keep, inputs=inputs)  # type: ignore[arg-type]
        np.testing.assert_allclose(several.risk[0], several.risk[1], rtol=1e-8)


def test_effective_ratios() -> None:
    two = Given([0.2, 0.6], [0.5, 0.5])
    assert effective_ratio(two, "batches") == pytest.approx((0.16 + 0.24) / (0.8 + 0.4))
    assert effective_ratio(two, "rows") == pytest.approx((0.2 * 0.16 + 0.6 * 0.24) / (0.16 + 0.24))
    odds = (0.25 + 1.5) / 2
    assert effective_ratio(two, "batches", "rescaled") == pytest.approx(odds / (1 + odds))
    assert (effective_ratio(0.3), effective_ratio(0.0)) == (pytest.approx(0.3), 0.0)


@given(q=st.floats(0, 0.9), rule=st.sampled_from(RULES), masks=st.sampled_from([1, 3, math.inf]))
def test_risk_averages_over_what_is_missing(q: float, rule: str, masks: float) -> None:
    def at(missing: float | RatioLike) -> np.ndarray:
        return direction_risk(uniform_spectrum(30, 1), 50, 0.4, 0.1, masks=masks, inputs=Inputs(rule, missing)).risk  # type: ignore[arg-type]

    np.testing.assert_allclose(at(Given([0.1, q], [0.3, 0.7])), 0.3 * at(0.1) + 0.7 * at(q), rtol=1e-9)


@pytest.mark.parametrize("masks", [1, 4, math.inf])
def test_features_are_signals_with_one_feature_left_out(masks: float) -> None:
    """Up to the traces over all features, an error of order 1/d."""
    d = 300
    cov = latent(d, 1, q=20)
    found = feature_risk(cov, 150, 0.4, masks=masks, inputs=Inputs("zeros", 0.3), ridge=1.0)
    sigma, rest = cov.matrix(), np.arange(1, d)
    beta = np.linalg.solve(sigma[1:, 1:], sigma[1:, 0])
    noise = sigma[0, 0] - beta @ sigma[1:, 0]
    left = Dense(sigma[np.ix_(rest, rest)])
    direct = risk(left, beta, 150, 0.4, noise, masks=masks, inputs=Inputs("zeros", 0.3), ridge=1.0)
    assert found.risk[0] == pytest.approx(float(direct.risk) + noise, rel=0.01)


@pytest.mark.parametrize("masks", [1, 4, math.inf])
def test_bias_and_variance_of_drawn_designs(masks: float) -> None:
    """The variance given all copies is linear in the noise, and the noise's part is its gain."""
    quiet = risk(COV, BETA, 40, 0.5, 0.0, masks=masks, ridge=1.0)
    loud = risk(COV, BETA, 40, 0.5, 0.7, masks=masks, ridge=1.0)
    assert float(loud.variance - quiet.variance) == pytest.approx(0.7 * float(quiet.noise_gain), rel=1e-9)
    assert float(loud.bias) == pytest.approx(float(quiet.bias), rel=1e-9)
    assert float(quiet.variance) == pytest.approx(0, abs=1e-6) if masks == math.inf else float(quiet.variance) > 0.01


@pytest.mark.parametrize("masks", [2, 6, 16, 64])
def test_the_gauss_rule_integrates_a_range_at_every_number_of_masks(masks: int) -> None:
    """Against 4,000 drawn patterns of 200 ratios: within 1 %, and what the draws leave to chance."""
    cov, n = uniform_spectrum(80, 1), 60
    found = kept_copies(n, Uniform(0.1, 0.9), "ratio", masks, Inputs())
    rng, fine = np.random.default_rng(0), np.linspace(0.102, 0.898, 200)
    numbers = rng.multinomial(masks, [*(fine / 200), 1 - fine.mean()], size=4000)[:, :-1]
    chance = np.full(4000, masks * 0.5 / numbers.sum())  # so that the mean number of copies is right
    drawn = replace(found, p=fine, u=1 - fine, s=fine * (1 - fine), share=numbers / masks, probability=chance)
    rule, exact = (equivalent.solve(cov, copies, 3.0) for copies in (found, drawn))
    np.testing.assert_allclose(rule.x, exact.x, rtol=0.015)
    assert rule.terms.shrink == pytest.approx(exact.terms.shrink, rel=0.015)
    assert rule.noise_gain.sum() == pytest.approx(exact.noise_gain.sum(), rel=0.03)
    assert found.count == pytest.approx(n * masks * 0.5)


@given(seed=st.integers(0, 99), most=st.integers(2, 6))
def test_a_gauss_rule_has_the_moments_of_the_distribution(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    p, weight = rng.random(12), rng.dirichlet(np.ones(12))
    nodes, weights = gauss_rule(p, weight, most)
    assert len(nodes) == most and (weights > 0).all()
    for power in range(2 * most):
        assert weights @ nodes**power == pytest.approx(weight @ p**power, rel=1e-9)


@given(masks=st.integers(2, 40), p=st.floats(0.05, 0.95), low=st.floats(0.05, 0.4))
def test_patterns_are_all_there_is(masks: int, p: float, low: float) -> None:
    for ratio, mean in ((p, p), (Uniform(low, low + 0.5), low + 0.25)):
        found = kept_copies(50, ratio, "ratio", masks, Inputs())
        none = 1 - found.probability.sum()
        assert none == pytest.approx((1 - mean) ** masks, abs=1e-9)
        assert found.probability @ found.share.sum(axis=1) == pytest.approx(mean, rel=1e-9)
        assert found.distinct == pytest.approx(50 * masks * mean, rel=1e-9)


def test_a_distribution_can_beat_the_best_single_ratio_under_one_mask() -> None:
    """Ratio 0 drops rows, and ridgeless risk may fall with fewer rows (docs/theory/many-masks.md)."""
    cov, which = Rotated(np.r_[21.0, np.ones(1199)]), np.array([0])
    grid = np.arange(0.02, 0.5, 0.005)
    fixed = direction_risk(cov, 1714, grid, 0.3 * 21, which=which).normalised
    mixed = direction_risk(cov, 1714, Given([0.19, 0.0], [0.5, 0.5]), 0.3 * 21, which=which).normalised
    assert fixed.min() == pytest.approx(0.0931, abs=1e-4) and mixed[0] == pytest.approx(0.0883, abs=1e-4)
    fewer = direction_risk(cov, 857, 0.19, 0.3 * 21, which=which).normalised
    assert fewer == pytest.approx(mixed, rel=1e-9)


@given(seed=st.integers(0, 10_000), q=st.sampled_from([0.0, 0.5]))
def test_a_distribution_is_no_better_than_one_ratio_of_fewer_rows(seed: int, q: float) -> None:
    """Without a ridge, and with fewer kept rows than features: the single ratio has the same mean estimator."""
    rng = np.random.default_rng(seed)
    cov = Rotated(np.repeat(np.exp(rng.normal(0, 2, 3)), rng.integers(1, 100, 3)))
    p, weight = rng.uniform(0.01, 0.98, 2), rng.dirichlet(np.ones(2))
    n = max(2, int(rng.uniform(0.05, 0.9) * cov.d / float(weight @ p)))
    if n * float(weight @ p) < 1.1:
        return
    inputs, mixture = Inputs("zeros", q), Given(p, weight)
    copies = kept_copies(n, mixture, "ratio", 1, inputs)
    found = equivalent.solve(cov, copies, 0.0)
    (a, b), (x, y) = found.terms.coefficients, found.x
    single = b / (a + b)
    share = (a + b) / (single / ((1 - single) * x + single * y))
    assert y >= x * (1 - 1e-9) and share <= 1 + 1e-9
    if n * share * single < 1.1:
        return
    fewer = Given([single, 0.0], [min(share, 1.0), max(1 - share, 0.0)])  # ratio 0 drops rows
    one, other = direction_risk(cov, n, [mixture, fewer], 0.1, inputs=inputs).risk
    assert (one >= other * (1 - 1e-8)).all()


@pytest.mark.parametrize("gamma", [1.5, 4.0])
def test_for_independent_features_the_mean_ratio_is_no_worse(gamma: float) -> None:
    cov, beta, mixture = identity(300), np.ones(300) / np.sqrt(300), Given([0.1, 0.5, 0.6], [0.3, 0.3, 0.4])
    n, mean = round(300 / gamma), 0.42
    found = risk(cov, beta, n, [mixture, mean], 0.2).risk
    odds, ratio = 0.3 / 9 + 0.3 + 0.4 * 1.5, 300 / n
    expected = 1 - 2 * mean / ratio + (1.2 * odds - mean**2 / ratio) / (ratio - mean)
    assert found[0] == pytest.approx(expected, rel=1e-9) and found[0] > found[1]


@pytest.mark.parametrize("q", [0.0, 0.5])
@pytest.mark.parametrize(("masks", "ratio"), [(math.inf, 0.3), (math.inf, Uniform(0.1, 0.8)), (3, 0.6)])
def test_zeros_in_data_with_a_mean(masks: float, ratio: float | Uniform, q: float) -> None:
    """Against least squares with an intercept on rows that are not centred, of 25 designs."""
    cov, n = latent(150, 1, q=10), 200
    rng, mean = np.random.default_rng(0), np.random.default_rng(1).uniform(0, 2, 150)
    beta = rng.standard_normal(150)
    beta /= np.sqrt(cov.quadratic(beta))
    drawn = [uncentred(cov.matrix(), mean, beta, n, ratio, 0.09, masks, q, rng) for _ in range(25)]
    formula = risk(cov, beta, n, ratio, 0.09, masks=masks, inputs=Inputs("zeros", q, mean))
    centred = risk(cov, beta, n, ratio, 0.09, masks=masks, inputs=Inputs("zeros", q))
    gap = abs(float(formula.risk) - np.mean(drawn))
    assert gap < 3 * np.std(drawn) / 5 + 0.05 * float(formula.risk)
    assert gap < abs(float(centred.risk) - np.mean(drawn)) or (q == 0 and masks == 3)
    assert np.isfinite(formula.variance)
    plain = risk(cov, beta, n, ratio, 0.09, masks=masks, inputs=Inputs("zeros", q, np.zeros(150)))
    assert plain.risk == pytest.approx(float(centred.risk), rel=1e-9)


@pytest.mark.parametrize(("masks", "ratio"), [(math.inf, Uniform(0.1, 0.8)), (3, 0.6)])
def test_features_with_a_mean_are_signals_with_one_feature_left_out(masks: float, ratio: float | Uniform) -> None:
    d = 200
    cov, mean = latent(d, 1, q=10), np.random.default_rng(1).uniform(0, 2, d)
    sigma, rest = cov.matrix(), np.arange(1, d)
    beta = np.linalg.solve(sigma[1:, 1:], sigma[1:, 0])
    noise = sigma[0, 0] - beta @ sigma[1:, 0]
    found = feature_risk(cov, d, ratio, masks=masks, inputs=Inputs("zeros", 0.4, mean))
    left = Dense(sigma[np.ix_(rest, rest)])
    direct = risk(left, beta, d, ratio, noise, masks=masks, inputs=Inputs("zeros", 0.4, mean[1:]))
    assert found.risk[0] == pytest.approx(float(direct.risk) + noise, rel=0.01)


def test_with_zeros_in_data_with_a_mean_a_range_can_beat_every_fixed_ratio() -> None:
    """And not with the mean filled in, nor with rescaled inputs."""
    cov, n = latent(100, 1, q=10), 2000
    use, mean, fixed = Uniform(0.0, 0.9), np.full(100, 2.0), np.arange(2, 49) / 50
    gains = []
    for inputs in (Inputs("zeros", use, mean), Inputs("zeros", use), Inputs("rescaled", use, mean)):
        best, trained = (
            feature_risk(cov, n, ratio, masks=math.inf, keep=1.0, inputs=inputs).normalised.mean(axis=-1)
            for ratio in (fixed, use)
        )
        gains.append(1 - float(trained) / best.min())
    assert gains[0] > 0.01 and max(gains[1:]) < 1e-3


def test_advice_for_many_masks() -> None:
    one, many = (advise(COV, 100, masks=masks, ratios=np.arange(1, 20) / 20) for masks in (1, math.inf))
    assert one.peak == 0.6 and many.peak is None
    assert many.directions.ratio_of_lowest(many.directions.mean) < one.directions.ratio_of_lowest(one.directions.mean)
    low, high = many.as_good
    assert low <= many.ratio <= high and np.isfinite(many.features.normalised).all()
    used = advise(COV, 100, masks=math.inf, inputs=Inputs("zeros", Uniform(0.1, 0.9)), ratios=np.arange(1, 20) / 20)
    assert used.ratio > many.ratio
    assert advise(COV, 100, masks=10**6, ratios=np.array([0.2, 0.4])).masks == 10**6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"masks": 0}, "masks must be a whole number of 1 or more, or inf, not 0"),
        ({"masks": 2.5}, "masks must be .* not 2.5"),
        ({"masks": math.nan}, "masks must be .* not nan"),
        ({"ratio": Uniform(0.1, 0.5), "masks": 5000}, "at most 4,096 masks, or inf; not 5000"),
        ({"ratio": 1.0, "masks": math.inf}, "ratio must be at least 0 and below 1, not 1"),
        ({"ratio": 0.001, "masks": 2}, "too few kept rows"),
    ],
)
def test_mistakes(arguments: dict[str, object], words: str) -> None:
    settings: dict[str, object] = {"ratio": 0.5, "masks": 1, **arguments}
    with pytest.raises(ValueError, match=words):
        risk(COV, BETA, 40, settings["ratio"], masks=settings["masks"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        if settings["masks"] == 5000:
            kept_copies(40, Uniform(0.1, 0.5), "ratio", 5000, Inputs())
        else:
            simulate(COV, BETA, 40, [settings["ratio"]], masks=settings["masks"])  # type: ignore[arg-type, list-item]


@pytest.mark.usefixtures("unchecked")
def test_mistakes_about_inputs() -> None:
    with pytest.raises(ValueError, match="weighting must be 'rows' or 'batches', not 'all'"):
        effective_ratio(0.3, "all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rule must be 'zeros' or 'rescaled', not 'ones'"):
        Inputs("ones")  # type: ignore[arg-type]
    for missing in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="missing must be at least 0 and below 1"):
            Inputs("zeros", missing)
    for mean in (np.ones(3), np.full(60, np.nan)):
        with pytest.raises(ValueError, match="mean must be 60 finite numbers"):
            feature_risk(COV, 40, 0.5, inputs=Inputs(mean=mean))
    with pytest.raises(ValueError, match="simulated rows are centred"):
        simulate(COV, BETA, 40, [0.5], inputs=Inputs(mean=np.ones(60)))
    with pytest.raises(ValueError, match="several ratios need masks=inf"):
        risk(COV, BETA, 40, Uniform(0.1, 0.5), masks=4, inputs=Inputs(mean=np.ones(60)))


def test_nothing_hidden_keeps_nothing() -> None:
    for masks in (1, 4, math.inf):
        found = risk(COV, BETA, 40, 0.0, masks=masks)
        assert (found.risk, found.rows) == (found.null, 0)


def test_singular_data_with_many_masks() -> None:
    """diag Σ makes the limit regular: finite numbers without a ridge."""
    f = np.random.default_rng(0).standard_normal((30, 4))
    cov, beta = Dense(f @ f.T), f[:, 0]
    for masks in (1, 4, math.inf):
        assert np.isfinite(risk(cov, beta, 50, [0.1, 0.5], 0.1, masks=masks).risk).all()
    assert np.isfinite(feature_risk(cov, 50, 0.3, masks=math.inf).risk).all()
