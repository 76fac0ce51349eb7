"""Checks on tables with known answers: those that show a claim, and those that refute it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.cells.wing import WING
from r2mae.files import write_json, write_rows
from r2mae.reproduce import fig2a, fig2b, table1, table2, table3, table4, table6
from r2mae.reproduce.claims import Verdict, verdicts
from r2mae.reproduce.claims.cells import _TABLES
from r2mae.reproduce.claims.networks import _task_decides
from r2mae.reproduce.published import published
from r2mae.reproduce.state import write_plan, write_tables

RATIOS = tuple(round(0.05 * k, 2) for k in range(1, 20))
TENTHS = tuple(round(0.1 * k, 1) for k in range(1, 10))
Rows = list[dict[str, Any]]


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., dict[str, Verdict]]:
    """Write tables of a target, and judge all claims by them."""

    def write_and_judge(target: str, tables: Mapping[str, Rows], scale: str = "") -> dict[str, Verdict]:
        folder = tmp_path / target
        folder.mkdir(exist_ok=True)
        for name, rows in tables.items():
            write_rows(folder / f"{name}.csv", rows, list(dict.fromkeys(key for row in rows for key in row)))
        if scale:
            write_plan(folder, scale, "runs", [])
            write_tables(folder, [folder / f"{name}.csv" for name in tables])
        return {one.claim.name: one for one in verdicts([tmp_path])}

    return write_and_judge


def words(found: Mapping[str, Verdict], *names: str) -> list[str]:
    return [found[name].verdict for name in names]


# ---------------------------------------------------------------------------------------------------------------------
# The linear model
# ---------------------------------------------------------------------------------------------------------------------


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


def test_the_isotropic_model(judge: Callable[..., dict[str, Verdict]]) -> None:
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


def test_a_table_that_lacks_a_side_is_said_and_gammas_are_its_own(judge: Callable[..., dict[str, Verdict]]) -> None:
    rows = [{**row, "gamma": 3.0 if row["gamma"] == 5 else 0.5} for row in isotropic(valley, lambda p: 1 + p)]
    found = judge("fig1a", {"fig1a": [row for row in rows if row["ratio"] > 0.5]})
    assert found["transition"].verdict == "not run"
    assert "lack what the check needs" in found["transition"].reason
    assert "d = 3 n" in found["rise-overparametrised"].reason
    assert "formula rises throughout" in found["rise-underparametrised"].reason


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


def test_the_spiked_model(judge: Callable[..., dict[str, Verdict]]) -> None:
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
    assert set(words(found, "deeper-strong", "later-strong")) == {"undecided"}, "curves that are alike"


@pytest.mark.parametrize(("power", "verdict"), [(-1.0, "reproduced"), (1.0, "not reproduced")])
def test_disparity(judge: Callable[..., dict[str, Verdict]], power: float, verdict: str) -> None:
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


def test_general_covariances(judge: Callable[..., dict[str, Verdict]]) -> None:
    found = judge("fig1e", spectra([(0.6, 0.6), (0.7, 0.4), (0.9, 0.2)], [0.6, 0.6, 0.62]))
    assert words(found, *SPECTRA) == ["reproduced"] * 5
    found = judge("fig1e", spectra([(0.9, 0.2), (0.7, 0.4), (0.6, 0.6)], [0.6, 0.8, 2], last=0.95))
    assert words(found, *SPECTRA[1:]) == ["not reproduced"] * 4


@pytest.mark.parametrize("shown", [True, False])
def test_plateaus(judge: Callable[..., dict[str, Verdict]], shown: bool) -> None:
    rows = [
        {
            "reading": reading, "sample": sample, "best_risk": 0.5, "best_ratio": 0.5,
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
def test_the_papers_own_tables_show_what_it_says(judge: Callable[..., dict[str, Verdict]], shown: bool) -> None:
    """The printed cells as if they were ours; and with the opposite sign."""
    sign = 1 if shown else -1
    for name in ("table5", "table9"):
        rows = [
            {"model": model, "seed": seed, "gain": sign * (cell.r2mae - cell.middle), "r2mae": cell.r2mae + (not shown),
             "over_best": sign * (cell.r2mae - cell.best)}
            for model, cells in published(name).entries.items() for seed, cell in cells.items()
        ]  # fmt: skip
        found = judge(name, {name: rows})
        assert found[f"{name}-middle"].verdict == found[f"{name}-beta"].verdict
        assert found[f"{name}-latent"].verdict == ("reproduced" if shown else "not reproduced")
        assert found[f"{name}-middle"].verdict == ("reproduced" if shown else "not reproduced")
        assert found[f"{name}-best"].ours == pytest.approx(
            found[f"{name}-best"].claim.paper if shown else 0.25, abs=0.06
        )
    assert found["linear-best"].verdict in (("undecided", "not run") if shown else ("not reproduced", "undecided"))


@pytest.mark.parametrize(("off", "verdict"), [(1.01, "direction only"), (1.3, "not reproduced")])
def test_theorem_3_is_judged_at_eigenvectors(
    judge: Callable[..., dict[str, Verdict]], off: float, verdict: str
) -> None:
    rows = [{"model": "Beta", "ratio": ratio, "signal": signal, "formula": 1,
             "simulated": off if signal == "top" else 9}
            for ratio in ("0.2", "0.5", "U(0.2, 0.6)") for signal in ("top", "random")]  # fmt: skip
    found = judge("validation", {"validation": rows})["theorem-3"]
    assert found.verdict == verdict
    assert "2 points" in found.reason


def test_ranges_beside_the_best_ratio_are_those_of_tables_5_and_9(judge: Callable[..., dict[str, Verdict]]) -> None:
    for name in ("table5", "table9"):
        rows = [
            {"model": model, "seed": seed, "gain": -0.01, "r2mae": 0.5, "over_best": -0.01 if seed < 20 else 0.01,
             "best_ratio": cell.best_ratio}
            for model, cells in published(name).entries.items() for seed, cell in cells.items()
        ]  # fmt: skip
        found = judge(name, {name: rows})
    assert "of 7 cells" in found["misaligned"].reason
    assert found["misaligned"].claim.paper == pytest.approx(3 / 7)


@pytest.mark.parametrize(("risk", "verdict"), [(0.4, "reproduced"), (0.6, "not reproduced")])
def test_ranges(judge: Callable[..., dict[str, Verdict]], risk: float, verdict: str) -> None:
    rows = [{"low": 0.3, "high": 0.6, "best_ratio": 0.5, "best_fixed": 0.5, "range": risk}] * 20
    rows += [{"low": 0.6, "high": 0.7, "best_ratio": 0.5, "best_fixed": 0.5, "range": 1 - risk}] * 40
    assert judge("ranges", {"ranges": rows})["ranges"].verdict == verdict, "ranges beside the best ratio do not count"


# ---------------------------------------------------------------------------------------------------------------------
# Networks at fixed ratios
# ---------------------------------------------------------------------------------------------------------------------


def mlps(best: float, ratios: Sequence[float] = TENTHS) -> pd.DataFrame:
    """The paper's picture if `best` is an inner ratio; if it is 0.1, masking is no use but for insufficient models."""
    rng = np.random.default_rng(0)
    rows = []
    for hidden in (16, 512):
        for latent in (16, 32, 64, 256, 1024):
            for ratio in ratios:
                for seed in range(5):
                    own = best if hidden == 512 else 0.1 if best > 0.1 else 0.9
                    fall = ratio if latent > 16 else -ratio
                    scores = {
                        "probe_accuracy": 0.97 - 0.1 * (ratio - own) ** 2,
                        "spectral_entropy": 5 - fall * (1 if best > 0.1 else -1),
                        "clean_mse": 0.1 * (ratio - 0.1) ** 2 + 0.01,
                    }
                    row = {"preset": f"mlp-{hidden}-{latent}", "ratio": f"{ratio:.2f}", "seed": seed, "seconds": 1.0}
                    for name, value in scores.items():
                        row |= {name: value, f"as_trained_{name}": value + 1e-4 * rng.normal()}
                    rows.append(row)
    return pd.DataFrame(rows)


