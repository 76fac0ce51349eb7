"""The list of figures, tables and studies, which imports none of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae_paper.studies import ENTRIES, PAPER, SCALES, entry_of
from r2mae_paper.study import get_study


def test_every_figure_and_table_of_the_paper_is_made() -> None:
    assert len(PAPER) == 27
    assert list(ENTRIES)[: len(PAPER)] == list(PAPER)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_its_study_is(name: str) -> None:
    study, entry = get_study(name), entry_of(name)
    assert study.entry is entry
    assert 10 < len(entry.title) < 100
    assert entry.paper.endswith((".", "?"))
    assert entry.data
    scales = ["small", "full"] if study.runs is None and study.gather is None else ["smoke", "small", "full"]
    assert list(entry.cost) == scales
    assert {*entry.small, *entry.smoke} <= {*entry.full}, "what differs at other scales is a field of the full one"
    assert all(entry.cost.values())
    assert get_study(entry.name) is study
    assert sum(source is not None for source in (study.parts, study.runs, study.gather)) == 1


def test_a_size_has_the_fields_of_its_scale() -> None:
    entry = entry_of("fig1c")
    assert entry.size("small", n=50).fields == {**entry_of("fig1b").size("small").fields, "n": 50}
    assert entry.size() == entry.size("full") != entry.size("small")
    assert entry.size().deltas == (1.0, 10.0, 100.0)
    with pytest.raises(UserError, match="it has no rows: omit --rows"):
        entry.size(rows=("a",))
    with pytest.raises(AttributeError):
        entry.size().rows  # noqa: B018
    settings = entry_of("table4").size("small").settings
    assert (settings["n_hidden"], settings["steps"]) == (256, 1000), "those of the preset, and its own"


@pytest.mark.parametrize(
    ("name", "rows", "baselines"),
    [
        ("table1", 6, ()),
        ("table2", 5, None),
        ("table3", 10, ()),
        ("table4", 10, ("expression", "scvi")),
        ("table6", 11, ("expression", "scvi")),
    ],
)
def test_the_rows_that_the_paper_prints(name: str, rows: int, baselines: tuple[str, ...] | None) -> None:
    size = entry_of(name).size(rows=("paper",))
    assert (len({*size.rows}), size.fields.get("baselines")) == (rows, baselines)
    assert "r2mae" in size.rows
    if baselines:
        assert entry_of(name).size("small", rows=["paper"]).baselines == ("expression",)
    if baselines is not None:
        assert entry_of(name).size(rows=("paper",), baselines=("pca",)).baselines == ("pca",)


@pytest.mark.parametrize(
    ("name", "rows", "told"),
    [
        ("table3-mtdna", ("paper",), "the paper has no such table"),
        ("many-masks", ("a",), "it has no rows: omit --rows"),
        ("table6", ("r2mea", "fixed 0.25"), "unknown row 'r2mea': did you mean 'r2mae'"),
        ("table6", ("r2mae",), "the rows need 'fixed 0.25'"),
        ("randomness-text", ("r2mea", "fixed 0.50"), "unknown row 'r2mea'"),
        ("fills", ("nonsense", "fixed 0.50"), "unknown row 'nonsense'"),
        ("fills", ("r2mae",), "the rows need 'fixed 0.50'"),
    ],
)
def test_rows_that_there_are_not(name: str, rows: tuple[str, ...], told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        get_study(name).runs(entry_of(name).size("small", rows=rows), tmp_path)  # type: ignore[misc]


def test_figures_of_the_same_runs_share_a_folder() -> None:
    assert {name: entry_of(name).name for name in ("fig2b", "fig5", "fig6", "fig7", "fig2d")} == {
        **dict.fromkeys(("fig2b", "fig5", "fig6", "fig7"), "fig2b"),
        "fig2d": "fig2a",
    }


@pytest.mark.parametrize("ask", [entry_of, get_study])
def test_an_unknown_name_has_the_nearest(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(UserError, match="did you mean 'table5'"):
        ask("tabel5")


def test_the_papers_scale_has_two_names() -> None:
    assert SCALES["paper"] == SCALES["full"] == "full"
    assert set(SCALES.values()) == {"smoke", "small", "full"}


def test_listing_imports_no_study() -> None:
    code = "import sys; from r2mae_paper.studies import ENTRIES; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert not {"torch", "scipy", "pandas", "numpy", "matplotlib", "r2mae_paper.simulated"} & set(found)
