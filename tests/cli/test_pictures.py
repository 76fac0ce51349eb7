"""`r2mae pictures`."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from PIL import Image

from r2mae.images import DOMAIN, ImagesConfig
from r2mae.images.data import load_splits
from r2mae.training.loop import fit

from .conftest import Run

pytestmark = pytest.mark.slow

BASE = ImagesConfig.make(data="digits", hidden=8, latent=4, steps=2, threads=1, device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on digits: two schemes, another seed; one on other images; one that has not begun."""
    folder = tmp_path_factory.mktemp("pictures")
    np.savez(folder / "other.npz", images=np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8))
    data = DOMAIN.load(BASE)
    for name, config in {
        "a": BASE,
        "low": BASE.replace(scheme="fixed", ratio=0.3),
        "seed": BASE.replace(seed=1),
        "other": BASE.replace(data=str(folder / "other.npz")),
    }.items():
        fit(config, DOMAIN, folder / name, data=data if config.data.source == "digits" and not config.seed else None)
    (folder / "new").mkdir()
    (folder / "new" / "config.yaml").write_text((folder / "a" / "config.yaml").read_text())
    (folder / "pets").mkdir()
    for row, image in enumerate(np.load(folder / "other.npz")["images"]):
        Image.fromarray(image).save(folder / "pets" / f"{row}.png")
    fit(BASE.replace(data=str(folder / "pets")), DOMAIN, folder / "files")
    (folder / "text").mkdir()
    (folder / "text" / "config.yaml").write_text("domain: text\ndata: {source: notes.txt}\n")
    return folder


def test_runs_stand_side_by_side(run: Run, folder: Path) -> None:
    code, out, err = run("pictures a low --ratio 0.5 -o side.svg")
    assert (code, err) == (0, "")
    assert "8 test images, 50% hidden, completed by 2 model(s): side.svg" in out
    text = (folder / "side.svg").read_text()
    assert all(f">{name}<" in text for name in ("original", "r2mae", "fixed 0.30"))


def test_one_run_is_drawn_into_its_folder(run: Run, folder: Path) -> None:
    code, out, _ = run("pictures a")
    assert code == 0
    assert "70% hidden, completed by 1 model(s)" in out  # the domain's default ratio
    first = matplotlib.image.imread(folder / "a" / "pictures.png")
    assert run("pictures a -o again.png")[0] == 0
    assert np.array_equal(first, matplotlib.image.imread(folder / "again.png"))


def test_images_are_told_by_their_places_and_files(run: Run, folder: Path) -> None:
    images, test = np.load(folder / "other.npz")["images"], load_splits(folder / "other.npz").test
    assert test.index is not None
    index = test.index[:8].tolist()
    np.testing.assert_array_equal(images[index], test.images.take(np.arange(8), axis=0)[..., 0])
    assert f"left to right, from 0: {', '.join(map(str, index))}\n" in run("pictures other -o o.png")[1]
    files = run("pictures files -o f.png")[1].partition("left to right: ")[2].strip().split(", ")
    assert len(files) == 8
    assert all(Path(file).parent == folder / "pets" and Path(file).exists() for file in files)


MISTAKES = {
    "pictures none": "there is no run folder none",
    "pictures new": "not finished",
    "pictures text": "text is a run of text without pictures: name pretraining runs of one domain, such as images",
    "pictures a text": "text is a run of text without pictures: name pretraining runs",
    "pictures a seed": "have different test images",
    "pictures a other": "have different test images",
    "pictures a --ratio 70": "--ratio must be above 0 and below 1, not 70",
    "pictures a --ratio nan": "--ratio",
    "pictures a -o side.jpeg": "figures are written as .svg, .png or .pdf, not '.jpeg': -o side.svg",
    "pictures other -o other.npz": "figures are written as",
    "pictures files -o pets/0.png": "pets/0.png is the input, or a file in it: name another output",
    "embed other other.npz -o other.npz": "other.npz is the input, or a file in it: name another output",
    "embed a ./other.npz -o a/../other.npz": "a/../other.npz is the input, or a file in it: name another output",
    "pictures": "required: RUN; for example: r2mae pictures runs/a",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line(run: Run, folder: Path, line: str) -> None:
    before = sorted(path.name for path in folder.rglob("*"))
    read = [folder / "other.npz", folder / "pets" / "0.png"]
    contents = [path.read_bytes() for path in read]
    code, _, err = run(line)
    assert code == 2
    assert MISTAKES[line] in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert [path.read_bytes() for path in read] == contents


def test_data_that_have_changed_are_refused(run: Run, folder: Path) -> None:
    content = (folder / "other.npz").read_bytes()
    np.savez(folder / "other.npz", images=np.zeros((40, 8, 8), np.uint8))
    assert "has changed since other was trained on it" in run("pictures other")[2]
    (folder / "other.npz").write_bytes(content)
    assert run("pictures other -o o.png")[0] == 0