MLPS = ("mlp-sufficient", "mlp-insufficient", "only-overparametrised", "rank-falls", "rank-of-16", "task-mlp")


def test_mlps(judge: Callable[..., dict[str, Verdict]]) -> None:
    found = judge("fig2a", fig2a.table(mlps(0.7)))
    assert words(found, *MLPS) == ["reproduced"] * 6
    assert found["task-mlp"].ours == pytest.approx(0.6, abs=0.1)
    found = judge("fig2a", fig2a.table(mlps(0.1)))
    assert words(found, *MLPS[:5]) == ["not reproduced"] * 5
    assert found["task-mlp"].verdict == "not reproduced", "one ratio is best for both"
    found = judge("fig2a", fig2a.table(mlps(0.7, TENTHS[::2])))
    assert words(found, *MLPS) == ["direction only"] * 6, "fewer ratios than the paper's"


def test_the_task_is_judged_with_a_correction_for_widths_and_signs() -> None:
    """Best ratios that scatter alike for both scores: a width chosen afterwards seldom differs, and none is shown."""
    shown = 0
    for draw in range(20):
        rng = np.random.default_rng(draw)
        rows = mlps(0.7)
        for name in ("probe_accuracy", "clean_mse"):
            best = {key: 0.1 * rng.integers(4, 7) for key in rows.groupby(["preset", "seed"]).groups}
            keys = zip(rows["preset"], rows["seed"], strict=True)
            off = [(float(ratio) - best[key]) ** 2 for ratio, key in zip(rows["ratio"], keys, strict=True)]
            rows[f"as_trained_{name}"] = [1 - one if name == "probe_accuracy" else one for one in off]
        wide = rows[rows["preset"].str.startswith("mlp-512")].astype({"ratio": float})
        widths = {int(str(name).split("-")[-1]): group for name, group in wide.groupby("preset")}
        found = _task_decides(widths, "", "probe_accuracy", same=True)
        shown += found.verdict == "reproduced"
    assert shown <= 1


