"""CelebA's layout: images, a table of attributes, and its official parts."""

import gzip
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from r2mae.errors import UserError
from r2mae.images import folders
from r2mae.images.batches import load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet, Splits, load_images, load_splits
from r2mae.images.domain import DOMAIN
from r2mae.images.files import Cache

NAMES = ["Bald", "Smiling", "Young"]
VALUES = np.random.default_rng(0).integers(0, 2, (10, 3)).astype(np.uint8)
# Not in the order of the images, so that each part has to be picked.
PARTS = [0, 0, 2, 0, 1, 0, 0, 1, 0, 2]


def image(number: int) -> str:
    return f"{number + 1:06}.jpg"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    """The official files: a count, names, and signs."""
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    for number in range(10):
        Image.new("RGB", (6, 8), (number * 20, 0, 0)).save(folder / "img_align_celeba" / image(number), quality=100)
    signs = [" ".join(f"{2 * int(value) - 1:2}" for value in row) for row in VALUES]
    lines = ["10", " ".join(NAMES) + " ", *(f"{image(number)} {row}" for number, row in enumerate(signs))]
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (folder / "list_eval_partition.txt").write_text(
        "".join(f"{image(number)} {part}\n" for number, part in enumerate(PARTS))
    )
    return folder


def first_colours(part: ImageSet) -> list[int]:
    """Which images are in a part, by their colour."""
    pixels = part.images.take(np.arange(len(part)), axis=0)
    return np.rint(pixels[:, 4, 3, 0] / 20).astype(int).tolist()  # type: ignore[no-any-return]


def check(splits: Splits) -> None:
    assert splits.validation is not None
    for part, number in ((splits.train, 0), (splits.validation, 1), (splits.test, 2)):
        expected = [row for row, other in enumerate(PARTS) if other == number]
        assert first_colours(part) == expected
        assert part.attribute_names == tuple(NAMES)
        assert part.attributes is not None
        assert part.attributes.dtype == np.uint8
        np.testing.assert_array_equal(part.attributes, VALUES[expected])
        assert part.labels is None


@pytest.mark.parametrize("cache", ["memory", "mmap", "none"])
def test_the_official_files(celeba: Path, cache: Cache) -> None:
    check(load_splits(celeba, cache=cache))


def as_csv(folder: Path) -> None:
    """Write the tables as they are passed on: with commas, names of columns, and 0 for -1."""
    rows = [f"{image(number)},{','.join(map(str, row))}" for number, row in enumerate(VALUES)]
    (folder / "list_attr_celeba.csv").write_text("\n".join([f"image_id,{','.join(NAMES)}", *rows]))
    parts = [f"{image(number)},{part}" for number, part in enumerate(PARTS)]
    (folder / "list_eval_partition.csv").write_text("\n".join(["image_id,partition", *parts]))
    for name in ("list_attr_celeba.txt", "list_eval_partition.txt"):
        (folder / name).unlink()


def test_tables_with_commas(celeba: Path) -> None:
    as_csv(celeba)
    check(load_splits(celeba))


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_packed_tables_and_images_in_an_archive(celeba: Path, suffix: str, pack: "type[bytes]") -> None:
    as_csv(celeba)
    for table in list(celeba.glob("*.csv")):
        table.with_name(table.name + suffix).write_bytes(pack(table.read_bytes()))
        table.unlink()
    with tarfile.open(celeba / "faces.tar.xz", "w:xz") as archive:
        archive.add(celeba / "img_align_celeba", arcname="somewhere")
    for file in (celeba / "img_align_celeba").iterdir():
        file.unlink()
    check(load_splits(celeba))


