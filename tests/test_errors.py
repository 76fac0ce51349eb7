"""Names that are meant, and names that are not."""

import pytest

from r2mae.errors import nearest

NAMES = ["digits", "mnist", "csle", "covid-tcells", "combat", "sea-ad", "wiki", "wikitext2", "images", "cells", "text"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("digit", "digits"),
        ("mnsit", "mnist"),
        ("MINST", "mnist"),
        ("csel", "csle"),
        ("wikki", "wiki"),
        ("wikitext", "wikitext2"),
        ("txet", "text"),
        ("seaad", "sea-ad"),
        ("covid", "covid-tcells"),
        ("covid-tcell", "covid-tcells"),
    ],
)
def test_a_slip_or_a_beginning_is_understood(name: str, meant: str) -> None:
    assert nearest(name, NAMES) == f"did you mean {meant!r}?"


@pytest.mark.parametrize("name", ["celeba", "cifar10", "faces", "pbmc", "fashion-mnist", "a", "", "mice"])
def test_other_names_are_no_slips(name: str) -> None:
    assert nearest(name, NAMES) == f"choose from: {', '.join(NAMES)}"


def test_several_may_be_meant() -> None:
    assert nearest("fig9", ["fig3", "fig4", "table5"]) == "did you mean 'fig3' or 'fig4'?"
    assert nearest("fig", [f"fig{place}" for place in range(9)]).startswith("choose from: fig0, fig1")
    assert nearest("Ab", ["aB", "ab"]) == "did you mean 'aB'?"
