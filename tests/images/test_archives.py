"""Archives give what the folder inside would, and nothing of one that reaches outside itself."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.images.reading import memory_of

from r2mae.errors import UserError
from r2mae.images.data import load_images, load_splits
from r2mae.images.files import Cache, list_archive

KINDS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz", ".tar.bz2": "w:bz2"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("train/b/1", "train/a/10", "train/a/9", "train/a/deep/2", "train/.hidden/3", "val/b/7", "val/a/8"):
        path = tmp_path / "pets" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8)).save(path)
    (tmp_path / "pets" / "notes.txt").write_text("about")
    return tmp_path / "pets"


def pack(folder: Path, path: Path, kind: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, KINDS["".join(path.suffixes)], format=kind) as archive:  # type: ignore[call-overload]
        archive.add(folder, arcname=f"./{folder.name}")
    return path


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("cache", ["memory", "mmap", "none"])
def test_an_archive_is_the_folder_inside(folder: Path, tmp_path: Path, suffix: str, cache: Cache) -> None:
    expected, mine = load_splits(folder), load_splits(pack(folder, tmp_path / f"packed{suffix}"), cache=cache)
    assert len(mine.train) == 4
    for one, other in ((expected.train, mine.train), (expected.test, mine.test)):
        rows = np.arange(len(one))
        np.testing.assert_array_equal(other.images.take(rows, axis=0), one.images)
        assert other.classes == one.classes == ("a", "b")
        np.testing.assert_array_equal(other.labels, one.labels)


def test_a_folder_with_one_archive_is_that_archive(folder: Path, tmp_path: Path) -> None:
    expected, *_ = load_images(folder)
    pack(folder, tmp_path / "around" / "inside.tar.xz")
    found, test, _ = load_images(tmp_path / "around")
    assert test is not None
    assert found.name == "around"
    np.testing.assert_array_equal(found.images, expected.images)
    pack(folder, tmp_path / "around" / "more.tar.gz")
    with pytest.raises(UserError, match=r"several archives \(inside.tar.xz, more.tar.gz\)"):
        load_images(tmp_path / "around")


def hostile(path: Path, **facts: object) -> Path:
    """Write an archive of an image and a member with these facts."""
    content = io.BytesIO()
    Image.new("RGB", (4, 4)).save(content, "PNG")
    with tarfile.open(path, "w") as archive:
        good = tarfile.TarInfo("set/0.png")
        good.size = len(content.getvalue())
        archive.addfile(good, io.BytesIO(content.getvalue()))
        bad = tarfile.TarInfo()
        for name, value in facts.items():
            setattr(bad, name, value)
        archive.addfile(bad)
    return path


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"name": "../outside.png"}, r"'../outside.png' has a path outside"),
        ({"name": "set/../../outside.png"}, "has a path outside"),
        ({"name": "/etc/passwd"}, "'/etc/passwd' has a path outside"),
        (
            {"name": "a.png", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
            "'a.png' is a link, a device",
        ),
        (
            {"name": "a.png", "type": tarfile.LNKTYPE, "linkname": "set/0.png"},
            "'a.png' is a link, a device",
        ),
        ({"name": "a.png", "type": tarfile.CHRTYPE}, "'a.png' is a link, a device"),
        ({"name": "a.png", "type": tarfile.FIFOTYPE}, "'a.png' is a link, a device"),
    ],
)
def test_members_that_reach_outside_are_refused_by_name(tmp_path: Path, facts: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=f"{words}.*: pack the files themselves again$"):
        load_images(hostile(tmp_path / "x.tar", **facts))


@pytest.mark.parametrize("suffix", KINDS)
def test_an_archive_without_its_end_is_refused_wherever_it_was_cut(folder: Path, tmp_path: Path, suffix: str) -> None:
    path = pack(folder, tmp_path / f"x{suffix}")
    content = path.read_bytes()
    # A plain archive ends with kilobytes of zeros, of which the first block says that it is whole.
    end = len(content.rstrip(b"\0")) + tarfile.BLOCKSIZE - 1 if suffix == ".tar" else len(content)
    for cut in [*range(0, end, 512 if suffix == ".tar" else 97), end - 1]:
        path.write_bytes(content[:cut])
        with pytest.raises(UserError, match=r"x\.tar|x\.tgz") as caught:
            load_images(path)
        assert "\n" not in str(caught.value)
    if suffix == ".tar":
        assert "no end marker" in str(caught.value)


@pytest.mark.parametrize("suffix", KINDS)
def test_archives_joined_by_cat_are_refused(folder: Path, tmp_path: Path, suffix: str) -> None:
    path = pack(folder, tmp_path / f"x{suffix}")
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(UserError, match=r"more follows its end: .* joined by cat"):
        load_images(path)


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_a_damaged_header_is_not_taken_for_the_end(folder: Path, tmp_path: Path, kind: int) -> None:
    path = pack(folder, tmp_path / "x.tar", kind)
    content = bytearray(path.read_bytes())
    content[content.index(b"./pets/val/a/8.png")] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad checksum|more follows its end: a member is damaged"):
        load_images(path)


def test_an_archive_that_ends_in_zeros_within_a_header_is_refused(folder: Path, tmp_path: Path) -> None:
    """As a download that stopped, if the whole size of the file was reserved before."""
    path = pack(folder, tmp_path / "x.tar", tarfile.USTAR_FORMAT)
    content = path.read_bytes()
    cut = content.index(b"./pets/val/a/8.png") + 100
    path.write_bytes(content[:cut].ljust(len(content), b"\0"))
    with pytest.raises(UserError, match="more follows its end: a member is damaged"):
        load_images(path)


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    for name in ("x.tar", "x.tar.gz", "x.tar.xz"):
        (tmp_path / name).write_bytes(b"<html>" * 300)
        with pytest.raises(UserError, match=f"{name}: not a valid tar archive"):
            load_images(tmp_path / name)
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(UserError, match=r"empty.tar: holds no images"):
        load_images(tmp_path / "empty.tar")


def test_a_broken_image_in_an_archive_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "train" / "a" / "9.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"x\.tar\.gz: \./pets/train/a/9\.png: not a valid image"):
        load_images(pack(folder, tmp_path / "x.tar.gz"))


def test_a_packed_archive_must_fit_into_memory_and_a_plain_one_need_not(folder: Path, tmp_path: Path) -> None:
    with memory_of(500):
        with pytest.raises(UserError, match=r"GB of memory.*unpack it"):
            list_archive(pack(folder, tmp_path / "x.tar.xz"))
        assert len(load_images(pack(folder, tmp_path / "x.tar"), cache="auto")[0]) == 4
