"""What every domain, model and scheme must do, whoever registered it. Data and sizes of a domain: conftest.py."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from contract.conftest import Case, by_two_processes, cases, entry_of, made
from r2mae.cli.main import main
from r2mae.domains.base import Domain
from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae.evaluation.items import ItemRecorder
from r2mae.images.models import MODELS
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.keys import Key
from r2mae.masking.ratios import Uniform
from r2mae.masking.schemes import make_scheme, scheme_kind, scheme_names
from r2mae.registry import DOMAINS
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit
from r2mae.training.saving import load_model
from r2mae.training.step import sum_of_sample_means
from r2mae.training.task import Data, Task
from training.conftest import InterruptAt, Interrupted, equal_bytes

pytestmark = pytest.mark.slow
SCHEMES = scheme_names()
LEARNED = [one for one in SCHEMES if make_scheme(one, SchemeDefaults(ratio=0.5, low=0.2, high=0.8)).curriculum]
PLAIN = [one for one in SCHEMES if one not in LEARNED]
PER_SAMPLE = [
    one for one in PLAIN if make_scheme(one, SchemeDefaults(ratio=0.5, low=0.2, high=0.8)).ratio.stratified_per_sample
]
# For what costs most: a scheme whose samples have ratios of their own, and one with learned weights.
TWO = [PER_SAMPLE[-1], LEARNED[-1]]
ITEM_METRICS = {
    "images": {"probe_accuracy", "knn_accuracy", "masked_mse", "clean_mse"},
    "cells": {"masked_loss"},
    "text": {"loss", "accuracy"},
}
"""The scores that are means over test items."""
# One whose ratio changes from step to step, for all samples alike.
SCHEDULED = [one for one in PLAIN if one not in PER_SAMPLE][-1]


def test_everything_is_there_and_a_model_is_built_from_plain_values(case: Case) -> None:
    assert isinstance(case.domain, Domain)
    assert isinstance(case.data, Data)
    made_of = case.data.architecture
    task, model = case.domain.build(made_of)
    assert isinstance(task, Task)
    assert isinstance(model, nn.Module)
    _, again = case.domain.build(json.loads(json.dumps(made_of)))
    shapes = [{name: value.shape for name, value in one.state_dict().items()} for one in (model, again)]
    assert shapes[0] == shapes[1]
    config = case.config()
    assert type(config).from_dict(config.to_dict()) == config
    assert case.domain.fingerprint(config) == case.domain.fingerprint(config)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_moves_the_model(case: Case, scheme: str, tmp_path: Path) -> None:
    at_once = {"cl_warmup": 0} if "cl_warmup" in scheme_kind(scheme).options else {}
    config = case.config(scheme=scheme, steps=2, **at_once)
    assert fit(config, case.domain, tmp_path, data=case.data).steps == 2
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    assert metrics["step"].tolist() == [1, 2]
    assert np.isfinite(metrics["loss"]).all()
    low, high = config.scheme.make().ends
    assert metrics["ratio"].between(low - 1e-9, high + 1e-9).all()
    there, _, model = load_model(tmp_path, case.domain)
    assert there.differences(config) == {}
    moved = [float((value - case.unmoved[name]).detach().abs().max()) for name, value in model.named_parameters()]
    assert all(np.isfinite(moved))
    assert max(moved) > 1e-6


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_model_does_not_see_hidden_values(case: Case, scheme: str) -> None:
    config = case.config(scheme=scheme, steps=20)
    ratio_of = config.scheme.bind(20).ratio
    task, model = case.domain.build({**case.data.architecture, **case.entry.hiding})
    rows, key = min(8, len(case.data.train)), Key.root(0)
    batch = case.data.train.batch(range(rows), key.fold("batch"))
    for step in (0, 19):
        ratio, mask = ratio_of.draw(step, key.fold("ratio"), rows), key.fold("mask", step)
        corrupted = task.corrupt(batch, ratio, mask)
        other = task.corrupt(case.entry.changed(batch, corrupted.hidden), ratio, mask)
        assert corrupted.hidden.any()
        assert torch.equal(other.hidden, corrupted.hidden)  # the mask does not look at values, either
        outputs = []
        for one in (corrupted, other):
            torch.manual_seed(0)  # of dropout
            outputs.append(task.forward(model, one))
        assert torch.equal(outputs[0].prediction, outputs[1].prediction)
        assert torch.equal(outputs[0].representation, outputs[1].representation)
        losses = [task.losses(*pair).sum() for pair in zip(outputs, (corrupted, other), strict=True)]
        assert not torch.equal(*losses)  # the loss does see them


def test_samples_of_different_ratios_count_alike(case: Case) -> None:
    """Every domain says which sample a loss is of, and whose entries are hidden: ones there sum to a sample."""
    task, model = case.domain.build(case.data.architecture)
    rows, key = min(8, len(case.data.train)), Key.root(0)
    ratio = Uniform(0.2, 0.8, "stratified", "sample").draw(0, key, rows)
    batch = case.data.train.batch(range(rows), key)
    for hiding in (task.with_fixed_counts, task):
        corrupted = hiding.corrupt(batch, ratio, key)
        losses = hiding.losses(hiding.forward(model, corrupted), corrupted)
        ones = (losses != 0).float() * (1 if corrupted.weights is None else corrupted.weights)
        total, normaliser = sum_of_sample_means(ones, corrupted, rows)
        torch.testing.assert_close(total, normaliser)
        if corrupted.weights is None:
            assert float(total) == pytest.approx(rows)
        counts = corrupted.hidden.reshape(rows, -1).sum(1).numpy()
        if task.with_fixed_counts is not task and hiding is not task:
            assert (counts[np.argsort(ratio)][1:] >= counts[np.argsort(ratio)][:-1]).all()
        assert len(set(counts.tolist())) > 1


@pytest.mark.parametrize("scheme", [*TWO, SCHEDULED])
def test_a_run_that_was_cut_off_ends_with_the_same_bytes(case: Case, scheme: str, tmp_path: Path) -> None:
    at_once = {"cl_warmup": 1 / 6} if "cl_warmup" in scheme_kind(scheme).options else {}
    config = case.config(scheme=scheme, steps=6, save_every=2, **at_once)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    fit(config, case.domain, whole, data=case.data)
    with pytest.raises(Interrupted):
        fit(config, case.domain, cut, data=case.data, reporter=InterruptAt(4))
    assert not RunFolder(cut).trained
    assert 0 < fit(config, case.domain, cut, data=case.data).resumed_from < 6
    assert equal_bytes(whole, cut)


@pytest.mark.slow
def test_what_the_session_has_set_changes_nothing(case: Case, tmp_path: Path) -> None:
    config, task, model = case.finished
    expected = case.domain.embed(config, task, model, case.source)["embedding"]
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), np.errstate(all="raise"):
            fit(case.config(steps=2), case.domain, tmp_path)
            found = case.domain.embed(*load_model(tmp_path, case.domain, unmasked=True), case.source)["embedding"]
            kept = (torch.get_default_dtype(), torch.get_default_device().type, torch.is_autocast_enabled("cpu"))
            assert (*kept, torch.is_inference_mode_enabled()) == (torch.float64, "meta", True, True)
            assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
    np.testing.assert_array_equal(found, expected)
    for name in ("model.safetensors", "metrics.csv"):
        assert (tmp_path / name).read_bytes() == (case.folder / "finished" / name).read_bytes()


def test_embeddings_are_deterministic_with_a_row_for_each_sample(case: Case) -> None:
    first, second = (case.domain.embed(*case.finished, case.source) for _ in range(2))
    assert first["embedding"].ndim == 2
    assert len(first["embedding"]) == case.entry.samples
    assert np.isfinite(first["embedding"]).all()
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])


def test_every_metric_is_measured_within_its_bounds(case: Case) -> None:
    config, task, model = case.finished
    scores = case.domain.evaluate(config, task, model, case.data)
    assert case.domain.metrics_of(config)
    for metric in case.domain.metrics_of(config):
        if metric.name in scores or not metric.optional:
            low, high = metric.bounds
            assert low - 1e-6 <= scores[metric.name] <= high + 1e-6, metric.name


def test_scores_of_single_items_are_those_of_the_run(case: Case) -> None:
    """Their mean is the run's score, taking them down changes no score, and the same items have one fingerprint."""
    config, task, model = case.finished
    if "items" not in case.domain.evaluation_support:
        return
    plain = case.domain.evaluate(config, task, model, case.data)
    taken = []
    for _ in range(2):
        items = ItemRecorder()
        scores = case.domain.evaluate(config, task, model, case.data, items=items)
        assert scores == plain
        taken.append(items.item_scores())
    first, second = taken
    assert first is not None and second is not None and first.fingerprint == second.fingerprint
    names = {name.removeprefix(AS_TRAINED) for name in first.scores}
    assert names == ITEM_METRICS[case.domain.name] & {*scores}
    for name, values in first.scores.items():
        assert values.shape == (first.count,)
        assert float(values.astype(float).mean()) == pytest.approx(scores[name], rel=1e-6), name


