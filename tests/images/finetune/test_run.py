import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from finetune_images import MACHINE, VIT, write_images
from r2mae import load
from r2mae.cli.main import main
from r2mae.compare.measure import evaluate
from r2mae.errors import UserError
from r2mae.images import finetune as finetuning
from r2mae.images.classifier import FinetuneData
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.images.finetune import FINETUNED, finetune, finetune_scores, plan
from r2mae.masking.keys import Key
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit
from r2mae.training.pretraining import pretrain

pytestmark = pytest.mark.slow

SHORT = {"steps": 12, "batch_size": 8, "save_every": 3, **MACHINE}


def same(one: Path, other: Path) -> bool:
    return all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in ("model.safetensors", "metrics.csv")
    )


def pretrained(images: str, out: Path, **options: object) -> ImagesConfig:
    """Pretrain a small vision transformer for a step, and return its configuration."""
    default = {"model": {"name": "vit-mae", **VIT}, "steps": 1, "batch_size": 8, **MACHINE}
    config = ImagesConfig.make(data=images, **{**default, **options})
    fit(config, IMAGES, out)
    return config


def test_a_vision_transformer_learns_and_opens_again(vit: Path, tmp_path: Path) -> None:
    config = plan(vit, SHORT)
    results = finetune(config, tmp_path / "out")
    assert set(results["scores"]) == {"top1", "cross_entropy"}, "top-5 of three classes would be 1"
    run = load(tmp_path / "out")
    images = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8)
    assert run.embed(images).shape == (4, 12)
    assert finetune(config, tmp_path / "out") == results, "finished, and not repeated"


def test_it_learns_and_is_validated(vit: Path, tmp_path: Path) -> None:
    options = {**SHORT, "steps": 60, "base_lr": 0.05, "mixup": 0.0, "cutmix": 0.0, "randaugment": 0.0}
    results = finetune(plan(vit, {**options, "validation": 0.1}), tmp_path / "out")
    assert results["scores"]["cross_entropy"] < 1.1, "worse than chance, log 3"
    assert pd.read_csv(tmp_path / "out" / "metrics.csv")["validation_loss"].notna().any()


def test_a_fine_tuned_encoder_starts_from_the_pretrained_one(vit: Path) -> None:
    config = plan(vit, SHORT)
    data = FinetuneData(config)
    _, model = FINETUNED.build(data.architecture)
    FINETUNED.load_initial_weights(config, model)
    there = load(vit).model.state_dict()
    assert torch.equal(model.state_dict()["blocks.1.mlp.fc1.weight"], there["blocks.1.mlp.fc1.weight"])


def test_batches_are_augmented_by_row_and_step_alone(vit: Path) -> None:
    data, key = FinetuneData(plan(vit, SHORT)).train, Key.root(0).fold(7)
    whole = data.batch(np.arange(8), key)
    parts = [data.batch(np.arange(8)[a : a + 4], key.rows(a)) for a in (0, 4)]
    for name in ("images", "targets"):
        assert torch.allclose(whole[name], torch.cat([part[name] for part in parts]), atol=1e-5)
    assert torch.allclose(whole["targets"].sum(1), torch.ones(8))
    assert not torch.equal(whole["images"], data.batch(np.arange(8), Key.root(0).fold(8))["images"])


class _StopAt:
    """Ends a run as a full disk would, in the middle of it."""

    def __init__(self, step: int) -> None:
        self.step = step

    def start(self, step: int, total: int) -> None: ...

    def update(self, pace: object) -> None:
        if pace.step >= self.step:
            raise RuntimeError("cut off")

    def stop(self) -> None: ...


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"workers": 2}])
def test_a_run_that_was_cut_off_ends_with_the_same_bytes(options: dict[str, object], vit: Path, tmp_path: Path) -> None:
    config = plan(vit, {**SHORT, "drop_path": 0.3, **options})
    finetune(config, tmp_path / "whole")
    with pytest.raises(RuntimeError, match="cut off"):
        finetune(config, tmp_path / "broken", reporter=_StopAt(7))
    assert not (tmp_path / "broken" / "model.json").exists()
    finetune(config, tmp_path / "broken")
    assert same(tmp_path / "whole", tmp_path / "broken")


