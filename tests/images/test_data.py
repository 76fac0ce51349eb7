import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.images.reading import memory_of

from r2mae.errors import UserError
from r2mae.images.arrays import StoredImages
from r2mae.images.data import check_source, held_out_rows, load_images, load_splits
from r2mae.images.sets import SETS

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 5, 4, 3), np.uint8)
LABELS = np.arange(40) % 3


def refused(words, call, *args, limit=None, **kwargs):
    with pytest.raises(UserError, match=words) as caught, memory_of(limit):
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "some.npy", PIXELS)
    return tmp_path / "some.npy"


@pytest.fixture
def npz(tmp_path):
    np.savez(tmp_path / "some.npz", images=PIXELS, labels=LABELS)
    return tmp_path / "some.npz"


# --- loading -------------------------------------------------------------------------------------------------


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    digits, test, _ = load_images("digits")
    original = load_digits()
    assert test is None
    assert digits.name == "digits"
    assert digits.shape == (8, 8, 1)
    assert len(digits) == 1797
    assert digits.images.dtype == np.uint8
    assert (digits.images.min(), digits.images.max()) == (0, 255)
    np.testing.assert_allclose(digits.images[..., 0] / 255, original.images / 16, atol=0.5 / 255)
    np.testing.assert_array_equal(digits.labels, original.target)
    assert digits.classes == tuple("0123456789")


def test_mnist_comes_with_its_official_split(data_root, monkeypatch):
    monkeypatch.setenv("R2MAE_DATA", str(data_root))
    splits = load_splits("mnist", test_fraction=0.5, seed=3)
    assert splits.train.images.shape == (60000, 28, 28, 1)
    assert splits.test.images.shape == (10000, 28, 28, 1)
    assert splits.test.classes == splits.train.classes == tuple("0123456789")
    assert splits.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert splits.test.labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_mnist_that_is_not_there_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path))
    refused(r"train-images-idx3-ubyte.gz is missing: run `r2mae data fetch mnist`.*R2MAE_DATA", load_images, "mnist")


def test_a_broken_file_of_mnist_is_named(monkeypatch, tmp_path):
    pixels = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]) + b"abcd"
    places = {name: tmp_path / f"{name}.gz" for name in ("images", "labels", "test images", "test labels")}
    for name, path in places.items():
        path.write_bytes(gzip.compress(pixels if "images" in name else bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7])))
    monkeypatch.setattr("r2mae.images.data.locate", lambda public: places)
    train, test, _ = load_images("mnist")
    assert (train.images.tobytes(), train.classes, test.labels.tolist()) == (b"abcd", ("5", "7"), [0, 1])
    sound = places["images"].read_bytes()
    for content in (b"", b"text", sound[:-9], sound[:-8] + bytes(8), gzip.compress(pixels[:-1]), gzip.compress(b"")):
        places["images"].write_bytes(content)
        refused("images.gz: not a valid idx file", load_images, "mnist")


def test_every_known_set_has_its_facts():
    for name, public in SETS.items():
        assert (public.name, public.domain) == (name, "images")
        assert public.title
        assert public.licence
        assert public.origin.startswith("http")
        assert bool(public.files) != bool(public.packaged)


def test_paths(npy, npz):
    array, test, _ = load_images(str(npy))
    assert (array.name, array.labels, array.classes, test) == ("some", None, None, None)
    np.testing.assert_array_equal(array.images, PIXELS)
    labelled, *_ = load_images(npz)
    np.testing.assert_array_equal(labelled.labels, LABELS)
    assert labelled.classes == ("0", "1", "2")


def test_a_folder(tmp_path):
    for name in ("a/0.png", "b/0.png"):
        (tmp_path / "pets" / name).parent.mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "pets" / name)
    pets, test, _ = load_images(tmp_path / "pets")
    assert (pets.name, pets.classes, test) == ("pets", ("a", "b"), None)


def test_a_path_may_bear_the_name_of_a_set(tmp_path, monkeypatch, caplog):
    (tmp_path / "digits").mkdir()
    Image.new("L", (3, 3)).save(tmp_path / "digits" / "0.png")
    monkeypatch.chdir(tmp_path)
    assert load_images("digits")[0].shape == (8, 8, 1)
    assert caplog.messages == ["digits is the public set: ./digits is the path here"]
    assert load_images("./digits")[0].shape == load_images("digits/")[0].shape == (3, 3, 1)
    assert load_images(Path("digits"))[0].shape == (3, 3, 1)
    assert len(caplog.messages) == 1
    (tmp_path / "celeba").mkdir()
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path / "nothing"))
    refused("celeba_10k.* is missing: .*; ./celeba is the path here", check_source, "celeba")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("minst", "unknown image set 'minst': did you mean 'mnist'.*folder of images"),
        ("MNIST", "did you mean 'mnist'"),
        ("imagenet-22k", "unknown image set"),
        ("./mnist", "no such file or folder"),
        ("data/pets", "no such file or folder"),
        ("pets.npy", "no such file or folder"),
        ("", "unknown image set"),
    ],
)
def test_a_name_that_is_not_there(source, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(words, load_images, source)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.npyy", "did you mean '.npy'"),
        ("a.h5", "choose from: .npy"),
        ("a", "choose from"),
        ("a.png", "give the folder"),
    ],
)
def test_a_file_of_another_kind(name, words, tmp_path):
    (tmp_path / name).write_bytes(b"x")
    refused(words, load_images, tmp_path / name)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_resize_of_arrays(tmp_path, dtype):
    array = np.where(PIXELS > 127, 255, 0).astype(np.uint8)
    if dtype == "float32":
        array = (array / 255).astype(np.float32)
    np.savez(tmp_path / "x.npz", images=array, labels=LABELS)
    images, *_ = load_images(tmp_path / "x.npz", resize=16)
    assert images.images.shape == (40, 16, 16, 3)
    assert images.images.dtype == dtype
    assert images.images.flags.c_contiguous
    assert images.images.mean() == pytest.approx(array.mean(), rel=0.05)
    assert images.images.max() <= (1 if dtype == "float32" else 255)
    np.testing.assert_array_equal(images.labels, LABELS)
    refused("at least 1 pixel", load_images, tmp_path / "x.npz", resize=0)
    refused("smaller --resize", load_images, tmp_path / "x.npz", resize=500, limit=2**20)


