"""Images that are kept in memory, mapped, or decoded when asked for: the same pixels, and the same runs."""

import errno
import logging
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.images.reading import memory_of, read_folder

from r2mae.errors import UserError
from r2mae.fields import options_of
from r2mae.images import arrays, files
from r2mae.images.arrays import StoredImages, in_chunks, pick
from r2mae.images.batches import load_data, mean_image
from r2mae.images.config import ImagesConfig
from r2mae.images.data import load_images, load_splits
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import complete, embed_set, evaluate
from r2mae.images.files import Cache, DecodedImages, Reading
from r2mae.images.finetune import FINETUNED
from r2mae.training.loop import fit

CACHES: tuple[Cache, ...] = ("memory", "mmap", "none")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(60):
        path = tmp_path / "pets" / f"{'abc'[number % 3]}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((rng.integers(0, 60, (7, 9, 3)) + number % 3 * 60).astype(np.uint8)).save(path)
    return tmp_path / "pets"


def config(folder: Path, cache: Cache, **more: object) -> ImagesConfig:
    settings = {"resize": 6, "hidden": 16, "latent": 8, "batch_size": 16, "threads": 1, "device": "cpu"}
    return ImagesConfig.from_dict({"data": str(folder), "cache": cache, **settings, **more})


def test_the_same_pixels_wherever_they_are_kept(folder: Path) -> None:
    made = {cache: load_splits(folder, resize=6, seed=1, cache=cache) for cache in CACHES}
    assert isinstance(made["memory"].train.images, np.ndarray)
    rows = np.random.default_rng(0).permutation(len(made["memory"].train))
    for splits in made.values():
        assert splits.train.shape == (6, 6, 3)
        np.testing.assert_array_equal(splits.train.images.take(rows, axis=0), made["memory"].train.images[rows])
        np.testing.assert_array_equal(splits.train.labels, made["memory"].train.labels)
        np.testing.assert_array_equal(splits.test.labels, made["memory"].test.labels)


def test_images_of_a_file_fit_or_are_decoded_when_needed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(load_images(folder, cache="auto")[0].images, np.ndarray)
    with caplog.at_level(logging.WARNING, "r2mae"), memory_of(1000):
        images, *_ = load_images(folder, cache="auto")
    assert isinstance(images.images, DecodedImages)
    assert any("--cache mmap" in line for line in caplog.messages)
    with memory_of(1000), pytest.raises(UserError, match=r"GB of memory.*--cache mmap or --cache none"):
        load_images(folder, cache="memory")


