"""The list of figures and tables: what it says of each is what its module is, without importing it."""

import subprocess
import sys
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae_paper.artefact import Artefact, get_artefact
from r2mae_paper.targets import ARTEFACTS, PAPER, SCALES, Scale, all_names, folder_of, target_of


def test_every_figure_and_table_of_the_paper_is_made() -> None:
    assert set(PAPER) <= ARTEFACTS.keys()
    assert set(all_names()) == ARTEFACTS.keys()
    assert all_names()[: len(PAPER)] == list(PAPER)


def _has(artefact: Artefact, scale: Scale) -> bool:
    try:
        artefact.SIZE.of(scale)
    except UserError:
        return False
    return True


@pytest.mark.parametrize("name", ARTEFACTS)
def test_a_target_says_what_its_module_is(name: str) -> None:
    artefact, target = get_artefact(name), target_of(name)
    assert target.title == artefact.TITLE
    assert target.data
    every: tuple[Scale, ...] = ("smoke", "small", "full")
    scales = [scale for scale in every if _has(artefact, scale)]
    assert list(target.cost) == scales, "a cost for every size that there is"
    assert all(target.cost.values())
    assert get_artefact(target.folder) is artefact


def test_figures_of_the_same_runs_share_a_folder() -> None:
    assert {name: folder_of(name) for name in ("fig2b", "fig5", "fig6", "fig7", "fig2d")} == {
        **dict.fromkeys(("fig2b", "fig5", "fig6", "fig7"), "fig2b"),
        "fig2d": "fig2a",
    }


@pytest.mark.parametrize("ask", [target_of, folder_of, get_artefact])
def test_an_unknown_name_has_the_nearest(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(UserError, match="did you mean 'table5'"):
        ask("tabel5")


def test_the_papers_scale_has_two_names() -> None:
    assert SCALES["paper"] == SCALES["full"] == "full"
    assert set(SCALES.values()) == {"smoke", "small", "full"}


def test_listing_imports_no_target() -> None:
    code = (
        "import sys; from r2mae_paper.targets import all_names, target_of; "
        "[target_of(name) for name in all_names()]; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert not {"torch", "scipy", "pandas", "numpy", "matplotlib", "r2mae_paper.fig1a"} & set(found)


def row_of(name: str) -> str:
    """Return a target's line of the page's table."""
    target = target_of(name)
    costs = [target.cost.get(scale, "none") for scale in ("smoke", "small", "full")]
    cells = [f"`{name}`", target.title, target.data, *costs]
    return f"| {' | '.join(cells)} |"


def test_the_page_has_the_list() -> None:
    """If it does not: the lines of the table are those of `row_of`, which the failure shows."""
    page = (Path(__file__).parents[1] / "claims.md").read_text(encoding="utf-8")
    listed = page.split("## All targets")[1].splitlines()
    assert [line for line in listed if line.startswith("| `")] == [row_of(name) for name in all_names()]
