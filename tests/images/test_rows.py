"""What is embedded says which image of the input each row is."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from r2mae.images.batches import architecture
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet, load_images
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import embed_set

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 4), np.uint8)
PIXELS[7] = PIXELS[3]
NAMES = [f"{name}.png" for name in ("b", "Ä ö", "10", "9", "z", "a", "日本", "2", "c", "y", "x", "d")]
LABELS = [f"label {number % 3}" for number in range(12)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def save(path: Path, row: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(PIXELS[row]).save(path)


def npy() -> str:
    np.save("a.npy", PIXELS)
    return "a.npy"


def npz() -> str:
    np.savez("a.npz", images=PIXELS[:6], test_images=PIXELS[6:8], val_images=PIXELS[8:])
    return "a.npz"


def classes() -> str:
    for row, (name, label) in enumerate(zip(NAMES, LABELS, strict=True)):
        save(Path("d", "inside", label, name), row)
    return "d"


def parts() -> str:
    for row, name in enumerate(NAMES):
        save(Path("d", ("train", "val", "test")[row % 3], name), row)
    return "d"


def tables() -> str:
    for row, name in enumerate(NAMES):
        save(Path("d", "images", name.replace(" ", "")), row)
    names = [name.replace(" ", "") for name in NAMES]
    Path("d", "list_attr.txt").write_text("Bald\n" + "".join(f"{name} 1\n" for name in names))
    Path("d", "list_eval_partition.txt").write_text("".join(f"{name} {row % 3}\n" for row, name in enumerate(names)))
    return "d"


def archive() -> str:
    classes()
    with tarfile.open("a.tar.gz", "w:gz") as packed:
        packed.add("d")
    return "a.tar.gz"


def shards() -> str:
    """Two, with images of the same names; in the second a long one, and none in the order of names."""
    Path("s").mkdir()
    for number, rows in enumerate((range(6), range(6, 12))):
        with tarfile.open(f"s/part-{number:03}.tar", "w") as packed:
            for row in rows:
                name = "long" * 40 + ".png" if row == 7 else NAMES[row - 6 * (row > 9)]
                save(Path("one.png"), row)
                packed.add("one.png", name)
                Path("one.cls").write_text(str(row % 2))
                packed.add("one.cls", name.replace("png", "cls"))
    return "s"


def one() -> str:
    np.save("a.npy", PIXELS[:1])
    return "a.npy"


def embed(source: str, data: str | None = None) -> tuple[dict[str, np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """Embed a source by the run of some data, with random weights; and a function that embeds pixels."""
    config = ImagesConfig.make(data=data or source, hidden=8, latent=8)
    images = load_images(config.data.source).train
    task, model = DOMAIN.build(architecture(config, images))

    def of_pixels(pixels: np.ndarray) -> np.ndarray:
        return np.asarray(embed_set(task, model, ImageSet("pixels", pixels[..., None])))

    return DOMAIN.embed(config, task, model, source), of_pixels


@pytest.mark.parametrize("make", [npy, npz, classes, parts, tables, archive, shards, one])
@pytest.mark.parametrize("own", [True, False])
def test_rows_are_in_the_order_of_the_input_and_name_their_images(make: Callable[[], str], own: bool) -> None:
    np.save("other.npy", PIXELS[::-1])
    source = make()
    if make is one and own:
        return  # nothing to train on
    found, of_pixels = embed(source, None if own else "other.npy")
    count = 1 if make is one else 12
    np.testing.assert_array_equal(found["index"], np.arange(count))
    pixels = PIXELS[:count]
    if "files" in found:
        assert len(set(found["files"])) == count
        assert list(found["files"]) == sorted(found["files"], key=lambda name: name.split("/")) or make in (
            shards,
            parts,
        )
        if make is archive:
            with tarfile.open(source) as packed:
                pixels = np.stack([np.array(Image.open(packed.extractfile(name) or name)) for name in found["files"]])
        elif make is shards:
            assert [name.partition("/")[0] for name in found["files"]] == ["part-000.tar"] * 6 + ["part-001.tar"] * 6
            assert [name.partition("/")[2] for name in found["files"][:6]] == NAMES[:6]
            assert found["files"][7] == f"part-001.tar/{'long' * 40}.png"
        else:
            pixels = np.stack([np.array(Image.open(Path(source, name))) for name in found["files"]])
    np.testing.assert_allclose(found["embedding"], of_pixels(pixels), atol=1e-6)
    if make is classes:
        assert [name.split("/")[1] for name in found["files"]] == [f"label {i}" for i in found["labels"]]
    if make is parts:
        words = ("train", "test", "val")
        assert [name.split("/")[0] for name in found["files"]] == [words[part] for part in found["split"]]
    if make is tables:  # CelebA's numbers are of training, validation and test
        rows = [NAMES.index(name.replace("Äö", "Ä ö").removeprefix("images/")) for name in found["files"]]
        assert [(0, 2, 1)[row % 3] for row in rows] == found["split"].tolist()
    assert ("split" in found) == (own or make in (npz, parts, tables))


def test_broken_files_leave_a_hole(caplog: pytest.LogCaptureFixture) -> None:
    source = parts()
    for part in ("train", "test"):
        Path(source, part, "aa.png").write_bytes(b"no image")
    names = [
        f"{part}/{path.name}" for part in ("train", "test", "val") for path in sorted(Path(source, part).iterdir())
    ]
    for cache in ("memory", "mmap", "mmap", "none"):  # a second time from the cache
        images = load_images(source, skip_broken=True, cache=cache)
        np.testing.assert_array_equal(images.train.index, np.delete(np.arange(5), names.index("train/aa.png")))
    config = ImagesConfig.make(data=source, hidden=8, latent=8, skip_broken=True)
    task, model = DOMAIN.build(architecture(config, images.train))
    found = DOMAIN.embed(config, task, model, source)
    holes = [names.index("train/aa.png"), names.index("test/aa.png")]
    assert found["index"].tolist() == [row for row in range(14) if row not in holes]
    assert found["files"].tolist() == [name for row, name in enumerate(names) if row not in holes]
    assert "2 of 14 files cannot be decoded and are omitted" in caplog.text
