"""Fine-tuned models in the layouts of other libraries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from images.weight_conversion.small_vits import config, ours
from r2mae.errors import UserError
from r2mae.images.domain import DOMAIN
from r2mae.images.finetune import finetune, plan
from r2mae.images.weights import load_initial_weights, read_weights, to_mae, to_timm, to_transformers
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifiers")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    labels = np.array(["cat", "dog", "owl", "emu"] * 10)
    np.savez(folder / "animals.npz", images=pixels, labels=labels)
    return fit(config(folder / "animals.npz", batch_size=16), DOMAIN, folder / "run").folder.path


def tuned(pretrained: Path, out: Path, **options: Any) -> Path:
    default = {"steps": 3, "batch_size": 8, "threads": 1, "device": "cpu"}
    finetune(plan(pretrained, {**default, **options}), out)
    return out


def test_a_mean_over_patches(pretrained: Path, tmp_path: Path) -> None:
    """transformers has no such head, timm and MAE have."""
    run = tuned(pretrained, tmp_path / "tuned")
    with pytest.raises(UserError, match="as no class of transformers does: export --to timm"):
        to_transformers(run, tmp_path / "out")
    told = to_timm(run, tmp_path / "timm.safetensors")
    assert "num_classes=4, global_pool='avg', fc_norm=True" in told
    state = read_weights(tmp_path / "timm.safetensors").state
    assert {"fc_norm.weight", "head.bias"} <= state.keys()
    assert "norm.weight" not in state
    assert to_mae(run, tmp_path / "mae.pth").endswith("--eval --nb_classes 4")
    assert read_weights(tmp_path / "mae.pth").state.keys() == state.keys()


def test_a_run_begins_with_a_fine_tuned_encoder(pretrained: Path, tmp_path: Path) -> None:
    run = tuned(pretrained, tmp_path / "tuned")
    notes = load_initial_weights(run, ours()).notes
    assert "the decoder is fresh" in notes