def test_everything_in_one_archive(celeba: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(celeba, arcname="celeba")
    check(load_splits(tmp_path / "all.tar"))


def test_images_beside_the_tables(celeba: Path) -> None:
    for file in list((celeba / "img_align_celeba").iterdir()):
        file.rename(celeba / file.name)
    (celeba / "img_align_celeba").rmdir()
    check(load_splits(celeba))


def test_without_a_partition_the_split_is_by_the_seed(celeba: Path) -> None:
    (celeba / "list_eval_partition.txt").unlink()
    splits, again, other = (load_splits(celeba, seed=seed) for seed in (0, 0, 2))
    assert splits.validation is None
    assert first_colours(splits.test) == first_colours(again.test) != first_colours(other.test)
    assert sorted(first_colours(splits.train) + first_colours(splits.test)) == list(range(10))
    for part in (splits.train, splits.test):
        np.testing.assert_array_equal(part.attributes, VALUES[first_colours(part)])


def test_the_official_validation_part_is_taken_where_validation_is_asked_for(celeba: Path) -> None:
    config = ImagesConfig.make(data=str(celeba), validation=0.4)
    data = load_data(config)
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (6, 2)  # and not 0.4 of the training images
    assert load_data(ImagesConfig.make(data=str(celeba))).validation is None
    assert DOMAIN.check_source(config) is None


def test_a_validation_part_without_a_test_part_is_the_test_part(celeba: Path) -> None:
    rows = [f"{image(number)} {int(number > 6)}\n" for number in range(10)]
    (celeba / "list_eval_partition.txt").write_text("".join(rows))
    settings = ImagesConfig.make(data="digits", hidden=4, latent=2)
    shape = {"shape": [8, 6, 3]}
    task, model = DOMAIN.build({**load_data(settings).architecture, **shape})
    assert DOMAIN.embed(settings, task, model, str(celeba))["split"].tolist() == [0] * 7 + [1] * 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (None, r"list_attr_celeba.txt: has no row for the image 000002.jpg: add it, or remove the image"),
        ("000002.jpg 1 1", r"list_attr_celeba.txt: has '1 1' for 000002.jpg: expected 3 of 1, 0 or -1"),
        ("000002.jpg 1 1 2", r"list_attr_celeba.txt: has '1 1 2' for 000002.jpg: expected 3 of 1, 0 or -1"),
    ],
)
def test_broken_rows_are_named(celeba: Path, line: str | None, words: str) -> None:
    table = celeba / "list_attr_celeba.txt"
    lines = table.read_text().splitlines()
    lines[3:4] = [] if line is None else [line]
    table.write_text("\n".join(lines))
    with pytest.raises(UserError, match=words):
        load_images(celeba)


def test_broken_partitions_are_named(celeba: Path) -> None:
    table = celeba / "list_eval_partition.txt"
    lines = table.read_text().splitlines()
    for changed, words in (
        (lines[1:], r"partition.txt: has no row for the image 000001.jpg"),
        (["000001.jpg 3", *lines[1:]], r"has '3' for 000001.jpg: expected 1 of 0 \(training\)"),
        ([f"{image(number)} 2" for number in range(10)], "none of the images .* is a training image"),
    ):
        table.write_text("\n".join(changed))
        with pytest.raises(UserError, match=words):
            load_images(celeba)


def test_tables_that_do_not_go_with_the_images(celeba: Path) -> None:
    (celeba / "list_attr_other.txt").write_text("x")
    with pytest.raises(UserError, match=r"has list_attr_celeba.txt and list_attr_other.txt"):
        load_images(celeba)
    (celeba / "list_attr_other.txt").unlink()
    (celeba / "more").mkdir()
    Image.new("RGB", (6, 8)).save(celeba / "more" / image(0))
    with pytest.raises(UserError, match=r"two images are called 000001.jpg"):
        load_images(celeba)
    for file in list(celeba.glob("*/*.jpg")):
        file.unlink()
    with pytest.raises(UserError, match=r"list_attr_celeba.txt and no images: put them there"):
        load_images(celeba)


@pytest.mark.slow
def test_real_faces(shared_data: Path) -> None:
    if not (shared_data / "celeba").is_dir():
        pytest.skip("no CelebA")
    splits = load_splits("celeba", resize=16)
    assert splits.train.shape == (16, 16, 3)
    assert (len(splits.train), len(splits.test)) == (8000, 2000)
    assert splits.train.attribute_names is not None
    assert len(splits.train.attribute_names) == 40
    assert splits.train.attributes is not None
    smiling = splits.train.attributes[:, splits.train.attribute_names.index("Smiling")]
    assert smiling.mean() == pytest.approx(0.48, abs=0.02)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_table_is_not_unpacked_without_end(
    celeba: Path, suffix: str, pack: "type[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_MAX_TABLE", 1 << 20)
    (celeba / "list_attr_celeba.txt").unlink()
    (celeba / f"list_attr_celeba.txt{suffix}").write_bytes(pack(bytes(1 << 24)))
    with pytest.raises(UserError, match=r"list_attr_celeba.txt\.[gx]z: unpacks to more than 1 MiB"):
        load_images(celeba)
