"""Table 3 and its companions: the cells, held-out parts, tables of means and differences, and the whole in small."""

from collections.abc import Callable, Sequence
from io import StringIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.store.tracks import add_track
from r2mae_paper import genomes
from r2mae_paper.genomes import SCHEMES
from r2mae_paper.runner import Reproduced, run_study
from r2mae_paper.studies import Scale, entry_of
from r2mae_paper.study import get_study

TABLE3 = get_study("table3")


@pytest.fixture
def genome_data(shared_data: Path) -> Path:
    if not (shared_data / "genome").is_dir():
        pytest.skip(f"no alignments: {shared_data / 'genome'} is not a folder")
    return shared_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table3")


@pytest.fixture
def out(folder: Path, genome_data: Path) -> Path:
    """A folder where the store is built once."""
    return folder


def test_every_scheme_runs_on_every_fifth_and_the_fifths_make_up_the_genome(out: Path) -> None:
    planned = TABLE3.runs(entry_of("table3").size("small"), out)
    assert len(planned) == 5 * (len(SCHEMES) + 2)
    store = AlignmentStore(out / "store")
    parts = [genomes.part_of(store, number, 5) for number in range(5)]
    ends = [tuple(map(int, part.partition(":")[2].split("-"))) for part in parts]
    assert (ends[0][0], ends[-1][1]) == (1, 29_903)
    assert all(later[0] == earlier[1] + 1 for earlier, later in pairwise(ends))
    for run in planned:
        assert run.config.data.test_regions == (parts[run.seed],)
        assert run.variant.baseline == (run.variant.label in ("alignment", "composition"))
        if not run.variant.baseline:
            assert run.config.scheme.name == SCHEMES[run.variant.label]["scheme"]
    assert len({run.folder for run in planned}) == len(planned)


def test_the_store_has_a_track_of_conservation(out: Path) -> None:
    store = genomes.store_of(genomes.SARBECOVIRUSES, out)
    values = np.asarray(store.track(genomes.CONSERVATION), float)
    place = 10_000
    column = np.asarray(store.tokens(0)[place, 1:])
    known = column < 4
    assert values[place] == pytest.approx((column[known] == store.tokens(0)[place, 0] & 0x7F).mean(), abs=1e-3)
    mitochondria = genomes.store_of(genomes.MITOCHONDRIA, out / "mtdna")  # its reference has a letter that is no base
    for track in (values, np.asarray(mitochondria.track(genomes.CONSERVATION), float)):
        assert track.min() >= 0
        assert track.max() <= 1


def test_relatives_are_ordered_by_likeness(out: Path) -> None:
    store = genomes.store_of(genomes.SARBECOVIRUSES, out)
    names = genomes.by_likeness(store)
    assert sorted(names) == sorted(store.species[1:])
    assert [name.partition("|")[0] for name in names[:2]] == ["CoVZC45", "CoVZXC21"]  # SARS-CoV-2's nearest here
    assert {name.partition("|")[0] for name in names[-2:]} == {"BtKY72", "BM48-31"}
    for change, fields in genomes.changes(entry_of("table3-ablation").size(), store).items():
        assert fields or change == genomes.BASE


def test_tables_have_means_intervals_and_paired_differences() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=5)
    levels = {"fixed 0.15": 0.40, "r2mae": 0.42, "alignment": 0.44}
    rows = [
        {"label": label, "scheme": label, "seed": seed, "seconds": 1.0, "spearman": level + noise[seed] / 100}
        for label, level in levels.items()
        for seed in range(5)
    ]
    rows = [{**row, "masked_loss": 1 - row["spearman"]} for row in rows]
    found = TABLE3.tables_of(pd.DataFrame(rows))
    table = {(row["label"], row["score"]): row for row in found["table3"]}
    assert table["r2mae", "spearman"]["mean"] == pytest.approx(0.42 + noise.mean() / 100)
    assert table["r2mae", "spearman"]["vs_reference"] == pytest.approx(0.02)
    assert table["r2mae", "spearman"]["vs_alignment"] == pytest.approx(-0.02)
    assert "vs_reference" not in table["fixed 0.15", "spearman"]
    assert "vs_alignment" not in table["alignment", "spearman"]
    assert len(found["table3-runs"]) == 15
    figures = TABLE3.plot(found, entry_of("table3").size())
    assert len([axes for axes in figures["table3"].axes if axes.get_visible()]) == 2


