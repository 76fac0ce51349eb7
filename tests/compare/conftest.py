"""A comparison as a run of `r2mae compare` would give it, made from known numbers."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from r2mae.compare.comparison import Comparison
from r2mae.evaluation.examples import Examples
from r2mae.evaluation.metrics import Metric

METRICS = (
    Metric("probe_accuracy", "linear probe accuracy"),
    Metric("masked_mse", "masked reconstruction error", higher_is_better=False),
    Metric("clean_mse", "unmasked reconstruction error", higher_is_better=False),
    Metric("effective_rank", "effective rank", higher_is_better=None),
)
RANDOM = {
    "dynamic": ("dynamic", 0.5, 0.9, 0.003),
    "mdlm": ("mdlm", 0.0, 1.0, -0.002),
    "r2mae": ("r2mae", 0.5, 0.9, 0.009),
    "cl": ("cl", 0.7, 0.7, 0.001),
    "r2mae-cl": ("r2mae-cl", 0.5, 0.9, 0.008),
}
STEPS = 800


def _runs(ratios: tuple[float, ...], seeds: int) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    shift = rng.normal(0, 0.004, seeds)  # what the runs of a seed share
    lines = [(f"fixed {p:.2f}", "fixed", p, p, p, 0.006 - 0.12 * (p - 0.68) ** 2) for p in ratios]
    lines += [(label, scheme, np.nan, low, high, gain) for label, (scheme, low, high, gain) in RANDOM.items()]
    runs = []
    for label, scheme, ratio, low, high, gain in lines:
        middle = (low + high) / 2
        for seed in range(seeds):
            noise = rng.normal(0, 1, 4)
            runs.append(
                {
                    "label": label, "scheme": scheme, "ratio": ratio, "low": low, "high": high, "seed": seed,
                    "seconds": 9.5 + noise[0],
                    "probe_accuracy": 0.958 + gain + shift[seed] + 0.0012 * noise[0],
                    "masked_mse": 0.031 - 0.4 * gain + 0.05 * (middle - 0.6) ** 2 + 0.0004 * noise[1],
                    "clean_mse": 0.012 + 0.012 * middle**2 + 0.0003 * noise[2],
                    "effective_rank": 41 - 12 * middle**3 + 0.6 * noise[3],
                    "masked_mse_0.1": 0.01,
                }
            )  # fmt: skip
    return pd.DataFrame(runs)


def _curves(table: pd.DataFrame) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    steps = np.arange(4, STEPS + 1, 4)
    parts = []
    for run in table.itertuples():
        falling = (0.02 + 0.05 * run.high) + 0.2 * np.exp(-steps / 60)
        loss = falling + rng.normal(0, 0.0015 if run.low == run.high else 0.004, len(steps))
        held_out = np.where(steps % 80 == 0, run.masked_mse + 0.15 * np.exp(-steps / 80), np.nan)
        columns = {"label": run.label, "seed": run.seed, "step": steps, "loss": loss, "validation_loss": held_out}
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _examples(table: pd.DataFrame, channels: int) -> dict[str, Examples]:
    from sklearn.datasets import load_digits

    original = np.repeat(load_digits().images[:8, :, :, None] / 16, channels, axis=3).astype(np.float32)
    rng = np.random.default_rng(1)
    hidden = rng.random(original.shape[:3]) < 0.7
    masked = np.where(hidden[..., None], np.float32(0), original)
    labels = dict.fromkeys(table["label"])
    made = [np.clip(original + rng.normal(0, 0.12, original.shape), -0.1, 1.1).astype(np.float32) for _ in labels]
    return {label: Examples(original, masked, one, 0.7) for label, one in zip(labels, made, strict=True)}


def build(
    *,
    ratios: tuple[float, ...] = (0.5, 0.7, 0.9),
    seeds: int = 3,
    schemes: tuple[str, ...] = tuple(RANDOM),
    channels: int = 1,
    title: str = "digits",
) -> Comparison:
    table = _runs(ratios, seeds)
    table = table[table["scheme"].isin(["fixed", *schemes])].reset_index(drop=True)
    config = {"data": title, "epochs": 100.0, "batch_size": 128, "schemes": list(dict.fromkeys(table["label"]))}
    return Comparison(
        title=title,
        metrics=METRICS,
        table=table,
        curves=_curves(table),
        reconstructions=_examples(table, channels),
        config={**config, "seeds": list(range(seeds)), "default_fixed_label": "fixed 0.70"},
        environment={"python": "3.11.2", "torch": "2.13.0", "device": "cpu"},
    )


@pytest.fixture
def make_comparison() -> Callable[..., Comparison]:
    """Build a realistic comparison; ratios, seeds, schemes, channels and title can be chosen."""
    return build


@pytest.fixture(scope="session")
def comparison() -> Comparison:
    """Eight rows, three seeds, 8 × 8 images."""
    return build()


@pytest.fixture
def tiny() -> Callable[..., Comparison]:
    """Build a comparison of one metric from scores by label (one a seed; None for a missing run)."""

    def make(scores: dict[str, list[float | None]], *, higher_is_better: bool = True, **config: object) -> Comparison:
        lines = []
        for label, values in scores.items():
            scheme, _, ratio = label.partition(" ")
            p = float(ratio) if ratio else np.nan
            low, high = (p, p) if ratio else (0.5, 0.9)
            lines += [
                {"label": label, "scheme": scheme, "ratio": p, "low": low, "high": high, "seed": seed, "seconds": 1.0,
                 "score": value}
                for seed, value in enumerate(values) if value is not None
            ]  # fmt: skip
        metric = Metric("score", "the score", higher_is_better=higher_is_better)
        curves = pd.DataFrame(columns=["label", "seed", "step", "loss", "validation_loss"])
        return Comparison("tiny", (metric,), pd.DataFrame(lines), curves, config=config)

    return make
