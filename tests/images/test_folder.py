import logging
import struct
import tarfile
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image
from tests.images.reading import memory_of, read_folder

from r2mae.errors import UserError
from r2mae.images.data import load_images, load_splits
from r2mae.images.files import Reading


def picture(path, *, size=(6, 4), mode="RGB", seed=0, **options):
    """Write an image file and give its pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = {"L": (), "LA": (2,), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], *channels), np.uint8)
    Image.fromarray(pixels, mode).save(path, **options)
    return pixels


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "set"


def refused(words, *args, limit=None, **kwargs):
    with pytest.raises(UserError, match=words) as caught, memory_of(limit):
        read_folder(*args, Reading(**kwargs))
    assert "\n" not in str(caught.value)


@pytest.fixture(autouse=True)
def no_deprecation():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'mode' parameter is deprecated")
        yield


def test_classes_are_folders_in_sorted_order(folder):
    pixels = [
        picture(folder / "ant" / "2.png", seed=1),
        picture(folder / "ant" / "deep" / "er" / "1.PNG", seed=2),
        picture(folder / "bee" / "0.bmp", seed=3),
    ]
    (folder / "README.txt").write_text("about")
    (folder / "empty").mkdir()
    picture(folder / ".hidden" / "9.png")
    (folder / "bee" / "._0.png").write_bytes(b"not an image")
    train, test, _ = read_folder(folder)
    assert test is None
    np.testing.assert_array_equal(train.images, pixels)
    assert train.images.shape == (3, 4, 6, 3)
    assert train.images.dtype == np.uint8
    assert train.images.flags.c_contiguous
    assert train.classes == ("ant", "bee")
    np.testing.assert_array_equal(train.labels, [0, 0, 1])


@pytest.mark.parametrize("held_out", ["val", "test", "validation"])
def test_train_and_val_are_the_official_split(folder, held_out):
    for seed, name in enumerate(["train/b/1", "train/a/1", "train/a/2", f"{held_out}/b/1"]):
        picture(folder / f"{name}.png", mode="L", seed=seed)
    train, test, _ = read_folder(folder)
    assert train.images.shape == (3, 4, 6, 1)
    assert test.images.shape == (1, 4, 6, 1)
    assert train.classes == test.classes == ("a", "b")
    np.testing.assert_array_equal(train.labels, [0, 0, 1])
    np.testing.assert_array_equal(test.labels, [1])


def test_a_flat_folder_has_no_labels(folder):
    pixels = [picture(folder / f"{seed}.png", seed=seed) for seed in range(3)]
    train, test, _ = read_folder(folder)
    np.testing.assert_array_equal(train.images, pixels)
    assert (train.labels, train.classes, test) == (None, None, None)


def test_a_flat_split(folder):
    picture(folder / "train" / "1.png")
    picture(folder / "test" / "1.png")
    train, test, _ = read_folder(folder)
    assert len(train.images) == len(test.images) == 1
    assert train.labels is None
    assert test.labels is None


def test_a_folder_around_a_folder_stands_for_it(folder):
    picture(folder / "archive" / "inner" / "train" / "images" / "1.png")
    picture(folder / "archive" / "inner" / "val" / "images" / "1.png")
    train, test, _ = read_folder(folder)
    assert len(train.images) == len(test.images) == 1
    assert train.labels is None


def test_train_may_be_a_class(folder):
    for name in ("train", "plane"):
        picture(folder / name / "1.png")
    assert read_folder(folder)[0].classes == ("plane", "train")


def test_links_are_followed_once(folder, tmp_path):
    picture(tmp_path / "elsewhere" / "1.png")
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(folder)
    train, *_ = read_folder(folder)
    assert set(train.classes) == {"a", "b"}


def test_more_files_than_one_job_of_the_pool(folder):
    pixels = [picture(folder / f"{seed:03}.png", mode="L", seed=seed) for seed in range(150)]
    np.testing.assert_array_equal(read_folder(folder)[0].images[..., 0], pixels)


def test_grey_among_colour_becomes_rgb(folder):
    grey = picture(folder / "0.png", mode="L")
    colour = picture(folder / "1.png", seed=1)
    images = read_folder(folder)[0].images
    np.testing.assert_array_equal(images[0], np.repeat(grey[..., None], 3, axis=2))
    np.testing.assert_array_equal(images[1], colour)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3)])
def test_transparency_is_dropped(folder, mode, channels):
    pixels = picture(folder / "0.png", mode=mode)
    expected = pixels.reshape(4, 6, -1)[..., :channels]
    np.testing.assert_array_equal(read_folder(folder)[0].images[0], expected)


def test_a_palette_with_transparency_gives_its_colours(folder):
    folder.mkdir()
    image = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.save(folder / "0.png", transparency=b"\x00\x80")
    np.testing.assert_array_equal(read_folder(folder)[0].images[0, 0], [[10, 20, 30], [40, 50, 60]])


@pytest.mark.parametrize(
    "suffix", ["jpg", "jpeg", "JPE", "jfif", "webp", "gif", "tif", "ppm", "pnm", "avif", "jp2", "j2k"]
)
def test_formats(folder, suffix):
    picture(folder / f"0.{suffix}")
    with Image.open(folder / f"0.{suffix}") as image:
        expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(read_folder(folder)[0].images[0], expected)


@pytest.mark.parametrize("packed", ["", ".tar", ".tar.gz"])
def test_files_that_are_not_read_are_counted(folder, packed, caplog):
    for name in ("train/a/1.png", "train/b/1.png", "test/a/1.png"):
        picture(folder / name)
    for name in ("train/a/2.heic", "train/b/deep/2.HEIC", "test/a/noext", "test/labels.csv", ".hidden.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"something")
    source = folder
    if packed:
        source = folder.with_name(f"set{packed}")
        with tarfile.open(source, "w:gz" if packed == ".tar.gz" else "w") as archive:
            archive.add(folder, "set")
    with caplog.at_level(logging.WARNING, "r2mae"):
        assert len(load_images(source)[0]) == 2
    assert "files that are not read as images: 2 .heic, 1 " in caplog.text
    assert "1 .csv" in caplog.text
    assert "1 without an ending" in caplog.text
    assert "txt" not in caplog.text


def test_resize_is_antialiased(folder):
    folder.mkdir()
    stripes = np.zeros((64, 64), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(folder / "0.png")
    images = read_folder(folder, Reading(resize=8))[0].images
    assert np.abs(images[:, :, 1:-1].astype(float) - 127.5).max() < 8  # without: 0 or 255


def test_unequal_sizes_name_two_files_and_the_remedy(folder):
    picture(folder / "a" / "0.png")
    picture(folder / "a" / "1.png")
    picture(folder / "b" / "2.png", size=(5, 7))
    refused(r"2\.png is 5 x 7 pixels but .*0\.png is 6 x 4: .*--resize N", folder)


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n"]
)
def test_an_undecodable_file_is_named(folder, content):
    picture(folder / "0.png")
    (folder / "1.png").write_bytes(content)
    refused(r"1\.png: not a valid image .*remove or replace", folder)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif"])
def test_a_truncated_image_is_named(folder, suffix):
    picture(folder / "0.png", size=(64, 64))
    picture(folder / f"1.{suffix}", size=(64, 64))
    content = (folder / f"1.{suffix}").read_bytes()
    (folder / f"1.{suffix}").write_bytes(content[: len(content) // 2])
    refused(rf"1\.{suffix}: not a valid image", folder)


def test_the_first_broken_file_is_named_whatever_the_threads_do(folder):
    for seed in range(200):
        picture(folder / f"{seed:03}.png", mode="L")
    for broken in ("131", "070", "199"):
        (folder / f"{broken}.png").write_bytes(b"")
    for _ in range(3):
        refused(r"070\.png", folder)


def test_a_decompression_bomb_is_refused(folder, monkeypatch):
    picture(folder / "0.png", size=(64, 64))
    for pixels in (3000, 1000):  # above the limit PIL warns, above twice the limit it raises
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
        refused(r"0\.png: not a valid image .*bomb", folder)


def test_more_than_eight_bits_are_refused(folder):
    folder.mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(folder / "0.png")
    refused(r"0\.png: has more than 8 bits", folder)
    (folder / "0.png").unlink()
    Image.fromarray(np.zeros((4, 4), np.float32)).save(folder / "0.tif")
    refused(r"0\.tif: has more than 8 bits", folder)


def test_what_does_not_fit_is_refused_before_it_is_decoded(folder):
    picture(folder / "0.png", size=(100, 100))
    (folder / "0.png").write_bytes((folder / "0.png").read_bytes()[:200])  # decoding it would fail
    refused(r"GB of memory.*smaller --resize.*--cache mmap.*--cache none", folder, limit=29_999)
    refused(r"give a smaller --resize", folder, limit=20_000, resize=90)


def test_empty_folders(folder):
    folder.mkdir()
    refused("holds no images .*: put some there, or name another folder$", folder)
    (folder / "a").mkdir()
    (folder / "a" / "notes.txt").write_text("")
    refused("holds no images", folder)
    picture(folder / "train" / "a" / "0.png")
    (folder / "val").mkdir()
    refused("val: holds no images .*: put some there, or remove it$", folder)


def test_contradictory_layouts(folder):
    picture(folder / "train" / "a" / "0.png")
    picture(folder / "train" / "b" / "0.png")
    picture(folder / "val" / "0.png")
    refused(r"val: its images have no labels, those of .*train have", folder)
    picture(folder / "train" / "0.png")
    refused(r"images directly \(0\.png\) and in folders \(a/\)", folder)


def test_a_test_class_that_train_lacks(folder):
    for name in ("train/a", "train/b", "val/a", "val/c"):
        picture(folder / name / "0.png")
    refused("val: has the class c, which .*train lacks", folder)


def test_what_is_no_folder(folder):
    refused("set: cannot be read .No such file", folder)
    folder.write_text("")
    refused("set: cannot be read .Not a directory", folder)


@pytest.mark.parametrize("side", [0, -3])
def test_a_senseless_side(folder, side):
    refused("at least 1 pixel", folder, resize=side)


def extract(archive, wanted, target):
    """Unpack the first members for which `wanted` is true; it ends the reading by raising StopIteration."""
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            try:
                take = wanted(member.name)
            except StopIteration:
                return
            if take:
                tar.extract(member, target, filter="data")


def test_real_tiny_imagenet(data_root, tmp_path):
    counts = {}

    def wanted(name):
        if not name.endswith(".JPEG"):
            return False
        folder = name.rsplit("/", 1)[0]
        counts[folder] = counts.get(folder, 0) + 1
        if len(counts) > 4:
            raise StopIteration
        return counts[folder] <= 60

    [archive] = (data_root / "tiny_imagenet").glob("*.tar.xz")
    extract(archive, wanted, tmp_path)
    train, *_ = read_folder(tmp_path)
    assert train.images.shape == (240, 64, 64, 3)
    assert np.bincount(train.labels).tolist() == [60] * 4
    files = sorted(tmp_path.rglob("*.JPEG"))
    grey = []
    for row, file in enumerate(files):
        with Image.open(file) as image:
            np.testing.assert_array_equal(train.images[row], np.asarray(image.convert("RGB")))
            grey.append(image.mode == "L")
    assert any(grey)
    assert not all(grey)


def sixteen_bits(kind):
    """A file of 3 x 2 pixels with three channels of 16 bits."""
    pixels = np.arange(18, dtype=">u2").reshape(2, 9) * 3000
    if kind == "ppm":
        return b"P6 3 2 65535\n" + pixels.tobytes()
    if kind == "tif":
        entries = [(256, 3, 1, 3), (257, 3, 1, 2), (258, 3, 3, 122), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 128)]
        entries += [(277, 3, 1, 3), (278, 3, 1, 2), (279, 4, 1, 36)]
        tags = b"".join(struct.pack("<HHII", *entry) for entry in entries)
        head = b"II*\0" + struct.pack("<IH", 8, len(entries)) + tags + bytes(4)
        return head + struct.pack("<3H", 16, 16, 16) + pixels.astype("<u2").tobytes()
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = ((b"IHDR", struct.pack(">2I5B", 3, 2, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = [struct.pack(">I", len(x)) + name + x + struct.pack(">I", zlib.crc32(name + x)) for name, x in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("kind", ["png", "tif", "ppm"])
def test_colours_of_sixteen_bits_are_refused(folder, kind):
    folder.mkdir()
    (folder / f"0.{kind}").write_bytes(sixteen_bits(kind))
    refused(rf"0\.{kind}: has more than 8 bits", folder)
    with Image.open(folder / f"0.{kind}") as image:  # PIL would read it, with half of its bits
        image.convert("RGB").save(folder / f"0.{kind}")
    assert read_folder(folder)[0].images.shape == (1, 2, 3, 3)


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_beside_a_test_part_val_is_the_validation_part(folder, validation, caplog):
    for seed, name in enumerate(["train/b/1", "train/a/1", f"{validation}/b/1", "test/a/1", "test/b/1"]):
        picture(folder / f"{name}.png", mode="L", seed=seed)
    with caplog.at_level(logging.WARNING, "r2mae"):
        train, test, held_out = read_folder(folder)
    assert f"test is the test part; {validation} is the validation part" in caplog.text
    assert [part.labels.tolist() for part in (train, test, held_out)] == [[0, 1], [0, 1], [1]]
    splits = load_splits(folder)
    assert (len(splits.train), len(splits.test), len(splits.validation)) == (2, 2, 1)


@pytest.mark.parametrize("names", [["test/1", "test/2"], ["test/images/1"], []])
def test_a_test_part_without_known_classes_is_left_out(folder, names, caplog):
    (folder / "test").mkdir(parents=True)
    for name in ["train/b/1", "train/a/1", "val/b/1", *names]:
        picture(folder / f"{name}.png")
    with caplog.at_level(logging.WARNING, "r2mae"):
        train, test, validation = read_folder(folder)
    assert "left out; val is the test part" in caplog.text
    assert (len(train.images), len(test.images), validation) == (2, 1, None)


SPELLINGS = [
    ("Training", "Testing", None),
    ("TRAIN", "Test", None),
    ("seg_train", "seg_test", None),
    ("train", "dev", None),
    ("train2017", "val2017", None),
    ("1-training", "3-test", "2-validation"),
    ("TrainSet", "TestSet", "ValSet"),
    ("data_train", "data_eval", None),
]


@pytest.mark.parametrize("names", SPELLINGS)
@pytest.mark.parametrize("packed", [False, True])
def test_parts_are_known_in_any_spelling(folder, names, packed, caplog):
    for seed, name in enumerate(filter(None, names)):
        for label in "ab":
            picture(folder / name / label / "1.png", mode="L", seed=seed)
    source = folder
    if packed:
        source = folder.with_suffix(".tar")
        with tarfile.open(source, "w") as archive:
            archive.add(folder, "set")
    with caplog.at_level(logging.WARNING, "r2mae"):
        splits = load_splits(source)
    assert splits.train.classes == splits.test.classes == ("a", "b")
    assert [len(splits.train), len(splits.test)] == [2, 2]
    assert (splits.validation is not None) == (names[2] is not None)
    assert f"{names[0]} is trained on; {names[1]} is the test part" in caplog.text
    assert "left out" not in caplog.text


def test_a_part_within_a_folder_of_its_name_and_what_lies_beside_the_parts(folder, caplog):
    for name in ("seg_train/seg_train/a", "seg_train/seg_train/b", "seg_test/seg_test/a", "seg_pred/seg_pred", "."):
        picture(folder / name / "1.png")
    (folder / "notes").mkdir()
    with caplog.at_level(logging.WARNING, "r2mae"):
        train, test, _ = read_folder(folder)
    assert (train.classes, test.labels.tolist()) == (("a", "b"), [0])
    assert "1.png, seg_pred belong to no part and are left out" in caplog.text


def test_folders_that_hold_the_same_folders_are_asked_about(folder):
    for place in ("one/cat", "one/dog", "two/cat", "two/dog", "two/horse"):
        picture(folder / place / "1.png")
    asked = "set: one, two all hold the folders cat, dog, .*name the one to train on"
    refused(asked, folder)
    assert read_folder(folder / "one")[0].classes == ("cat", "dog")
    picture(folder / "three" / "horse" / "1.png")
    assert read_folder(folder)[0].classes == ("one", "three", "two")


def test_classes_that_hold_a_folder_of_one_name_are_classes(folder):
    for name in ("n01", "n02"):
        picture(folder / name / "images" / "1.png")
    assert read_folder(folder)[0].classes == ("n01", "n02")


def test_words_in_names_of_classes_are_no_parts(folder, caplog):
    for name in ("training shoe", "test tube", "valley", "contest"):
        picture(folder / name / "1.png")
    assert len(read_folder(folder)[0].classes) == 4
    assert not caplog.text


def test_two_training_parts_are_refused(folder):
    for name in ("train2014", "val2014", "train2017", "val2017"):
        picture(folder / name / "a" / "1.png")
    refused("has train2014 and train2017: keep only one", folder)


def test_three_parts_to_measure_on_are_refused(folder):
    for name in ("train", "val", "test", "valid"):
        picture(folder / name / "a" / "1.png")
    refused("has test, val, valid next to train: keep only two of them", folder)


def test_classes_that_are_called_like_parts_are_asked_about(folder):
    """Train, dev and plane may all be classes: no class is left out, nor are labels lost."""
    for name in ("train", "dev", "plane"):
        picture(folder / name / "0.png")
    refused("train, dev may be parts of a set, or classes like plane: name the one to train on", folder)