def test_a_data_folder_without_genomes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path))
    with pytest.raises(UserError, match="R2MAE_DATA"):
        TABLE3.runs(entry_of("table3").size("smoke"), tmp_path / "out")


HUMAN = "chrom,pos,ref,alt,label,consequence\n"


def test_human_variants_are_one_file_with_a_class_for_each_table(tmp_path: Path) -> None:
    (tmp_path / "clinvar.csv").write_text("chrom,pos,ref,alt,label\n22,10,A,C,Pathogenic\n22,11,A,G,Common\n")
    (tmp_path / "omim.csv").write_text(HUMAN + "22,12,A,T,True,5' UTR\n22,13,C,T,False,ncRNA\n")
    given = genomes.human_variants([str(tmp_path / name) for name in ("clinvar.csv", "omim.csv")], tmp_path)
    table = pd.read_csv(given["variants"], sep="\t")
    assert (given["label"], given["classes"]) == ("label", "set")
    assert list(zip(table["pos"], table["label"], table["set"], strict=True)) == [
        (10, 1, "missense"), (11, 0, "missense"), (12, 1, "regulatory"), (13, 0, "regulatory"),
        (12, 1, "5_UTR"), (13, 0, "ncRNA"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"a\.csv: cannot be read as a table"),
        ("", r"a\.csv: cannot be read as a table"),
        ("chrom,pos,ref,label\n22,1,A,1\n", "has no column 'alt'"),
        (HUMAN + "22,1,A,C,benign,x\n", "has the label 'benign', expected 1 or 0"),
    ],
)
def test_broken_tables_of_human_variants_are_named(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "a.csv").write_text(content)
    with pytest.raises(UserError, match=said):
        genomes.human_variants([str(tmp_path / "a.csv")], tmp_path)


def test_a_human_store_holds_out_chromosomes(tmp_path: Path) -> None:
    block = "a\ns hg38.{0} 0 8 + 8 ACGTACGT\ns panTro.{0} 0 8 + 8 ACGTACGA\n\n"
    (tmp_path / "a.maf").write_text("##maf version=1\n\n" + "".join(map(block.format, ("chr1", "chr21", "chr22"))))
    store = build_store(tmp_path / "a.maf", tmp_path / "human")
    (tmp_path / "a.csv").write_text(HUMAN + "chr22,1,A,C,1,x\n")
    size = entry_of("table3").size(store=str(store.folder), variants=(str(tmp_path / "a.csv"),))
    planned = TABLE3.runs(size, tmp_path)
    assert len(planned) == 5 * (len(SCHEMES) + 2)
    for run in planned:
        config = run.config
        assert (config.data.validation_regions, config.data.test_regions) == (("chr21",), ("chr22",))
        assert (config.data.source, config.evaluation.classes) == (str(store.folder), "set")
    with pytest.raises(UserError, match="name its alignment with --store"):
        TABLE3.runs(entry_of("table3").size(variants=("a.csv",)), tmp_path)


def human(folder: Path, tracks: Sequence[str] = genomes.TRACKS) -> tuple[str, tuple[str, str]]:
    """A store of three contigs with tracks, and variants of which a column knows the labels."""
    rng, length = np.random.default_rng(0), 1200
    blocks = []
    for name in ("chr1", "chr21", "chr22"):
        bases = rng.choice([*"ACGT"], length)
        other = np.where(rng.random(length) < 0.8, bases, "A")
        rows = [f"s {one}.{name} 0 {length} + {length} {''.join(row)}" for one, row in (("h", bases), ("o", other))]
        blocks.append("\n".join(["a", *rows, "\n"]))
    (folder / "a.maf").write_text("##maf version=1\n\n" + "".join(blocks))
    store = build_store(folder / "a.maf", folder / "human")
    for name in tracks:
        (folder / "t.bedgraph").write_text("".join(f"{one}\t0\t{length}\t0.5\n" for one in store.contigs))
        add_track(store, folder / "t.bedgraph", name)
    lines = [
        f"chr22,{place + 1},{base},{'ACGT'['CGTA'.index(base)]},{place % 2},ncRNA,{place % 2 + 0.5},{-(place % 2)}"
        for place, base in enumerate(map("ACGT".__getitem__, store.tokens(2)[:100, 0] & 0x7F))
    ]
    for file in ("clinvar.csv", "omim.csv"):
        (folder / file).write_text("\n".join([HUMAN.strip() + ",CADD,NT", *lines]))
    return str(store.folder), (str(folder / "clinvar.csv"), str(folder / "omim.csv"))