def test_a_comparison_on_mnist_is_one_width(tmp_path: Path) -> None:
    rows = mlps(0.7)
    rows = rows[rows["preset"] == "mlp-512-256"].assign(label="fixed " + rows["ratio"], scheme="fixed", low=0, high=0)
    columns = ["label", "scheme", "ratio", "low", "high", "seed"]
    (tmp_path / "mnist").mkdir()
    rows = rows[[*columns, *(name for name in rows if "_" in name)]]
    rows.astype({"ratio": float}).to_csv(tmp_path / "mnist" / "results.csv", index=False)
    found = {one.claim.name: one for one in verdicts([tmp_path])}
    assert words(found, "mlp-sufficient", "rank-falls", "task-mlp") == ["direction only"] * 3
    assert "our addition" in found["task-mlp"].reason
    assert words(found, "mlp-insufficient", "rank-of-16") == ["not run"] * 2


def unets(best: Mapping[int, float], jump: Mapping[int, float]) -> pd.DataFrame:
    rows = []
    rng = np.random.default_rng(0)
    for channels in best:
        for ratio in TENTHS:
            for seed in range(3):
                row = {"preset": f"unet-{channels}", "ratio": f"{ratio:.2f}", "seed": seed}
                row["as_trained_clean_mse"] = 0.01 + (ratio - best[channels]) ** 2 + 1e-5 * rng.normal()
                row["as_trained_attribute_accuracy"] = (ratio > jump[channels]) + 0.1 * ratio + 1e-3 * rng.normal()
                rows.append(row)
    return pd.DataFrame(rows)


UNETS = ("unet-intermediate", "unet-grows", "unet-8", "unet-16", "unet-32", "unet-jump", "task-unet")


