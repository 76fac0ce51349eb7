"""Scores of a model and of any embedding."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold

from r2mae.cells.batches import CellBatches, CellData, split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.counts import Counts
from r2mae.cells.domain import DOMAIN
from r2mae.cells.donors import ProbeCells, probe_cells
from r2mae.cells.evaluate import (
    GENE_SETS,
    LOSS_RATIOS,
    RATIOS,
    Expected,
    embed_rows,
    evaluate,
    evaluate_embedding,
    log_normalized,
    masked_gene_losses,
    predict,
    reconstruction_scores,
)
from r2mae.cells.table import CellTable
from r2mae.cells.task import CSR, GeneTask, MaskedGenes, dense
from r2mae.errors import UserError
from r2mae.evaluation.probes import LinearProbe
from r2mae.evaluation.spectrum import SPECTRUM
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, column_mask
from r2mae.training.validation import re_estimated_statistics

pytestmark = pytest.mark.slow

CELLS, GENES = 240, 40
CONFIG = CellsConfig.make(
    data="x", donor_key="donor", labels=("cell_type", "disease"), regress=("age",), n_hidden=32, n_latent=8
)


@pytest.fixture
def table() -> CellTable:
    """Twelve donors, five of them ill; three cell types that express other genes; ages."""
    rng = np.random.default_rng(0)
    donor, kind = np.repeat(np.arange(12), CELLS // 12), np.arange(CELLS) % 3
    rates = np.random.default_rng(1).gamma(0.5, 3.0, (3, GENES))
    counts = rng.poisson(rates[kind])
    counts[np.arange(CELLS), np.arange(CELLS) % GENES] += 1
    obs = pd.DataFrame(
        {
            "donor": [f"D{i}" for i in donor],
            "cell_type": pd.Categorical(np.array(["B", "NK", "T"])[kind]),
            "disease": np.where(donor < 5, "ill", "well"),
            "age": 20 + 3 * donor,
        },
        index=[f"cell{i}" for i in range(CELLS)],
    )
    counts = Counts(csr_matrix(counts.astype(np.int32)))
    genes = tuple(f"gene{i}" for i in range(GENES))
    return CellTable("some.h5ad", counts, genes, obs, (np.arange(CELLS) % 2).astype(np.int64), ("a", "b"), ())


@pytest.fixture
def data(table: CellTable) -> CellData:
    return split_data(table, CONFIG)


@pytest.fixture
def built(data: CellData) -> tuple[GeneTask, torch.nn.Module]:
    torch.manual_seed(0)
    return DOMAIN.build(data.architecture)


def informative(table: CellTable, noise: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(2)
    known = [pd.get_dummies(table.obs["cell_type"]), table.obs["disease"] == "ill", table.obs["age"] / 10]
    return np.column_stack(known).astype(float) + noise * rng.normal(size=(CELLS, 5))


def test_scores_of_a_model(data: CellData, built: tuple[GeneTask, torch.nn.Module]) -> None:
    task, model = built
    model.train()
    scores = evaluate(CONFIG, task, model, data)
    assert model.training
    told: list[tuple[int, int]] = []
    assert scores == evaluate(CONFIG, task, model, data, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told) and told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1
    assert {metric.name for metric in DOMAIN.metrics_of(CONFIG) if not metric.optional} <= scores.keys()
    averaged = ("cell_type_bacc", "cell_type_f1", "disease_bacc", "disease_f1", "age_spearman_cell")
    averaged = (*averaged, "age_spearman_donor")
    assert scores["score"] == pytest.approx(np.mean([scores[name] for name in averaged]))
    named = [scores[f"reconstruction_r_{ratio:g}"] for ratio in (0.1, 0.2, 0.3, 0.5, 0.7)]
    assert scores["reconstruction_r"] == pytest.approx(np.mean(named))
    losses = masked_gene_losses(task, model, data.validation)
    assert [scores[f"masked_loss_{ratio:g}"] for ratio in LOSS_RATIOS] != pytest.approx(losses)  # re-estimated
    plain = evaluate(CONFIG.replace(bn_statistics="no"), task, model, data)
    assert [plain[f"masked_loss_{ratio:g}"] for ratio in LOSS_RATIOS] == pytest.approx(losses)
    assert plain["masked_loss"] == pytest.approx(np.mean(losses))
    with re_estimated_statistics(task, model, data.train, 0.9):
        assert scores["masked_loss_0.9"] == pytest.approx(masked_gene_losses(task, model, data.validation)[-1])
    assert 1 <= scores["effective_rank"] <= 8
    # A layer of random weights tells the cell types apart.
    assert scores["cell_type_bacc"] > 0.6


def test_embeddings_are_scored_alike(table: CellTable) -> None:
    good = evaluate_embedding(table, informative(table), CONFIG)
    assert good["cell_type_bacc"] == good["cell_type_auroc"] == good["disease_auroc_donor"] == 1.0
    assert good["age_spearman_cell"] > 0.95
    assert good["score"] > 0.95
    chance = evaluate_embedding(table, np.random.default_rng(3).normal(size=(CELLS, 6)), CONFIG)
    assert chance["cell_type_bacc"] < 0.5
    assert 0.3 < chance["cell_type_auroc"] < 0.7


def test_functions_are_asked_for_the_cells_that_are_needed(table: CellTable) -> None:
    features, asked = informative(table, 1.0), []

    def lookup(rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return features[rows]

    assert evaluate_embedding(table, lookup, CONFIG) == evaluate_embedding(table, features, CONFIG)
    assert len(asked) == 1
    assert (np.diff(asked[0]) > 0).all()


def test_no_test_cell_is_fitted(table: CellTable) -> None:
    """Labels of test donors decide nothing about the predictions."""
    features = informative(table, 1.0)
    (before, *_), _ = probe_cells(table, CONFIG)
    after = replace(before, test_values=before.test_values[::-1])
    one, two = (predict(cells, features[before.train], features[before.test]) for cells in (before, after))
    np.testing.assert_array_equal(one.predicted, two.predicted)
    assert not np.array_equal(one.truth, two.truth)


def make_cells(table: CellTable, column: str, donors: int) -> tuple[ProbeCells, np.ndarray, np.ndarray]:
    (cell_type, disease, age), _ = probe_cells(table, CONFIG)
    cells = {"cell_type": cell_type, "disease": disease, "age": age}[column]
    chosen = np.isin(cells.train_donors, np.unique(cells.train_donors)[:donors])
    cells = replace(
        cells,
        train=cells.train[chosen],
        train_values=cells.train_values[chosen],
        train_donors=cells.train_donors[chosen],
    )
    features = informative(table, 1.0)
    return cells, features[cells.train], features[cells.test]


@pytest.mark.parametrize("donors", [3, 7])
def test_ages_are_predicted_as_by_the_papers_grid_search(table: CellTable, donors: int) -> None:
    cells, train, test = make_cells(table, "age", donors)
    made = predict(cells, train, test)
    search = GridSearchCV(
        Ridge(), {"alpha": np.logspace(0, 8, 20)}, cv=GroupKFold(min(5, donors)), scoring="neg_mean_squared_error"
    )
    search.fit(train, cells.train_values, groups=cells.train_donors)
    np.testing.assert_allclose(made.predicted, search.predict(test), rtol=1e-8)


def test_cell_types_are_predicted_as_by_the_papers_grid_search(table: CellTable) -> None:
    cells, train, test = make_cells(table, "cell_type", 7)
    made = predict(cells, train, test)
    search = GridSearchCV(
        LogisticRegression(tol=1e-8, max_iter=10_000),
        {"C": np.logspace(-6, 2, 10)},
        cv=GroupKFold(5),
        scoring="balanced_accuracy",
    )
    search.fit(train, cells.train_values, groups=cells.train_donors)
    np.testing.assert_allclose(made.predicted, search.predict_proba(test), atol=1e-4)


def test_fits_that_do_not_settle_are_no_warning(table: CellTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in the tests."""
    cells, train, test = make_cells(table, "cell_type", 7)
    hasty = partial(LinearProbe, max_iter=2)
    with pytest.warns(ConvergenceWarning):
        hasty().fit(train, cells.train_values, cells.train_donors)
    monkeypatch.setattr("r2mae.cells.evaluate.LinearProbe", hasty)
    assert predict(cells, train, test).scores()["cell_type_bacc"] > 0.4


