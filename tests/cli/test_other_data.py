"""`r2mae evaluate RUN --data OTHER`: a finished run on other data than its own."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN as CELLS
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN as TEXT
from r2mae.training.folder import RunFolder
from r2mae.training.pretraining import pretrain

from .conftest import Run

pytestmark = pytest.mark.slow


def cells(path: Path, genes: list[str], seed: int, **columns: object) -> None:
    rng, count = np.random.default_rng(seed), 40
    counts = rng.poisson(1.0, (count, len(genes))).astype(np.float32)
    counts[:, 0] += 1
    obs = {"donor": [f"d{i % 4}" for i in range(count)], "kind": [f"kind {i % 2}" for i in range(count)], **columns}
    table = pd.DataFrame(obs, index=[f"c{i}" for i in range(count)])
    adata = anndata.AnnData(csr_matrix(counts), obs=table, var=pd.DataFrame(index=genes))
    adata.write_h5ad(path)


def text(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    words = ["snow", "river", "stone", "bright", "morning", "walks", "under", "green", "hills", "slowly"]
    path.write_text("\n\n".join(" ".join(draw.choices(words, k=40)) for _ in range(60)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of every domain, and other data."""
    folder = tmp_path_factory.mktemp("elsewhere")
    digits = load_digits()
    pixels = np.rint(digits.images * 15).astype(np.uint8)
    np.savez(folder / "a.npz", images=pixels[:300], labels=digits.target[:300])
    np.savez(folder / "b.npz", images=255 - pixels[300:600], labels=digits.target[300:600])
    np.savez(folder / "large.npz", images=np.kron(pixels[:20], np.ones((2, 2), np.uint8)))
    np.savez(folder / "colour.npz", images=np.repeat(pixels[:20, :, :, None], 3, axis=3))
    genes = [f"g{i}" for i in range(12)]
    cells(folder / "a.h5ad", genes, 0)
    cells(folder / "b.h5ad", [*genes[::-1][:9], "new"], 1)
    cells(folder / "alien.h5ad", ["x", "y", "z"], 2)
    cells(folder / "bare.h5ad", genes, 3, kind=np.arange(40))
    text(folder / "a.txt", 0)
    text(folder / "b.txt", 1)
    (folder / "short.txt").write_text("snow")
    texts = (folder / "b.txt").read_text().split("\n\n")
    (folder / "col.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MAE_CACHE", str(folder / "cache"))
        small = {"epochs": 1, "threads": 1, "seed": 0}
        images = ImagesConfig.make(data=str(folder / "a.npz"), hidden=16, latent=8, **small)
        pretrain(images, IMAGES, folder / "images")
        of_cells = CellsConfig.make(
            data=str(folder / "a.h5ad"), donor_key="donor", labels=("kind",), n_hidden=8, n_latent=4, batch_size=20,
            **small,
        )  # fmt: skip
        pretrain(of_cells, CELLS, folder / "cells")
        of_text = TextConfig.make(
            data=str(folder / "a.txt"), vocab_size=300, sequence_length=16, hidden_size=8, layers=1, heads=1,
            intermediate_size=16, batch_size=8, validation=0.1, **small,
        )  # fmt: skip
        pretrain(of_text, TEXT, folder / "text")
    return folder


@pytest.mark.parametrize(
    ("domain", "other", "score"),
    [("images", "b.npz", "probe_accuracy"), ("cells", "b.h5ad", "score"), ("text", "b.txt", "loss")],
)
def test_a_run_is_measured_on_other_data(run: Run, folder: Path, domain: str, other: str, score: str) -> None:
    before = {file: file.read_bytes() for file in (folder / domain).rglob("*") if file.is_file()}
    own = json.loads(run(f"evaluate {domain} --json")[1])
    code, out, _ = run(f"evaluate {domain} --data {other} --json")
    answer = json.loads(out)
    assert code == 0
    assert (Path(own["data"]).stem, answer["data"]) == ("a", other)
    assert answer["scores"].keys() == own["scores"].keys()
    assert np.isfinite(answer["scores"][score])
    assert answer["scores"] != own["scores"]
    assert own["scores"] == json.loads(before[folder / domain / "results.json"])["scores"]
    assert {file: file.read_bytes() for file in before} == before
    assert f"measured on {other} in" in run(f"evaluate {domain} --data {other}")[1]


@pytest.mark.parametrize(("domain", "data"), [("images", "a.npz"), ("cells", "a.h5ad"), ("text", "a.txt")])
def test_data_that_were_moved_are_known_by_their_content(
    run: Run, folder: Path, tmp_path: Path, domain: str, data: str, caplog: pytest.LogCaptureFixture
) -> None:
    own, old, new = tmp_path / "run", tmp_path / f"old-{data}", tmp_path / data
    shutil.copytree(folder / domain, own)
    config = own / "config.yaml"
    config.write_text(config.read_text().replace(str(folder / data), str(old)))
    shutil.copy(folder / data, new)
    code, out, err = run(f"evaluate {own} --data {new} --json")
    assert code == 0, err
    scores = json.loads(run(f"evaluate {domain} --json")[1])["scores"]
    assert json.loads(out)["scores"] == pytest.approx(scores)
    assert run(f"evaluate {own}")[0] == 2
    code, out, err = run(f"pretrain {domain} {new} --config {config} --out {own}")
    assert (code, "is finished already" in out) == (0, True), err
    assert f"{own} was begun on {old}; {new} has the same content" in caplog.text
    assert run(f"evaluate {own}")[0] == 0
    new.write_bytes(new.read_bytes()[:-9])
    assert run(f"evaluate {own}")[0] == 2