def test_the_map_is_made_once_and_for_each_way_of_reading(
    folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def maps() -> int:
        return len(list(own_cache.glob("images/*/pixels.npy")))

    load_images(folder, cache="mmap")
    assert maps() == 1

    def never(*_: object) -> None:
        raise AssertionError("decoded again")

    with monkeypatch.context() as patch:
        patch.setattr("r2mae.images.files.decode", never)
        patch.setattr("r2mae.images.files.headers_of", never)
        load_images(folder, cache="mmap")
    for how in ({"resize": 4}, {"resize": 4, "skip_broken": True}):
        load_images(folder, cache="mmap", **how)
    assert maps() == 3
    Image.new("RGB", (9, 7)).save(folder / "a" / "000.png")
    images, *_ = load_images(folder, cache="mmap")
    assert maps() == 4
    assert not images.images.take(np.array([0]), axis=0).any()


def test_a_map_that_was_broken_off_is_made_again(
    folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error within, and after a process was killed, which leaves what it had begun."""

    def failing(encoded: object, row: int, *_: object) -> np.ndarray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("r2mae.images.files.decode", failing)
        with pytest.raises(KeyboardInterrupt):
            load_images(folder, cache="mmap")
    assert not list(own_cache.glob("images/*/pixels.npy"))
    expected, *_ = load_images(folder)
    found, *_ = load_images(folder, cache="mmap")
    (place,) = own_cache.glob("images/*/pixels.npy")
    left = place.parent.with_name(f".{place.parent.name}.tmp")
    place.parent.rename(left)
    (left / "pixels.npy").write_bytes(b"half of it")
    found, *_ = load_images(folder, cache="mmap")
    np.testing.assert_array_equal(found.images.take(np.arange(60), axis=0), expected.images)
    assert not left.exists()


def test_stored_images_travel_to_other_processes(folder: Path) -> None:
    for cache in ("mmap", "none"):
        images = load_splits(folder, cache=cache).train.images
        assert isinstance(images, StoredImages)
        again = pickle.loads(pickle.dumps(images))
        rows = np.array([3, 1])
        np.testing.assert_array_equal(again.take(rows), images.take(rows))
        assert len(pickle.dumps(images)) < 20_000  # the way to them, and not their pixels
        twice = pick(pick(images, np.array([5, 3, 9, 2])), np.array([2, 0]))
        np.testing.assert_array_equal(twice.take(np.array([1, 0, 1])), images.take(np.array([5, 9, 5])))
        assert (len(twice), twice.shape[1:], twice.size) == (2, images.shape[1:], images.size // len(images) * 2)


def test_a_worker_of_a_loader_starts_no_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = read_folder(folder, Reading(cache="none"))[0].images
    expected = images.take(np.arange(60), axis=0)
    monkeypatch.setattr(files, "parent_process", object)
    monkeypatch.setattr(files, "ThreadPoolExecutor", None)
    np.testing.assert_array_equal(images.take(np.arange(60), axis=0), expected)


class Watched(StoredImages):
    """Images that say how many of them were in memory at once."""

    def __init__(self, images: np.ndarray) -> None:
        self.images, self.most = images, 0
        super().__init__(images.shape[1:], np.arange(len(images)))

    def read(self, rows: np.ndarray) -> np.ndarray:
        self.most = max(self.most, len(rows))
        return self.images.take(rows, axis=0)


def test_all_images_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 3), np.uint8)
    watched = Watched(images)
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 7 * 48)
    np.testing.assert_array_equal(np.concatenate(list(in_chunks(watched))), images)
    np.testing.assert_allclose(mean_image(watched), mean_image(images), rtol=1e-12)
    assert watched.most == 7


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["mmap", "none"])
@pytest.mark.parametrize("augment", ["none", "crop-flip"])
def test_a_run_is_the_same_wherever_images_are_kept(folder: Path, tmp_path: Path, cache: Cache, augment: str) -> None:
    files = []
    for kept, workers in (("memory", 0), (cache, 0), (cache, 2)):
        out = tmp_path / f"{kept}-{workers}"
        fit(config(folder, kept, steps=6, augment=augment, workers=workers, fill="mean", save_every=3), DOMAIN, out)
        files.append((out / "model.safetensors").read_bytes() + (out / "metrics.csv").read_bytes())
    assert files[0] == files[1] == files[2]


@pytest.mark.slow
def test_scores_are_the_same_wherever_images_are_kept(folder: Path) -> None:
    def scores(kept: Cache) -> dict[str, float]:
        settings = config(folder, kept)
        data = load_data(settings)
        torch.manual_seed(0)
        task, model = DOMAIN.build(data.architecture)
        complete(task, model, data, 0.5)
        found = {"embedded": float(embed_set(task, model, data.splits.train).sum())}
        found |= evaluate(settings, task, model, data)
        for name in DOMAIN.default_baselines_of(settings):
            found |= {f"{name} {key}": value for key, value in DOMAIN.score_baseline(settings, name, data).items()}
        return found

    expected = scores("memory")
    for cache in ("mmap", "none"):
        mine = scores(cache)
        assert mine.keys() == expected.keys()
        assert mine == pytest.approx(expected, rel=1e-6)


def test_the_pixels_of_a_set_beyond_memory_are_not_probed(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(folder, "none")
    data = load_data(settings)
    monkeypatch.setattr("r2mae.domains.baselines.memory_share", lambda: 1000)
    with caplog.at_level(logging.WARNING, "r2mae"):
        assert "probe_accuracy" not in DOMAIN.score_baseline(settings, "pixels", data)
    assert any("not measured: the baseline pixels needs" in line for line in caplog.messages)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_damage_that_a_run_meets_is_told_in_one_line(folder: Path, tmp_path: Path, workers: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(noise).save(folder / "a" / "003.png")
    (folder / "a" / "003.png").write_bytes((folder / "a" / "003.png").read_bytes()[:2000])
    with pytest.raises(UserError, match=r"^[^\n]*003\.png: not a valid image[^\n]*remove or replace it$"):
        fit(config(folder, "none", steps=4, workers=workers), DOMAIN, tmp_path / "run")


def test_a_run_may_go_on_with_images_kept_elsewhere(folder: Path) -> None:
    assert config(folder, "none").differences(config(folder, "mmap")) == {}
    assert config(folder, "none").differences(config(folder, "none", skip_broken=True)) == {
        "skip_broken": (False, True)
    }


def test_embedding_of_a_run_and_of_other_images(folder: Path) -> None:
    settings = config(folder, "none")
    task, model = DOMAIN.build(load_data(settings).architecture)
    found = DOMAIN.embed(settings, task, model, str(folder))
    assert found["embedding"].shape == (60, 8)
    assert found["index"].tolist() == list(range(60))
    assert sorted(found["split"]) == [0] * 48 + [1] * 12


def test_a_full_disk_is_told_before_anything_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\): point R2MAE_CACHE"):
        load_images(folder, cache="mmap")


def test_processes_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "available_memory", lambda: 1000)
    assert arrays.memory_limit() == 500
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert arrays.memory_limit() == 250


def test_an_array_is_embedded_and_measured_after_files_that_were_read_otherwise(folder: Path, tmp_path: Path) -> None:
    settings = config(folder, "mmap", skip_broken=True)
    task, model = DOMAIN.build(load_data(settings).architecture)
    np.savez(tmp_path / "x.npz", images=np.zeros((5, 6, 6, 3), np.uint8))
    assert len(DOMAIN.embed(settings, task, model, str(tmp_path / "x.npz"))["embedding"]) == 5
    other, _ = DOMAIN.load_other_data(settings, str(tmp_path / "x.npz"), {"shape": [6, 6, 3]})
    assert other.machine.cache == "auto"


def test_an_official_validation_part_is_embedded(folder: Path, tmp_path: Path) -> None:
    settings = config(folder, "none")
    task, model = DOMAIN.build(load_data(settings).architecture)
    parts = {"images": 5, "val_images": 2, "test_images": 3}
    np.savez(tmp_path / "x.npz", **{name: np.zeros((count, 6, 6, 3), np.uint8) for name, count in parts.items()})
    expected = [0] * 5 + [1] * 3 + [2] * 2
    assert DOMAIN.embed(settings, task, model, str(tmp_path / "x.npz"))["split"].tolist() == expected
    own = settings.replace(data=str(tmp_path / "x.npz"), cache="auto")
    assert DOMAIN.embed(own, task, model, str(tmp_path / "x.npz"))["split"].tolist() == expected


def test_broken_files_of_other_images_are_left_out_when_that_is_asked_for(folder: Path, tmp_path: Path) -> None:
    settings = config(folder, "memory")
    task, model = DOMAIN.build(load_data(settings).architecture)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "a" / "000.png").write_bytes(b"")
    with pytest.raises(UserError, match="by --skip-broken"):
        DOMAIN.embed(settings, task, model, str(other))
    assert len(DOMAIN.embed(settings, task, model, str(other), skip_broken=True)["embedding"]) == 59
    made, data = DOMAIN.load_other_data(settings, str(other), {"shape": [6, 6, 3]}, skip_broken=True)
    assert made.data.skip_broken
    assert len(data.splits.train) + len(data.splits.test) == 59
    np.savez(tmp_path / "x.npz", images=np.zeros((5, 6, 6, 3), np.uint8))
    assert len(DOMAIN.embed(settings, task, model, str(tmp_path / "x.npz"), skip_broken=True)["embedding"]) == 5
    options = options_of(FINETUNED.command_line.reading)
    assert [option.name for option in options if option.kind == bool | None] == ["skip_broken"]


def test_unlabelled_images_are_measured_without_fine_tuning(folder: Path, tmp_path: Path) -> None:
    model = {"name": "vit-mae", "patch": 3, "width": 8, "layers": 1, "heads": 1, "decoder_layers": 1}
    settings = ImagesConfig.make(data=str(folder), model=model, resize=6, finetune_epochs=2.0)
    task, network = DOMAIN.build(load_data(settings).architecture)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (40, 6, 6, 3), np.uint8))
    there, data = DOMAIN.load_other_data(settings, str(tmp_path / "x.npy"), {"shape": [6, 6, 3]})
    assert data.architecture == {"shape": [6, 6, 3]}, "that of the run, such as with its mean image"
    assert there.evaluation.finetune_epochs == 0
    assert DOMAIN.evaluate(there, task, network, data)["masked_mse"] > 0