def test_one_training_donor_is_enough_for_a_probe(table: CellTable) -> None:
    cells, train, test = make_cells(table, "cell_type", 1)
    assert predict(cells, train, test).scores()["cell_type_bacc"] > 0.4


def test_the_masked_loss_is_over_many_draws_of_genes(
    data: CellData, built: tuple[GeneTask, torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are to be, all different, and of all cells equally often."""
    task, model = built
    assert data.validation is not None
    drawn: list[tuple[int, ...]] = []
    seen = 0
    corrupt = GeneTask.corrupt

    def watched(self: GeneTask, batch: CSR, ratio: RatioLike, key: Key) -> MaskedGenes:
        nonlocal seen
        corrupted = corrupt(self, batch, ratio, key)
        assert isinstance(corrupted, MaskedGenes)
        drawn.append(tuple(corrupted.columns.tolist()))
        seen += len(corrupted.library)
        return corrupted

    monkeypatch.setattr(GeneTask, "corrupt", watched)
    losses = masked_gene_losses(task, model, data.validation, [0.5])
    assert len(set(drawn)) == len(drawn) >= GENE_SETS
    assert seen % len(data.validation) == 0
    assert masked_gene_losses(task, model, data.validation, [0.5]) == losses


def test_intervals_are_over_test_donors(table: CellTable) -> None:
    features = informative(table, 1.0)
    scores = evaluate_embedding(table, features, CONFIG)
    for name in ("score", "cell_type_bacc", "age_spearman_cell"):
        assert scores[f"{name}_donors_low"] < scores[name] < scores[f"{name}_donors_high"]
    without = evaluate_embedding(table, features, CONFIG.replace(donor_key=None))
    assert not any(name.endswith("_low") for name in without)


def test_nothing_to_predict(data: CellData, built: tuple[GeneTask, torch.nn.Module]) -> None:
    scores = evaluate(CONFIG.replace(labels=(), regress=(), donor_key=None), *built, data)
    named = {f"reconstruction_r_{ratio:g}" for ratio in RATIOS}
    named |= {f"gene_r_{ratio:g}" for ratio in RATIOS} | {f"masked_loss_{ratio:g}" for ratio in LOSS_RATIOS}
    assert scores.keys() == {"reconstruction_r", "gene_r", "masked_loss", *named, "effective_rank", "spectral_entropy"}
    without = evaluate(CONFIG.replace(labels=(), regress=()), *built, replace(data, validation=None))
    assert without.keys() == {"effective_rank", "spectral_entropy"}


def test_what_is_undefined_is_left_out(table: CellTable) -> None:
    """With two test donors a number has no correlation over donors, and with one class there is no probe."""
    few = table.obs["donor"].isin(["D0", "D4", "D8", "D9", "D11"]).to_numpy()
    rules = tuple(f"donor={name}" for name in np.unique(table.obs["donor"][~few]))
    obs = table.obs.assign(cell_type="B")
    scores = evaluate_embedding(replace(table, obs=obs), informative(table), CONFIG.replace(exclude=rules))
    assert scores.keys() >= {"disease_bacc", "age_spearman_cell"}
    assert not {"cell_type_bacc", "age_spearman_donor"} & scores.keys()
    averaged = ("disease_bacc", "disease_f1", "age_spearman_cell")
    assert scores["score"] == pytest.approx(np.mean([scores[name] for name in averaged]))


def test_a_collapsed_model_has_scores(table: CellTable) -> None:
    scores = evaluate_embedding(table, np.ones((CELLS, 4)), CONFIG)
    assert scores["cell_type_bacc"] == pytest.approx(1 / 3)
    assert scores["cell_type_auroc"] == 0.5
    assert scores["age_spearman_cell"] == scores["age_spearman_donor"] == 0.0
    assert scores["effective_rank"] == pytest.approx(1.0)
    nothing = evaluate_embedding(table, np.zeros((CELLS, 4)), CONFIG)
    assert nothing == {name: score for name, score in scores.items() if name not in SPECTRUM}


def test_bad_embeddings_are_refused(table: CellTable) -> None:
    features = informative(table)
    with pytest.raises(UserError, match=r"some.h5ad: an embedding must have a row for each of the 240 cells"):
        evaluate_embedding(table, features[1:], CONFIG)
    features[[3, 7], 1] = np.nan
    with pytest.raises(UserError, match=r"some.h5ad: the embedding of 2 of 240 cells has NaN or infinity"):
        evaluate_embedding(table, features, CONFIG)


def test_rows_are_embedded_in_order(table: CellTable, built: tuple[GeneTask, torch.nn.Module]) -> None:
    task, model = built
    rows = np.array([5, 17, 18, 200])
    every = embed_rows(task, model, table, np.arange(CELLS))
    np.testing.assert_allclose(embed_rows(task, model, table, rows, size=3), every[rows], rtol=1e-4, atol=1e-5)


def expected_of(task: GeneTask, model: torch.nn.Module) -> Expected:
    model.eval()
    return lambda batch, hidden: task.expected(model, batch, hidden=hidden)[0]


def test_reconstruction_is_a_correlation_over_the_hidden_genes(
    table: CellTable, built: tuple[GeneTask, torch.nn.Module]
) -> None:
    task, model = built
    model.eval()
    ratios = (0.2, 0.7)
    counts = torch.from_numpy(table.counts.rows(np.arange(CELLS)).toarray()).float()
    measured = np.log1p(1e4 * counts.numpy() / counts.numpy().sum(axis=1, keepdims=True))
    found = reconstruction_scores(expected_of(task, model), task.genes, CellBatches(table), ratios)
    key = Key.root(0).fold("reconstruction masks")
    for place, ratio in enumerate(ratios):
        mask = column_mask(GENES, ratio, key.fold(place, 0))
        with torch.no_grad():
            logits, _ = model((counts * ~mask).log1p(), torch.from_numpy(table.batch))
            mean = (logits.softmax(1) * counts.sum(1, keepdim=True)).numpy()
        hidden = mask.numpy()
        each = [np.corrcoef(mean[i, hidden], measured[i, hidden])[0, 1] for i in range(CELLS)]
        assert found[f"reconstruction_r_{ratio:g}"] == pytest.approx(np.mean(each), abs=1e-5)


@pytest.mark.parametrize("logged", [False, True])
def test_r_by_gene_is_over_all_cells_that_hide_it(
    table: CellTable, monkeypatch: pytest.MonkeyPatch, logged: bool
) -> None:
    """Mini-batches hide different genes; constants count as zero as predictions, and not at all as measured genes."""
    monkeypatch.setattr("r2mae.cells.evaluate._BATCH", 100)
    key = Key.root(0).fold("reconstruction masks")
    masks = np.stack([column_mask(GENES, 0.6, key.fold(0, first)).numpy() for first in (0, 100, 200)])
    silent, constant = np.flatnonzero(masks.sum(axis=0) == 2)[:2]
    counts = table.counts.rows(np.arange(CELLS)).toarray()
    counts[:, silent] = 0
    measured = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))
    guess = np.random.default_rng(5).random((CELLS, GENES)).astype(np.float32) + 0.5 * (measured > 4)
    guess[:, constant] = np.float32(0.1)
    row = {tuple(one): number for number, one in enumerate(counts)}

    def expected(batch: CSR, hidden: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(guess[[row[tuple(one)] for one in dense(batch, GENES).int().tolist()]]).float()

    changed = replace(table, counts=Counts(csr_matrix(counts)))
    found = reconstruction_scores(expected, GENES, CellBatches(changed), (0.6,), logged=logged)
    values, by_gene = guess if logged else np.log1p(1e4 * guess), [0.0]
    for gene in set(np.flatnonzero(masks.any(axis=0))) - {silent, constant}:
        hides = masks[np.arange(CELLS) // 100, gene]
        by_gene.append(np.corrcoef(values[hides, gene], measured[hides, gene])[0, 1])
    assert len(by_gene) < GENES - 1
    assert found["gene_r"] == found["gene_r_0.6"] == pytest.approx(np.mean(by_gene), abs=1e-5)


def test_cells_without_hidden_counts_do_not_count(table: CellTable, built: tuple[GeneTask, torch.nn.Module]) -> None:
    key = Key.root(0).fold("reconstruction masks")
    hidden = column_mask(GENES, 0.3, key.fold(0, 0)).numpy()
    counts = table.counts.rows(np.arange(CELLS)).toarray()
    counts[:100, hidden] = 0
    some, every = (replace(table, counts=Counts(csr_matrix(part))) for part in (counts[100:], counts))
    some = replace(some, batch=table.batch[100:])
    expected, found = (
        reconstruction_scores(expected_of(*built), built[0].genes, CellBatches(one), (0.3,)) for one in (some, every)
    )
    assert found["reconstruction_r"] == pytest.approx(expected["reconstruction_r"], abs=1e-6)
    assert found["gene_r"] != pytest.approx(expected["gene_r"], abs=1e-3)  # in which they are cells as any other
    counts[:, hidden] = 0
    nothing = replace(table, counts=Counts(csr_matrix(counts)))
    assert reconstruction_scores(expected_of(*built), built[0].genes, CellBatches(nothing), (0.3,)) == {}


def test_expression_is_normalised_as_by_scanpy(table: CellTable) -> None:
    anndata, scanpy = pytest.importorskip("anndata"), pytest.importorskip("scanpy")
    adata = anndata.AnnData(table.counts.rows(np.arange(CELLS)).astype(np.float32))
    scanpy.pp.normalize_total(adata, target_sum=1e4)
    scanpy.pp.log1p(adata)
    made = log_normalized(CellBatches(table).batch(np.arange(CELLS), Key.root(0)), GENES)
    np.testing.assert_allclose(made.numpy(), adata.X.toarray(), rtol=1e-5)


def test_a_label_can_enter_the_average_by_auroc(table: CellTable) -> None:
    """As ADNC in the paper's Table 4, where the others keep balanced accuracy and F1."""
    noisy = informative(table, 3.0)
    default = evaluate_embedding(table, noisy, CONFIG)
    config = CONFIG.replace(auroc_labels=("disease",))
    scores = evaluate_embedding(table, noisy, config)
    six = ["cell_type_bacc", "cell_type_f1", "disease_auroc", "disease_auroc_donor"]
    six += ["age_spearman_cell", "age_spearman_donor"]
    assert scores["score"] == pytest.approx(np.mean([default[name] for name in six]))
    assert scores["score"] != pytest.approx(default["score"])
    assert {name: value for name, value in default.items() if not name.startswith("score")}.items() <= scores.items()
    assert scores["score_donors_low"] < scores["score_donors_high"]
    ranked = [metric for metric in DOMAIN.metrics_of(config) if metric.ranked and metric.higher_is_better is not None]
    assert [metric.name for metric in ranked] == six


def test_average_score_of_the_papers_table_4() -> None:
    """R2MAE's row, and that of MAE at 25 %: the six columns and their mean."""
    config = CellsConfig.make(data="x", labels=("Supertype", "ADNC"), auroc_labels=("ADNC",), regress=("age",))
    metrics = DOMAIN.metrics_of(config)
    names = [one.name for one in metrics if one.ranked and one.higher_is_better is not None]
    for row, score in (
        ((0.840, 0.737, 0.687, 0.716, 0.572, 0.628), 0.697),
        ((0.841, 0.737, 0.667, 0.699, 0.483, 0.575), 0.667),
    ):
        columns = ("Supertype_bacc", "Supertype_f1", "ADNC_auroc", "ADNC_auroc_donor")
        columns += ("age_spearman_cell", "age_spearman_donor")
        scores = dict(zip(columns, row, strict=True))
        assert np.mean([scores[name] for name in names]) == pytest.approx(score, abs=0.0005)
