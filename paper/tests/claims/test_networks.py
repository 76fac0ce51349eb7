"""Claims about networks at fixed ratios: tables that show a claim, and those that refute it."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
from paper.tests.claims.judged import words

from r2mae_paper import networks
from r2mae_paper.claims import Found

TENTHS = tuple(round(0.1 * k, 1) for k in range(1, 10))


def mlps(best: float, ratios: Sequence[float] = TENTHS) -> pd.DataFrame:
    """The paper's picture if `best` is an inner ratio; if it is 0.1, masking is no use but for insufficient models."""
    rng = np.random.default_rng(0)
    rows = []
    for hidden in (16, 512):
        for latent in (16, 32, 64, 256, 1024):
            for ratio in ratios:
                for seed in range(5):
                    wide = best + 0.1 * (seed == 0 and latent == 64)  # best ratios that are all the same have no spread
                    own = wide if hidden == 512 else 0.1 if best > 0.1 else 0.9
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


def test_mlps(judge: Callable[..., dict[str, Found]]) -> None:
    found = judge("fig2a", networks.table_of_mlps(mlps(0.7)), "full")
    assert words(found, *MLPS) == ["reproduced"] * 6
    assert found["task-mlp"].ours == pytest.approx(0.6, abs=0.1)
    found = judge("fig2a", networks.table_of_mlps(mlps(0.1)), "full")
    assert words(found, *MLPS[:5]) == ["not reproduced"] * 5
    assert found["task-mlp"].verdict == "undecidable at this scale", "within a step of the grid, and without a spread"
    found = judge("fig2a", networks.table_of_mlps(mlps(0.7, TENTHS[::2])), "full")
    assert words(found, *MLPS[:5]) == ["direction only"] * 5, "fewer ratios than the paper's"
    found = judge("fig2a", networks.table_of_mlps(mlps(0.7)), "small")
    assert words(found, *MLPS[:5]) == ["direction only"] * 5, "fewer epochs than the paper's"


def test_the_task_is_judged_with_a_correction_for_widths_and_signs(judge: Callable[..., dict[str, Found]]) -> None:
    """Best ratios that scatter alike for both scores: a width chosen afterwards seldom differs, and none is shown."""
    shown = 0
    for draw in range(10):
        rng = np.random.default_rng(draw)
        rows = mlps(0.7)
        for name in ("probe_accuracy", "clean_mse"):
            best = {key: 0.1 * rng.integers(4, 7) for key in rows.groupby(["preset", "seed"]).groups}
            keys = zip(rows["preset"], rows["seed"], strict=True)
            off = [(float(ratio) - best[key]) ** 2 for ratio, key in zip(rows["ratio"], keys, strict=True)]
            rows[f"as_trained_{name}"] = [1 - one if name == "probe_accuracy" else one for one in off]
        shown += judge("fig2a", networks.table_of_mlps(rows), "full")["task-mlp"].verdict == "reproduced"
    assert shown <= 1


def unets(best: Mapping[int, float], jump: Mapping[int, float]) -> pd.DataFrame:
    rows = []
    rng = np.random.default_rng(0)
    for channels in best:
        for ratio in TENTHS:
            for seed in range(6):
                row = {"preset": f"unet-{channels}", "ratio": f"{ratio:.2f}", "seed": seed}
                own = best[channels] - 0.1 * (channels == 8 * 2**seed)  # best ratios that are the same have no spread
                row["as_trained_clean_mse"] = 0.01 + (ratio - own) ** 2 + 1e-5 * rng.normal()
                row["as_trained_attribute_accuracy"] = (ratio > jump[channels]) + 0.1 * ratio + 1e-3 * rng.normal()
                rows.append(row)
    return pd.DataFrame(rows)


OUT = "undecidable at this scale"
UNETS = ("unet-intermediate", "unet-grows", "unet-8", "unet-16", "unet-32", "unet-jump", "task-unet")


def test_unets(judge: Callable[..., dict[str, Found]]) -> None:
    jump = {8: 0.25, 16: 0.35, 32: 0.45}
    found = judge("fig2b", networks.table_of_unets(unets({8: 0.6, 16: 0.7, 32: 0.8}, jump)))
    assert words(found, *UNETS) == ["reproduced"] * 7
    found = judge("fig2b", networks.table_of_unets(unets({8: 0.3, 16: 0.3, 32: 0.3}, dict.fromkeys(jump, 2.0))))
    assert words(found, *UNETS[1:5]) == ["not reproduced"] * 4
    found = judge("fig2b", networks.table_of_unets(unets({8: 0.0, 16: 0.0, 32: 0.0}, dict.fromkeys(jump, 2.0))))
    open_ = ["undecidable at this scale", *["undecided"] * 3]
    assert words(found, *UNETS[:5]) == ["not reproduced", *open_], "the same ratio under every seed"
    assert "seeds that differ are needed" in found["task-unet"].reason
    assert found["unet-jump"].verdict != "reproduced", "the accuracy rises evenly"
    flat = unets({8: 0.6, 16: 0.7, 32: 0.8}, jump).assign(as_trained_attribute_accuracy=0.0)
    tables = networks.table_of_unets(flat)
    assert {row["score"] for row in tables["fig2b-best"]} == {"as_trained_clean_mse"}, "no ratio is the best of equals"
    found = judge("fig2b", tables)
    assert words(found, "unet-jump", "task-unet", "unet-8") == [OUT, OUT, "reproduced"]
    assert np.isnan(found["task-unet"].ours)
    partly = unets({8: 0.6, 16: 0.7, 32: 0.8}, jump)
    partly.loc[(partly["preset"] == "unet-8") & (partly["seed"] == 1), "as_trained_attribute_accuracy"] = 0.5
    found = judge("fig2b", networks.table_of_unets(partly))
    assert words(found, "unet-jump", "task-unet") == [OUT] * 2
    assert "has no best one" in found["unet-jump"].reason
    found = judge("fig2b", networks.table_of_unets(unets({4: 0.6, 8: 0.7, 16: 0.8}, {4: 0.25, 8: 0.35, 16: 0.45})))
    assert words(found, *UNETS) == [
        "direction only", "direction only", OUT, OUT, "not run", "direction only", "direction only",
    ]  # fmt: skip
