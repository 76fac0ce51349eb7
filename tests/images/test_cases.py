"""Situations that once went wrong without a line, and others of the same kinds."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.data import load_images, load_splits
from r2mae.images.domain import DOMAIN
from r2mae.images.files import Cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two parts in capitals, two classes, three images of each, all of equal size in bytes."""
    for part in ("Training", "Testing"):
        for label in ("cat", "dog"):
            for number in range(3):
                path = tmp_path / "pets" / part / label / f"{number}.bmp"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (6, 6), (number, 0, 0)).save(path)
    return tmp_path / "pets"


@pytest.mark.parametrize("around", [0, 1, 2])
def test_an_archive_in_a_folder_around_it(folder: Path, tmp_path: Path, around: int) -> None:
    place = tmp_path.joinpath("outer", *["inner"] * around)
    place.mkdir(parents=True)
    with tarfile.open(place / "pets.tar.gz", "w:gz") as archive:
        archive.add(folder, "pets")
    assert len(load_splits(tmp_path / "outer").train) == 6


def test_other_files_next_to_images_shards_and_in_archives_are_counted(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "Training" / "cat" / "9.heic").write_bytes(b"x")
    load_images(folder)
    assert "pets: files that are not read as images: 1 .heic" in caplog.text
    caplog.clear()
    with tarfile.open(folder / "Training" / "cat" / "more.tar", "w"):
        pass
    load_images(folder)
    assert "1 .heic, 1 .tar" in caplog.text or "1 .tar, 1 .heic" in caplog.text
    caplog.clear()
    for number in range(2):
        with tarfile.open(tmp_path / f"set-{number:06}.tar", "w") as archive:
            archive.add(folder / "Training" / "dog" / "0.bmp", f"{number}.bmp")
            archive.add(folder / "Training" / "dog" / "0.bmp", "noending")
    shards = tmp_path / "shards"
    shards.mkdir()
    for path in tmp_path.glob("set-*.tar"):
        path.rename(shards / path.name)
    (shards / "left.zip").write_bytes(b"x")
    assert len(load_images(shards)[0]) == 2
    assert "shards: files that are not read as images: 1 .zip" in caplog.text
    assert "shards: files that are not read as images: 2 without an ending" in caplog.text


def test_a_folder_that_cannot_be_read_is_not_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refusing(path: str | Path) -> object:
        if Path(path).name == "dog":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(UserError, match=r"pets: cannot be read .Permission denied"):
        load_images(folder)


@pytest.mark.parametrize("cache", ["memory", "mmap", "none"])
def test_a_link_to_a_lost_image_is_not_left_out(folder: Path, cache: Cache) -> None:
    (folder / "Training" / "cat" / "lost.bmp").symlink_to(folder / "gone.bmp")
    with pytest.raises(UserError, match=r"lost\.bmp: cannot be read .No such file"):
        load_images(folder, cache=cache, skip_broken=True)


def test_changed_files_of_equal_names_sizes_and_times_are_other_data(folder: Path) -> None:
    config = ImagesConfig.make(data=str(folder))
    before = DOMAIN.fingerprint(config)
    mapped = load_images(folder, cache="mmap")[0].images
    path = folder / "Training" / "cat" / "0.bmp"
    size, time = path.stat().st_size, path.stat().st_mtime_ns
    Image.new("RGB", (6, 6), (99, 0, 0)).save(path)
    os.utime(path, ns=(time, time))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (size, time)
    assert DOMAIN.fingerprint(config) != before
    rows = np.array([0])
    assert mapped.take(rows, axis=0)[0, 0, 0, 0] == 0
    assert load_images(folder, cache="mmap")[0].images.take(rows, axis=0)[0, 0, 0, 0] == 99


@pytest.mark.slow
def test_a_broken_file_that_a_worker_meets_ends_the_command(folder: Path, tmp_path: Path) -> None:
    """The workers ignore SIGTERM: an error must not leave them to be waited for when Python ends."""
    broken = tmp_path / "png" / "broken.png"
    broken.parent.mkdir()
    for number in range(12):
        noise = np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(noise).save(broken.parent / f"{number}.png")
    broken.write_bytes((broken.parent / "0.png").read_bytes()[:300])
    options = ["--workers", "2", "--cache", "none", "--steps", "20", "--batch-size", "8", "--out"]
    command = [sys.executable, "-m", "r2mae", "pretrain", "images", str(broken.parent), *options, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "broken.png: not a valid image" in done.stderr
