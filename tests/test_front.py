"""The front door: what `r2mae.NAME` offers."""

import importlib
import inspect
import json
import pickle
import pkgutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture

import r2mae
from r2mae import MaskRatio
from r2mae.cells import load_cells
from r2mae.cli.main import main
from r2mae.cli.pretrain import Options
from r2mae.domains.given import kept, passing
from r2mae.domains.lookup import all_domains, domain_of
from r2mae.errors import UserError
from r2mae.front import _read
from r2mae.images import load_images
from r2mae.masking import (
    Key,
    LinearDecay,
    Uniform,
    column_mask,
    element_mask,
    make_scheme,
    patch_mask,
    scheme_kind,
    scheme_names,
    token_mask,
)
from r2mae.masking.defaults import SchemeDefaults
from r2mae.text import read_documents

DEFAULTS = SchemeDefaults(0.5, 0.3, 0.8)


def options_of(scheme: str) -> dict[str, Any]:
    """The ratios that a scheme needs."""
    return {name: value for name, value in DEFAULTS.for_scheme("").items() if name in scheme_kind(scheme).options}


@pytest.mark.parametrize("name", scheme_names())
@given(step=st.integers(0, 199), seed=st.integers(0, 2**40), first=st.integers(0, 5))
def test_it_draws_what_keys_draw(name: str, step: int, seed: int, first: int) -> None:
    ratio = MaskRatio(name, total_steps=200, batch_size=9, seed=seed, **options_of(name))
    key, scheme = Key.root(seed), make_scheme(name, DEFAULTS).bind(200, None, 9)
    drawn = scheme.ratio.draw(step, key.fold("ratio").rows(first), 4)
    masks, special = key.fold("mask", step).rows(first), torch.arange(48).view(4, 12) % 5 == 0
    exact = scheme.ratio.stratified_per_sample
    expected = element_mask((4, 3, 6), drawn, masks, exact=exact)
    assert torch.equal(ratio.mask((4, 3, 6), step, first_row=first), expected)
    assert torch.equal(ratio.tokens(special, step, first_row=first), token_mask(special, drawn, masks))
    if scheme.ratio.per_sample:
        assert torch.equal(ratio(step, 4, first_row=first), torch.as_tensor(drawn).float())  # type: ignore[arg-type]
        return
    assert ratio(step) == ratio(step, rows=4) == drawn == scheme.ratio(step, key.fold("ratio"))
    assert type(ratio(step)) is float
    found = ratio.patches(4, 10, step, first_row=first)
    assert all(map(torch.equal, found, patch_mask(4, 10, ratio(step), masks)))
    assert torch.equal(ratio.columns(30, step), column_mask(30, ratio(step), masks))


