"""Labelled variants: rows, labels, conditions, baselines, and the figure that the alignment alone reaches."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from genome.test_data import aligned, config
from genome.test_domain import SMALL
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.batches import GenomeData, load_data
from r2mae.genome.config import GenomeConfig, GenomeEvaluationConfig
from r2mae.genome.domain import DOMAIN
from r2mae.genome.store.tokens import letters
from r2mae.genome.variants.labelled import read_labelled
from r2mae.training.loop import fit


@pytest.fixture
def store(tmp_path: Path) -> AlignmentStore:
    return aligned(tmp_path)


@pytest.fixture
def file(store: AlignmentStore, tmp_path: Path) -> Path:
    """Variants with labels of several kinds; fitness falls with the number of species that lack the other base."""
    rng = np.random.default_rng(0)
    text = letters(store.reference & 0x7F).tobytes().decode()
    places = rng.integers(0, 1500, 400)
    alts = ["ACGT".replace(text[p], "")[n] for p, n in zip(places, rng.integers(0, 3, 400), strict=True)]
    others = np.array([(store.tokens(0)[p, 1:] == "ACGT".index(a)).sum() for p, a in zip(places, alts, strict=True)])
    fitness = others + rng.normal(size=400) / 2
    table = pd.DataFrame({"chrom": "chr1", "pos": places + 1, "ref": [text[p] for p in places], "alt": alts})
    table["fitness"] = fitness
    table["harmful"] = (fitness < 0.3).astype(int)
    table["kind"] = rng.choice(["missense", "synonymous"], 400)
    table.loc[:4, "kind"] = "rare"
    table["phylo"] = -fitness + rng.normal(size=400)
    table.loc[0, "chrom"] = "chr7"
    table.loc[1, ["fitness", "harmful"]] = np.nan
    table.to_csv(tmp_path / "variants.tsv", sep="\t", index=False)
    return tmp_path / "variants.tsv"


def settings(file: Path, **fields: Any) -> dict[str, Any]:
    return {"variants": str(file), "label": "fitness", **fields}


def data_of(store: AlignmentStore, **fields: Any) -> tuple[GenomeConfig, GenomeData]:
    made = config(store, **SMALL, **fields)
    return made, load_data(made)


def test_rows_labels_and_classes(file: Path) -> None:
    read = read_labelled(GenomeEvaluationConfig(**settings(file, classes="kind")))
    assert (len(read.table), read.binary) == (399, False)
    assert read.classes == ("missense", "synonymous")  # five rows are too few
    assert (read.of_class == "rare").sum() == 4
    assert read_labelled(GenomeEvaluationConfig(**settings(file, label="harmful"))).binary
    one = read_labelled(GenomeEvaluationConfig(**settings(file, label="kind", positive="rare")))
    assert one.labels.sum() == 5


def test_small_classes_are_named(store: AlignmentStore, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, _ = data_of(store, **settings(file, classes="kind"))
    names = [metric.name for metric in DOMAIN.metrics_of(made)]
    assert "spearman_missense" in names
    assert "spearman_rare" not in names
    DOMAIN.check(made)
    told = f"{file}: classes with fewer than 20 variants are not measured by themselves: rare"
    assert caplog.messages == [told]  # once


def test_columns_against_scipy_and_scikit_learn(store: AlignmentStore, file: Path) -> None:
    table = pd.read_csv(file, sep="\t").iloc[2:]
    made, data = data_of(store, **settings(file, classes="kind"))
    found = DOMAIN.score_baseline(made, "phylo", data, curve=False)
    assert found["variants"] == 398
    assert found["spearman"] == pytest.approx(spearmanr(-table.phylo, table.fitness)[0])
    part = table[table.kind == "missense"]
    assert found["spearman_missense"] == pytest.approx(spearmanr(-part.phylo, part.fitness)[0])
    assert found["spearman_blocks_low"] < found["spearman"] < found["spearman_blocks_high"]
    with pytest.raises(UserError, match="column 'kind' has no numbers"):
        DOMAIN.score_baseline(made, "kind", data, curve=False)
    made, data = data_of(store, **settings(file, label="harmful", classes="kind"))
    found = DOMAIN.score_baseline(made, "phylo", data, curve=False)
    assert found["auroc"] == pytest.approx(roc_auc_score(table.harmful, table.phylo))
    assert {"auprc", "partial_auroc", "auprc_synonymous", "auprc_synonymous_blocks_low"} <= found.keys()


def test_the_alignment_knows_and_the_composition_does_not(store: AlignmentStore, file: Path) -> None:
    made, data = data_of(store, **settings(file))
    assert DOMAIN.score_baseline(made, "alignment", data, curve=False)["spearman"] > 0.4
    assert abs(DOMAIN.score_baseline(made, "composition", data, curve=False)["spearman"]) < 0.2
    assert [*DOMAIN.baselines_of(made)][:4] == ["untrained", "alignment", "composition", "chrom"]
    names = [metric.name for metric in DOMAIN.metrics_of(made)]
    assert names == ["spearman", "spearman_held_out", "masked_loss", "accuracy"]


def test_contrasts_and_held_out_positions_against_scipy_and_scikit_learn(store: AlignmentStore, file: Path) -> None:
    table = pd.read_csv(file, sep="\t").iloc[2:]
    asked = settings(file, classes="kind", contrasts=("missense/synonymous",))
    regions = {"test_regions": ("chr1:101-500",), "validation_regions": ("chr1:901-1100",)}
    made, data = data_of(store, **asked, **regions)
    found = DOMAIN.score_baseline(made, "phylo", data, curve=False)
    for part, end in ((table, ""), (table[table.pos.between(101, 500)], "_held_out")):
        chosen = part[part.kind != "rare"]
        area = roc_auc_score(chosen.kind == "missense", chosen.phylo)
        assert found[f"auroc_missense_vs_synonymous{end}"] == pytest.approx(area)
        assert found[f"variants{end}"] == len(part)
        assert found[f"spearman{end}"] == pytest.approx(spearmanr(-part.phylo, part.fitness)[0])
        missense = part[part.kind == "missense"]
        assert found[f"spearman_missense{end}"] == pytest.approx(spearmanr(-missense.phylo, missense.fitness)[0])
    assert "auroc_missense_vs_synonymous_held_out_blocks_low" not in found  # one block of 500 positions
    names = {metric.name for metric in DOMAIN.metrics_of(made)}
    assert {"auroc_missense_vs_synonymous", "spearman_synonymous_held_out"} <= names
    without = dict.fromkeys(regions, ()) | {"validation": 0.0}
    made, data = data_of(store, **asked, **without)
    assert not any("held_out" in name for name in DOMAIN.score_baseline(made, "phylo", data, curve=False))


def test_a_contrast_is_two_classes_that_there_are(file: Path) -> None:
    asked = settings(file, classes="kind")
    with pytest.raises(UserError, match="is not two classes"):
        GenomeEvaluationConfig(**asked, contrasts=("missense",))
    with pytest.raises(UserError, match="is not two classes"):
        GenomeEvaluationConfig(**asked, contrasts=("missense/missense",))
    with pytest.raises(UserError, match="--classes COLUMN"):
        GenomeEvaluationConfig(**settings(file), contrasts=("missense/synonymous",))
    with pytest.raises(UserError, match="--variants FILE"):
        GenomeEvaluationConfig(contrasts=("missense/synonymous",))
    with pytest.raises(UserError, match=r"'misense'.*did you mean 'missense'"):
        read_labelled(GenomeEvaluationConfig(**asked, contrasts=("misense/synonymous",)))
    with pytest.raises(UserError, match="no 20 labelled variants 'rare'"):
        read_labelled(GenomeEvaluationConfig(**asked, contrasts=("rare/synonymous",)))
    assert GenomeEvaluationConfig(**asked, contrasts=("a / b", "a/b")).contrasts == ("a/b",)


def test_a_contrast_needs_no_two_values_of_the_label_on_either_side(store: AlignmentStore, file: Path) -> None:
    table = pd.read_csv(file, sep="\t")
    table["harmful"] = (table.kind == "missense").astype(int)  # each class has one value alone
    table.to_csv(file, sep="\t", index=False)
    asked = settings(file, label="harmful", classes="kind", contrasts=("missense/synonymous",))
    made, data = data_of(store, **asked)
    found = DOMAIN.score_baseline(made, "phylo", data, curve=False)
    assert found["auroc_missense_vs_synonymous"] == pytest.approx(
        roc_auc_score(table.kind[2:].loc[table.kind != "rare"] == "missense", table.phylo[2:].loc[table.kind != "rare"])
    )
    assert "auprc_missense" not in found
    bounds = {metric.name: metric.bounds for metric in DOMAIN.metrics_of(made)}
    assert bounds["auroc_missense_vs_synonymous_held_out"] == (0, 1)


def test_few_held_out_variants_are_not_measured_by_themselves(store: AlignmentStore, file: Path) -> None:
    made, data = data_of(store, **settings(file), test_regions=("chr1:101-140",), validation_regions=("chr1:901-1100",))
    found = DOMAIN.score_baseline(made, "phylo", data, curve=False)
    assert 0 < found["variants_held_out"] < 20
    assert "spearman_held_out" not in found


def test_other_variants_do_not_inherit_what_was_said_of_the_runs_own(store: AlignmentStore, file: Path) -> None:
    own = config(store, **SMALL, **settings(file, classes="kind", contrasts=("missense/synonymous",)))
    other = own.with_measurement(variants="other.tsv", label="harmful")
    assert (other.evaluation.classes, other.evaluation.contrasts, other.evaluation.label) == (None, (), "harmful")
    again = own.with_measurement(variants=str(file), label="harmful")
    assert again.evaluation.classes == "kind"


@pytest.mark.slow
def test_runs_are_measured_on_variants_and_again_on_others(
    store: AlignmentStore, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(config(store, **SMALL, steps=1), DOMAIN, tmp_path / "run")
    words = ["evaluate", str(tmp_path / "run"), "variants", "--variants", str(file), "--label", "harmful", "--json"]
    assert main([*words, "--baselines", "alignment", "phylo"]) == 0
    printed = capsys.readouterr().out
    assert '"auroc_blocks_low"' in printed
    assert '"masked_loss"' not in printed
    assert '"phylo"' in printed
    assert main(["evaluate", str(tmp_path / "run"), "variants", "--label", "fitness"]) == 2
    assert "label is about a file of variants: name it with --variants FILE" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run"), "variants"]) == 2
    assert "the run names no variants: name a file of them" in capsys.readouterr().err
    again = ["--label", "fitness", "--classes", "kind", "--contrasts", "missense / synonymous", "--json"]
    assert main([*words[:5], *again]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measured"]["contrasts"] == ["missense/synonymous"]
    assert {"auroc_missense_vs_synonymous", "spearman_held_out"} <= told["scores"].keys()
    assert main([*words[:5], "--label", "fitness", "--contrasts", "missense/synonymous"]) == 2
    assert "--classes COLUMN" in capsys.readouterr().err
    assert main([*words, "--baselines", "phylop"]) == 2
    assert "did you mean 'phylo'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("harmful", "other", "fields"),
    [
        ("1", "-1", {}),
        ("+1", "-1", {}),
        ("2", "1", {}),
        ("1e-1", "0.01", {}),
        ("1", "0", {}),
        ("TRUE", "False", {}),
        ("Pathogenic", "benign", {}),
        ("P", "B", {"positive": "P"}),
        ("1", "2", {"positive": "1"}),
    ],
)
def test_two_values_are_two_values(file: Path, harmful: str, other: str, fields: dict[str, Any]) -> None:
    table = pd.read_csv(file, sep="\t")
    expected = table.harmful[table.harmful.notna()]
    table["label"] = table.harmful.map({1.0: harmful, 0.0: other})
    table.to_csv(file, sep="\t", index=False)
    read = read_labelled(GenomeEvaluationConfig(**settings(file, label="label", **fields)))
    assert read.binary
    assert read.labels.tolist() == expected.tolist()


def test_more_numbers_than_two_are_numbers(file: Path) -> None:
    table = pd.read_csv(file, sep="\t")
    table["label"] = ["-1", "0", "1", "inf", ""] * 80
    table.to_csv(file, sep="\t", index=False)
    read = read_labelled(GenomeEvaluationConfig(**settings(file, label="label")))
    assert not read.binary
    assert read.labels.tolist() == [-1, 0, 1] * 80


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no label": ({"label": None}, "need the column"),
    "no such column": ({"label": "fitnes"}, "did you mean 'fitness'"),
    "words": ({"label": "kind"}, "--positive VALUE"),
    "two words": (
        {"variants": "two.tsv"},
        "two values, B and P, and which of them is harmful is unknown.*--positive P",
    ),
    "words and numbers": ({"variants": "mixed.tsv"}, "has two values, 7 and true, and which"),
    "the same number": ({"variants": "same.tsv"}, "one value only, 1, 1.0"),
    "no such value": ({"label": "kind", "positive": "misense"}, "did you mean 'missense'"),
    "one value": ({"label": "chrom", "positive": "chr1", "variants": "one.tsv"}, "one value only"),
    "no rows": ({"variants": "none.tsv"}, "has no variants"),
    "no such class": ({"classes": "gene"}, "has no column 'gene'"),
    "no such file": ({"variants": "x.tsv"}, "no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_found_before_anything_is_trained(
    case: str, store: AlignmentStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, told = BAD[case]
    monkeypatch.chdir(file.parent)
    Path("one.tsv").write_text("chrom\tpos\tref\talt\nchr1\t1\tA\tC\n")
    head = "chrom\tpos\tref\talt\tfitness\n"
    for name, labels in {"two": "PB", "mixed": ("true", "7"), "same": ("1", "1.0")}.items():
        Path(f"{name}.tsv").write_text(head + "".join(f"chr1\t{n}\tA\tC\t{one}\n" for n, one in enumerate(labels, 1)))
    Path("none.tsv").write_text("chrom\tpos\tref\talt\tfitness\n")
    with pytest.raises(UserError, match=told):
        DOMAIN.check(config(store, **settings(file, **fields)))


def test_settings_without_variants_and_other_stores(store: AlignmentStore, file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name it with --variants"):
        config(store, label="fitness")
    made, _ = data_of(store, **settings(file))
    other = aligned(tmp_path, 320, 5, "b")
    (tmp_path / "c.tsv").write_text("chrom\tpos\tref\talt\tfitness\nchrX\t1\tA\tC\t1\nchrX\t1\tA\tG\t2\n")
    there, data = DOMAIN.load_other_data(made, str(other.folder), load_data(made).architecture)
    assert there.evaluation.variants is None
    unknown, _ = data_of(store, **settings(tmp_path / "c.tsv"))
    with pytest.raises(UserError, match="names chrX, and the store has the contigs chr1: name others with --rename"):
        DOMAIN.score_baseline(unknown, "alignment", data, curve=False)


@pytest.mark.slow
def test_the_figure_of_the_alignment_alone(data_root: Path, tmp_path: Path) -> None:
    """SARS-CoV-2: Spearman's correlation of alignment frequencies with fitness, 0.44 over all and 0.30 for missense."""
    genome = data_root / "genome"
    store = build_store(
        genome / "sarbecovirus_61.aligned.fa.gz", tmp_path / "store", reference=genome / "MN908947.fa.gz"
    )
    table = pd.read_csv(genome / "sars2_fitness.tsv.gz", sep="\t")
    chosen = (table["expected_count"] >= 20) & ~table["site_differs_among_clade_founders"]
    table[chosen].to_csv(tmp_path / "fitness.tsv", sep="\t", index=False)
    made = GenomeConfig.make(
        data=str(store.folder),
        variants=str(tmp_path / "fitness.tsv"),
        label="fitness",
        classes="consequence",
    )
    found = DOMAIN.score_baseline(made, "alignment", load_data(made), curve=False)
    assert found["variants"] == 54_317
    assert found["spearman"] == pytest.approx(0.44, abs=0.005)
    assert found["spearman_missense"] == pytest.approx(0.30, abs=0.005)
    assert found["spearman_synonymous"] == pytest.approx(0.12, abs=0.005)
    assert 0.4 < found["spearman_blocks_low"] < found["spearman"] < found["spearman_blocks_high"] < 0.48