def test_unets(judge: Callable[..., dict[str, Verdict]]) -> None:
    jump = {8: 0.25, 16: 0.35, 32: 0.45}
    found = judge("fig2b", fig2b.table(unets({8: 0.6, 16: 0.7, 32: 0.8}, jump)))
    assert words(found, *UNETS) == ["reproduced"] * 7
    found = judge("fig2b", fig2b.table(unets({8: 0.1, 16: 0.1, 32: 0.1}, dict.fromkeys(jump, 2.0))))
    assert words(found, *UNETS[:5]) == ["not reproduced"] * 5
    assert found["task-unet"].ours == pytest.approx(0.8, abs=0.11)
    assert found["unet-jump"].verdict != "reproduced", "the accuracy rises evenly"
    flat = unets({8: 0.6, 16: 0.7, 32: 0.8}, jump).assign(as_trained_attribute_accuracy=0.0)
    tables = fig2b.table(flat)
    assert {row["score"] for row in tables["fig2b-best"]} == {"as_trained_clean_mse"}, "no ratio is the best of equals"
    found = judge("fig2b", tables)
    assert words(found, "unet-jump", "task-unet", "unet-8") == ["undecided", "undecided", "reproduced"]
    assert np.isnan(found["task-unet"].ours)
    partly = unets({8: 0.6, 16: 0.7, 32: 0.8}, jump)
    partly.loc[(partly["preset"] == "unet-8") & (partly["seed"] == 1), "as_trained_attribute_accuracy"] = 0.5
    found = judge("fig2b", fig2b.table(partly))
    assert words(found, "unet-jump", "task-unet") == ["undecided"] * 2
    assert "(width 8)" in found["unet-jump"].reason
    found = judge("fig2b", fig2b.table(unets({4: 0.6, 8: 0.7, 16: 0.8}, {4: 0.25, 8: 0.35, 16: 0.45})))
    assert words(found, *UNETS) == [
        "direction only", "direction only", "undecided", "undecided", "not run", "direction only", "direction only",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Schemes
# ---------------------------------------------------------------------------------------------------------------------


def runs(levels: Mapping[str, float], scores: Sequence[str], seeds: int = 5, **values: Any) -> Rows:
    """Rows with these levels of every score, jittered by the seed for all alike, and a little each."""
    rng = np.random.default_rng(0)
    return [
        {"label": label, "scheme": label.split()[0], "seed": seed, "seconds": 1.0, **values}
        | {score: level + jitter + 1e-5 * rng.normal() for score in scores}
        for seed, jitter in enumerate(rng.normal(size=seeds) / 100)
        for label, level in levels.items()
    ]


OTHERS = {"fixed 0.75": 0.8197, "fixed 0.50": 0.8180, "fixed 0.90": 0.8120, "dynamic": 0.8197, "mdlm": 0.8102}
VITS = ("vit-default", "vit-dynamic", "vit-high", "vit-low", "vit-mdlm")
LOSS = ["loss_sd", "loss_sd_beside_ratio"]


@pytest.mark.parametrize(
    ("ours", "scale", "verdict"),
    [
        (0.8200, "full", "reproduced"),
        (0.8400, "full", "direction only"),
        (0.8200, "small", "direction only"),
        (0.8000, "full", "not reproduced"),
        (0.8000, "small", "not reproduced"),
        (0.8200, "smoke", "not run"),
    ],
)
def test_vision(judge: Callable[..., dict[str, Verdict]], ours: float, scale: str, verdict: str) -> None:
    rows = pd.DataFrame(runs({**OTHERS, "r2mae": ours}, ["finetune_top1", *LOSS]))
    found = judge("table1", table1.table(rows), scale)
    assert words(found, *VITS) == [verdict] * 5
    fluctuates = {"direction only": "direction only"} if scale == "small" else {"direction only": "reproduced"}
    assert found["vit-fluctuates"].verdict == (
        fluctuates.get(verdict, verdict) if ours != 0.84 or scale != "full" else "reproduced"
    )


def test_another_scheme_that_is_as_consistent_refutes_the_only_one(judge: Callable[..., dict[str, Verdict]]) -> None:
    rows = cells(0.73, ["csle", "pig-airway"], True)
    rows.loc[rows["label"].isin(["dynamic", "cl"]), "score"] -= 0.05
    assert judge("table4", as_written("table4", rows), "small")["every-domain"].verdict == "direction only"
    rows.loc[rows["label"] == "mdlm", "score"] += 0.05
    found = judge("table4", as_written("table4", rows), "small")["every-domain"]
    assert found.verdict == "not reproduced"
    assert "so does mdlm" in found.reason


GLUE = ("mnli_accuracy", "qqp_accuracy", "sst2_accuracy", "qnli_accuracy")


def language(ours: float) -> pd.DataFrame:
    levels = {"fixed 0.15": 0.860, "fixed 0.40": 0.861, "mdlm": 0.85, "dynamic": 0.862, "r2mae": ours}
    both = [
        row for model in ("roberta-medium", "roberta-base") for row in runs(levels, [*GLUE, "loss"], 3, model=model)
    ]
    return pd.DataFrame(both)


def test_language(judge: Callable[..., dict[str, Verdict]]) -> None:
    found = judge("table2", table2.table(language(0.8643)), "small")
    assert found["glue"].verdict == "direction only"
    assert found["glue"].ours == pytest.approx(0.0033, abs=2e-4)
    assert judge("table2", table2.table(language(0.8642)), "full")["glue"].verdict in ("reproduced", "direction only")
    worse = judge("table2", table2.table(language(0.80)), "full")
    assert words(worse, "glue", "glue-three") == ["not reproduced"] * 2
    assert found["glue-three"].verdict == "direction only"
    without = table2.table(language(0.9).drop(columns=list(GLUE)))
    found = judge("table2", without, "small")
    assert words(found, "glue", "rank-medium", "rank-base") == ["not run"] * 3
    assert "at chance" in found["glue"].reason


def test_ranks_on_glue(judge: Callable[..., dict[str, Verdict]]) -> None:
    rng = np.random.default_rng(1)
    jittered = language(0.862)
    jittered[list(GLUE)] += 0.01 * rng.normal(size=(len(jittered), len(GLUE)))
    assert judge("table2", table2.table(jittered), "full")["rank-medium"].verdict == "undecided"
    worst = language(0.0)
    worst.loc[worst["seed"] == 0, "qnli_accuracy"] += worst["label"].eq("r2mae")[worst["seed"] == 0]
    assert judge("table2", table2.table(worst), "full")["rank-base"].verdict == "not reproduced"


def test_dna_is_not_testable_and_says_what_stands_in(judge: Callable[..., dict[str, Verdict]]) -> None:
    rows = pd.DataFrame(runs({"fixed 0.05": 0.4, "fixed 0.15": 0.4, "r2mae": 0.42}, ["spearman", "masked_loss"]))
    found = judge("table3", table3.table(rows))
    assert found["dna-auprc"].verdict == "not testable here"
    assert "+0.020" in found["dna-auprc"].reason
    assert found["dna-missense"].verdict == "not testable here"


RECONSTRUCTION = [f"reconstruction_r_{ratio:g}" for ratio in (0.1, 0.2, 0.3, 0.5, 0.7)]
CELLS = {
    **dict.fromkeys(("fixed 0.10", "fixed 0.50"), 0.70),
    **dict.fromkeys(("dynamic", "cl"), 0.715),
    **dict.fromkeys(("fixed 0.25", "r2mae-dynamic", "r2mae-cl", "r2mae-cl-k0"), 0.71),
    **{"mdlm": 0.69, "cl-k0": 0.5, "scvi": 0.68, "expression": 0.65},
}
OF_A_SET = ("best", "schemes", "scvi", "expression", "dynamic", "curriculum", "range", "lowest")
TYPES = {"table4": ("sea-ad", table4), "table6": ("hlca", table6)}


def cells(ours: float, names: Sequence[str], condition: bool) -> pd.DataFrame:
    """Runs on some sets, with the scores that the wing measures on each."""
    settings = table4._CONDITION if condition and "sea-ad" not in names else {}
    rows: Rows = []
    for name in names:
        config = CellsConfig(**{"data": name, **SET_DEFAULTS[name], **settings})
        measured = [metric.name for metric in WING.metrics_of(config)]
        rows += runs({**CELLS, "r2mae": ours}, list(dict.fromkeys([*measured, *RECONSTRUCTION])), set=name)
    return pd.DataFrame(rows)


def as_written(target: str, rows: pd.DataFrame) -> dict[str, Rows]:
    """Return what a check reads of the target's tables, without the means, which take seconds."""
    return {target: [{"set": ""}], f"{target}-runs": rows.to_dict("records")}


@pytest.mark.parametrize("target", TYPES)
def test_cells_of_other_sets(judge: Callable[..., dict[str, Verdict]], target: str) -> None:
    name, module = TYPES[target]
    sets = ("csle", "pig-airway") if target == "table4" else ("onek1k", "combat")
    found = judge(target, module.table(cells(0.73, sets, target == "table4")), "small")
    assert words(found, *(f"{name}-{short}" for short in OF_A_SET)) == ["direction only"] * len(OF_A_SET)
    assert words(found, "degenerates", "hampers", "resolved") == ["direction only"] * 3
    assert found[f"{name}-types"].verdict == "not reproduced", "an advantage of two points"
    found = judge(target, as_written(target, cells(0.60, sets, target == "table4")), "small")
    assert words(found, *(f"{name}-{short}" for short in OF_A_SET)) == ["not reproduced"] * len(OF_A_SET)
    assert found["every-domain"].verdict == "not reproduced"
    found = judge(target, as_written(target, cells(0.71, sets, target == "table4")), "small")
    assert found[f"{name}-types"].verdict == "direction only"


@pytest.mark.parametrize("target", TYPES)
def test_the_papers_own_set_is_judged_alone(judge: Callable[..., dict[str, Verdict]], target: str) -> None:
    name, _ = TYPES[target]
    own, other = ("sea-ad", "csle") if target == "table4" else ("hlca", "onek1k")
    rows = pd.concat([cells(0.76, [own], target == "table4"), cells(0.5, [other], target == "table4")])
    found = judge(target, as_written(target, rows), "full")
    assert found[f"{name}-best"].verdict == "direction only"
    assert found[f"{name}-best"].ours == pytest.approx(0.05, abs=1e-3)
    assert "excludes the paper's number" in found[f"{name}-best"].reason
    assert found[f"{name}-types"].verdict == "not reproduced", "an advantage in Supertype or ann_finest_level"
    assert {found[f"{one}-best"].verdict for one, _ in TYPES.values() if one != name} == {"not run"}
    small = judge(target, as_written(target, rows), "small")[f"{name}-best"]
    assert "not the paper's" in small.reason


def test_named_sets_are_those_of_the_targets() -> None:
    for target, (own, module) in TYPES.items():
        assert {name for name, table in _TABLES.items() if table == target} == {own, *module.SIZE.small["sets"]}


def comparison(folder: Path, rows: pd.DataFrame, config: Mapping[str, Any] | None = None) -> None:
    folder.mkdir(parents=True)
    first = ["label", "scheme", "ratio", "low", "high", "seed"]
    table = rows.assign(ratio=0.1, low=0.1, high=0.1).drop(columns="set")
    table[[*first, *(name for name in table if name not in first)]].to_csv(folder / "results.csv", index=False)
    if config is not None:
        write_json(folder / "compare.json", {"wing": "cells", **config})


def test_a_comparison_is_never_the_papers_experiment(tmp_path: Path) -> None:
    rows = cells(0.722, ["hlca"], False)
    comparison(tmp_path / "hlca", rows)
    found = {one.claim.name: one for one in verdicts([tmp_path])}
    assert found["hlca-best"].verdict == "direction only"
    assert "not the paper's" in found["hlca-best"].reason


def test_a_comparison_is_known_by_what_it_says_of_itself(tmp_path: Path) -> None:
    comparison(tmp_path / "hlca", cells(0.722, ["onek1k"], False), {"data": "onek1k", "labels": ["cell_type"]})
    comparison(tmp_path / "second", cells(0.6, ["onek1k"], False), {"data": "onek1k"})
    write_json(tmp_path / "second" / "results.json", {})
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "results.csv").write_text("label,scheme,ratio,low,high,seed\n")
    found = {one.claim.name: one for one in verdicts([tmp_path])}["hlca-best"]
    assert found.verdict == "direction only", "an empty comparison is left out"
    assert "onek1k +0.012. second is left out" in found.reason
    write_json(tmp_path / "hlca" / "results.json", {"environment": {"versions": {"r2mae": "0.0.1"}}})
    again = {one.claim.name: one for one in verdicts([tmp_path])}["hlca-best"]
    assert again.verdict == "not reproduced", "of another version: the second one is judged"


