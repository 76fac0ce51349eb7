"""Rows of a comparison that are measured, not pretrained; and the same next to one run."""

import json
import os
import re
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
from rich.console import Console
from scipy.sparse import csr_matrix

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cli.main import main
from r2mae.compare.analysis import analyse
from r2mae.compare.answers import answers
from r2mae.compare.compare import compare
from r2mae.compare.measure import check_baselines, evaluate
from r2mae.compare.publish import publish
from r2mae.domains.baselines import Baseline
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.text.config import TextConfig
from r2mae.training.folder import RunFolder
from r2mae.training.pretraining import pretrain

pytestmark = pytest.mark.slow

TYPES, DONORS, CELLS, GENES = 3, 8, 240, 40


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Cells whose type shows in the counts, and given outright by the vectors `X_truth`."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, TYPES, CELLS)
    rate = 0.4 * rng.gamma(4.0, 0.25, (TYPES, GENES))[kind]
    adata = anndata.AnnData(csr_matrix(rng.poisson(rate).astype(np.float32) + np.eye(CELLS, GENES, dtype=np.float32)))
    adata.obs["kind"] = [f"type {k}" for k in kind]
    adata.obs["donor"] = [f"d{i % DONORS}" for i in range(CELLS)]
    adata.obsm["X_truth"] = np.eye(TYPES, dtype=np.float32)[kind]
    path = tmp_path / "cells.h5ad"
    adata.write_h5ad(path)
    return path


@pytest.fixture
def base(file: Path) -> CellsConfig:
    return CellsConfig.make(
        data=str(file), n_hidden=16, n_latent=4, steps=4, batch_size=64, donor_key="donor", labels=("kind",)
    )


def test_baselines_are_rows_of_a_comparison(base: CellsConfig, tmp_path: Path) -> None:
    out = tmp_path / "c"
    rows, seeds = ["pca", "X_truth"], [0, 1]
    found = compare(
        base, DOMAIN, schemes=["fixed", "r2mae"], ratios=[0.25], seeds=seeds, out=out, baselines=rows, jobs=1
    )
    assert found.labels == ["fixed 0.25", "r2mae", *rows]
    assert found.baselines == rows
    assert set(found.curves["label"]) == {"fixed 0.25", "r2mae"}
    table = found.table.set_index(["label", "seed"])
    assert (table.loc["X_truth", "kind_bacc"] == 1).all()
    assert table.loc["pca", ["ratio", "low", "high", "reconstruction_r"]].isna().all(axis=None)
    analysis = analyse(found)
    assert analysis.leaders("kind_bacc") == {"X_truth"}
    assert analysis.average_rank("X_truth") == 1
    told = answers(found, analysis)
    assert "X_truth is better, +" in told.baselines or "X_truth +" in told.baselines
    publish(found, out, console=Console(file=StringIO(), width=100))
    assert {"X_truth", "pca"} <= {row["label"] for row in json.loads((out / "results.json").read_text())["summary"]}
    assert "X_truth" in (out / "report.html").read_text()


