"""Fine-tuned models in the layouts of other libraries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import ViTForImageClassification

from images.weight_conversion.small_vits import config, ours
from r2mae.errors import UserError
from r2mae.images.domain import DOMAIN
from r2mae.images.finetune import FINETUNED, finetune, plan
from r2mae.images.patches import standardised
from r2mae.images.task import scaled
from r2mae.images.weights import load_initial_weights, read_weights, to_mae, to_timm, to_transformers
from r2mae.training.loop import fit
from r2mae.training.saving import load_model

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


def logits(run: Path, pixels: torch.Tensor) -> torch.Tensor:
    _, _, model = load_model(run, FINETUNED)
    with torch.no_grad():
        found: torch.Tensor = model(scaled(pixels))
    return found


def pictures() -> torch.Tensor:
    return torch.randint(0, 256, (5, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_transformers_classifies_the_same(pretrained: Path, tmp_path: Path) -> None:
    run = tuned(pretrained, tmp_path / "tuned", pool="class")
    assert "ViTForImageClassification" in to_transformers(run, tmp_path / "out")
    assert to_mae(run, tmp_path / "mae.pth").endswith("--nb_classes 4 --cls_token"), "MAE pools patches without it"
    stock, told = ViTForImageClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told.values()), told
    assert stock.config.id2label == {0: "cat", 1: "dog", 2: "emu", 3: "owl"}
    theirs = stock(standardised(pictures()).movedim(3, 1)).logits.detach()
    torch.testing.assert_close(theirs, logits(run, pictures()), rtol=1e-5, atol=1e-5)


def test_a_mean_over_patches(pretrained: Path, tmp_path: Path) -> None:
    """transformers has no such head, timm and MAE have."""
    run = tuned(pretrained, tmp_path / "tuned")
    with pytest.raises(UserError, match="fine-tune with --pool class, or export --to timm"):
        to_transformers(run, tmp_path / "out")
    told = to_timm(run, tmp_path / "timm.safetensors")
    assert "num_classes=4, global_pool='avg', fc_norm=True" in told
    state = read_weights(tmp_path / "timm.safetensors").state
    assert {"fc_norm.weight", "head.bias"} <= state.keys()
    assert "norm.weight" not in state
    assert to_mae(run, tmp_path / "mae.pth").endswith("--eval --nb_classes 4")
    assert read_weights(tmp_path / "mae.pth").state.keys() == state.keys()
    to_mae(run, tmp_path / "encoder.pth", encoder=True)
    assert "head.bias" not in read_weights(tmp_path / "encoder.pth").state


def test_a_run_begins_with_a_fine_tuned_encoder(pretrained: Path, tmp_path: Path) -> None:
    run = tuned(pretrained, tmp_path / "tuned", pool="class")
    notes = load_initial_weights(run, ours()).notes
    assert notes == ("the decoder is fresh", "head.bias, head.weight not used")