def test_every_exporter_writes_a_file(case: Case, tmp_path: Path) -> None:
    arrays = case.domain.embed(*case.finished, case.source)
    assert case.domain.exporters
    for suffix, write in case.domain.exporters.items():
        path = tmp_path / f"embedding{suffix}"
        write(path, arrays, case.source)
        assert path.stat().st_size > 0
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as there:
                np.testing.assert_array_equal(there["embedding"], arrays["embedding"])


def test_every_model_format_is_written_completely_or_refused(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that another library does not have costs one line, and nothing is written."""
    assert case.finished
    for place, layout in enumerate(case.domain.command_line.model_formats):
        output = tmp_path / str(place) / "out.pth"
        code = main(["export", str(case.folder / "finished"), "--to", layout.name, "-o", str(output)])
        told = capsys.readouterr()
        if code == 0:
            assert output.is_dir() or output.stat().st_size > 0
            assert not list(output.parent.glob(".*"))
        else:
            assert (code, told.err.count("\n")) == (2, 1), told.err
            assert not output.parent.exists()


@pytest.mark.parametrize("mistake", ["--no-such-option 1", "--model no-such-model", "--scheme no-such-scheme"])
def test_a_mistake_costs_one_line(
    case: Case, mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pretrain", case.domain.name, case.source, *mistake.split(), "--out", "run"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("r2mae: ")
    assert told.count("\n") == 1
    assert "no-such" in told or not case.model  # a domain without a choice of models has no --model
    assert not Path("run").exists()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """Train every case with two processes; the same two, since they take long to start."""
    folder, runs = tmp_path_factory.mktemp("pairs"), []
    for name, model in cases():
        here = folder / f"{name} {model}"
        here.mkdir()
        with made(name, model, here) as one:
            config = one.config(scheme=TWO[0], steps=3, devices=2).to_dict()
        runs.append({"domain": name, "cache": str(here / "cache"), "out": str(here / "two"), "config": config})
    return folder, by_two_processes(folder, runs, timeout=300)


def test_two_processes_end_well(pairs: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    assert pairs[1].returncode == 0, pairs[1].stderr


def test_two_processes_take_the_steps_of_one(
    case: Case, pairs: tuple[Path, "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    """Ratios and steps are equal; the loss but for batch statistics and dropout, which each process has of its own."""
    fit(case.config(scheme=TWO[0], steps=3), case.domain, tmp_path / "one", data=case.data)
    folder, done = pairs
    pair = folder / f"{case.domain.name} {case.model}" / "two"
    assert RunFolder(pair).trained, done.stderr
    one, two = (pd.read_csv(path / "metrics.csv") for path in (tmp_path / "one", pair))
    for column in ("step", "ratio"):
        assert two[column].tolist() == one[column].tolist()
    assert two["loss"].to_numpy() == pytest.approx(one["loss"].to_numpy(), rel=0.3)


def test_a_variant_keeps_the_contract(
    variant: Case,
    pairs: tuple[Path, "subprocess.CompletedProcess[str]"],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All schemes train it in tests/frozen; what else depends on the data or the model is tried here."""
    test_everything_is_there_and_a_model_is_built_from_plain_values(variant)
    for scheme in TWO:
        test_a_step_moves_the_model(variant, scheme, tmp_path / scheme)
        test_the_model_does_not_see_hidden_values(variant, scheme)
    test_samples_of_different_ratios_count_alike(variant)
    test_a_run_that_was_cut_off_ends_with_the_same_bytes(variant, TWO[1], tmp_path / "resumed")
    test_embeddings_are_deterministic_with_a_row_for_each_sample(variant)
    test_every_metric_is_measured_within_its_bounds(variant)
    test_scores_of_single_items_are_those_of_the_run(variant)
    (tmp_path / "exported").mkdir()
    test_every_exporter_writes_a_file(variant, tmp_path / "exported")
    test_every_model_format_is_written_completely_or_refused(variant, tmp_path / "formats", capsys)
    test_two_processes_take_the_steps_of_one(variant, pairs, tmp_path)


def test_all_domains_are_tested() -> None:
    domains = [name for name, _ in cases()]
    assert set(DOMAINS) <= set(domains)
    assert "waves" in domains  # that of docs/add-a-domain.md
    with pytest.raises(pytest.fail.Exception, match=r"the domain 'sounds' has no entry in .*: add one"):
        entry_of("sounds")


def test_a_model_is_tested_once_it_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ("images", "toy") not in cases()
    monkeypatch.setitem(MODELS, "toy", "toy_image_model")
    assert ("images", "toy") in cases()
    with made("images", "toy", tmp_path) as toy:
        test_everything_is_there_and_a_model_is_built_from_plain_values(toy)
        test_a_step_moves_the_model(toy, TWO[0], tmp_path / "step")
        test_the_model_does_not_see_hidden_values(toy, TWO[0])
        test_embeddings_are_deterministic_with_a_row_for_each_sample(toy)
        test_every_metric_is_measured_within_its_bounds(toy)
