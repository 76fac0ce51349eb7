"""The list of figures, tables and studies, which imports none of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae_paper.studies import ENTRIES, PAPER, SCALES, Entry, Scale, entry_of, folder_of
from r2mae_paper.study import Study, get_study


def test_every_figure_and_table_of_the_paper_is_made() -> None:
    assert len(PAPER) == 27
    assert list(ENTRIES)[: len(PAPER)] == list(PAPER)


def _has(study: Study, scale: Scale) -> bool:
    try:
        study.size.of(scale)
    except UserError:
        return False
    return True


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_its_study_is(name: str) -> None:
    study, entry = get_study(name), entry_of(name)
    assert study.entry is entry
    assert 10 < len(entry.title) < 100
    assert entry.paper.endswith((".", "?"))
    assert entry.data
    every: tuple[Scale, ...] = ("smoke", "small", "full")
    assert list(entry.cost) == [scale for scale in every if _has(study, scale)], "a cost for every size that there is"
    assert all(entry.cost.values())
    assert get_study(entry.name) is study
    assert sum(source is not None for source in (study.parts, study.runs, study.gather)) == 1


def test_figures_of_the_same_runs_share_a_folder() -> None:
    assert {name: folder_of(name) for name in ("fig2b", "fig5", "fig6", "fig7", "fig2d")} == {
        **dict.fromkeys(("fig2b", "fig5", "fig6", "fig7"), "fig2b"),
        "fig2d": "fig2a",
    }


@pytest.mark.parametrize("ask", [entry_of, folder_of, get_study])
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
    assert not {"torch", "scipy", "pandas", "numpy", "matplotlib", "r2mae_paper.fig1a"} & set(found)


def row_of(name: str, entry: Entry) -> str:
    """Return a line of the page's table."""
    costs = [entry.cost.get(scale, "none") for scale in ("smoke", "small", "full")]
    return f"| {' | '.join([f'`{name}`', entry.title, entry.data, *costs])} |"


def test_the_page_has_the_list() -> None:
    """If it does not: the lines of the table are those of `row_of`, which the failure shows."""
    page = (Path(__file__).parents[1] / "claims.md").read_text(encoding="utf-8")
    listed = page.split("## All studies")[1].splitlines()
    assert [line for line in listed if line.startswith("| `")] == [row_of(*item) for item in ENTRIES.items()]