@given(step=st.integers(0, 50), parts=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_processes_together_hide_what_one_would(step: int, parts: list[int]) -> None:
    for name in ("r2mae", "r2mae-per-sample"):
        ratio = MaskRatio(name, low=0.1, high=0.9, batch_size=sum(parts))
        masks = [ratio.mask((size, 20), step, first_row=sum(parts[:i])) for i, size in enumerate(parts)]
        assert torch.equal(torch.cat(masks), pickle.loads(pickle.dumps(ratio)).mask((sum(parts), 20), step))


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("r2mea", {}, "did you mean 'r2mae'"),
        ("r2mae", {"low": 0.5}, r"needs high: MaskRatio\('r2mae', high=0.9\)"),
        ("r2mae", {"lo": 0.5, "high": 0.9}, "did you mean 'low'"),
        ("fixed", {"ratio": 0.5, "low": 0.1}, "does not take 'low'"),
        ("r2mae", {"low": 0.9, "high": 0.1}, "swap them"),
        ("dynamic", {"low": 0.1, "high": 0.9}, "give total_steps="),
        ("dynamic", {"low": 0.1, "high": 0.9, "total_steps": 9, "decay_in": "epochs"}, "give steps_per_epoch="),
        ("cl", {"ratio": 0.5, "low": 0.1, "high": 0.9}, "give total_steps="),
        (LinearDecay(0.9, 0.1), {}, "give total_steps="),
        ((0.1, 0.9), {"low": 0.1}, "low is an option of a scheme"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_one_line(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        MaskRatio(given, **options)
    assert "\n" not in str(refused.value)


def test_a_ratio_for_every_sample_needs_to_know_them() -> None:
    ratio = MaskRatio("r2mae-per-sample", low=0.1, high=0.9)
    for call in (lambda: ratio(3), lambda: ratio.patches(4, 10, 3), lambda: ratio.columns(10, 3)):
        with pytest.raises(UserError, match="a ratio for every sample"):
            call()
    with pytest.raises(UserError, match="batch_size"):
        ratio.mask((4, 9), 3, first_row=2)
    with pytest.raises(UserError, match="step"):
        ratio.mask((4, 9), -1)


def test_ratios_without_a_name() -> None:
    assert MaskRatio(0.75)(4) == 0.75
    assert MaskRatio((0.5, 0.9), seed=3)(4) == MaskRatio(Uniform(0.5, 0.9), seed=3)(4)
    assert MaskRatio(LinearDecay(0.9, 0.1), total_steps=9)(8) == pytest.approx(0.1)
    assert MaskRatio(LinearDecay(0.9, 0.1).bind(9))(8) == pytest.approx(0.1)


def test_packages_are_there_without_an_import() -> None:
    code = "import r2mae; r2mae.masking.Uniform; r2mae.images.DOMAIN; r2mae.training.RunConfig; print(*dir(r2mae))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*r2mae.__all__, "masking", "theory"} <= {*done.stdout.split()}


@pytest.mark.parametrize("package", [r2mae, r2mae.training, r2mae.masking, r2mae.theory, r2mae.evaluation])
def test_no_module_hides_a_function(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("__"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    assert all(callable(getattr(package, name)) or not isinstance(getattr(package, name), ModuleType)
               for name in package.__all__)  # fmt: skip


def test_every_domain_has_its_object_in_its_package() -> None:
    for domain in all_domains():
        if type(domain).__module__.startswith("r2mae."):
            assert importlib.import_module(f"r2mae.{domain.name}").DOMAIN is domain


TINY: dict[str, Any] = {"steps": 2, "hidden": 4, "latent": 2, "threads": 1, "progress": False}
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (24, 6, 6), dtype=np.uint8)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("names", "domain"),
    [(["a.npy"], "images"), (["a.NPZ"], "images"), (["a.tar.gz"], "images"), (["f/x/a.png"], "images"),
     (["a.h5ad"], "cells"), (["a.txt"], "text"), (["a.jsonl.gz"], "text"), (["f/a.txt"], "text"), (["a.xyz"], None),
     (["f/meta.json", "f/reference.npy"], "genome"), (["f/a.txt", "f/.b"], "text"),
     (["f/a.txt", "f/a.png"], "images"), (["f/a.txt", "f/a.md"], None), (["f/a"], None)],
)  # fmt: skip
def test_the_domain_of_a_path(here: Path, names: list[str], domain: str | None) -> None:
    for name in names:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).touch()
    assert domain_of(names[0].split("/")[0]) == domain


def test_the_domain_of_objects(here: Path) -> None:
    from anndata import AnnData
    from datasets import ClassLabel, Dataset, Features, Image

    pictures = Dataset.from_dict(
        {"image": [Picture.fromarray(one) for one in PIXELS], "label": [0, 1] * 12},
        features=Features(image=Image(), label=ClassLabel(names=["a/b", ".."])),
    )
    cells = AnnData(RANDOM.poisson(1.0, (9, 4)).astype(np.float32), obs={"kind": ["x"] * 9})
    texts = ["one document", "another"]
    found = {
        "images": [PIXELS, torch.zeros(2, 3, 3, 1), (PIXELS, [0, 1] * 12), pictures],
        "cells": [cells],
        "text": [texts, Dataset.from_dict({"text": texts}), "hf:wikitext"],
    }
    for name, objects in found.items():
        assert [domain_of(one) for one in objects] == [name] * len(objects)
    for unclear in (np.zeros((9, 4)), 3, [1, 2], {"a": 1}):
        with pytest.raises(UserError, match=r"give domain=|give one of them"):
            r2mae.pretrain(unclear)
    images, of_text, of_cells = (r2mae.images.DOMAIN, r2mae.text.DOMAIN, r2mae.cells.DOMAIN)
    path = kept(images, pictures)
    assert kept(images, pictures) == path != kept(images, PIXELS)
    with ThreadPoolExecutor() as pool:
        assert len({*pool.map(lambda _: kept(images, PIXELS[:9]), range(8))}) == 1
    whole = load_images(path)[0]
    found_images = np.asarray(whole.images)[..., 0]
    assert sorted(one.tobytes() for one in found_images) == sorted(one.tobytes() for one in PIXELS)
    assert whole.classes == ("0-a_b", "1-__")
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    assert [*read_documents(kept(of_text, texts))] == texts
    assert load_cells(kept(of_cells, cells)).counts.rows(np.arange(9)).toarray().tolist() == cells.X.tolist()
    assert cells.obs["kind"].dtype == object  # unchanged
    with pytest.raises(UserError, match=r"takes no ndarray|takes no numpy"):
        kept(of_text, PIXELS)


def test_images_of_a_data_set(here: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, Image, Value

    images, modes = r2mae.images.DOMAIN, ["L", "RGB", "YCbCr", "F", "I", "CMYK"]
    names = [".net", "a/b", "a_b", "train", "test"]
    labels = [4, 3, 2, 1, 0] * 4
    rows: dict[str, Any] = {"image": [Picture.fromarray(one) for one in PIXELS[:20]], "label": labels}
    kinds = (ClassLabel(names=names), Value("int64"))
    sets = [Dataset.from_dict(rows, features=Features(image=Image(), label=kind)) for kind in kinds]
    for one in sets:
        whole, test, _ = load_images(kept(images, one))
        assert test is None
        assert whole.labels is not None
        assert np.bincount(whole.labels).tolist() == [4] * 5
        with passing(images, one, object()) as path:
            assert (np.asarray(load_images(path)[0].images)[..., 0] == PIXELS[:20]).all()
    twice = sets[0].add_column("other", sets[0]["label"]).cast_column("other", kinds[0])
    with pytest.raises(UserError, match=r"classes \(label, other\)"):
        kept(images, twice)
    with pytest.raises(UserError, match="row 1 of the data set has no image"):
        kept(images, Dataset.from_dict({"image": [rows["image"][0], None]}, features=Features(image=Image())))

    class Rows(list[dict[str, Any]]):
        features = {"image": Image()}  # noqa: RUF012

    grey = Picture.fromarray(PIXELS[0])
    converted = Rows({"image": (grey.convert("RGB") if mode == "YCbCr" else grey).convert(mode)} for mode in modes)
    found = np.asarray(load_images(kept(images, converted))[0].images).astype(int)
    assert abs(found[:, ..., :1] - PIXELS[0][..., None]).max() <= 3


def bad_data() -> dict[str, tuple[Any, str | None]]:
    """Data in memory that cannot be read, and their domain."""
    from anndata import AnnData
    from datasets import Dataset, DatasetDict
    from pandas import DataFrame

    mixed = AnnData(np.ones((3, 2), np.float32), obs={"kind": np.array(["x", 1, 2.5], object)})
    return {
        "grad": (torch.zeros(3, 4, 4, requires_grad=True), None),
        "objects": (np.full((3, 4, 4), None), None),
        "labels": ((PIXELS, [None] * 24), None),
        "mixed": (mixed, None),
        "words": (DataFrame({"a": ["x", "y"], "b": [1, 2]}), "cells"),
        "parts": (DatasetDict(train=Dataset.from_dict({"text": ["a"]})), None),
        "parts of text": (DatasetDict(train=Dataset.from_dict({"text": ["a"]})), "text"),
        "numbers": ([1, 2], "text"),
        "paths": (["a.txt", "b.txt"], None),
        "number": (3, "images"),
    }


def test_bad_data_are_refused_in_one_line(here: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (here / name).write_text("some text")
    for name, (data, domain) in bad_data().items():
        with pytest.raises(UserError) as refused:
            r2mae.pretrain(data, domain=domain, progress=False)
        assert "\n" not in str(refused.value), name
        assert str(here) not in str(refused.value), name
    assert not list((here / "cache/given").iterdir())
    tensor = torch.arange(12.0).reshape(4, 3)
    assert load_cells(kept(r2mae.cells.DOMAIN, tensor)).counts.rows(np.arange(4)).toarray().tolist() == tensor.tolist()
    message = "^the data/0.png is broken$"
    with pytest.raises(UserError, match=message), passing(r2mae.images.DOMAIN, PIXELS, object()) as path:
        raise UserError(f"{path}/0.png is broken")


@pytest.mark.parametrize("name", ["domain", "config", "preset", "model"])
def test_names_are_text(here: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping, "config", SimpleNamespace(jaxtyping_disable=True))  # of the tests only
    options: Any = {name: 3}
    with pytest.raises(UserError, match=f"{name} takes text"):
        r2mae.pretrain("digits", **options)
    with pytest.raises(UserError, match="folder takes text"):
        r2mae.load(3)  # type: ignore[arg-type]


def test_one_value_of_a_list(here: Path) -> None:
    Path("a.h5ad").touch()
    read = _read("pretrain", Options, "a.h5ad", None, {"labels": "kind", "out": None})
    assert read[2] == {"labels": ["kind"]}


def test_compare_shows_its_options() -> None:
    assert {"data", "domain", "out", "progress", "options"} == {*inspect.signature(r2mae.compare).parameters}
    assert "__main__" in str(r2mae.compare.__doc__)


@pytest.mark.parametrize(
    ("call", "options", "message"),
    [
        ("pretrain", {"mask_ratio": 0.5}, "did you mean 'ratio'"),
        ("pretrain", {"shceme": "r2mae"}, "did you mean 'scheme'"),
        ("pretrain", {"steps": "many"}, "steps takes a whole number"),
        ("pretrain", {"scheme": "fixed", "low": 0.3}, "does not take 'low'"),
        ("pretrain", {"json": True}, "for the command line"),
        ("compare", {"scheme": "r2mae"}, "did you mean 'schemes'"),
        ("compare", {"seed": 3}, "did you mean 'seeds'"),
        ("compare", {"schemes": ["r2mea"]}, "did you mean 'r2mae'"),
        ("compare", {"against": 0.77}, "is not one fixed ratio"),
    ],
)
def test_options_are_those_of_the_command(here: Path, call: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        getattr(r2mae, call)("digits", **options)
    assert not (here / "runs").exists()


@pytest.mark.slow
def test_a_run_of_arrays(here: Path) -> None:
    data = (PIXELS, np.arange(24) % 2)
    run = r2mae.pretrain(data, scheme="r2mae", low=0.2, high=0.9, **TINY)
    assert run.scores["probe_accuracy"] > 0
    assert "linear probe accuracy" in run._repr_html_()
    rows = run.embed(PIXELS)
    assert rows.shape == (24, 2)
    np.testing.assert_allclose(rows[5:7], run.embed(PIXELS[5:7]), rtol=1e-5)
    batch = torch.from_numpy(PIXELS[5:7, ..., None])
    np.testing.assert_allclose(rows[5:7], run.embed(batch).detach(), rtol=1e-5)
    weights = (run.folder / "model.safetensors").stat().st_mtime_ns
    assert run.folder.is_absolute()
    again = r2mae.pretrain(data, scheme="r2mae", low=0.2, high=0.9, **TINY)
    assert again.config == run.config == r2mae.load(run.folder).config
    assert (run.folder / "model.safetensors").stat().st_mtime_ns == weights
    with pytest.raises(UserError, match="did you mean 'resize'"):
        run.embed(PIXELS, rezise=3)
    for bad in ({"x": 1}, {"x": torch.zeros(2)}, torch.zeros(2), 3):
        with pytest.raises(UserError):
            run.embed(bad)
    # The command line makes the same run.
    words = ["pretrain", "images", run.config.data.source, "--scheme", "r2mae", "--low", "0.2", "--high", "0.9"]
    words += [word for name in ("steps", "hidden", "latent", "threads") for word in (f"--{name}", str(TINY[name]))]
    assert main([*words, "--out", "other"]) == 0
    assert (here / "other" / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_runs_of_cells_and_of_texts(here: Path) -> None:
    from anndata import AnnData

    counts = RANDOM.poisson(3.0, (40, 12)).astype(np.float32)
    cells = AnnData(counts, obs={"batch": ["a", "b"] * 20})
    run = r2mae.pretrain(cells, steps=2, n_hidden=4, n_latent=2, batch_key="batch", progress=False)
    assert run.embed(cells[:7].copy()).shape == (7, 2)
    assert r2mae.pretrain(counts, domain="cells", steps=2, n_hidden=4, n_latent=2, progress=False).scores
    texts = ["the cat sat on the mat and saw a dog", "a dog ran to the park and met the cat"] * 40
    sizes = {"hidden_size": 8, "layers": 1, "heads": 1, "intermediate_size": 8, "vocab_size": 300}
    options: dict[str, Any] = {**sizes, "batch_size": 4, "sequence_length": 16, "threads": 1}
    text = r2mae.pretrain(texts, steps=2, progress=False, **options)
    found = text.embed(["a cat", "a dog", "a cat"])
    assert found.shape == (3, 8)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-5)


@pytest.mark.slow
def test_a_comparison(here: Path) -> None:
    options: dict[str, Any] = {"schemes": ["fixed", "r2mae"], "ratios": 0.5, "seeds": 2, "baselines": "none", **TINY}
    found = r2mae.compare(PIXELS, out="runs/c", **options)
    assert found.report == here / "runs/c/report.html"
    assert found.report.is_file()
    assert set(found.table["seed"]) == {0, 1}
    told = json.loads(Path("runs/c/results.json").read_text())["headline"]
    assert found.verdict in told or told in found.verdict
    loaded = r2mae.load("runs/c")
    assert loaded.verdict == found.verdict
    assert loaded.report == found.report
    html = loaded._repr_html_()
    assert found.verdict.split()[0] in html
    assert "fixed 0.50" in html
