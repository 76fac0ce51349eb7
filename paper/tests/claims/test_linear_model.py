"""Claims about the linear model: tables that show a claim, and those that refute it."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from paper.tests.claims.judged import Rows, words

from r2mae_paper.claims import Found
from r2mae_paper.published import published

RATIOS = tuple(round(0.05 * k, 2) for k in range(1, 20))


def isotropic(wide: Callable[[float], float], tall: Callable[[float], float], n: int = 2000, off: float = 1.0) -> Rows:
    return [
        {"gamma": gamma, "n": samples, "d": 1, "ratio": p, "risk": curve(p), "error": 1e-3, "theorem1": off * curve(p)}
        for gamma, samples, curve in ((5.0, n, wide), (0.5, 2 * n, tall))
        for p in RATIOS
    ]


def valley(p: float) -> float:
    return 0.97 + (p - 0.3) ** 2


def peak(p: float) -> float:
    return 0.95 + 1 / (0.05 + abs(p - 0.5)) + (20 * (p - 0.7) ** 2 if p > 0.5 else 0)


ISOTROPIC = ("theorem-1", "minimum-overparametrised", "rise-overparametrised", "rise-underparametrised", "transition")


def test_the_isotropic_model(judge: Callable[..., dict[str, Found]]) -> None:
    found = judge("fig1a", {"fig1a": isotropic(valley, peak)})
    no = "not reproduced"
    assert words(found, *ISOTROPIC) == ["reproduced", "reproduced", no, no, "reproduced"]
    assert found["isotropic-useless"].verdict == "reproduced"
    assert found["rise-overparametrised"].high < 0

    found = judge("fig1a", {"fig1a": isotropic(lambda p: p, lambda p: p, off=1.3)})
    assert words(found, *ISOTROPIC) == [no, no, "reproduced", "reproduced", no]
    assert found["isotropic-useless"].verdict == no

    found = judge("fig1a", {"fig1a": isotropic(valley, peak, n=200)})
    assert "reproduced" not in {found[name].verdict for name in ISOTROPIC}, "of a smaller size"


def test_gammas_are_those_of_the_table(judge: Callable[..., dict[str, Found]]) -> None:
    rows = [{**row, "gamma": 3.0 if row["gamma"] == 5 else 0.5} for row in isotropic(valley, lambda p: 1 + p)]
    found = judge("fig1a", {"fig1a": [row for row in rows if row["ratio"] > 0.5]})
    assert "From p = 0.55 to" in found["rise-overparametrised"].reason


def test_a_table_that_lacks_a_column_is_said(judge: Callable[..., dict[str, Found]]) -> None:
    found = judge("fig1d", {"fig1d": [{"ratio": 0.1, "magnitude_ratio": 1, "fresh_magnitude_ratio": 1}]})["disparity"]
    assert found.verdict == "not run"
    assert "lack what the rule needs" in found.reason


def spike(lowest: Mapping[tuple[float, float], tuple[float, float]], step: float = 0.01) -> Rows:
    """Curves by strength and angle with a lowest risk (over the null risk) at a ratio."""
    rows: Rows = []
    for (delta, cosine), (low, best) in lowest.items():
        null = 1 + delta * cosine**2
        for p in np.round(np.arange(step, 1, step), 4):
            row = {"delta": delta, "cosine": cosine, "ratio": p, "null": null, "formula": (p - best) ** 2}
            if p in RATIOS:
                risk = null * (low + (p - best) ** 2)
                row |= {"risk": risk, "error": 1e-3, "fresh_risk": risk, "fresh_error": 1e-3, "corollary1": 1.01 * risk}
            rows.append(row)
    return rows


ANGLES = ((10.0, 0.0), (10.0, 0.5), (10.0, 1.0))
STRENGTHS = ((1.0, 1.0), (10.0, 1.0), (100.0, 1.0))


def test_the_spiked_model(judge: Callable[..., dict[str, Found]]) -> None:
    for target, keys in (("fig1b", ANGLES), ("fig1c", STRENGTHS), ("fig3", STRENGTHS)):
        shown = dict(zip(keys, ((0.95, 0.2), (0.4, 0.4), (0.01, 0.6)), strict=True))
        found = judge(target, {target: spike(shown)})
    names = ("corollary-1", "deeper-aligned", "later-aligned", "deeper-strong", "later-strong", "weak-spike", "ones")
    assert set(words(found, *names, "sweet-spot")) == {"reproduced"}
    assert found["later-strong"].ours == pytest.approx(0.4)
    for target, keys in (("fig1b", ANGLES), ("fig1c", STRENGTHS), ("fig3", STRENGTHS)):
        refuted = dict(zip(keys, ((0.3, 0.6), (0.4, 0.4), (0.9, 0.2)), strict=True))
        found = judge(target, {target: spike(refuted)})
    assert set(words(found, *names[1:], "sweet-spot")) == {"not reproduced"}
    assert found["corollary-1"].verdict == "reproduced"
    found = judge("fig1c", {"fig1c": spike(dict.fromkeys(STRENGTHS, (0.5, 0.4)))})
    assert words(found, "deeper-strong", "later-strong") == ["undecided", "undecidable at this scale"], "alike"
    assert "step of the grid" in found["later-strong"].reason


@pytest.mark.parametrize(("power", "verdict"), [(-1.0, "reproduced"), (1.0, "not reproduced")])
def test_disparity(judge: Callable[..., dict[str, Found]], power: float, verdict: str) -> None:
    fine = [round(0.01 * k, 2) for k in range(1, 100)]
    rows = [
        {"delta": delta, "ratio": p, "magnitude_ratio": p**power, "fresh_magnitude_ratio": p**power}
        for delta in (1.0, 10.0, 100.0)
        for p in fine
    ]
    assert judge("fig1d", {"fig1d": rows})["disparity"].verdict == verdict
    curves = spike(dict.fromkeys(STRENGTHS, (0.5, 0.5)))
    assert judge("fig3", {"fig3": curves, "fig3-magnitude": rows})["ones-disparity"].verdict == verdict


def spectra(lowest: Sequence[tuple[float, float]], thresholds: Sequence[float], last: float = 3.0) -> dict[str, Rows]:
    """Three models with the same curves: from the strongest signal on, the lowest risk and its ratio."""
    rows: Rows = []
    for model in ("a", "b", "c"):
        for number, (low, best) in enumerate(lowest):
            for p in RATIOS:
                risk = last if p == 0.95 else low + (1 - low) * ((p - best) / (0.05 - best)) ** 2
                rows.append({"model": model, "quantile": 0.1 * number, "eigenvalue": 10.0 - number, "ratio": p,
                             "normalised_risk": risk, "error": 1e-3, "formula": risk})  # fmt: skip
    limits = [{"model": model, "gamma": 5.0, "n": 500, "threshold": value, "threshold_over_mean": value,
               "share_above": 0.5} for model, value in zip("abc", thresholds, strict=True)]  # fmt: skip
    return {"fig1e": rows, "fig1e-thresholds": limits}


SPECTRA = ("non-monotonic", "stronger-deeper", "stronger-later", "threshold", "ends-degenerate")


def test_general_covariances(judge: Callable[..., dict[str, Found]]) -> None:
    found = judge("fig1e", spectra([(0.6, 0.6), (0.7, 0.4), (0.9, 0.2)], [0.6, 0.6, 0.62]))
    assert words(found, *SPECTRA) == ["reproduced"] * 5
    found = judge("fig1e", spectra([(0.9, 0.2), (0.7, 0.4), (0.6, 0.6)], [0.6, 0.8, 2], last=0.95))
    assert words(found, *SPECTRA[1:]) == ["not reproduced"] * 4


@pytest.mark.parametrize("shown", [True, False])
def test_plateaus(judge: Callable[..., dict[str, Found]], shown: bool) -> None:
    rows = [
        {
            "reading": reading, "sample": sample, "best_risk": 0.5, "best_ratio": 0.5, "first_ratio": 0.05,
            "first_until": 0.25 + 0.05 * (sample % 2) if shown else 0.05 + 0.05 * (sample == 3),
            "near_best_from": (0.2 if shown else 0.45) - 0.05 * (sample % 2), "near_best_until": 0.6,
        }
        for reading in ("D", "WW") for sample in [*range(20)]
    ]  # fmt: skip
    found = judge("fig1g", {"fig1g": rows, "fig1g-plateaus": rows})
    verdict = "reproduced" if shown else "not reproduced"
    assert words(found, "first-plateau", "best-plateau") == [verdict, verdict]
    curves = [
        {"reading": reading, "sample": sample, "ratio": p, "normalised_risk": p + 0.1 * sample * shown, "error": 0.01}
        for reading in ("D", "WW") for sample in (0, 1) for p in RATIOS
    ]  # fmt: skip
    found = judge("fig4", {"fig4": curves, "fig4-plateaus": rows})
    assert found["another-sample"].verdict == ("reproduced" if shown else "undecided")


@pytest.mark.parametrize("shown", [True, False])
def test_the_papers_own_tables_show_what_it_says(judge: Callable[..., dict[str, Found]], shown: bool) -> None:
    """The printed cells as if they were ours; and with the opposite sign."""
    sign = 1 if shown else -1
    for name in ("table5", "table9"):
        rows = [
            {"model": model, "seed": seed, "gain": sign * (cell.r2mae - cell.middle), "r2mae": cell.r2mae + (not shown),
             "over_best": sign * (cell.r2mae - cell.best)}
            for model, cells in published(name).entries.items() for seed, cell in cells.iterrows()
        ]  # fmt: skip
        found = judge(name, {name: rows})
        assert found[f"{name}-middle"].verdict == found[f"{name}-beta"].verdict
        assert found[f"{name}-latent"].verdict == ("reproduced" if shown else "not reproduced")
        assert found[f"{name}-middle"].verdict == ("reproduced" if shown else "not reproduced")
        printed = 0.8 if name == "table5" else 0.7
        assert found[f"{name}-best"].ours == pytest.approx(printed if shown else 0.25, abs=0.06)


@pytest.mark.parametrize(("off", "verdict"), [(1.01, "direction only"), (1.3, "not reproduced")])
def test_theorem_3_is_judged_at_eigenvectors(judge: Callable[..., dict[str, Found]], off: float, verdict: str) -> None:
    rows = [{"model": "Beta", "ratio": ratio, "signal": signal, "formula": 1,
             "simulated": off if signal == "top" else 9}
            for ratio in ("0.2", "0.5", "U(0.2, 0.6)") for signal in ("top", "random")]  # fmt: skip
    found = judge("validation", {"validation": rows})["theorem-3"]
    assert found.verdict == verdict
    assert "2 points" in found.reason


def test_ranges_beside_the_best_ratio_are_those_of_tables_5_and_9(judge: Callable[..., dict[str, Found]]) -> None:
    for name in ("table5", "table9"):
        rows = [
            {"model": model, "seed": seed, "gain": -0.01, "r2mae": 0.5, "over_best": -0.01 if seed < 20 else 0.01,
             "best_ratio": cell.best_ratio}
            for model, cells in published(name).entries.items() for seed, cell in cells.iterrows()
        ]  # fmt: skip
        found = judge(name, {name: rows})
    assert "of 7." in found["misaligned"].reason


@pytest.mark.parametrize(
    ("cells", "verdict"), [(1, "undecidable at this scale"), (4, "undecidable at this scale"), (20, "not reproduced")]
)
def test_no_success_shows_no_share(judge: Callable[..., dict[str, Found]], cells: int, verdict: str) -> None:
    rows = [{"model": "Beta", "seed": seed, "gain": -0.01, "r2mae": 0.5, "over_best": 0.01, "best_ratio": 0.9}
            for seed in range(cells)]  # fmt: skip
    for name in ("table5", "table9"):
        found = judge(name, {name: rows[: (cells + 1) // 2]})
    assert found["misaligned"].verdict == verdict


@pytest.mark.parametrize(("risk", "verdict"), [(0.4, "direction only"), (0.6, "not reproduced")])
def test_ranges(judge: Callable[..., dict[str, Found]], risk: float, verdict: str) -> None:
    rows = [{"low": 0.3, "high": 0.6, "best_ratio": 0.5, "best_fixed": 0.5, "range": risk}] * 20
    rows += [{"low": 0.6, "high": 0.7, "best_ratio": 0.5, "best_fixed": 0.5, "range": 1 - risk}] * 40
    found = judge("ranges", {"ranges": rows})["ranges"]
    assert found.verdict == verdict, "ranges without the best ratio do not count"
    assert "of 20." in found.reason
