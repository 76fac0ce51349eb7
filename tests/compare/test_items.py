"""Runs keep the scores of single test items, and comparisons of runs that share the items are paired by them."""

import json
from pathlib import Path

import numpy as np
import pytest

from r2mae.compare.analysis import analyse
from r2mae.compare.compare import compare
from r2mae.compare.comparison import Comparison
from r2mae.compare.gather import gather_again
from r2mae.evaluation.items import ItemScores
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.folder import RunFolder
from r2mae.training.pretraining import items_of

pytestmark = pytest.mark.slow


def written(path: Path) -> Path:
    """A set with an official test part, which is the same under every seed."""
    rng = np.random.default_rng(0)
    labels = np.arange(96) % 3
    images = (rng.integers(0, 100, (96, 4, 4)) + 50 * labels[:, None, None]).astype(np.uint8)
    np.savez(path, x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:])
    return path


def over(comparison: Comparison) -> dict[str, tuple[str, str]]:
    found = analyse(comparison).differences
    found = found[found["label"] == "r2mae"]
    return {name: (by, why) for name, by, why in zip(found["metric"], found["over"], found["why"], strict=True)}


def test_runs_keep_item_scores_and_the_report_uses_them(tmp_path: Path) -> None:
    base = ImagesConfig.make(data=str(written(tmp_path / "set.npz")), steps=2, hidden=8, latent=4, batch_size=16)
    out, plan = tmp_path / "c", {"schemes": ["fixed", "r2mae"], "seeds": [0, 1, 2], "ratios": [0.5]}
    first = compare(base, DOMAIN, **plan, baselines=["mean"], out=out, jobs=2)  # type: ignore[arg-type]
    shared = ("seeds and items", "all runs have scores of the same test items")
    assert over(first) == dict.fromkeys(("probe_accuracy", "masked_mse", "clean_mse", "knn_accuracy"), shared)
    assert len(first.items) == 9 and len({one.fingerprint for one in first.items.values()}) == 1
    for (label, seed), one in first.items.items():
        row = first.table[(first.table["label"] == label) & (first.table["seed"] == seed)].iloc[0]
        for name, values in one.scores.items():
            assert len(values) == one.count == 36
            assert float(values.astype(float).mean()) == pytest.approx(row[name], rel=1e-6)

    run = RunFolder(out / "runs" / "r2mae" / "seed-1")
    before = run.items_file.read_bytes()
    run.items_file.unlink()  # as an older version left it
    older = over(gather_again(out))
    assert set(older.values()) == {("seeds", "some runs have no scores of single items")}
    run.items_file.write_bytes(b"\x80\x04\x95damaged")
    assert over(gather_again(out)) == older
    run.results_file.unlink()  # cut off before it was measured
    assert over(compare(base, DOMAIN, **plan, out=out, jobs=1)) == dict.fromkeys(older, shared)  # type: ignore[arg-type]
    assert run.items_file.read_bytes() == before


def test_items_of_another_measurement_do_not_count(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    ItemScores("x", 2, {"error": np.ones(2, np.float32)}).write(folder.items_file, {"bn_statistics": "yes"})
    assert items_of(folder) is None  # nothing vouches for it
    for measured, known in (
        ({"bn_statistics": "yes"}, True),
        ({"bn_statistics": "no"}, False),
        ({}, False),
        ([], False),
    ):
        folder.results_file.write_text(json.dumps({"scores": {"error": 1.0}, "measured": measured}))
        assert (items_of(folder) is not None) == known


def test_baselines_of_a_model_of_patches_have_its_items(tmp_path: Path) -> None:
    """Its principal components are measured as an embedding alone, which masks no image."""
    own = {"model.patch": 2, "model.width": 8, "model.layers": 1, "model.heads": 2, "model.decoder_width": 8}
    own |= {"model.decoder_layers": 1, "model.decoder_heads": 2}
    base = ImagesConfig.make(data=str(written(tmp_path / "set.npz"))).replace(**{"model": "vit-mae", **own})
    base = base.replace(steps=2, batch_size=16)
    plan = {"schemes": ["r2mae"], "seeds": [0], "baselines": ["pixels", "pca"]}
    made = compare(base, DOMAIN, **plan, out=tmp_path / "c", jobs=1)  # type: ignore[arg-type]
    assert {label for label, _ in made.items} == {"r2mae", "pixels", "pca"}
    assert len({one.fingerprint for one in made.items.values()}) == 1
