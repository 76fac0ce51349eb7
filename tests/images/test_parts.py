"""Official parts of a .npz."""

import numpy as np
import pytest
from tests.images.test_formats import FLOATS, NUMBERS, PIXELS, npz, read_npz, read_parts, refused, write

__all__ = ["write"]


SPELLINGS = [
    ("images", "labels", "test_images", "test_labels"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("X_train", "y_train", "X_test", "y_test"),
]


@pytest.mark.parametrize("names", SPELLINGS)
@pytest.mark.parametrize("column", [False, True])
def test_official_parts_of_npz(write, names, column):
    labels, others = np.array(list("caabc")), np.array(list("cb"))
    arrays = (PIXELS, labels[:, None] if column else labels, PIXELS[3:] + 1, others[:, None] if column else others)
    train, test, _ = read_parts(write(npz(**dict(zip(names, arrays, strict=True)))))
    np.testing.assert_array_equal(train.images[..., 0], PIXELS)
    np.testing.assert_array_equal(test.images[..., 0], PIXELS[3:] + 1)
    assert train.classes == test.classes == ("a", "b", "c")
    assert train.labels.tolist() == [2, 0, 0, 1, 2]
    assert test.labels.tolist() == [2, 1]


def test_official_parts_without_labels(write):
    train, test, _ = read_parts(write(npz(images=PIXELS, test_images=PIXELS[:2])))
    assert (len(train.images), len(test.images), train.labels, test.labels) == (5, 2, None, None)


PARTS = {
    "`test_images`: has images of 3 x 4 x 1, those of .*`images` are of 4 x 3 x 1": {
        "test_images": PIXELS.transpose(0, 2, 1)
    },
    "`test_images`: its images have no labels, those of .*`images` have": {"labels": NUMBERS, "test_images": PIXELS},
    "`images`: its images have no labels, those of .*`test_images` have": {
        "test_images": PIXELS,
        "test_labels": NUMBERS,
    },
    "`test_images`: has the class 9, which .*`images` lacks": {
        "labels": NUMBERS,
        "test_images": PIXELS[:1],
        "test_labels": np.array([9]),
    },
    "`test_images`: labels of shape .2,., expected .1,.": {
        "labels": NUMBERS,
        "test_images": PIXELS[:1],
        "test_labels": NUMBERS[:2],
    },
    "has `test_labels` and no `test_images`: add them, or omit it": {"test_labels": NUMBERS},
    "`test_images`: holds no images .*, or omit it$": {"test_images": PIXELS[:0]},
    "`test_images`: holds no images .*: save it again with some": {
        "labels": NUMBERS,
        "test_images": PIXELS[:0],
        "test_labels": NUMBERS[:0],
    },
    "has `y_train` and `labels`, which are both labels: omit one of them": {"labels": NUMBERS, "y_train": NUMBERS},
    "has `x_train` and `images`, which are both images": {"x_train": PIXELS},
    "has `test_images` and `x_test`, which are both test_images": {"x_test": PIXELS, "test_images": PIXELS},
}


@pytest.mark.parametrize("words", PARTS)
def test_parts_that_do_not_go_together(write, words):
    refused(words, read_parts, write(npz(images=PIXELS, **PARTS[words])))


def test_a_test_part_alone_is_refused(write):
    refused("has no array `images` .found: test_images.", read_parts, write(npz(test_images=PIXELS)))


def test_other_arrays_are_no_matter(write):
    np.testing.assert_array_equal(read_npz(write(npz(images=PIXELS, labels=NUMBERS, other=FLOATS))).labels, NUMBERS)


def test_both_parts_count_for_memory(write):
    content = npz(images=PIXELS, test_images=PIXELS)
    refused("GB of memory", read_parts, write(content), limit=PIXELS.nbytes + 200)


def test_val_images_are_the_test_part_alone_and_the_validation_part_beside_one(write):
    arrays = {"labels": NUMBERS, "val_images": PIXELS[:2], "val_labels": NUMBERS[:2]}
    train, test, validation = read_parts(write(npz(images=PIXELS, **arrays)))
    assert (len(train.images), len(test.images), validation) == (5, 2, None)
    more = {"test_images": PIXELS[:3], "test_labels": NUMBERS[:3]}
    train, test, validation = read_parts(write(npz(images=PIXELS, **arrays, **more)))
    assert (len(test.images), len(validation.images)) == (3, 2)
    assert validation.classes == train.classes
