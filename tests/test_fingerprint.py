"""Data that changed have another fingerprint, and data that moved the same."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from r2mae import fingerprint as module
from r2mae.errors import UserError
from r2mae.fingerprint import fingerprint


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("a/1.png", "a/2.png", "b/1.png", "top.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"file {name}")
    return folder


def same_time(path: Path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda data: same_time(data / "b" / "1.png", "FILE b/1.png"),
    "exchanged": lambda data: [same_time(data / f"a/{n}.png", f"file a/{3 - n}.png") for n in (1, 2)],
    "size": lambda data: (data / "top.png").write_text("longer than before"),
    "name": lambda data: (data / "top.png").rename(data / "bottom.png"),
    "new": lambda data: (data / "new.png").touch(),
    "gone": lambda data: (data / "top.png").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_folder_that_changed(data: Path, change: Callable[[Path], object]) -> None:
    before = fingerprint(data)
    assert fingerprint(data) == before
    change(data)
    assert fingerprint(data) != before


def test_a_linked_folder_that_changed(data: Path, tmp_path: Path) -> None:
    """Subsets of images are often made of links; one that leads back is no endless tree."""
    subset = tmp_path / "subset"
    subset.mkdir()
    (subset / "class").symlink_to(data / "a")
    (subset / "back").symlink_to(subset)
    before = fingerprint(subset)
    same_time(data / "a" / "1.png", "FILE a/1.png")
    assert fingerprint(subset) != before


def test_data_that_moved_are_the_same(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, file = fingerprint(data), fingerprint(data / "top.png")
    shutil.copytree(data, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(tmp_path / "copy" / "top.png", (1, 1))
    assert fingerprint(tmp_path / "copy") == before
    assert fingerprint(tmp_path / "copy" / "top.png") == file
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fingerprint("data") == fingerprint("~/data") == before


def test_large_data_differ_by_size_and_time(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_READ", 10)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("the content was read"))
    before = fingerprint(data), fingerprint(data / "top.png")
    moved = data.rename(data.with_name("moved"))
    assert (fingerprint(moved), fingerprint(moved / "top.png")) == before
    os.utime(moved / "top.png", (1, 1))
    assert fingerprint(moved) != before[0]
    assert fingerprint(moved / "top.png") != before[1]


def test_what_cannot_be_read_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", locked)
    with pytest.raises(UserError, match=r"data/.*\.png: cannot be read \(Permission denied\)"):
        fingerprint(data)


def test_names_that_are_not_utf8_have_a_fingerprint(tmp_path: Path) -> None:
    before = fingerprint(tmp_path)
    (tmp_path / os.fsdecode(b"a\xff.png")).write_bytes(b"x")
    assert fingerprint(tmp_path) != before
    assert fingerprint(os.fsdecode(b"no path \xff"))


def test_a_run_on_other_labels_does_not_resume(tmp_path: Path) -> None:
    """Equal names and sizes of files, as where counts of cells or pixels of images were corrected."""
    from r2mae.cells.config import CellsConfig
    from r2mae.cells.domain import DOMAIN as CELLS
    from r2mae.images.config import ImagesConfig
    from r2mae.images.domain import DOMAIN as IMAGES

    found = []
    for values in ([0, 1, 0, 1], [0, 1, 1, 0]):
        (tmp_path / "a.h5ad").write_bytes(bytes(values))
        found.append(CELLS.fingerprint(CellsConfig.make(data=str(tmp_path / "a.h5ad"))))
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / "images" / "1.png").write_bytes(bytes(values))
        found.append(IMAGES.fingerprint(ImagesConfig.make(data=str(tmp_path / "images"))))
    assert len(set(found)) == 4


def test_files_of_file_managers_are_no_data(tmp_path: Path) -> None:
    """Nor are they for folders of images; elsewhere, such as in zarr, names that begin with a dot are."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_bytes(b"0")
    before = fingerprint(tmp_path, hidden=False), fingerprint(tmp_path)
    (tmp_path / "a" / ".DS_Store").write_bytes(b"1")
    (tmp_path / "Thumbs.db").write_bytes(b"2")
    assert fingerprint(tmp_path, hidden=False) == before[0]
    assert fingerprint(tmp_path) != before[1]
    (tmp_path / "a" / "0.png").write_bytes(b"3")
    assert fingerprint(tmp_path, hidden=False) != before[0]


def test_files_do_not_run_into_each_other(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abcd"]
    for path, text in zip(paths, ("ab", "c", "a", "bc"), strict=True):
        path.write_text(text)
    assert fingerprint(paths[0], paths[1]) != fingerprint(paths[2], paths[3])