def test_runs_on_a_human_store_with_the_tracks_are_weighted_as_gpn_msa(tmp_path: Path) -> None:
    store, files = human(tmp_path)
    size = entry_of("table3").size(store=store, variants=files, rows=("paper",), baselines=("CADD", "NT"))
    planned = TABLE3.runs(size, tmp_path)
    assert len(planned) == 5 * (len(SCHEMES) - 1 + 2)  # the paper has no cl-k0
    for run in planned:
        task = run.config.task
        assert (task.conservation, task.flip, run.config.model.one_hot) == (("phylop", "phastcons"), 0.5, True)
    with pytest.raises(UserError, match="unknown baseline 'cadd': did you mean 'CADD'"):
        TABLE3.runs(size.replace(baselines=("cadd",)), tmp_path)
    (tmp_path / "bare").mkdir()
    for run in TABLE3.runs(size.replace(store=human(tmp_path / "bare", ["phylop"])[0]), tmp_path):
        assert (run.config.task.conservation, run.config.model.one_hot) == ((), False)


@pytest.mark.slow
def test_columns_of_human_variants_are_rows_of_the_table(tmp_path: Path) -> None:
    store, files = human(tmp_path)
    size = entry_of("table3").size("smoke", store=store, variants=files, baselines=("CADD", "NT"), seeds=1)
    run_study(TABLE3, tmp_path / "out", size=size, console=Console(file=StringIO()))
    table = pd.read_csv(tmp_path / "out" / "table3.csv").set_index(["label", "score"])["mean"]
    assert {label for label, _ in table.index} == {"fixed 0.15", "r2mae", "CADD", "NT"}
    for name in ("auroc_missense", "partial_auroc_regulatory", "auprc_ncRNA"):
        assert table["CADD", name] == 1
        assert table["NT", name] < 0.52  # high values are harmful: its sign is to be changed


def test_scores_of_human_variants_are_in_the_table() -> None:
    names = ("auroc_missense", "partial_auroc_regulatory", "auprc_5_UTR", "auroc_missense_blocks_low")
    rows = [
        {"label": label, "scheme": label, "seed": seed, "seconds": 1.0, **dict.fromkeys(names, seed / 10)}
        for label in ("fixed 0.15", "r2mae")
        for seed in range(2)
    ]
    found = TABLE3.tables_of(pd.DataFrame(rows))
    assert {row["score"] for row in found["table3"]} == {*names[:3]}
    shown = TABLE3.plot(found, entry_of("table3").size())["table3"].axes
    assert [axes.get_title() for axes in shown] == ["auroc missense", "partial auroc regulatory", "auprc 5 UTR"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table3", "table3-mtdna", "table3-ablation"])
@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
def test_every_size_has_cells(name: str, scale: Scale, out: Path) -> None:
    study = get_study(name)
    planned = study.runs(study.entry.size(scale), out / name)
    assert len({run.folder for run in planned}) == len(planned)
    if name == "table3" and scale == "full":
        config = planned[0].config
        assert (config.optimizer.steps, config.optimizer.batch_size, config.optimizer.keep) == (30_000, 2048, "best")
        assert config.model.layers == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("table3", ["fixed 0.15", "r2mae", "alignment", "composition"]),
        ("table3-mtdna", ["fixed 0.15", "r2mae", "alignment", "composition"]),
        ("table3-ablation", [genomes.BASE, "no relatives", genomes.WEIGHTED, "alignment"]),
    ],
)
def test_the_smoke_size_runs(
    smoke: Callable[[str], Reproduced], name: str, labels: Sequence[str], genome_data: Path, tmp_path: Path
) -> None:
    done = smoke(name)
    assert done.parts == 2 * len(labels)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert list(dict.fromkeys(table["label"])) == labels
    assert (tmp_path / f"{name}.png").stat().st_size > 0
    assert table_is_whole(table, name)
    again = smoke(name)
    assert again.kept == again.parts


def table_is_whole(table: pd.DataFrame, name: str) -> bool:
    """Tell whether there are the scores that the table is about."""
    wanted = {"masked_loss", "accuracy"} | (set() if name == "table3-mtdna" else {"spearman", "spearman_held_out"})
    return wanted <= set(table["score"]) and bool(np.isfinite(table["mean"]).all())
