"""Parsers from dataclasses, and what domains declare."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from r2mae.cli.declared import listed
from r2mae.cli.main import main
from r2mae.cli.parsing import Parser, parser_of
from r2mae.errors import UserError
from r2mae.fields import argument, option


@dataclass(frozen=True)
class Options:
    """Do something.

    It takes a while.

    Parameters
    ----------
    run : str
        A run folder.
    names : list of str
        Some names, 100 % of them.
    size_mode : {"small", "large"}
        How large.
    count, width : int
        Numbers.
    time : int or float
        A step, or a fraction of the run.
    quick : bool
        Whether to hurry.
    decay : float or "auto"
        The decay.
    output : str, optional
        The file.

    Examples
    --------
    r2mae test runs/a --names b c
    """

    run: str = argument()
    names: tuple[str, ...] = ()
    size_mode: Literal["small", "large"] = "small"
    count: int = 3
    width: int | None = None
    time: int | float = 0.5
    quick: bool = False
    decay: float | Literal["auto"] = "auto"
    output: str | None = option(None, short="-o", flag="out", metavar="OUT")


@pytest.fixture
def parser() -> Parser:
    return parser_of("test", Options, lambda given: 0)


def test_the_help_is_the_docstring(parser: Parser) -> None:
    told = parser.format_help()
    assert told.startswith("usage: r2mae test RUN [--OPTION VALUE ...]\n\nDo something.\n\nIt takes a while.\n")
    assert "example:\n  r2mae test runs/a --names b c\n" in told
    lines = [" ".join(line.split()) for line in told.splitlines()]
    for line in (
        "RUN A run folder.",
        "--names [NAME ...] Some names, 100 % of them.",
        "--count N Numbers. (default: 3)",
        "--width N Numbers.",
        "--quick Whether to hurry.",
        "-o OUT, --out OUT The file.",
    ):
        assert line in lines
    assert "{small,large}" in told


READ: dict[str, dict[str, Any]] = {
    "a": {},
    "a --names": {"names": ()},
    "a --names b --names c d": {"names": ("c", "d")},
    "a --quick": {"quick": True},
    "--quick a": {"quick": True},
    "--quick NO a": {"quick": False},
    "a --quick=no --count=4": {"quick": False, "count": 4},
    "a --time 500": {"time": 500},
    "a --time 1.0": {"time": 1.0},
    "a --width null": {"width": None},
    "a --decay auto": {"decay": "auto"},
    "a --decay 1e-3": {"decay": 1e-3},
    "a --size_mode=large -o x": {"size_mode": "large", "output": "x"},
}


@pytest.mark.parametrize("line", READ)
def test_only_what_is_given_is_returned(parser: Parser, line: str) -> None:
    found = parser.read(line.split())
    expected = {"run": "a", **READ[line]}
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in expected.items()
    }


MISTAKES = {
    "": "the following arguments are required: RUN; for example: r2mae test runs/a --names b c",
    "a b": "'r2mae test' does not take 'b': see --help",
    "a --count": "argument --count: expected one argument; for example: ",
    "a --count 1.5": "--count takes a whole number, not '1.5'",
    "a --count 1:30": "--count takes a whole number, not '1:30'",
    "a --quick=maybe": "--quick takes true or false, not 'maybe'",
    "a --size-mode huge": "--size-mode takes one of small, large, not 'huge'",
    "a --decay slow": "--decay takes a number or one of auto, not 'slow'",
    "a --sise-mode small": "unknown option '--sise-mode' of 'r2mae test': did you mean '--size-mode'?",
    "a --zzz=3": "unknown option '--zzz' of 'r2mae test': see --help",
    "a --cou 3": "unknown option '--cou' of 'r2mae test': did you mean",
    f"a --count {'9' * 5000}": "--count takes a whole number, not ",
}


@pytest.mark.parametrize("line", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_one_short_line(parser: Parser, line: str) -> None:
    with pytest.raises(UserError) as error:
        parser.read(line.split())
    assert str(error.value).startswith(MISTAKES[line])
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_a_required_list_is_not_empty() -> None:
    @dataclass(frozen=True)
    class Needs:
        """Needs names."""

        names: tuple[str, ...] = option(flag="of")

    with pytest.raises(UserError, match=r"^argument --of: expected at least one argument$"):
        parser_of("test", Needs, lambda given: 0).read(["--of"])


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make the folder of a run of a domain."""
    monkeypatch.chdir(tmp_path)

    def make(domain: str) -> None:
        Path(domain).mkdir()
        Path(domain, "config.yaml").write_text(f"domain: {domain}\ndata: {{source: none}}\n")

    return make


EVALUATIONS = {
    "text --task sst2": "'--task' of 'r2mae evaluate': it belongs to glue: r2mae evaluate text glue --task",
    "--json none": "r2mae evaluate: name what it works on before the options",
    "text glu": "unknown evaluation 'glu': did you mean 'glue'",
    "text --zzz 1": "text is a run of the domain text, which has no --zzz: omit it",
    "images --layer counts": "images is a run of the domain images, which has no --layer: omit it",
    "images --bn-statistic no": "unknown option '--bn-statistic' of 'r2mae evaluate': did you mean '--bn-statistics'?",
}


@pytest.mark.parametrize("line", EVALUATIONS)
def test_options_of_evaluations(run_of: Callable[[str], None], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(line.split(maxsplit=1)[0])
    assert main(["evaluate", *line.split()]) == 2
    assert EVALUATIONS[line] in capsys.readouterr().err


def test_help_in_words() -> None:
    assert listed([("one", "words " * 40), ("none", "")]).splitlines()[1].startswith(" " * 10 + "words")
