"""Names that are meant, and names that are not; and errors of libraries as one line."""

import time

import pytest

from r2mae.errors import UserError, brief, nearest, reading

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


@pytest.mark.parametrize(
    ("name", "meant"),
    [("learning_rate", "lr"), ("--learning-rate", "--lr"), ("bs", "batch_size"), ("max_epochs", "epochs")],
)
def test_names_of_other_libraries_are_understood(name: str, meant: str) -> None:
    known = ["--lr", "--epochs"] if name.startswith("-") else ["lr", "batch_size", "epochs", "max_cells"]
    assert nearest(name, known) == f"did you mean {meant!r}?"
    assert "lr" not in nearest("learning_rate", ["digits", "mnist"])


def test_several_may_be_meant() -> None:
    assert nearest("fig9", ["fig3", "fig4", "table5"]) == "did you mean 'fig3' or 'fig4'?"
    assert nearest("fig", [f"fig{place}" for place in range(9)]).startswith("choose from: fig0, fig1")
    assert nearest("Ab", ["aB", "ab"]) == "did you mean 'aB'?"


def test_a_name_that_begins_with_a_known_one_is_understood() -> None:
    assert nearest("warmup_epochs", ["warmup", "epochs", "wa"]) == "did you mean 'warmup'?"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ModuleNotFoundError("No module named 'x'", name="x"), "a.gz needs the library x: pip install x"),
        (
            ImportError("\nA tokenizer needs\n sentencepiece"),
            "a.gz cannot be read (A tokenizer needs sentencepiece): mend it",
        ),
        (OSError("a\nb"), "a.gz cannot be read (a b): mend it"),
    ],
)
def test_errors_of_libraries_are_one_line(error: Exception, line: str) -> None:
    with pytest.raises(UserError) as found, reading("a.gz", "mend it"):
        raise error
    assert str(found.value) == line


def test_objects_of_libraries_are_named_and_other_brackets_stay() -> None:
    assert brief(OSError("no <class 'h5py.Group'> in <cyfunction get at 0x7f3a>")) == "no h5py.Group in get"
    assert brief(OSError("no <mask> here")) == "no <mask> here"
    begin = time.perf_counter()
    assert len(brief(OSError("<" + "a" * 200_000))) == 160
    assert time.perf_counter() - begin < 5
