"""Files that are odd, and files that are broken."""

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.images.reading import read_folder

from r2mae.errors import UserError, warn_once
from r2mae.images.files import Cache, Reading

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)
CACHES: tuple[Cache, ...] = ("memory", "mmap", "none")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def everything(path: Path, how: Reading | None = None) -> np.ndarray:
    images = read_folder(path, how)[0].images
    return images.take(np.arange(len(images)), axis=0)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_exif_says(folder: Path, suffix: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = folder / f"0.{suffix}"
    Image.fromarray(PIXELS).save(path, exif=exif, **({"quality": 95} if suffix == "jpg" else {}))
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert expected.shape == ((6, 4, 3) if orientation < 5 else (4, 6, 3))
    np.testing.assert_array_equal(everything(folder)[0], expected)


def test_cmyk_becomes_rgb(folder: Path) -> None:
    Image.fromarray(np.tile(np.array([200, 40, 90], np.uint8), (8, 8, 1))).convert("CMYK").save(folder / "0.jpg")
    with Image.open(folder / "0.jpg") as image:
        assert image.mode == "CMYK"
    images = everything(folder)
    assert images.shape == (1, 8, 8, 3)
    assert np.abs(images[0].astype(int) - [200, 40, 90]).max() <= 6


def test_a_palette_and_black_and_white_among_colours_become_rgb(folder: Path) -> None:
    Image.fromarray(PIXELS).save(folder / "0.png")
    Image.fromarray(PIXELS).quantize(16).save(folder / "1.png")
    Image.fromarray(PIXELS[..., 0] > 127).save(folder / "2.png")
    images = everything(folder)
    assert images.shape == (3, 6, 4, 3)
    np.testing.assert_array_equal(images[0], PIXELS)
    assert np.abs(images[1].astype(int) - PIXELS).mean() < 40
    np.testing.assert_array_equal(images[2], np.repeat(np.where(PIXELS[..., :1] > 127, 255, 0), 3, axis=2))


def test_below_transparency_the_colours_stay(folder: Path) -> None:
    Image.fromarray(np.concatenate([PIXELS, np.zeros_like(PIXELS[..., :1])], axis=2)).save(folder / "0.png")
    np.testing.assert_array_equal(everything(folder)[0], PIXELS)


def broken(folder: Path) -> list[str]:
    """Write twelve images, of which three are broken: one is empty, one no image, and one ends early."""
    for number in range(12):
        Image.fromarray(np.full((48, 48, 3), number * 20, np.uint8)).save(folder / f"{number:02}.png")
    (folder / "03.png").write_bytes(b"")
    (folder / "05.png").write_bytes(b"<html>")
    noise = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    Image.fromarray(noise).save(folder / "08.png")
    (folder / "08.png").write_bytes((folder / "08.png").read_bytes()[:4000])
    return ["03.png", "05.png", "08.png"]


@pytest.mark.parametrize("cache", ["memory", "mmap"])
def test_all_broken_files_are_named_and_counted(folder: Path, cache: Cache) -> None:
    names = broken(folder)
    with pytest.raises(
        UserError, match=r"03\.png: not a valid image .*; 3 of 12 files cannot be decoded: .*--skip-broken"
    ) as caught:
        read_folder(folder, Reading(cache=cache))
    assert all(name in str(caught.value) for name in names)
    assert "\n" not in str(caught.value)


def test_what_is_only_decoded_when_asked_for_is_refused_then(folder: Path) -> None:
    broken(folder)
    with pytest.raises(UserError, match=r"03\.png: not a valid image .*; 2 of 12 files cannot be decoded: .*05\.png"):
        read_folder(folder, Reading(cache="none"))
    for name in ("03.png", "05.png"):
        (folder / name).unlink()
    images = read_folder(folder, Reading(cache="none"))[0].images
    assert images.take(np.arange(4), axis=0).shape == (4, 48, 48, 3)
    with pytest.raises(UserError, match=r"08\.png: not a valid image"):
        images.take(np.arange(10), axis=0)


@pytest.mark.parametrize("cache", CACHES)
def test_broken_files_are_left_out_when_that_is_asked_for(
    folder: Path, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    broken(folder)
    for _ in range(2):  # the second time from what was kept
        caplog.clear()
        warn_once.cache_clear()
        with caplog.at_level(logging.WARNING, "r2mae"):
            images = everything(folder, Reading(cache=cache, skip_broken=True))
        assert images[:, 0, 0, 0].tolist() == [number * 20 for number in range(12) if number not in (3, 5, 8)]
        (line,) = caplog.messages
        assert line.startswith("3 of 12 files cannot be decoded and are omitted")
        assert all(f"{name}.png" in line for name in ("03", "05", "08"))


@pytest.mark.parametrize("cache", CACHES)
def test_labels_stay_with_their_images(folder: Path, cache: Cache) -> None:
    for name in ("train/a", "train/b", "val/a", "val/b"):
        (folder / name).mkdir(parents=True)
        broken(folder / name)
    (folder / "train/a/00.png").write_bytes(b"")
    train, test, _ = read_folder(folder, Reading(cache=cache, skip_broken=True))
    assert test is not None
    assert train.labels is not None
    assert train.labels.tolist() == [0] * 8 + [1] * 9
    assert len(train.images) == 17
    assert train.images.take(np.arange(17), axis=0)[[0, 8], 0, 0, 0].tolist() == [20, 0]
    assert test.images.take(np.arange(18), axis=0)[[0, 9], 0, 0, 0].tolist() == [0, 0]


@pytest.mark.parametrize("cache", CACHES)
def test_a_set_without_a_sound_image_is_refused_all_the_same(folder: Path, cache: Cache) -> None:
    for number in range(3):
        (folder / f"{number}.png").write_bytes(b"")
    with pytest.raises(UserError, match="none of the 3 files can be decoded"):
        read_folder(folder, Reading(cache=cache, skip_broken=True))


def test_a_lost_file_is_no_broken_image(folder: Path) -> None:
    """A disk that fails must not make images disappear from a set."""
    (folder / "0.png").mkdir()
    broken(folder)
    images = read_folder(folder, Reading(cache="none", skip_broken=True))[0].images
    (folder / "11.png").unlink()
    with pytest.raises(UserError, match=r"11\.png: cannot be read \(No such file"):
        images.take(np.array([8]), axis=0)


def test_an_empty_class_is_spoken_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        Image.fromarray(PIXELS).save(folder / name / "0.png")
    (folder / "empty").mkdir()
    with caplog.at_level(logging.WARNING, "r2mae"):
        assert read_folder(folder)[0].classes == ("a", "b")
    assert any("no images in empty" in line for line in caplog.messages)