def test_the_command_fine_tunes_and_measures(
    vit: Path, images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["finetune", str(vit), "--steps", "2", "--batch-size", "8", "--flip", "false", "--out", str(out)]
    assert main([*words, "--threads", "1"]) == 0
    told = json.loads((out / "results.json").read_text())
    assert f"{told['scores']['top1']:.4f}" in capsys.readouterr().out
    assert "flip: false" in (out / "config.yaml").read_text()
    assert main(["evaluate", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["top1"] == pytest.approx(told["scores"]["top1"])
    assert main(["embed", str(out), images, "-o", str(tmp_path / "made.npz")]) == 0
    assert len(np.load(tmp_path / "made.npz")["embedding"]) == 60


def test_other_images_are_learned_with_their_own_classes(vit: Path, tmp_path: Path) -> None:
    other = write_images(tmp_path / "other.npz", classes=6)
    results = finetune(plan(vit, SHORT, other), tmp_path / "out")
    assert {"top1", "top5"} < set(results["scores"])
    with pytest.raises(UserError, match="measured only on their own data"):
        evaluate(tmp_path / "out", source=write_images(tmp_path / "more.npz", classes=2))


def told_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


def test_mistakes_are_told_in_one_line(
    vit: Path, mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no run folder" in told_by(["finetune", str(tmp_path / "none")], capsys)
    assert "cannot be fine-tuned (vit-mae can)" in told_by(["finetune", str(mlp)], capsys)
    assert "--scheme" in told_by(["finetune", str(vit), "--scheme", "mdlm"], capsys)
    assert "epochs has no effect" in told_by(["finetune", str(vit), "--steps", "2", "--epochs", "3"], capsys)
    unlabelled = tmp_path / "plain.npy"
    np.save(unlabelled, np.zeros((10, 8, 8, 3), np.uint8))
    assert "labels" in told_by(["finetune", str(vit), str(unlabelled), "--out", str(tmp_path / "a")], capsys)
    small = tmp_path / "small.npz"
    np.savez(small, images=np.zeros((10, 4, 4, 3), np.uint8), labels=np.arange(10) % 2)
    assert "--resize 8" in told_by(["finetune", str(vit), str(small), "--out", str(tmp_path / "a")], capsys)
    assert not (tmp_path / "a" / "config.yaml").exists(), "nothing is written before a mistake is found"


def test_other_weights_than_those_it_began_with_are_refused(images: str, tmp_path: Path) -> None:
    pretrained(images, tmp_path / "run")
    planned = plan(tmp_path / "run", SHORT)
    weights = tmp_path / "run" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(UserError, match="have changed"):
        finetune(planned, tmp_path / "out")
    assert plan(tmp_path / "run", SHORT).weights != planned.weights


def test_run_folders_may_be_moved(images: str, tmp_path: Path) -> None:
    """The weights say which run it was; and once it is finished the pretrained run may be gone."""
    pretrained(images, tmp_path / "run")
    config, whole = plan(tmp_path / "run", SHORT), tmp_path / "whole"
    expected = finetune(config, whole)["scores"]
    with pytest.raises(RuntimeError, match="cut off"):
        finetune(config, tmp_path / "cut", reporter=_StopAt(5))
    (tmp_path / "run").rename(tmp_path / "moved")
    finetune(plan(tmp_path / "moved", SHORT), tmp_path / "cut")
    assert same(whole, tmp_path / "cut")
    shutil.rmtree(tmp_path / "moved")
    assert evaluate(whole, device="cpu").scores == expected


def test_fine_tuning_after_torchrun_is_the_first_process_s(
    images: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pretrained(images, tmp_path / "run")
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    scores = finetune_scores(config, IMAGES.load(config).splits, 1.0, RunFolder(tmp_path / "run").evaluation_file)
    assert 0 <= scores["finetune_top1"] <= 1


def test_a_comparison_fine_tunes_every_run_where_it_is_asked_for(images: str, tmp_path: Path) -> None:
    config = pretrained(images, tmp_path / "run")
    _, results = pretrain(config, IMAGES, tmp_path / "run")
    assert "knn_accuracy" in results["scores"]
    assert "finetune_top1" not in results["scores"]
    asked = config.replace(finetune_epochs=2.0)
    _, results = pretrain(asked, IMAGES, tmp_path / "run")  # measured again, and not trained again
    assert 0 <= results["scores"]["finetune_top1"] <= 1
    assert (tmp_path / "run" / "finetune-2" / "results.json").exists()
    assert "finetune_top1" in {metric.name for metric in IMAGES.metrics_of(asked)}
    assert "2 epochs" in asked.measured_in_words()
    own = RunFolder(tmp_path / "run" / "finetune-2").results
    assert own is not None
    assert own["scores"]["top1"] == results["scores"]["finetune_top1"]


@pytest.mark.parametrize("change", [{"finetune_epochs": -1.0}, {"finetune_epochs": 2.0}])
def test_fine_tuning_that_cannot_be_is_refused(change: dict[str, float], tmp_path: Path) -> None:
    np.save(tmp_path / "plain.npy", np.random.default_rng(0).integers(0, 256, (10, 4, 4, 1), np.uint8))
    with pytest.raises(UserError, match="finetune_epochs"):
        model = {"name": "vit-mae", **VIT}
        IMAGES.load(ImagesConfig.make(data=str(tmp_path / "plain.npy"), model=model, batch_size=2, **change))


def test_options_of_files_have_no_effect_on_an_array(images: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
    for row, image in enumerate(pixels):
        (tmp_path / "pets" / "abc"[row % 3]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "pets" / "abc"[row % 3] / f"{row}.png")
    pretrained(str(tmp_path / "pets"), tmp_path / "run", resize=8, cache="none", skip_broken=True)
    own = plan(tmp_path / "run", SHORT)
    assert (own.machine.cache, own.data.skip_broken, own.data.resize) == ("none", True, 8)
    assert isinstance(FinetuneData(plan(tmp_path / "run", SHORT, images)).splits.train.images, np.ndarray)


def test_images_that_were_read_are_not_read_again(vit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan(vit, SHORT)
    splits = FinetuneData(config).splits
    monkeypatch.setattr("r2mae.images.classifier.load_splits", lambda *args, **options: pytest.fail("read again"))
    assert len(FinetuneData(config, splits).train) == len(splits.train)


def photos(folder: Path) -> Path:
    """Images of several sizes, none of them square, that are one of three colours."""
    rng = np.random.default_rng(0)
    for row in range(24):
        (folder / "abc"[row % 3]).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 60, (20 + row, 40, 3), np.uint8)
        pixels[..., row % 3] += 150
        Image.fromarray(pixels).save(folder / "abc"[row % 3] / f"{row}.png")
    return folder


def test_crops_of_originals_see_what_was_cut_off(tmp_path: Path) -> None:
    """At their full size, by seed, step and row alone."""
    pretrained(str(photos(tmp_path / "photos")), tmp_path / "run", resize=8)
    options = {**SHORT, "crop_from": "original", "randaugment": 0.0, "mixup": 0.0, "cutmix": 0.0, "erasing": 0.0}
    made = plan(tmp_path / "run", {**options, "flip": False, "crop": 0.9})
    data, key = FinetuneData(made), Key.root(0).fold(7)
    batch = data.train.batch(np.arange(8), key)["images"]
    halves = [data.train.batch(np.arange(8)[a : a + 4], key.rows(a))["images"] for a in (0, 4)]
    assert torch.equal(batch, torch.cat(halves))
    assert (batch.shape, float(batch.max()) <= 1) == ((8, 8, 8, 3), True)
    images = data.train.images.take(data.train.rows[:8])
    assert np.abs(batch.numpy() - images / 255).mean() < 0.15, "the same images"
    assert not np.allclose(batch.numpy(), images / 255, atol=0.01)
    assert set(finetune(made, tmp_path / "out")["scores"]) == {"top1", "cross_entropy"}
    assert finetune(made.replace(workers=2), tmp_path / "other")["scores"] == finetune(made, tmp_path / "out")["scores"]


def test_the_originals_of_an_array_are_its_images(vit: Path) -> None:
    batches = [
        FinetuneData(plan(vit, {**SHORT, "resize": 8, "crop_from": kind})).train.batch(np.arange(8), Key.root(0))
        for kind in ("original", "resized")
    ]
    assert torch.equal(batches[0]["images"], batches[1]["images"])


def test_warm_up_is_maes_and_a_part_of_short_runs(vit: Path) -> None:
    given = {"epochs": 100.0, "steps": None}
    for options, expected in ((given, 0.05), ({**given, "epochs": 20.0}, 0.1), ({}, 0.1), ({"warmup": 0.3}, 0.3)):
        assert plan(vit, {**SHORT, **options}).optimizer.warmup == pytest.approx(expected)


def test_the_rate_ends_at_the_smallest_of_mae(vit: Path, tmp_path: Path) -> None:
    config = plan(vit, {**SHORT, "steps": 40, "batch_size": 8})
    assert config.min_lr == 1e-6
    finetune(config, tmp_path / "out")
    rates = pd.read_csv(tmp_path / "out" / "metrics.csv")["lr"]
    assert 1e-6 < rates.iloc[-1] < 1.1e-6
    assert rates.max() == pytest.approx(config.optimizer.peak_lr)
    with pytest.raises(UserError, match="min_lr must be"):
        plan(vit, {**SHORT, "min_lr": 1.0})


def test_a_comparison_passes_its_machine_on_and_takes_the_recipe(
    images: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []
    monkeypatch.setattr(finetuning, "finetune", lambda config, *rest, **more: planned.append(config) or {"scores": {}})
    for name, width in {"small": 12, "base": 768}.items():
        config = pretrained(images, tmp_path / name, workers=2, model={"name": "vit-mae", **VIT, "width": width})
        splits = IMAGES.load(config).splits
        finetune_scores(config, splits, 2.0, RunFolder(tmp_path / name).evaluation_file)
    splits = replace(splits, train=splits.train.pick(np.zeros(8192, np.int64)))
    finetune_scores(config, splits, 2.0, RunFolder(tmp_path / name).evaluation_file)
    own = [[made[name] for name in ("workers", "batch_size", "accumulate", "crop_from")] for made in planned]
    assert own == [[2, 16, 1, "resized"], [2, 16, 1, "original"], [2, 1024, 16, "original"]]


def test_a_fine_tuning_run_is_refused_where_it_cannot_be_used(
    vit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    finetune(plan(vit, {**SHORT, "steps": 1}), out)
    assert "a run of fine-tuning: name a pretrained run" in told_by(["finetune", out], capsys)
    assert "a run of pretraining: choose another --out" in told_by(["finetune", str(vit), "--out", str(vit)], capsys)
    assert main(["pictures", out, "-o", str(tmp_path / "a.png")]) == 2
    assert main(["evaluate", out, "--baselines", "pixels"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 2
    assert "is a run of images without pictures" in told
    assert "or another command, or edited: there is no field 'run'" in told_by(
        ["pretrain", "images", "digits", "--out", out], capsys
    )
