"""Shards: what lies in them is found once, and any image of them is read in any order."""

import io
import os
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from r2mae.errors import UserError, warn_once
from r2mae.images import folders as shards
from r2mae.images.batches import ImageBatches
from r2mae.images.data import load_images, load_splits
from r2mae.images.files import Cache
from r2mae.masking.keys import Key
from r2mae.training.order import BatchOrder, make_loader

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 6, 5, 3), np.uint8)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def png(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def write(path: Path, members: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def samples(rows: range) -> Iterator[tuple[str, bytes]]:
    for row in rows:
        yield f"some/{row:06}.cls", str(row % 3 * 10).encode()
        yield f"some/{row:06}.png", png(PIXELS[row])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, rows in enumerate((range(10), range(10, 20), range(20, 30))):
        write(tmp_path / "sharded" / f"part-{number:06}.tar", samples(rows))
    return tmp_path / "sharded"


@pytest.mark.parametrize("cache", ["memory", "mmap", "none"])
def test_shards_are_one_set(folder: Path, cache: Cache) -> None:
    images, test, _ = load_images(folder, cache=cache)
    assert test is None
    assert images.classes == ("0", "10", "20")
    assert images.labels is not None
    assert images.labels.tolist() == [row % 3 for row in range(30)]
    rows = np.random.default_rng(1).permutation(30)
    np.testing.assert_array_equal(images.images.take(rows, axis=0), PIXELS[rows])


def test_splits_are_the_same_wherever_images_are_kept(folder: Path) -> None:
    made = [load_splits(folder, seed=3, cache=cache) for cache in ("memory", "mmap", "none")]
    for splits in made[1:]:
        for mine, theirs in ((splits.train, made[0].train), (splits.test, made[0].test)):
            np.testing.assert_array_equal(mine.images.take(np.arange(len(mine)), axis=0), theirs.images)
            np.testing.assert_array_equal(mine.labels, theirs.labels)


def test_one_shard_by_its_path(tmp_path: Path) -> None:
    images, *_ = load_images(write(tmp_path / "all-0000.tar", samples(range(6))))
    assert images.classes == ("0", "10", "20")


def test_official_parts_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    for name, rows in (("train-000", range(9)), ("train-001", range(9, 18)), ("val-000", range(18, 24))):
        write(folder / f"pets-{name}.tar", samples(rows))
    splits = load_splits(folder)
    assert (len(splits.train), len(splits.test), splits.validation) == (18, 6, None)
    np.testing.assert_array_equal(splits.test.images, PIXELS[18:24])
    write(folder / "pets-test-000.tar", samples(range(24, 30)))
    splits = load_splits(folder)
    assert splits.validation is not None
    np.testing.assert_array_equal(splits.test.images, PIXELS[24:30])
    np.testing.assert_array_equal(splits.validation.images, PIXELS[18:24])
    write(folder / "pets-000.tar", samples(range(3)))
    with pytest.raises(UserError, match=r"pets-000.tar: is of no part"):
        load_splits(folder)


def test_files_of_shards_that_are_not_read_are_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder / "part-000003.tar", [*samples(range(3)), ("some/9.heic", b"1"), ("some/9.cls", b"0")])
    for _ in range(2):  # the second time from the index
        caplog.clear()
        warn_once.cache_clear()
        assert len(load_images(folder)[0]) == 33
        assert "sharded: files that are not read as images: 1 .heic" in caplog.text


def test_labels_in_json_are_named_as_unread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = [(name.replace(".cls", ".json"), content) for name, content in samples(range(10))]
    write(tmp_path / "000.tar", files)
    assert load_images(tmp_path / "000.tar")[1] is None
    assert "10 .json; labels are read from the .cls files of numbered shards, such as 000.tar" in caplog.text


def test_official_parts_in_other_words(tmp_path: Path) -> None:
    for name, rows in (("a-training-000", range(9)), ("b-training-001", range(9, 18)), ("a-dev-000", range(18, 24))):
        write(tmp_path / "parts" / f"{name}.tar", samples(rows))
    splits = load_splits(tmp_path / "parts")
    assert (len(splits.train), len(splits.test)) == (18, 6)


def test_the_order_of_a_run_does_not_hang_on_workers(folder: Path) -> None:
    images, *_ = load_images(folder, cache="none")
    batches = ImageBatches(images.images, augment="crop-flip")

    def run(workers: int, first: int = 0) -> list[np.ndarray]:
        order = BatchOrder(30, 8, 6, Key.root(0), first_step=first)
        return [batch.numpy() for batch in make_loader(batches, order, Key.root(0), workers=workers)]

    alone = run(0)
    for mine, theirs in zip(run(2), alone, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip(run(0, 4), alone[4:], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_shard_is_read_through_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = shards._read_index

    def counted(shard: Path) -> shards.Index:
        read.append(shard.name)
        return original(shard)

    monkeypatch.setattr(shards, "_read_index", counted)
    load_images(folder)
    load_images(folder, resize=3)
    assert sorted(read) == [f"part-{number:06}.tar" for number in range(3)]
    write(folder / "part-000001.tar", samples(range(5)))
    os.utime(folder / "part-000001.tar", ns=(1, 1))
    assert len(load_images(folder)[0]) == 25
    assert read[3:] == ["part-000001.tar"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("a.txt", b"")], "holds no images"),
        ([("a.png", png(PIXELS[0])), ("b.png", png(PIXELS[1])), ("b.cls", b"1")], "the image a has no .cls: add it"),
        ([("a.cls", b"1"), ("a.png", png(PIXELS[0])), ("a.jpg", png(PIXELS[1]))], "two images are called a"),
        ([("a.png", png(PIXELS[0])), ("a.cls", b"cat")], r"a.cls: not a valid label .*whole number"),
        *[
            ([("a.png", png(PIXELS[0])), ("a.cls", text)], r"a.cls: not a valid label .*whole number")
            for text in (b"1_0", b"+1", "\uff11".encode(), b"9" * 30)
        ],
        ([("a.png", png(PIXELS[0])), ("a.cls", b"-1")], "negative label"),
        ([("a.png", b"nothing"), ("a.cls", b"1")], r"x-000.tar: a.png: not a valid image"),
        ([("../a.png", png(PIXELS[0]))], "'../a.png' has a path outside"),
    ],
)
def test_broken_shards_are_named(tmp_path: Path, members: list[tuple[str, bytes]], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load_images(write(tmp_path / "x-000.tar", members))
    assert "\n" not in str(caught.value)
    assert "x-000.tar" in str(caught.value) or "negative" in words


def test_shards_that_do_not_go_together(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x-000.tar", samples(range(3)))
    write(tmp_path / "a" / "x-001.tar", [("a.png", png(PIXELS[0]))])
    with pytest.raises(UserError, match=r"x-001.tar: has no labels"):
        load_images(tmp_path / "a")
    write(tmp_path / "b" / "train-000.tar", samples(range(2)))
    write(tmp_path / "b" / "val-000.tar", samples(range(3)))
    with pytest.raises(UserError, match=r"val-000.tar: has the class 20, which .*train-000.tar lacks"):
        load_images(tmp_path / "b")


def test_broken_images_of_shards_are_left_out_when_that_is_asked_for(tmp_path: Path) -> None:
    noise = png(np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8))
    members = [*samples(range(3)), ("b.png", b""), ("b.cls", b"0"), ("c.png", noise[:-60]), ("c.cls", b"10")]
    for cache in ("memory", "mmap", "none"):
        images, *_ = load_images(write(tmp_path / "x-000.tar", members), cache=cache, skip_broken=True)
        np.testing.assert_array_equal(images.images.take(np.arange(3), axis=0), PIXELS[:3])
        assert images.labels is not None
        assert images.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("alone", [True, False])
def test_a_shard_without_its_end_is_refused_wherever_it_was_cut(tmp_path: Path, alone: bool) -> None:
    path = write(tmp_path / "cut" / "x-000.tar", samples(range(4)))
    if not alone:
        write(tmp_path / "cut" / "x-001.tar", samples(range(4, 8)))
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))
    for cut in [*range(0, end, 512), end]:
        path.write_bytes(content[:cut])
        with pytest.raises(UserError, match=r"x-000\.tar.*(tar archive|holds no images)") as caught:
            load_images(path if alone else path.parent)
        assert "\n" not in str(caught.value)


def test_a_numbered_archive_of_classes_is_a_folder(tmp_path: Path) -> None:
    classes = [
        (f"{part}/{name}/{row}.png", png(PIXELS[row])) for part in ("train", "val") for row, name in enumerate("abab")
    ]
    described = [("train/a/0.json", b'{"camera": 1}')]
    for name in ("photos.tar", "photos-2019.tar", "ILSVRC2012.tar", "photos-000000.tar"):
        splits = load_splits(write(tmp_path / name, classes + described))
        assert (len(splits.train), len(splits.test), splits.train.classes) == (4, 4, ("a", "b"))


def test_an_index_is_made_once_by_processes_that_want_it_together(
    folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = shards._read_index

    def slow(shard: Path) -> shards.Index:
        read.append(1)
        time.sleep(0.2)
        return original(shard)

    monkeypatch.setattr(shards, "_read_index", slow)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(shards.shard_index, [folder / "part-000000.tar"] * 2))
    assert len(read) == 1
    np.testing.assert_array_equal(both[0].places, both[1].places)
