"""The commands of the domain: files scored by a run, and resumed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from genome.test_data import aligned, config
from genome.test_domain import SMALL
from r2mae.cli.main import main
from r2mae.genome import AlignmentStore, score
from r2mae.genome.domain import DOMAIN
from r2mae.genome.store.tokens import letters
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of two steps on 1,500 positions of chr1."""
    folder = tmp_path_factory.mktemp("run")
    fit(config(aligned(folder), **SMALL, steps=2, lr=0.1), DOMAIN, folder / "run")
    yield folder / "run"


def reference(run: Path) -> str:
    return letters(AlignmentStore(run.parent / "a").reference & 0x7F).tobytes().decode()


@pytest.fixture
def table(run: Path, tmp_path: Path) -> Path:
    """300 substitutions in no order, some of which cannot be scored."""
    rng = np.random.default_rng(0)
    text = reference(run)
    rows = [
        ("chr1" if n % 50 else "chr7", int(p) + 1, text[p], "ACGT"[a])
        for n, (p, a) in enumerate(zip(rng.integers(0, 1500, 300), rng.integers(0, 4, 300), strict=True))
    ]
    pd.DataFrame(rows, columns=["chrom", "pos", "ref", "alt"]).to_csv(tmp_path / "in.tsv", sep="\t", index=False)
    return tmp_path / "in.tsv"


def test_from_the_command_line(run: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = table.with_name("out.tsv")
    assert main(["score-variants", str(run), str(table), "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    found, given = pd.read_csv(out, sep="\t"), pd.read_csv(table, sep="\t")
    pd.testing.assert_frame_equal(found[list(given)], given)
    same = given.ref == given.alt
    unknown = given.chrom == "chr7"
    assert found["score"].isna().equals(same | unknown)
    assert set(found.loc[same & ~unknown, "score_reason"]) == {"no_substitution"}
    assert set(found.loc[unknown & ~same, "score_reason"]) == {"unknown_contig"}
    assert f"{300 - int((same | unknown).sum())} of 300 variants have a score" in printed
    assert "6 unknown_contig" in printed
    assert sorted(path.name for path in table.parent.iterdir()) == ["in.tsv", "out.tsv"]
    assert found["score"].nunique() > 100


@pytest.mark.parametrize("torn", [False, True])
def test_a_run_that_was_cut_off_writes_the_same_bytes(
    run: Path, table: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    monkeypatch.setattr(score, "BLOCK", 32)
    whole, cut = table.with_name("whole.tsv"), table.with_name("cut.tsv")
    score.score_variants(run, str(table), whole, device="cpu")

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        assert total == 300
        if done > 100:
            raise Stop

    with pytest.raises(Stop):
        score.score_variants(run, str(table), cut, device="cpu", progress=stop)
    assert not cut.exists()
    kept = table.with_name(".cut.tsv.scores")
    assert (kept / "scores").stat().st_size == 4 * 4 * 32
    if torn:
        with (kept / "scores").open("r+b") as file:
            file.truncate(4 * 3 * 32 + 50)
    scored: list[int] = []
    default = score.scores_of

    def counted(found: Any, logs: Any) -> Any:
        scored.append(len(found.reasons))
        return default(found, logs)

    monkeypatch.setattr(score, "scores_of", counted)
    score.score_variants(run, str(table), cut, device="cpu")
    assert sum(scored) == 300 - (3 if torn else 4) * 32
    assert cut.read_bytes() == whole.read_bytes()
    assert not kept.exists()


def test_other_variants_begin_again(run: Path, table: Path) -> None:
    out, kept = table.with_name("out.tsv"), table.with_name(".out.tsv.scores")
    score.score_variants(run, str(table), out, device="cpu")
    whole = out.read_bytes()
    kept.mkdir()
    (kept / "plan.json").write_text(json.dumps({"variants": "others"}))
    (kept / "scores").write_bytes(np.full(300, 7, np.float32).tobytes())
    score.score_variants(run, str(table), out, device="cpu")
    assert out.read_bytes() == whole


@pytest.mark.parametrize("name", ["none.tsv", "none.parquet"])
def test_no_variants(run: Path, tmp_path: Path, name: str) -> None:
    none = pd.DataFrame({"chrom": [], "pos": np.array([], np.int64), "ref": [], "alt": []})
    write = none.to_parquet if name.endswith("parquet") else lambda path: none.to_csv(path, sep="\t", index=False)
    write(tmp_path / name)
    assert not any(score.score_variants(run, str(tmp_path / name), tmp_path / f"out_{name}", device="cpu").values())


MISTAKES = {
    "no output": (["{in}"], "required: -o/--output; for example: r2mae score-variants"),
    "another format": (["{in}", "-o", "{out}.vcf"], "written as they were read"),
    "onto itself": (["{in}", "-o", "{in}"], "is the input, or a file in it"),
    "a region": (["chr1:1-99", "-o", "{out}.tsv"], "variants are read from VCF (.vcf, .vcf.gz), a table"),
    "a name": (["{in}", "-o", "{out}.tsv", "--column", "a b"], "--column is a name"),
    "a taken name": (["{in}", "-o", "{out}.tsv", "--column", "alt"], "have 'alt' already"),
    "no store": (["{in}", "-o", "{out}.tsv", "--data", "{in}"], "build one first"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_cost_one_line_and_leave_nothing(
    case: str, run: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, told = MISTAKES[case]
    names = {"in": table, "out": table.with_name("out")}
    assert main(["score-variants", str(run), *(word.format(**names) for word in words)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert [path.name for path in table.parent.iterdir()] == ["in.tsv"]


def test_contigs_by_other_names(
    run: Path, table: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["score-variants", str(run), str(table), "-o", str(table.with_name("out.tsv"))]
    assert main(words) == 0
    scored = pd.read_csv(table.with_name("out.tsv"), sep="\t")
    given = pd.read_csv(table, sep="\t")
    for name, more in {"1": [], "NC_000001.11": [], "mine": ["--rename", "mine=chr1"]}.items():
        given.assign(chrom=given.chrom.replace("chr1", name)).to_csv(table, sep="\t", index=False)
        assert main([*words, *more]) == 0
        assert f"{name} is chr1" in caplog.text
        found = pd.read_csv(table.with_name("out.tsv"), sep="\t")
        assert found.score.equals(scored.score)
        assert found.score_reason.equals(scored.score_reason)
    assert main(words) == 2
    assert "names chr7, mine, and the store has the contigs chr1" in capsys.readouterr().err


def test_a_folder_that_is_no_run(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score-variants", str(table.parent), str(table), "-o", "x.tsv"]) == 2
    assert "is not a run folder" in capsys.readouterr().err
