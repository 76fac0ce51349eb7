import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from r2mae.cli.theory_advise import run
from r2mae.errors import UserError

pytestmark = pytest.mark.slow

Call = Callable[[str], str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command in an empty folder and return what it prints."""
    monkeypatch.chdir(tmp_path)

    def made(line: str) -> str:
        assert run(line.split()) == 0
        return capsys.readouterr().out

    return made


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "example:\n  r2mae theory advise digits" in out
    assert "--max-features" in out and "--max_features" not in out


def test_digits(call: Call, tmp_path: Path) -> None:
    out = call("digits --samples 40 --max-features 40")
    assert "note: the 40 most variable of 61 features are used" in out
    first, told = out.splitlines()[0], " ".join(out.split())
    assert first.startswith("Answer: no ratio for pretraining.") and "6 sets" in first and "all 16 linear fits" in first
    assert re.search(r"for linear regression 0\.\d\d to 0\.\d\d\.$", first)
    assert "each row is masked once" in told and "r2mae compare DATA --schemes fixed r2mae" in told
    assert "Range for masked linear regression" in told and "Suggested" not in told
    assert "drawn for every row" in out
    assert out.rstrip().endswith("figure and tables are in runs/advise-digits")
    names = {path.name for path in (tmp_path / "runs" / "advise-digits").iterdir()}
    assert names == {"advice.json", "curves.csv", "targets.csv", "advice.png", "advice.svg"}


def test_json_is_all_that_is_printed(call: Call, tmp_path: Path) -> None:
    found = json.loads(call("digits --samples 40 --max-features 45 --json --out here --tolerance 0.1 --directions 5"))
    assert found == json.loads((tmp_path / "here" / "advice.json").read_text())
    assert (found["n"], found["d"], found["tolerance"], found["directions"]) == (40, 45, 0.1, 5)
    assert found["standardised"] is True
    assert found["suggested_for_pretraining"] is None
    assert 0 < found["suggested_for_linear_regression"]["low"] < found["suggested_for_linear_regression"]["high"] < 1
    assert found["answer"].startswith("Answer: no ratio for pretraining.")
    assert found["held"] == {"pretraining": False, "linear_regression": True}
    assert found["evidence"]["autoencoder"]["source"] == "results/mnist"
    assert found["caveat"] and found["what_to_do"]
    assert found["paragraph"] and found["cautions"] == []


def test_raw_features_and_a_table_of_ones_own(call: Call, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((60, 7)) * np.arange(1, 8)
    np.savetxt(tmp_path / "a.csv", x, delimiter=",")
    np.save(tmp_path / "a.npy", x)
    first, second = (json.loads(call(f"a.{kind} --raw --json")) for kind in ("csv", "npy"))
    assert first["standardised"] is False
    assert first["risk_of_directions"] == pytest.approx(second["risk_of_directions"])  # a table rounds
    standardised = json.loads(call("a.npy --json"))
    assert standardised["risk_of_directions"] != pytest.approx(second["risk_of_directions"], rel=1e-3)


MISTAKES = {
    "": "arguments are required: DATA; for example: r2mae theory advise digits",
    "minst": "did you mean 'mnist'?",
    "none.csv": "none.csv: no such file",
    "digits more": "unrecognized arguments: more",
    "digits --sampels 5": "did you mean '--samples'?",
    "digits --samples 1": "--samples must be 2 or more",
    "digits --samples many": "--samples takes a whole number, not 'many'",
    "digits --directions 0": "--directions must be 1 or more",
    "digits --tolerance 1.5": "--tolerance must be above 0 and below 1",
    "digits --max-features 1": "--max-features must be 2 or more",
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_told_in_one_line(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        run(line.split())
    assert MISTAKES[line] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
