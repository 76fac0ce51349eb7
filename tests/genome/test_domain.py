"""The domain: the paper's numbers, embedding, other stores, early stopping, the command line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from genome.test_data import aligned, config
from r2mae.cli.main import main
from r2mae.compare.measure import evaluate
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, add_track, build_store
from r2mae.genome.config import GenomeConfig
from r2mae.genome.domain import DOMAIN
from r2mae.genome.task import AlignmentTask
from r2mae.masking.keys import Key
from r2mae.masking.schemes import scheme_names
from r2mae.training.loop import fit
from r2mae.training.pretraining import pretrain
from r2mae.training.saving import load_model
from training.conftest import NEEDS_BF16

SMALL = {"width": 16, "layers": 1, "heads": 2, "inner": 16, "threads": 1, "device": "cpu"}


@pytest.fixture
def small(tmp_path: Path) -> AlignmentStore:
    return aligned(tmp_path)


def used(scheme: str, **fields: object) -> dict[str, object]:
    return dict(GenomeConfig.make(data="x", scheme=scheme, **fields).scheme.options)


def test_the_papers_numbers() -> None:
    """DNA appendix of the paper; runs of 30,000 steps."""
    assert used("fixed") == {"ratio": 0.15}
    falling = GenomeConfig.make(data="x", scheme="dynamic").scheme.make().bind(30_000).ratio
    assert falling(0, Key.root(0)) == pytest.approx(0.3)
    assert falling(29_999, Key.root(0)) == pytest.approx(0.15, abs=1e-4)
    assert GenomeConfig.make(data="x", scheme="r2mae").scheme.make().ends == (0.05, 0.3)
    assert GenomeConfig.make(data="x", scheme="mdlm").scheme.make().ends == (0.0, 1.0)
    above = GenomeConfig.make(data="x", scheme="r2mae-dynamic").scheme.make()
    assert above.ends == (0.0, 0.3)
    curriculum = GenomeConfig.make(data="x", scheme="r2mae-cl").scheme.make().bind(30_000).curriculum
    assert curriculum is not None
    np.testing.assert_allclose(curriculum.grid.values, np.linspace(0.05, 0.3, 10))
    assert (curriculum.iterations, curriculum.floor) == (10, 0.5)
    assert curriculum.frozen(4999)
    assert not curriculum.frozen(5000)
    assert [curriculum.multiplier_at(step) for step in (0, 15_000, 30_000)] == [1, 0, -1]
    constant = GenomeConfig.make(data="x", scheme="r2mae-cl-k0").scheme.make().bind(30_000).curriculum
    assert constant is not None
    assert constant.multiplier_at(29_999) == 1


@pytest.mark.parametrize("scheme", ["cl", "cl-k0"])
def test_cl_hides_15_percent_and_takes_the_nearest_column(scheme: str) -> None:
    """15 % is no ratio of the paper's grid; the nearest is 0.161."""
    found = GenomeConfig.make(data="x", scheme=scheme).scheme.make().bind(30_000)
    assert found.ends == (0.15, 0.15)
    assert found.curriculum is not None
    grid = found.curriculum.grid
    assert grid.values[grid.nearest_column(0.15)] == pytest.approx(0.05 + 4 * 0.25 / 9)


def test_the_weight_network_is_the_papers() -> None:
    for scheme in scheme_names():
        curriculum = GenomeConfig.make(data="x", scheme=scheme).scheme.make().curriculum
        if curriculum is not None:
            network = AlignmentTask(16).weight_network(curriculum)
            sizes = [tuple(part.shape) for part in network.parameters() if part.ndim == 2]
            assert sizes == [(128, 16), (128, 128), (10, 128)]


def test_the_largest_preset_is_the_papers() -> None:
    base = GenomeConfig.make(data="x", **DOMAIN.presets["base"])
    assert base == GenomeConfig.make(data="x", accumulate=4)
    assert (base.model.layers, base.model.heads, base.model.width, base.data.window) == (12, 12, 768, 128)
    assert (base.optimizer.batch_size, base.optimizer.lr, base.optimizer.name) == (2048, 1e-4, "adamw")
    # GPN-MSA's: 1,000 of 30,000 steps of warm-up, half a cosine, decay of weights, clipping by the Trainer.
    assert (
        base.optimizer.warmup * 30_000,
        base.optimizer.schedule,
        base.optimizer.weight_decay,
        base.optimizer.clip,
    ) == (1000, "cosine", 0.01, 1.0)
    for fields in DOMAIN.presets.values():
        GenomeConfig.make(data="x", **fields)


