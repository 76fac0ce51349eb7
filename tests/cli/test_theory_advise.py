import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from r2mae.cli.commands import parser_for
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.theory.advice_text import FAILED, HELD, SETS, span

pytestmark = pytest.mark.slow

Call = Callable[[str], str]


def run(words: list[str]) -> int:
    parser = parser_for("theory advise", words)
    code: int = parser.run(parser.read(words))
    return code


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
    assert first.startswith("Answer: no ratio for pretraining.") and "6 of 6 sets" in first
    assert first.endswith("held in all 16 linear fits without nearly empty features.")
    assert "each row masked once" in told and "r2mae compare DATA --schemes fixed r2mae" in told
    assert "masked ridgeless regression on n = 40 rows of d = 40 standardised features can learn 12 of 20" in told
    assert "risks (1 is predicting zero): 0.822 of the directions at 0.26, 0.923 of the features at 0.15." in told
    assert "diverges" not in told and "Suggested" not in told
    assert out.rstrip().endswith("figure and tables are in runs/advise-digits")
    names = {path.name for path in (tmp_path / "runs" / "advise-digits").iterdir()}
    assert names == {"advice.json", "curves.csv", "targets.csv", "advice.png", "advice.svg"}


def test_the_tables(call: Call, tmp_path: Path) -> None:
    found = json.loads(call("digits --samples 30 --max-features 40 --out . --json"))
    curves = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    assert [row["ratio"] for row in curves] == [f"{ratio / 100:g}" for ratio in range(1, 100)]
    assert list(curves[0])[-20:] == [f"direction_{number}" for number in range(1, 21)]
    assert curves[0]["directions_mean"] == ""  # less than one kept row
    lowest = min((row for row in curves if row["directions_mean"]), key=lambda row: float(row["directions_mean"]))
    assert found["best_fixed"]["directions"]["ratio"] == float(lowest["ratio"])
    assert found["best_fixed"]["directions"]["risk"] == pytest.approx(float(lowest["directions_mean"]), rel=1e-5)
    targets = list(csv.DictReader((tmp_path / "targets.csv").read_text().splitlines()))
    assert [row["target"] for row in targets[19:21]] == ["direction_20", "pixel 0,2"]
    assert len(targets) == 20 + 40
    assert sum(int(row["learnable"]) for row in targets[20:]) == found["learnable_features"]


def test_json_is_all_that_is_printed(call: Call, tmp_path: Path) -> None:
    found = json.loads(call("digits --samples 40 --max-features 45 --json --out here"))
    assert found == json.loads((tmp_path / "here" / "advice.json").read_text())
    assert (found["n"], found["d"], found["directions"]) == (40, 45, 20)
    assert found["answer"].startswith("Answer: no ratio for pretraining.")
    assert found["held"] == {"pretraining": False, "linear_regression": True}
    assert found["caveat"] and found["paragraph"] and found["cautions"] == []


def test_many_epochs_and_missing_entries(call: Call) -> None:
    line = "digits --samples 400 --max-features 40 --epochs 64 --missing 0.1 0.9 --json"
    found, zeros = (json.loads(call(f"{line} --fill {fill}")) for fill in ("mean", "zeros"))
    assert found["answer"].startswith("Answer: for 64 masks a row the formula's ratio is 0.39 (0.12 to 0.60 cost at")
    assert "in a linear model a range is as good as its effective ratio, U(0.1, 0.9) as 0.39" in found["answer"]
    assert found["answer"].endswith("networks on 13 of 14 sets gained more, 8 % on average).")
    assert found["ratio_of_many_masks"]["ratio"] == 0.39 and found["masks"] == 64
    assert "On networks of 14 sets" in found["caveat"]
    assert zeros["answer"].endswith("with zeros in data that are not centred a range may be better.")
    assert zeros["ratio_of_many_masks"]["ratio"] == pytest.approx(0.45)


@pytest.mark.parametrize("samples", [183, 20])
def test_no_ratio_where_advice_has_not_held(call: Call, samples: int) -> None:
    """Pixels that hardly ever vary: with n > d, and with n < d."""
    found = json.loads(call(f"digits --samples {samples} --json"))
    assert found["answer"].endswith("hardly ever vary (try a smaller --max-features).")
    assert found["cautions"] and "lowest mean risk" not in found["paragraph"]
    assert ("diverges near ratio d/n = 0.333" in found["paragraph"]) == (samples == 183)
    assert found["best_fixed"] is None


def test_nothing_can_be_learned(call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).standard_normal((400, 300)))
    found = json.loads(call("a.npy --samples 4 --json"))
    assert found["answer"].endswith("no direction can be learned.")
    assert found["learnable_directions"] == 0


