import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from r2mae.cli.main import main
from r2mae.theory import direction_risk, isotropic_risk, latent
from r2mae.theory.problem import MODELS, parse_ratios
from r2mae.theory.rows import Range

SUBCOMMANDS = ("risk", "simulate", "advise")
Run = Callable[[str], tuple[int, str, str]]
SMALL = "--d 60 --n 40"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `r2mae theory` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str, str]:
        try:
            code = main(["theory", *line.split()])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_help(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(f"\n  theory {name} " in out for name in SUBCOMMANDS)
    for name in SUBCOMMANDS:
        code, out, _ = run(f"{name} --help")
        assert code == 0
        assert re.search(rf"examples?:\n  r2mae theory {name} ", out)


def test_risk_is_theorem_1(run: Run, tmp_path: Path) -> None:
    code, out, err = run("risk --model identity --d 100 --n 400 --ratios 0.1,0.5,0.9 --out here")
    assert (code, err) == (0, "")
    expected = isotropic_risk(np.array([0.1, 0.5, 0.9]), 0.25, 0.04)
    with Path("here/risk.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["risk"]) for row in rows], expected.risk)
    np.testing.assert_allclose([float(row["bias"]) for row in rows], expected.bias, atol=1e-9)
    np.testing.assert_allclose([float(row["variance"]) for row in rows], expected.variance)
    assert [row["kept_rows"] for row in rows] == ["40.0", "200.0", "360.0"]
    assert f"Lowest risk at ratio 0.1: {expected.risk[0]:.4g}" in out
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["risk.csv", "risk.png", "risk.svg"]


@pytest.mark.filterwarnings("error")
def test_risk_as_json_with_a_range(run: Run) -> None:
    code, out, err = run(f"risk --model latent {SMALL} --direction 0.1 --ratios 0.3,0.6 --low 0.4 --high 0.5 --json")
    assert code == 0
    found = json.loads(out)
    cov = latent(60)
    expected = direction_risk(cov, 40, [0.3, 0.6, Range(0.4, 0.5)], 0.04, which=np.array([6])).risk[:, 0]
    assert [row["risk"] for row in found["rows"]] == pytest.approx(expected.tolist())
    assert [row["ratio"] for row in found["rows"]] == ["0.3", "0.6", "R²MAE 0.4–0.5"]  # noqa: RUF001
    assert found["null"] == pytest.approx(cov.eigenvalues[6])
    assert found["model"] == "latent, 7th eigenvector, n = 40, d = 60"
    assert "of these fixed ratios" in found["words"]
    assert err.startswith("note: ") or not err


@pytest.mark.parametrize("model", MODELS)
def test_every_model(run: Run, model: str) -> None:
    code, out, _ = run(f"risk --model {model} {SMALL} --ratios 0.2:0.8:0.2")
    assert code == 0
    assert out.startswith(model)
    assert all(f"\n{ratio} " in out for ratio in ("0.2", "0.4", "0.6", "0.8"))


def test_the_peak_is_a_note_and_not_a_warning(run: Run) -> None:
    code, out, err = run("risk --model identity --d 100 --n 200 --ratios 0.3,0.5 --json")
    assert code == 0
    assert json.loads(out)["rows"][1]["risk"] is None  # infinite
    assert err.startswith("note: n·E[p] = 100 kept rows are within 5% of the 100 dimensions")
    assert err.count("\n") == 1
    assert "Warning" not in err


def test_no_ratio_is_worth_it(run: Run) -> None:
    out = run("risk --model identity --d 100 --n 20 --ratios 0.7,0.9")[1]
    assert "None of these ratios predicts better than zero does. The closest is 0.7" in out


def test_a_covariance_of_ones_own(run: Run) -> None:
    cov = latent(60)
    np.save("mine.npy", cov.matrix())
    code, out, _ = run("risk --cov mine.npy --n 40 --ratios 0.5 --json")
    assert code == 0
    expected = direction_risk(cov, 40, [0.5], 0.04, which=np.array([0])).risk[0, 0]
    assert json.loads(out)["rows"][0]["risk"] == pytest.approx(float(expected))


@pytest.mark.parametrize("design", ["fixed", "fresh"])
def test_simulate(run: Run, tmp_path: Path, design: str) -> None:
    line = f"simulate --model uniform --d 120 --n 60 --ratios 0.4,0.7 --low 0.4 --high 0.6 --design {design}"
    code, out, err = run(f"{line} --repetitions 30 --jobs 2 --json --out here")
    assert code == 0
    assert ("--design fresh measures" in err) == (design == "fixed")
    found = json.loads(out)
    for row in found["rows"]:
        gap = (row["risk"] - row["formula"]) / row["standard_error"]
        assert row["difference_in_errors"] == pytest.approx(gap)
        assert abs(gap) < 5
        assert row["sd"] == pytest.approx(row["standard_error"] * 30**0.5)
    again = json.loads(run(f"{line} --repetitions 30 --json")[1])
    assert again["rows"] == found["rows"]
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names == ["simulation.csv", "simulation.png", "simulation.svg"]


def test_simulate_once(run: Run) -> None:
    code, out, _ = run(f"simulate --model identity {SMALL} --ratios 0.5 --repetitions 1 --out here")
    assert code == 0
    assert "1 repetitions" in out
    with Path("here/simulation.csv").open(encoding="utf-8") as file:
        assert next(csv.DictReader(file))["sd"] in ("", "nan")


def test_ratios() -> None:
    assert parse_ratios("0.05:0.95:0.05") == pytest.approx(np.arange(1, 20) / 20)
    assert parse_ratios("0.5,0.1, 0.5") == [0.1, 0.5]
    assert parse_ratios("0:0.5:0.2") == [0, 0.2, 0.4]


MISTAKES = {
    "": "theory what? choose from: risk, simulate, advise",
    "rsik": "did you mean 'risk'?",
    "risk --model spikey": "--model takes one of identity, spiked, uniform, beta, latent, plateau, not 'spikey'",
    "risk --modle beta": "did you mean '--model'?",
    "risk --n 1": "n must be at least 2 rows",
    "risk --d 1": "d must be at least 2",
    "risk --d many": "--d takes a whole number, not 'many'",
    "risk --n 10": "ratio: too few kept rows: n·p = 0.5",
    "risk --low 0.5": "--low and --high belong together",
    "risk --low 0.8 --high 0.2": "low and high must satisfy",
    "risk --low 0.5 --high 1.2": "low and high must satisfy",
    "risk --noise -1": "noise must be a finite number of 0 or more",
    "risk --ridge -1": "ridge must be",
    "risk --seed -1": "--seed must be 0 or more",
    "risk --delta 0": "delta must be a positive number",
    "risk --cosine 2": "cosine must be between -1 and 1",
    "risk --direction top": "--model spiked does not take --direction",
    "risk --model beta --delta 3": "--model beta does not take --delta",
    "risk --model beta --direction x": "--direction takes top, or a quantile",
    "risk --model beta --direction 2": "--direction takes top, or a quantile",
    "risk --model beta --direction nan": "--direction takes top, or a quantile",
    "risk --cov ones.npy --direction 0.5": "the covariance has no variance along --direction",
    "simulate --cov ones.npy --direction 0.5": "the covariance has no variance along --direction",
    "risk --ratios a": "--ratios takes FIRST:LAST:STEP",
    "risk --ratios 0.1:0.5:0": "STEP above 0",
    "risk --ratios 0.1:0.9:1e-9": "take a larger STEP",
    "risk --ratios 0:inf:0.1": "take a larger STEP",
    "risk --ratios 0:1e300:1e-300": "take a larger STEP",
    "risk --ratios 0.5,1": "--ratios must be at least 0 and below 1, not 1",
    "risk --cov none.npy": "none.npy: No such file or directory; --cov takes",
    "risk --cov .": ".: Is a directory; --cov takes",
    "risk --cov one.npy": "one.npy: covariance must have at least 2 features",
    "risk --out text.npy": "--out text.npy: a part of it is a file: give another folder",
    "simulate --out text.npy/in/it": "--out text.npy/in/it: a part of it is a file",
    "advise digits --out text.npy": "--out text.npy: a part of it is a file",
    "risk --cov text.npy": "text.npy: not a .npy file of numbers",
    "risk --cov zip.npy": "zip.npy: not a .npy file of numbers",
    "risk --cov huge.npy": "huge.npy: not a .npy file of numbers",
    "risk --cov flat.npy": "flat.npy: --cov takes a d by d matrix",
    "risk --cov indefinite.npy": "indefinite.npy: covariance is indefinite",
    "risk --cov flat.npy --model beta": "--model and --cov exclude each other",
    "simulate --repetitions 0": "repetitions must be 1 or more",
    "simulate --jobs 0": "jobs must be 1 or more",
    "simulate --design free": "--design takes one of fixed, fresh, not 'free'",
}


@pytest.mark.parametrize(("line", "told"), MISTAKES.items())
def test_mistakes_are_one_line(run: Run, line: str, told: str) -> None:
    Path("text.npy").write_text("no numbers", encoding="utf-8")
    Path("zip.npy").write_bytes(b"PK\3\4 and no more")
    with Path("huge.npy").open("wb") as file:
        huge = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
        np.lib.format.write_array_header_1_0(file, huge)
    np.save("flat.npy", np.ones(3))
    np.save("one.npy", np.eye(1))
    np.save("ones.npy", np.ones((4, 4)))
    np.save("indefinite.npy", np.array([[1.0, 2.0], [2.0, 1.0]]))
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert told in err
    assert err.startswith("r2mae: ")
    assert err.count("\n") == 1


def test_ctrl_c_promises_no_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("r2mae.theory.simulate", stop)
    code, out, err = run(f"simulate --model identity {SMALL} --ratios 0.5 --out here")
    assert (code, out) == (130, "")
    assert err == "r2mae: stopped\n"
    assert not Path("here").exists()


def test_a_reader_that_leaves_is_no_failure() -> None:
    line = (
        f"import sys; from r2mae.cli.main import main; sys.exit(main('theory risk --model identity {SMALL}'.split()))"
    )
    made = subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert made.stdout is not None and made.stderr is not None
    made.stdout.close()  # before anything is written
    told = made.stderr.read()
    made.stderr.close()
    assert (made.wait(), b"Traceback" in told) == (0, False), told