def test_a_measured_baseline_is_not_measured_again(base: CellsConfig, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    compare(base, DOMAIN, schemes=["r2mae"], seeds=[0], out=out, baselines=["pca"], jobs=1)
    place = out / "runs" / "pca" / "seed-0" / "results.json"
    before = place.stat().st_mtime_ns
    compare(base, DOMAIN, schemes=["r2mae"], seeds=[0], out=out, baselines=["pca", "X_truth"], jobs=1)
    assert place.stat().st_mtime_ns == before
    adata = anndata.read_h5ad(file)
    adata.X[0, 0] += 1
    adata.write_h5ad(file)
    with pytest.raises(UserError, match=r"pca.seed-0 was measured on other data"):
        compare(base, DOMAIN, schemes=["fixed"], seeds=[0], out=out, baselines=["pca"], jobs=1)


def test_unknown_baselines_are_refused_before_anything_runs(base: CellsConfig, tmp_path: Path) -> None:
    for names, message in ((["X_truht"], "X_truth"), (["pca", "pca"], "name each baseline once")):
        with pytest.raises(UserError, match=message):
            compare(base, DOMAIN, schemes=["r2mae"], seeds=[0], out=tmp_path / "c", baselines=names)
    with pytest.raises(UserError, match=r"unknown baseline 'pca'.*untrained"):
        check_baselines(TextConfig.make(data="notes.txt"), get_domain("text"), ["pca"])
    with pytest.raises(UserError, match="unknown baseline 'piexls': did you mean 'pixels'"):
        check_baselines(ImagesConfig.make(data="digits"), IMAGES, ["piexls"])
    assert not (tmp_path / "c" / "runs").exists()


def test_a_baseline_beyond_the_memory_is_refused_before_anything_runs(
    base: CellsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes divide the memory; each seed has a baseline, and what is measured already counts no more."""
    limits: list[str | None] = []

    def limit() -> int:
        limits.append(os.environ.get("R2MAE_JOBS"))
        return 3 * 4 * CELLS * GENES - 1

    monkeypatch.setattr("r2mae.domains.baselines.memory_share", limit)
    plan: dict[str, Any] = {"schemes": ["r2mae"], "seeds": [0, 1], "out": tmp_path / "c"}
    told = "the baseline expression needs .* or omit the baseline"
    with pytest.raises(UserError, match=told):
        compare(base, DOMAIN, baselines=["pca", "expression"], jobs=5, **plan)
    assert limits == ["5"]
    assert not (tmp_path / "c" / "runs").exists()
    compare(base, DOMAIN, baselines=["pca"], jobs=1, **plan)
    with pytest.raises(UserError, match=told):
        compare(base, DOMAIN, baselines=["pca", "expression"], jobs=5, **plan)
    assert limits[1:] == ["2"]
    monkeypatch.setattr("r2mae.cells.evaluate.embed_rows", None)  # the run itself is not measured
    with pytest.raises(UserError, match=told):
        evaluate(tmp_path / "c" / "runs" / "r2mae" / "seed-0", baselines=["expression"])
    assert "R2MAE_JOBS" not in os.environ


@pytest.mark.parametrize(
    ("package", "told"),
    [("scvi", r"pip install 'r2mae\[scvi\]'"), ("nowhere.part", "needs nowhere.part: pip install nowhere")],
)
def test_a_missing_package_is_named(package: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "r2mae.domains.baselines.find_spec", lambda name: find_spec("nowhere" if name == "scvi" else name)
    )
    with pytest.raises(UserError, match=told):
        Baseline("x", "cells", lambda *_: {}, ("features",), "x", package=package).check_package()


def test_the_untrained_network_is_measured_on_the_asked_device(tmp_path: Path) -> None:
    config = ImagesConfig.make(data="digits", steps=1, hidden=4, latent=2, device="cpu")
    pretrain(config, IMAGES, tmp_path / "run")
    file = RunFolder(tmp_path / "run").config_file
    before = re.sub(r"device: cpu\b", "device: cuda:99", file.read_text())
    assert "cuda:99" in before
    file.write_text(before)
    assert evaluate(tmp_path / "run", baselines=["untrained"], device="cpu").baselines["untrained"]
    assert file.read_text() == before


def test_images_are_compared_with_pixels_components_and_the_mean_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "digits", "--schemes", "r2mae", "--seeds", "2", "--jobs", "1", "--steps", "2"]
    command += ["--hidden", "4", "--latent", "2", "--out", str(tmp_path / "c")]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "omit the missing runs" not in shown  # the mean image lacks nothing
    found = json.loads((tmp_path / "c" / "results.json").read_text())
    assert "Add fixed to --schemes" in found["headline"] and not found["next"]
    means = {(line["label"], line["metric"]): line["mean"] for line in found["summary"]}
    assert means["pixels", "probe_accuracy"] > means["r2mae", "probe_accuracy"]  # two steps are no match for raw pixels
    assert means["mean", "probe_accuracy"] is means["pixels", "masked_mse"] is None
    assert means["pca", "clean_mse"] < means["mean", "clean_mse"] < 0.1
    assert "mean" in (tmp_path / "c" / "report.html").read_text()
    assert main([*command[:-1], str(tmp_path / "d"), "--baselines", "none", "--json"]) == 0
    assert {line["label"] for line in json.loads(capsys.readouterr().out)["runs"]} == {"r2mae"}


def test_a_run_is_evaluated_beside_baselines(
    base: CellsConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(base, DOMAIN, schemes=["r2mae"], seeds=[0], out=tmp_path / "c", jobs=1)
    run = tmp_path / "c" / "runs" / "r2mae" / "seed-0"
    found = evaluate(run, baselines=["X_truth"])
    assert found.baselines["X_truth"]["kind_bacc"] == 1
    assert found.scores["kind_bacc_donors_low"] <= found.scores["kind_bacc"] <= found.scores["kind_bacc_donors_high"]
    capsys.readouterr()
    assert main(["evaluate", str(run), "cells", "--baselines", "X_truth"]) == 0
    shown = capsys.readouterr().out
    assert "kind balanced accuracy" in shown
    assert "1.000" in shown
    assert "1.000 (" not in shown  # limits that coincide are no interval
    assert "donors_low" not in shown
    assert main(["evaluate", str(run), "--json", "--baselines", "pca"]) == 0
    assert json.loads(capsys.readouterr().out)["baselines"]["pca"]["kind_bacc"] > 0.5
    for words, message in (
        (["clels"], "did you mean 'cells'"),
        (["--probe", "head"], "has no --probe"),
        (["--baselines", "pac"], "did you mean 'pca'"),
    ):
        assert main(["evaluate", str(run), *words]) == 2
        told = capsys.readouterr().err.strip()
        assert message in told
        assert "\n" not in told


def test_seeds_of_a_baseline_differ_by_the_split(base: CellsConfig) -> None:
    data = DOMAIN.load(base)
    scores = [DOMAIN.score_baseline(base.replace(seed=seed), "pca", data)["kind_bacc"] for seed in (0, 0, 1)]
    assert scores[0] == scores[1] != scores[2]