def test_the_probe_is_fitted_on_the_other_data(run: Run, folder: Path) -> None:
    """Labels of the other data that the run never saw are learned there."""
    with np.load(folder / "b.npz") as stored:
        np.savez(folder / "named.npz", images=stored["images"], labels=np.array(list("abcdefghij"))[stored["labels"]])
    answers = [json.loads(run(f"evaluate images --data {name}.npz --json")[1]) for name in ("named", "b")]
    assert answers[0]["scores"] == answers[1]["scores"]


def test_images_are_brought_to_the_size_of_the_model(run: Run) -> None:
    code, _, err = run("evaluate images --data large.npz")
    assert (code, err.count("\n")) == (2, 1)
    assert "large.npz has images of 16 x 16 x 1, and the model takes 8 x 8 x 1: add --resize 8" in err
    assert run("evaluate images --data large.npz --resize 8")[0] == 0


REFUSED = {
    "images --data colour.npz": "has images of 8 x 8 x 3, and the model takes 8 x 8 x 1: convert them to the size and",
    "images --data none.npz": "none.npz: no such file",
    "images --data a.npz": "images was trained on a.npz: omit --data",
    "images --resize 8": "--resize is for other data: name them, --data OTHER",
    "images --data b.npz --layer counts": "which has no --layer: omit it",
    "cells --data alien.h5ad": "alien.h5ad",
    "cells --data none.h5ad": "none.h5ad does not exist",
    "cells --data b.h5ad --layer raw": "has no layer 'raw'",
    "text --data none.txt": "none.txt does not exist",
    "text --data short.txt": "less than one sequence of 16: give more text",
    "text --data col.jsonl": "unknown column 'text': choose from: body (--text-column body)",
    "text --data b.txt --text-column body": "b.txt is plain text, which has no columns: omit --text-column body",
    "text --text-column body": "--text-column is for other data: name them, --data OTHER",
    "images --data b.npz --text-column body": "which has no --text-column: omit it",
    "text glue --task sst2 --data b.txt": "glue has its own data: omit --data",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_fit_is_refused_in_a_line(run: Run, line: str) -> None:
    code, _, err = run(f"evaluate {line}")
    assert (code, len(err.strip().splitlines())) == (2, 1), err
    assert REFUSED[line] in err


def test_the_text_of_other_data_may_be_in_another_column(run: Run, tmp_path: Path) -> None:
    found = [
        json.loads(run(f"evaluate text --data {other} --json")[1])["scores"]
        for other in ("b.txt", "col.jsonl --text-column body")
    ]
    assert found[0] == found[1]
    code, _, err = run(f"embed text col.jsonl -o {tmp_path / 'e.npz'}")
    assert (code, "choose from: body (--text-column body)" in err) == (2, True)
    embedded = []
    for other in ("b.txt", "col.jsonl --text-column body"):
        assert run(f"embed text {other} -o {tmp_path / 'e.npz'}")[0] == 0
        with np.load(tmp_path / "e.npz") as made:
            embedded.append(made["embedding"])
    np.testing.assert_array_equal(*embedded)
    code, _, err = run(f"embed text b.txt --text-column body -o {tmp_path / 'e.npz'}")
    assert (code, "which has no columns: omit --text-column body" in err) == (2, True)


def test_cells_are_mapped_by_gene_and_all_of_them_reconstructed(folder: Path) -> None:
    architecture = json.loads((folder / "cells" / "model.json").read_text())["architecture"]
    config = CellsConfig.make(
        data="", donor_key="donor", labels=("kind",), n_top_genes=3, min_genes=12
    )  # without effect
    changed, data = CELLS.load_other_data(config, str(folder / "b.h5ad"), architecture)
    assert changed.data.source == str(folder / "b.h5ad")
    assert data.table.genes == tuple(architecture["genes"])
    assert data.validation is not None and len(data.validation) == 40
    counts = data.table.counts.rows(np.arange(40)).toarray()
    stored = anndata.read_h5ad(folder / "b.h5ad").to_df()
    np.testing.assert_array_equal(counts[:, 11], stored["g11"])
    assert not counts[:, 0].any()  # g0 is not among the other genes


@pytest.mark.parametrize(
    ("domain", "other", "told"),
    [
        (IMAGES, "b.npz", "ImageSet('b': 240 images of 8 x 8 x 1, uint8, 10 classes)"),
        (CELLS, "b.h5ad", "40 cells of 12 genes, 1 batch)"),
        (TEXT, "b.txt", " documents)"),
    ],
)
def test_printed_data_are_one_short_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, domain: Any, other: str, told: str
) -> None:
    monkeypatch.setenv("R2MAE_CACHE", str(folder / "cache"))
    config = domain.config.from_dict(RunFolder(folder / domain.name).read_config())
    architecture = RunFolder(folder / domain.name).description.architecture
    printed = repr(domain.load_other_data(config, str(folder / other), architecture)[1])
    assert told in printed
    assert "\n" not in printed and "0x" not in printed
    assert len(printed) < 600 + 2 * len(str(folder))