# --- splitting -----------------------------------------------------------------------------------------------


def test_the_split_is_stratified_and_a_function_of_the_seed():
    splits = load_splits("digits", seed=1)
    full, *_ = load_images("digits")
    assert len(splits.train) + len(splits.test) == 1797
    assert len(splits.test) == round(1797 * 0.2)
    share = np.bincount(splits.test.labels) / np.bincount(full.labels)
    assert np.abs(share - 0.2).max() < 1 / np.bincount(full.labels).min()
    again, other = load_splits("digits", seed=1), load_splits("digits", seed=2)
    np.testing.assert_array_equal(again.train.images, splits.train.images)
    assert not np.array_equal(other.test.labels, splits.test.labels)


def test_the_split_of_a_seed_never_changes():
    """Literal values: a new version of NumPy or of this package must give the same split."""
    assert held_out_rows(12, np.arange(12) % 3, 0.25, 0).tolist() == [5, 9, 10]
    assert held_out_rows(12, None, 0.25, 0).tolist() == [0, 9, 10]


def test_splitting_loses_and_moves_nothing(npz):
    splits = load_splits(npz, test_fraction=0.3, seed=5)
    rows = held_out_rows(40, LABELS, 0.3, 5)
    keep = np.delete(np.arange(40), rows)
    for part, expected in ((splits.train, keep), (splits.test, rows)):
        np.testing.assert_array_equal(part.images, PIXELS[expected])
        np.testing.assert_array_equal(part.labels, LABELS[expected])
        assert part.classes == ("0", "1", "2")
        assert part.images.flags.c_contiguous


def test_a_set_larger_than_a_step_of_the_split(tmp_path):
    numbers = np.arange(10_000, dtype="<u2")
    np.save(tmp_path / "x.npy", numbers.view(np.uint8).reshape(-1, 1, 2))
    splits = load_splits(tmp_path / "x.npy", test_fraction=0.01)
    rows = held_out_rows(10_000, None, 0.01, 0)
    assert splits.test.images.tobytes() == numbers[rows].tobytes()
    assert splits.train.images.tobytes() == np.delete(numbers, rows).tobytes()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=2, max_size=80),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.integers(-(2**70), 2**70),
)
def test_every_class_stays_in_training_and_has_its_share_of_the_test(labels, fraction, seed):
    labels = np.array(labels, np.int64)
    rows = held_out_rows(len(labels), labels, fraction, seed)
    members = np.bincount(labels)
    held = np.bincount(labels[rows], minlength=len(members))
    assert np.array_equal(rows, np.unique(rows))
    assert ((held < members) | (members == 0)).all()
    assert (held <= members * fraction + 1).all()
    assert (held >= np.minimum(members * fraction - 1, members - 1)).all()
    assert len(rows) or members.max() == 1
    unlabelled = held_out_rows(len(labels), None, fraction, seed)
    assert 1 <= len(unlabelled) < len(labels)
    assert abs(len(unlabelled) - len(labels) * fraction) <= 1


def test_classes_of_one_image_are_only_trained_on(tmp_path):
    labels = np.r_[np.zeros(38, int), 1, 2]
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=labels)
    splits = load_splits(tmp_path / "x.npz")
    assert set(splits.test.labels) == {0}
    assert set(splits.train.labels) == {0, 1, 2}
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=np.arange(40))
    refused(
        "or one of each class, and a split needs two: add images, or remove the labels", load_splits, tmp_path / "x.npz"
    )


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan"), float("inf")])
def test_a_senseless_fraction(fraction):
    refused("test fraction .* above 0 and below 1", load_splits, "digits", test_fraction=fraction)


def test_a_single_image_cannot_be_split(tmp_path):
    np.save(tmp_path / "x.npy", PIXELS[:1])
    refused("has a single image, .*: add images$", load_splits, tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", PIXELS[:2])
    splits = load_splits(tmp_path / "x.npy")
    assert (len(splits.train), len(splits.test)) == (1, 1)


def test_an_array_beyond_memory_is_split_as_one_within(npy):
    inside = load_splits(npy, test_fraction=0.25)
    with memory_of(100):
        beyond = load_splits(npy, test_fraction=0.25)
    for part, expected in ((beyond.train, inside.train), (beyond.test, inside.test)):
        assert isinstance(part.images, StoredImages)
        np.testing.assert_array_equal(part.images.take(np.arange(len(part))), expected.images)
    with memory_of(600):
        resized, *_ = load_images(npy, resize=2)
    np.testing.assert_array_equal(resized.images, load_images(npy, resize=2)[0].images)


@pytest.mark.slow
def test_loading_images_does_not_import_torch(npz, monkeypatch):
    monkeypatch.setenv("R2MAE_DATA", str(npz.parent))  # the default folder is pooch's
    code = (
        "import sys; from r2mae.images.data import load_splits; load_splits(sys.argv[1]); load_splits('digits'); "
        "print([m for m in ('torch', 'lightning', 'pooch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(npz)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
