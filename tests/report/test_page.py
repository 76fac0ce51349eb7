"""One page of any results: what folders are, what the page shows of each, and that it needs nothing else."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pandas as pd
import pytest
import yaml
from PIL import Image
from tests.report.test_html import parse

from r2mae.cli.gathering import claims_of, section_of, sections_of
from r2mae.cli.main import main
from r2mae.compare.finished import shared_fields
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.files import write_json
from r2mae.images.config import ImagesConfig
from r2mae.report.analysis import analyse
from r2mae.report.comparison import Comparison
from r2mae.report.folders import Results, find_results
from r2mae.report.page import render_page
from r2mae.report.publish import write_table
from r2mae.report.results_json import to_json
from r2mae.report.sections import (
    Section,
    Table,
    published,
    read_table,
    section_of_files,
    section_of_published,
    section_of_run,
)

Make = Callable[..., Comparison]
TARGETS = {"fig1b", "table5"}
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>hello</text></svg>'


def reproduction(folder: Path, rows: int = 3) -> Path:
    folder.mkdir(parents=True)
    lines = [f"{row},{row / 7:.4f},<b>{row}</b>" for row in range(rows)]
    (folder / f"{folder.name}.csv").write_text("\n".join(["p,risk,words", *lines]) + "\n")
    (folder / f"{folder.name}.svg").write_text(SVG)
    return folder


def run_folder(folder: Path, *, measured: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"domain": "images", "data": "digits", "scheme": "r2mae", "seed": 3})
    )
    (folder / "model.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    if measured:
        write_json(folder / "results.json", {"scores": {"probe_accuracy": 0.875, "masked_mse_0.1": None}})
    return folder


def publish(folder: Path, comparison: Comparison) -> Path:
    write_json(folder / "results.json", to_json(comparison, analyse(comparison)))
    write_table(comparison, folder / "results.csv")
    return folder


def test_folders_are_told_apart_by_their_files(tmp_path: Path, tiny: Make) -> None:
    reproduction(tmp_path / "a" / "fig1b")
    reproduction(tmp_path / "a" / "mine")
    run_folder(tmp_path / "b" / "run")
    publish(tmp_path / "c", tiny({"fixed 0.50": [1.0, 2.0], "r2mae": [2.0, 2.5]}))
    (tmp_path / "d" / "runs" / "r2mae" / "seed-0").mkdir(parents=True)
    (tmp_path / "d" / "compare.json").write_text("{}")
    run_folder(tmp_path / "d" / "runs" / "r2mae" / "seed-1")
    (tmp_path / "e").mkdir()
    found = {str(one.folder.relative_to(tmp_path)): one.kind for one in find_results([tmp_path], TARGETS)}
    assert found == {
        "a/fig1b": "reproduction", "a/mine": "tables", "b/run": "run", "c": "published", "d": "comparison",
    }  # fmt: skip
    twice = find_results([tmp_path / "a", tmp_path / "a" / "fig1b", tmp_path], TARGETS)
    assert len(twice) == len(found)
    for wrong in ("e", "nowhere"):
        with pytest.raises(UserError, match=wrong):
            find_results([tmp_path / "b", tmp_path / wrong], TARGETS)


@pytest.mark.slow
def test_a_published_comparison_says_what_it_said(tmp_path: Path, tiny: Make) -> None:
    comparison = tiny({"fixed 0.50": [1.0, 1.1, 0.9], "fixed 0.70": [2.0, 2.1, 1.9], "r2mae": [0.5, 0.62, None]})
    read = published(publish(tmp_path, comparison))
    assert read is not None
    again, before = analyse(read), analyse(comparison)
    assert (again.headline, again.notes) == (before.headline, before.notes)
    section = section_of_published(tmp_path)
    page = parse(render_page("all", [section, section]))
    assert page.text.count(before.headline) == 2
    (tmp_path / "results.json").unlink()
    alone = section_of_published(tmp_path)
    assert alone.comparison is None and alone.tables[0].columns[2:] == ("score",)
    assert alone.tables[0].rows[0][:2] == ("fixed 0.50", "3") and alone.tables[0].rows[0][2].startswith("1.00 (")
    (tmp_path / "results.json").write_text('{"title": 3}')
    with pytest.raises(UserError, match="no result of a comparison of this version"):
        section_of_published(tmp_path)


def test_a_page_shows_the_intervals_and_ranks_of_the_comparisons_own_report(
    tmp_path: Path, comparison: Comparison
) -> None:
    probe, masked, clean, rank = comparison.metrics
    bounded = replace(probe, bounds=(0, float(comparison.table["probe_accuracy"].max())))
    never = Metric("finetune_top5", "fine-tuned top-5 accuracy", bounds=(0, 1), ranked=False, optional=True)
    metrics = (bounded, masked, replace(clean, ranked=False), rank, never)
    before = replace(comparison, metrics=metrics, measured="Measured on clean images.")
    folder, found = publish(tmp_path / "c", before), analyse(before)
    read = published(folder)
    assert read is not None and read.metrics == metrics and read.measured == before.measured
    again = analyse(read)
    pd.testing.assert_frame_equal(again.ranks, found.ranks)
    pd.testing.assert_frame_equal(again.summary, found.summary)
    assert again.notes == found.notes
    assert (found.summary["high"] == bounded.bounds[1]).any()  # an interval that is cut off
    assert not analyse(replace(before, metrics=comparison.metrics)).ranks.equals(found.ranks)

    said = json.loads((folder / "results.json").read_text())
    for metric in said["metrics"]:
        del metric["bounds"], metric["ranked"], metric["optional"]
    (folder / "results.json").write_text(json.dumps(said))  # as older versions wrote it
    older = published(folder)
    assert older is not None and older.metrics[0] == Metric(probe.name, probe.label)


def test_a_run_shows_scores_and_options(tmp_path: Path) -> None:
    section = section_of_run(run_folder(tmp_path / "run"))
    assert section.tables[0].rows == (("probe accuracy", "0.875"), ("masked mse 0.1", "–"))  # noqa: RUF001
    named = section_of(Results(tmp_path / "run", "run"))
    assert named.tables[0].rows == (
        ("linear probe accuracy", "0.875"),
        ("masked reconstruction error at 0.1", "–"),  # noqa: RUF001
    )
    assert "scheme: r2mae" in section.texts["Options"]
    unmeasured = section_of_run(run_folder(tmp_path / "other", measured=False))
    assert not unmeasured.tables and "not been measured" in unmeasured.lines[1]


def test_long_tables_are_cut_and_say_so(tmp_path: Path) -> None:
    folder = reproduction(tmp_path / "fig1b", rows=500)
    table = read_table(folder / "fig1b.csv")
    assert len(table.rows) < 500 and "of 500 rows" in table.note and "fig1b.csv" in table.note
    assert not table.open and read_table(reproduction(tmp_path / "x") / "x.csv").open
    (folder / "AUROC.csv").write_bytes((folder / "fig1b.csv").read_bytes())
    assert read_table(folder / "AUROC.csv").note == "The first 60 of 500 rows; AUROC.csv has all"


def test_damaged_tables_are_named_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = reproduction(tmp_path / "fig1b")
    (folder / "empty.csv").write_text("")
    (folder / "cut.csv").write_text("a,b\n1,2\n3\n")
    (folder / "binary.csv").write_bytes(b"a,b\n\0\xff\n")
    section = section_of_files(folder, "Fig. 1B", "Reproductions")
    assert [table.caption for table in section.tables] == ["fig1b.csv"]
    for name, reason in (("empty", "is empty"), ("cut", "1 cells in row 2, and 2 headings"), ("binary", "is not text")):
        assert any(f"{name}.csv" in line and reason in line and "make it again" in line for line in section.lines)
    assert main(["report", str(folder), "--out", str(tmp_path / "page")]) == 0
    told = capsys.readouterr().out
    assert told.count("not read: ") == 3
    assert "cut.csv is truncated" in (tmp_path / "page" / "report.html").read_text("utf-8")


def test_json_files_show_their_characters(tmp_path: Path) -> None:
    folder = reproduction(tmp_path / "fig1b")
    (folder / "made.json").write_text('{"title": "spiked (\\u03b4 = 10)"}')
    (folder / "bad.json").write_text("{")
    texts = section_of_files(folder, "Fig. 1B", "Reproductions").texts
    assert "spiked (δ = 10)" in texts["made.json"]
    assert texts["bad.json"] == "{"


def test_runs_of_a_reproduction_are_no_results_of_their_own(tmp_path: Path) -> None:
    target = reproduction(tmp_path / "fig1b")
    for below in ("runs/a", "wikitext2/runs/b", "tiny/c"):
        run_folder(target / below)
    run_folder(tmp_path / "mine")
    found = {str(one.folder.relative_to(tmp_path)) for one in find_results([tmp_path], TARGETS)}
    assert found == {"fig1b", "mine"}


def test_equal_titles_are_told_apart_in_the_contents(tmp_path: Path) -> None:
    sections = [Section(title, "Runs", folder) for title, folder in (("seed", "a"), ("seed", "b"), ("other", "c"))]
    page = render_page("all", sections)
    for entry in ("seed (a)", "seed (b)", "other"):
        assert f">{entry}</a></li>" in page


def test_a_target_that_is_there_twice_is_told_and_others_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published_results = Path(__file__).parents[2] / "results" / "theory"
    for name in ("fig1d", "fig1c"):
        copytree(published_results / name, tmp_path / "a" / name)
    copytree(published_results / "fig1c", tmp_path / "b" / "fig1c")
    folders = [tmp_path / "a", tmp_path / "b"]
    claims = claims_of(folders, find_results(folders, {"fig1c", "fig1d"}))
    assert claims is not None
    assert claims.tables
    assert any("fig1c: give one of them" in line for line in claims.lines)
    assert main(["report", *map(str, folders), "--out", str(tmp_path / "page")]) == 0
    told = capsys.readouterr().out
    assert "not judged: " in told
    assert "give one of them" in told


def test_the_shape_of_pictures_is_read(tmp_path: Path) -> None:
    Image.new("RGB", (30, 12)).save(tmp_path / "a.png")
    (tmp_path / "b.svg").write_text(SVG.replace("<svg ", '<svg width="3pt" viewBox="0 0 90.5 45.25" '))
    (tmp_path / "c.svg").write_text(SVG)
    (tmp_path / "d.png").write_bytes(b"")
    pictures = section_of_files(tmp_path, "t", "Tables").pictures
    assert {one.title: one.aspect for one in pictures} == {
        "a": 2.5,
        "b": 2.0,
        "c": 1.0,
        "d": 1.0,
    }


@pytest.mark.slow
def test_the_page_is_well_formed_escaped_and_needs_nothing_else(tmp_path: Path, tiny: Make) -> None:
    comparison = tiny({"fixed 0.50": [1.0, 1.1, 0.9], "fixed 0.70": [2.0, 2.1, 1.9], "r2mae": [0.5, 0.62, 0.4]})
    sections = [
        Section("one", "Comparisons", "a", comparison=comparison),
        Section("two", "Comparisons", "b", comparison=comparison),
        section_of_files(reproduction(tmp_path / "fig1b"), "Fig. 1B <i>", "Reproductions", ["State: finished."]),
        section_of_run(run_folder(tmp_path / "run")),
    ]
    verdicts = Table("what they decide", ("place", "verdict"), (("Fig. 1", "reproduced"),), classes=("better",))
    html = render_page("Results", sections, Section("Claims of the paper", "Claims", "", ("1 claim.",), (verdicts,)))
    page = parse(html)
    assert not re.search(r"https?:", html) and "<b>1</b>" not in html and "Fig. 1B &lt;i&gt;" in html
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [str(attributes["href"]) for tag, attributes in page.tags if tag == "a"]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert len(links) == 1 + 1 + 3 + len(sections) + 1  # skip, claims, kinds, sections, how to read
    for tag, attributes in page.tags:
        if tag == "img":
            assert attributes["alt"] and str(attributes["src"]).startswith("data:image/")
    assert html.index("Claims of the paper") < html.index(">Comparisons<") < html.index(">Reproductions<")
    assert ["Fig. 1", "reproduced"] in page.rows


def test_what_cannot_be_read_is_said_in_its_place(tmp_path: Path, tiny: Make) -> None:
    good = publish(tmp_path / "good", tiny({"fixed 0.50": [1.0, 1.1, 0.9], "r2mae": [0.5, 0.62, 0.4]}))
    unfinished, run = tmp_path / "unfinished", run_folder(tmp_path / "run")
    unfinished.mkdir()
    write_json(unfinished / "compare.json", shared_fields(ImagesConfig(data="digits", epochs=1)))
    (run / "config.yaml").write_text("a: [")
    broken = [Results(unfinished, "comparison"), Results(run, "run")]
    for number, change in enumerate(({"metrics": []}, {"cells": []}, {"cells": [{"label": "a"}]}, {"title": None}, {})):
        folder = publish(tmp_path / f"p{number}", tiny({"fixed 0.50": [1.0, 1.1]}))
        said = json.loads((folder / "results.json").read_text()) | change
        if not change:
            said["cells"] *= 2
        if "title" in change:
            said["cells"][0]["score"] = "high"
        (folder / "results.json").write_text(json.dumps(said))
        broken.append(Results(folder, "published"))
    empty = publish(tmp_path / "empty", tiny({"fixed 0.50": [1.0, 1.1]}))
    said = json.loads((empty / "results.json").read_text())
    said["cells"] = [run | {"score": None} for run in said["cells"]]
    (empty / "results.json").write_text(json.dumps(said))
    broken.append(Results(empty, "published"))
    sections = sections_of([Results(good, "published"), *broken])
    assert [section.unread for section in sections] == [False, *[True] * len(broken)]
    for section, results in zip(sections[1:], broken, strict=True):
        assert section.lines and "\n" not in section.lines[0]
        assert section.title == results.folder.name and section.kind in ("Comparisons", "Runs")
    assert "no run in" in sections[1].lines[0] and "config.yaml" in sections[2].lines[0]
    with pytest.raises(UserError, match="no run in") as error:
        sections_of(broken)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_command_passes_over_what_cannot_be_read(
    tmp_path: Path, tiny: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path / "all" / "c", tiny({"fixed 0.50": [1.0, 1.1, 0.9], "r2mae": [0.5, 0.62, 0.4]}))
    (run_folder(tmp_path / "all" / "run") / "config.yaml").write_text("a: [")
    assert main(["report", str(tmp_path / "all"), "--out", str(tmp_path / "page")]) == 0
    told = capsys.readouterr().out
    assert "config.yaml" in told and "1 result is in" in told
    assert "config.yaml is not a readable YAML file" in (tmp_path / "page" / "report.html").read_text("utf-8")
    assert main(["report", str(tmp_path / "all" / "run"), "--out", str(tmp_path / "none")]) == 2
    assert "config.yaml" in capsys.readouterr().err and not (tmp_path / "none").exists()


@pytest.mark.slow
def test_the_command(tmp_path: Path, tiny: Make, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path / "c", tiny({"fixed 0.50": [1.0, 1.1, 0.9], "r2mae": [0.5, 0.62, 0.4]}))
    run_folder(tmp_path / "run")
    words = ["report", str(tmp_path / "run"), str(tmp_path / "c")]
    assert main([*words, "--out", str(tmp_path / "page")]) == 0
    html = (tmp_path / "page" / "report.html").read_text("utf-8")
    assert html.index(">Comparisons<") < html.index(">Runs<")
    assert main([*words, "--out", str(tmp_path / "page")]) == 0  # the page is made again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "page", "run"]
    assert json.loads((tmp_path / "c" / "results.json").read_text())["schema_version"] == 1
    capsys.readouterr()
    for line, told in (([*words, "--out", str(tmp_path / "c")], "choose a new folder"), (words, "--out")):
        assert main(line) == 2
        error = capsys.readouterr().err
        assert told in error and error.count("\n") == 1