def test_what_the_command_and_the_page_say_of_past_advice_is_what_was_measured() -> None:
    results = Path(__file__).resolve().parents[2] / "paper" / "results"
    page = (results.parents[1] / "docs" / "theory" / "advice.md").read_text()

    def rows(path: str) -> list[dict[str, str]]:
        return list(csv.DictReader((results / path).read_text().splitlines()))

    networks = [
        row
        for row in rows("randomness/randomness/randomness-rules.csv")
        if row["rule"].startswith("closed form") and row["set"] != "all sets" and row["score"] == "error"
    ]
    assert (sum(float(row["low"]) > 0 for row in networks), len(networks)) == (FAILED, SETS)
    regrets = [float(row["regret"]) for row in networks]
    assert f"{min(regrets):.1f} % to {max(regrets):.0f} % above" in page
    fits: dict[tuple[str, ...], list[float]] = {}
    for row in rows("theory/realdata/summary.csv"):
        if "all pixels" not in row["data"]:
            key = (row["data"], row["scaling"], row["n"])
            fits.setdefault(key, []).append(float(row["best_ratio_agrees"]))
    assert len(fits) == HELD and all(agrees == 1 for found in fits.values() for agrees in found)
    assert f"features: {HELD} cases" in page
    probe: dict[str, list[float]] = {}
    for row in rows("mnist/results.csv"):
        if row["scheme"] == "fixed":
            probe.setdefault(row["ratio"], []).append(float(row["probe_accuracy"]))
    mean = {ratio: np.mean(values) for ratio, values in probe.items()}
    assert f"{mean['0.1']:.3f} to {mean['0.2']:.3f} there, {max(mean.values()):.3f} at 0.6 to 0.8" in page


@pytest.mark.parametrize(
    ("low", "high", "written"),
    [(0.1, 0.19, "0.10 to 0.19"), (0.15, 0.15, "0.15"), (0.1461, 0.1539, "0.15"), (0.149, 0.156, "0.15 to 0.16")],
)
def test_a_range_of_one_number_is_written_as_one(low: float, high: float, written: str) -> None:
    assert span(low, high) == written


def test_a_table_of_ones_own(call: Call, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((60, 7)) * np.arange(1, 8)
    np.savetxt(tmp_path / "a.csv", x, delimiter=",", header=",".join("abcdefg"), comments="")
    np.save(tmp_path / "a.npy", x)
    first, second = (json.loads(call(f"a.{kind} --json")) for kind in ("csv", "npy"))
    risks = [found["best_fixed"]["features"]["risk"] for found in (first, second)]
    assert risks[0] == pytest.approx(risks[1])  # a table rounds


MISTAKES = {
    "digits --out text.npy": "--out text.npy: a part of it is a file",
    "digits --out text.npy/in/it": "--out text.npy/in/it: a part of it is a file",
    "": "arguments are required: DATA; for example: r2mae theory advise digits",
    "minst": "did you mean 'mnist'?",
    "none.npy": "none.npy: no such file",
    "digits more": "does not take 'more'",
    "digits --sampels 5": "did you mean '--samples'?",
    "digits --samples 1": "samples must be 2 or more",
    "digits --samples many": "--samples takes a whole number, not 'many'",
    "digits --epochs 0": "epochs must be 1 or more",
    "digits --missing 0.1": "--missing must be two shares, LOW and HIGH",
    "digits --missing 0.9 0.1": "--missing must be two shares, LOW and HIGH",
    "digits --missing 0 1": "--missing must be two shares, LOW and HIGH",
    "digits --fill ones": "--fill",
    "digits --raw": "unknown option '--raw'",
    "digits --max-features 1": "--max-features must be 2 or more",
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_told_in_one_line(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npy").touch()
    with pytest.raises(UserError) as caught:
        run(line.split())
    assert MISTAKES[line] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["text.npy"]


@pytest.mark.parametrize(
    ("line", "told"),
    [("", "theory what? choose from: advise"), ("avdise", "did you mean 'advise'?"), ("risk --d 1000000000", "risk")],
)
def test_other_commands_of_the_theory_are_unknown(
    line: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["theory", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("r2mae: ") and told in err


def test_ctrl_c_promises_no_checkpoint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("r2mae.theory.advise", stop)
    assert main(["theory", "advise", "digits", "--out", "here"]) == 130
    assert capsys.readouterr() == ("", "r2mae: stopped\n")
    assert not Path("here").exists()


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    line = (
        "import sys; from r2mae.cli.main import main; sys.exit(main('theory advise digits --max-features 9'.split()))"
    )
    made = subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    assert made.stdout is not None and made.stderr is not None
    made.stdout.close()  # before anything is written
    told = made.stderr.read()
    made.stderr.close()
    assert (made.wait(), b"Traceback" in told) == (0, False), told
