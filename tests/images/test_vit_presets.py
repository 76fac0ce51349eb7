"""The presets of ViT-MAE, the numbers of its schemes, and a run from the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from r2mae.cli.main import main
from r2mae.compare.runs import plan_variants
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.patches import check_patch
from r2mae.masking.ratios import LinearDecay
from r2mae.training.folder import read_json


@pytest.mark.parametrize("preset", [name for name in DOMAIN.presets if name.startswith("vit-mae")])
def test_presets_have_the_recipe(preset: str) -> None:
    config = ImagesConfig.from_dict({"data": "x", "preset": preset, **DOMAIN.presets[preset]})
    assert config.optimizer.peak_lr == pytest.approx(1.5e-4 * config.optimizer.batch_size / 256)
    assert (config.optimizer.name, config.optimizer.betas, config.optimizer.weight_decay) == (
        "adamw",
        (0.9, 0.95),
        0.05,
    )
    assert (config.optimizer.schedule, config.optimizer.epochs, config.optimizer.warmup) == (
        "cosine",
        150,
        pytest.approx(10 / 150),
    )
    assert config.data.resize is not None
    check_patch(config.data.resize, config.data.resize, config.model.patch)
    assert type(config).from_dict(config.to_dict()) == config


def test_ratios_are_those_of_the_paper() -> None:
    config = ImagesConfig.from_dict({"data": "x", **DOMAIN.presets["vit-mae-base"]})
    numbers = config.scheme_defaults
    assert not numbers.not_in_paper
    rows = plan_variants(config, ["fixed", "r2mae", "mdlm", "dynamic"])
    assert [row.label for row in rows] == ["fixed 0.50", "fixed 0.75", "fixed 0.90", "r2mae", "mdlm", "dynamic"]
    ends = {row.label: (row.values["low"], row.values["high"]) for row in rows}
    assert ends["r2mae"] == ends["dynamic"] == (0.6, 0.9)
    assert ends["mdlm"] == (0, 1)
    dynamic = rows[-1].config.scheme.make().ratio
    assert isinstance(dynamic, LinearDecay)
    assert dynamic.unit == "epochs"
    others = ImagesConfig.make(data="x")
    assert others.scheme_defaults == DOMAIN.config.ratios
    narrow = ImagesConfig.from_dict({"data": "x", **DOMAIN.presets["vit-mae-base"], "low": 0.7})
    assert [row.label for row in plan_variants(narrow, ["fixed"])] == [
        "fixed 0.70",
        "fixed 0.75",
        "fixed 0.90",
    ]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["pretrain", "images", "digits", *words, "--print-config"]) == 0
    found: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return found


def test_a_rate_of_ones_own_takes_the_place_of_the_presets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = printed(capsys, "--preset", "vit-mae-tiny", "--lr", "1e-3", "--warmup", "0.1", "--betas", "0.8", "0.9")
    own = found["optimizer"]
    assert [own[name] for name in ("lr", "base_lr", "warmup")] == [1e-3, None, 0.1]
    assert own["betas"] == [0.8, 0.9]
    (tmp_path / "own.yaml").write_text("preset: vit-mae-tiny\nmodel: vit-mae\nlr: 0.002\n")
    filed = printed(capsys, "--config", str(tmp_path / "own.yaml"))
    assert filed["preset"] == "vit-mae-tiny"
    assert (filed["optimizer"]["lr"], filed["optimizer"]["base_lr"]) == (0.002, None)
    again = printed(capsys, "--config", str(tmp_path / "own.yaml"), "--base-lr", "1e-4")["optimizer"]
    assert (again["lr"], again["base_lr"]) == (0.003, 1e-4)
    assert main(["pretrain", "images", "digits", "--lr", "1e-3", "--base-lr", "1e-4"]) == 2
    assert "give one of them" in capsys.readouterr().err


@pytest.mark.slow
def test_a_comparison_runs_and_shows_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"width": 8, "layers": 1, "heads": 2, "decoder_width": 8, "decoder_layers": 1, "decoder_heads": 2}
    options = [word for name, value in sizes.items() for word in (f"--model.{name.replace('_', '-')}", str(value))]
    words = ["--model", "vit-mae", "--model.patch", "2", *options, "--steps", "2", "--jobs", "1"]
    out = tmp_path / "run"
    schemes = ["--schemes", "r2mae", "fixed", "--ratios", "0.75", "--seeds", "1"]
    assert main(["compare", "images", "digits", *words, *schemes, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "r2mae" in told
    text = str(read_json(out / "results.json"))
    assert "masked_mse" in text
    assert "pixels" in text
    assert not list(out.glob("**/mean"))  # whose errors are those of pixels
    found = read_json(out / "runs" / "r2mae" / "seed-0" / "results.json")["scores"]
    assert "clean_mse" not in found
    assert np.isfinite(found["probe_accuracy"])
    assert (out / "figures" / "reconstructions.png").is_file()