@pytest.mark.slow
def test_a_model_learns_what_the_aligned_species_say(tmp_path: Path) -> None:
    """Each base is that of one species, which the model has to find."""
    rng = np.random.default_rng(0)
    bases = np.array(list("ACGT"))
    rows = rng.integers(0, 4, (4, 900))
    rows[2] = rows[0]
    path = tmp_path / "copy.fa"
    path.write_text("".join(f">s{number}\n{''.join(bases[row])}\n" for number, row in enumerate(rows)))
    store = build_store(path, tmp_path / "copy")
    learning = {"lr": 1e-2, "batch_size": 32, "steps": 60, "dropout": 0.0}
    run = config(store, **{**SMALL, "width": 32, "inner": 64, **learning})
    data = DOMAIN.load(run)
    fit(run, DOMAIN, tmp_path / "run", data=data)
    found, own, model = load_model(tmp_path / "run", DOMAIN, unmasked=True)
    scores = DOMAIN.evaluate(found, own, model, data)
    assert scores["accuracy"] > 0.9


@NEEDS_BF16
@pytest.mark.slow
def test_half_precision_with_learned_weights(small: AlignmentStore, tmp_path: Path) -> None:
    losses = []
    for precision in ("32", "bf16"):
        run = config(small, **SMALL, steps=3, scheme="r2mae-cl", precision=precision, dropout=0.1)
        fit(run, DOMAIN, tmp_path / precision)
        losses.append(pd.read_csv(tmp_path / precision / "metrics.csv")["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.1)


@pytest.mark.slow
def test_embedding_by_regions_and_by_names(
    small: AlignmentStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = config(small, **SMALL, steps=1)
    fit(run, DOMAIN, tmp_path / "run")
    finished = load_model(tmp_path / "run", DOMAIN, unmasked=True)
    caplog.clear()
    whole = DOMAIN.embed(*finished, str(small.folder))
    assert caplog.messages == ["12 of 1,500 positions are in no window of 16: at ends of regions"]
    caplog.clear()
    assert whole["embedding"].shape == (1500 // 16, 16)
    assert whole["starts"].tolist() == list(range(1, 1489, 16))
    assert set(whole["contigs"]) == {"chr1"}
    part = DOMAIN.embed(*finished, str(small.folder), regions=["chr1:17-48"])
    np.testing.assert_allclose(part["embedding"], whole["embedding"][1:3], atol=1e-5)
    assert not caplog.messages
    other = aligned(tmp_path, 200, 2, "b")
    with pytest.raises(UserError, match="lacks 2 of the 3 aligned species"):
        DOMAIN.embed(*finished, str(other.folder))


@pytest.mark.slow
def test_unknown_positions_without_an_embedding_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "n.fa").write_text(f">s0\n{'ACGT' * 20}{'N' * 40}ACGTA\n>s1\n{'ACGT' * 31}A\n")
    store = build_store(tmp_path / "n.fa", tmp_path / "n")
    fit(config(store, **SMALL, steps=1, validation=0.0, stride=1), DOMAIN, tmp_path / "run")
    caplog.clear()
    made = DOMAIN.embed(*load_model(tmp_path / "run", DOMAIN, unmasked=True), str(store.folder))
    assert len(made["embedding"]) == 5
    (told,) = caplog.messages
    assert told.startswith("45 of 125 positions are in no window of 16: at ends of regions, ")
    assert told.endswith("or in 2 windows with too many unknown bases")


@pytest.mark.slow
def test_a_run_with_a_track_is_measured_on_a_store_without(small: AlignmentStore, tmp_path: Path) -> None:
    (tmp_path / "w.bg").write_text("chr1\t0\t1500\t2.5\n")
    add_track(small, tmp_path / "w.bg", "w")
    run = config(small, **SMALL, steps=1, weight_track="w", validation_regions=("chr1:1-160",))
    pretrain(run, DOMAIN, tmp_path / "run")
    other = aligned(tmp_path, 320, 5, "b")
    found = evaluate(tmp_path / "run", source=str(other.folder))
    assert (found.config.data.source, found.config.data.validation_regions) == (str(other.folder), ())
    _, data = DOMAIN.load_other_data(found.config, str(other.folder), DOMAIN.load(run).architecture)
    assert len(data.measured or ()) == 20
    assert 0 <= found.scores["accuracy"] <= 1
    with pytest.raises(UserError, match=r"was trained on"):
        evaluate(tmp_path / "run", source=str(small.folder))


def test_an_alignment_instead_of_a_store_costs_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.maf").write_text("##maf version=1\n")
    assert main(["pretrain", "genome", str(tmp_path / "x.maf"), "--out", str(tmp_path / "run")]) == 2
    assert "build one first with r2mae data alignment build" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
