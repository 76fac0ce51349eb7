"""Fine-tuned models: their weights have timm's names, and runs may start from them."""

from pathlib import Path

import numpy as np
import pytest

from images.weight_conversion.small_vits import config, ours
from r2mae.cli.main import main
from r2mae.images.domain import DOMAIN
from r2mae.images.finetune import finetune, plan
from r2mae.images.weights import load_initial_weights, read_weights
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifiers")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    np.savez(folder / "animals.npz", images=pixels, labels=np.array(["cat", "dog", "owl", "emu"] * 10))
    run = fit(config(folder / "animals.npz", batch_size=16), DOMAIN, folder / "run").folder.path
    finetune(plan(run, {"steps": 3, "batch_size": 8, "threads": 1, "device": "cpu"}), folder / "tuned")
    return folder / "tuned"


def test_the_weights_have_timms_names(tuned: Path) -> None:
    state = read_weights(tuned / "model.safetensors").state
    assert {"fc_norm.weight", "head.bias"} <= state.keys()
    assert "norm.weight" not in state


def test_a_run_begins_with_a_fine_tuned_encoder(tuned: Path) -> None:
    notes = load_initial_weights(tuned / "model.safetensors", ours()).notes
    assert {"the decoder is fresh", "norm.weight, norm.bias fresh"} <= set(notes)


def test_what_has_the_names_is_not_exported(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tuned), "--to", "timm", "-o", str(tmp_path / "x.safetensors")]) == 2
    assert main(["pretrain", "images", "digits", "--model", "vit-mae", "--init", str(tuned)]) == 2
    assert capsys.readouterr().err.count("\n") == 2
