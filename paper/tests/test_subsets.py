"""Parts of the named sets: which files they are, and that they are written once."""

import csv
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from r2mae.errors import UserError
from r2mae.images.data import load_images, load_splits
from r2mae_paper.bases import few_classes, first_faces


@pytest.mark.slow
def test_faces_keep_their_files_and_attributes(tmp_path: Path, shared_data: Path) -> None:
    folder = first_faces(30, tmp_path / "faces")
    images, test, _ = load_images(folder)
    assert images.shape == (109, 89, 3)
    assert (len(images), test) == (30, None)
    with lzma.open(shared_data / "celeba" / "list_attr_celeba_10k.csv.xz", "rt") as opened:
        head, *rows = [row for _, row in zip(range(31), csv.reader(opened), strict=False)]
    assert images.attribute_names == tuple(head[1:])
    np.testing.assert_array_equal(images.attributes, [[int(value) for value in row[1:]] for row in rows])
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert first_faces(30, folder) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written


@pytest.mark.slow
def test_classes_are_spread_evenly_and_keep_both_parts(tmp_path: Path, shared_data: Path) -> None:
    splits = load_splits(few_classes(tmp_path / "a", 4))
    assert (len(splits.train), len(splits.test)) == (4 * 200, 4 * 50)
    packed = next((shared_data / "tiny_imagenet").glob("*.tar.xz"))
    with tarfile.open(packed) as archive:
        names = sorted({name.split("/")[2] for name in archive.getnames() if "/train/" in name})
    assert splits.train.classes == tuple(names[place] for place in (0, 25, 50, 75))
    assert splits.test.labels is not None
    assert np.bincount(splits.test.labels).tolist() == [50] * 4
    again = Path(few_classes(tmp_path / "b", 4))
    assert again.read_bytes() == (tmp_path / "a" / again.name).read_bytes()


def test_more_than_there_are_is_refused(tmp_path: Path, shared_data: Path) -> None:
    with pytest.raises(UserError, match="10,000 faces here, not 10,001"):
        first_faces(10_001, tmp_path / "faces")
    with pytest.raises(UserError, match="100 classes here, not 101"):
        few_classes(tmp_path, 101)
    assert not list(tmp_path.glob("*"))


def test_a_set_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path))
    with pytest.raises(UserError, match="celeba"):
        first_faces(10, tmp_path / "faces")