def test_a_combination_is_judged_where_the_scheme_alone_beats_the_baseline(
    judge: Callable[..., dict[str, Verdict]],
) -> None:
    rows = cells(0.73, ["csle", "pig-airway"], True)
    rows.loc[(rows["set"] == "csle") & (rows["label"] == "dynamic"), "score"] -= 0.1
    found = judge("table4", as_written("table4", rows), "small")["sea-ad-dynamic"]
    assert "csle" not in found.reason
    assert "pig-airway +0.020" in found.reason
    rows.loc[rows["label"] == "dynamic", "score"] -= 0.1
    found = judge("table4", as_written("table4", rows), "small")["sea-ad-dynamic"]
    assert found.verdict == "undecided"
    assert "holds on no set" in found.reason


@pytest.mark.parametrize(
    ("ours", "quarter", "verdict"),
    [(0.0, -0.02, "direction only"), (-0.02, -0.02, "not reproduced"), (0.0, 0.0, "not reproduced")],
)
def test_reconstruction_is_near_the_best_at_every_ratio(
    judge: Callable[..., dict[str, Verdict]], ours: float, quarter: float, verdict: str
) -> None:
    """The best at 0.1 is fixed 0.10, at 0.5 fixed 0.50; R²MAE and fixed 0.25 fall short of them by so much."""
    rows, rng = cells(0.7, ["csle"], True), np.random.default_rng(0)
    for name in RECONSTRUCTION:
        rows[name] = 0.5 + 1e-5 * rows["seed"]
    for label, short in (("r2mae", ours), ("fixed 0.25", quarter), ("fixed 0.10", -0.05), ("fixed 0.50", -0.05)):
        own = rows["label"] == label
        for ratio in (0.1, 0.2, 0.3, 0.5):
            best = {"fixed 0.10": 0.1, "fixed 0.50": 0.5}.get(label) == ratio
            level = 0.8 + (0 if best else short)
            rows.loc[own, f"reconstruction_r_{ratio:g}"] = level + 1e-5 * rng.normal(size=int(own.sum()))
    found = judge("table4", as_written("table4", rows), "small")["sea-ad-range"]
    assert found.verdict == verdict
    assert found.ours == pytest.approx(ours, abs=1e-3)


def test_a_set_at_its_ceiling_shows_no_absence_of_an_advantage(judge: Callable[..., dict[str, Verdict]]) -> None:
    rows = cells(0.71, ["csle", "pig-airway"], True)
    rows.loc[rows["set"] == "pig-airway", "cell_type_bacc"] = 1.0
    found = judge("table4", as_written("table4", rows), "small")["sea-ad-types"]
    assert "pig-airway" not in found.reason
    assert found.verdict == "direction only"
