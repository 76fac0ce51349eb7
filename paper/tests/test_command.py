import json
from pathlib import Path

import pytest
import yaml

from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae_paper.runner import Reproduced
from r2mae_paper.studies import ENTRIES, PAPER
from r2mae_paper.study import Study, get_study

pytestmark = pytest.mark.slow
RATIOS = (0.15, 0.3, 0.4, 0.5, 0.8)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and a Fig. 1B of no cost."""
    monkeypatch.chdir(tmp_path)
    tiny = {"n": 40, "d": 80, "repetitions": 2, "fresh": 2, "step": 0.05}
    for name, value in tiny.items():
        monkeypatch.setitem(ENTRIES["fig1b"].small, name, value)  # type: ignore[arg-type]
    return tmp_path


@pytest.mark.parametrize("line", ["reproduce", "reproduce --help"])
def test_all_studies_are_listed_with_their_titles(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(line.split())
    except SystemExit as stop:
        code = stop.code
    assert code == 0
    out = capsys.readouterr().out
    for name, entry in ENTRIES.items():
        assert f"\n  {name} " in out
        assert entry.title in out


def test_a_study_goes_to_a_folder_of_its_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig1b", "fig1b", "--scale", "small"]) == 0
    files = sorted(path.name for path in (here / "runs" / "reproduce" / "fig1b").glob("[!.]*"))
    assert files == ["fig1b.csv", "fig1b.png", "fig1b.svg", "made.json"]
    made = json.loads((here / "runs" / "reproduce" / "fig1b" / "made.json").read_text())
    assert made["command"] == "r2mae reproduce fig1b --scale small"
    out = capsys.readouterr().out
    assert out.count(ENTRIES["fig1b"].title) == 1
    assert str(Path("runs") / "reproduce" / "fig1b" / "fig1b.csv") in out


def test_out_and_jobs(here: Path) -> None:
    assert main(["reproduce", "fig1b", "--scale", "small", "--out", "a"]) == 0
    assert main(["reproduce", "fig1b", "--scale", "small", "--out", "b", "--jobs", "2"]) == 0
    assert (here / "a" / "fig1b" / "fig1b.csv").read_bytes() == (here / "b" / "fig1b" / "fig1b.csv").read_bytes()


def listed(out: str) -> dict[str, str]:
    """Return the rest of each line of the list by the study's name."""
    lines = [line.partition(" ") for line in out.splitlines()]
    assert len({name for name, _, _ in lines}) == len(lines)
    return {name: rest.strip() for name, _, rest in lines}


def test_the_list_has_a_line_and_a_state_for_every_study(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    lines = listed(capsys.readouterr().out)
    assert list(lines) == list(ENTRIES)
    assert len(PAPER) == 27 == len(set(lines) & set(PAPER))
    for name, rest in lines.items():
        assert rest.startswith("not run "), name
    assert not list(here.iterdir())


def test_the_list_says_what_of_a_folder_is_finished(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig1b", "--scale", "small", "--out", "a"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "--list", "fig1b", "fig1c", "--out", "a"]) == 0
    lines = listed(capsys.readouterr().out)
    assert lines["fig1b"].startswith("finished (1 parts, small) ")
    assert lines["fig1c"].startswith("not run ")
    assert main(["reproduce", "--list", "fig1b"]) == 0
    assert listed(capsys.readouterr().out)["fig1b"].startswith("not run "), "of the default folder"


def test_the_full_scale_has_two_names(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(study: Study, out: Path, *, scale: str, **_: object) -> None:
        asked.append((study, out, scale))
        raise UserError("enough")

    monkeypatch.setattr("r2mae_paper.runner.run_study", noted)
    for scale in (["--scale", "paper"], ["--scale", "full"], []):
        assert main(["reproduce", "fig1b", *scale]) == 2
    assert asked == [(get_study("fig1b"), Path("runs") / "reproduce" / "fig1b", "full")] * 3


def test_figures_of_the_same_runs_are_one_call(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(study: Study, out: Path, **_: object) -> Reproduced:
        asked.append(out.name)
        return Reproduced([], 1, 1)

    monkeypatch.setattr("r2mae_paper.runner.run_study", noted)
    assert main(["reproduce", "fig7", "fig2d", "fig5", "fig2b"]) == 0
    assert asked == ["fig2b", "fig2a"]


def test_what_was_computed_before_is_reported_and_again_computes_it_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["reproduce", "fig1b", "--scale", "small"]
    told = []
    for more in ([], [], ["--again"]):
        assert main([*line, *more]) == 0
        told.append("1 of 1 parts computed before" in capsys.readouterr().out)
    assert told == [False, True, False]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("reproduce fig1b fig1x", "unknown figure, table or study 'fig1x'"),
        ("reproduce fig1b fig2c", "fig2c needs a table of accuracies: --curve FILE.csv"),
        ("reproduce --list fig1x", "unknown figure, table or study 'fig1x'"),
        ("reproduce --seeds 3", "name a study, before the options"),
        ("reproduce --curve a.csv fig1f", "name a study, before the options"),
        ("reproduce table4 fig1b --scale smoke", "fig1b: --scale smoke is for studies of training runs"),
        ("reproduce fig1f --curve a.csv --scale smoke", "fig1f: --scale smoke is for studies of training runs"),
        ("reproduce fig1b table4 --scale small --again", "table4 trains no finished run again"),
        ("reproduce --list --jobs=2", "--list computes nothing: omit --jobs"),
        ("reproduce --list fig1b --scale small", "--list computes nothing: omit --scale"),
        ("reproduce fig1b --scale tiny", "--scale"),
        ("reproduce fig1b --jobs 0", "--jobs must be 1 or more, not 0"),
        ("reproduce randomness --jobs 2", "randomness only reads tables of other studies: omit --jobs"),
        ("reproduce randomness --again", "randomness only reads tables of other studies: omit --again"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(
    here: Path, line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert len(err.splitlines()) == 1
    assert not out
    assert not list(here.iterdir())


def test_the_command_of_fig1f_names_its_table(here: Path) -> None:
    rows = [
        f"{task},{ratio},{0.95 - ratio**2 / slope}" for task, slope in (("sst2", 4), ("qnli", 6)) for ratio in RATIOS
    ]
    (here / "my curve.csv").write_text("\n".join(["task,ratio,accuracy", *rows]))
    assert main(["reproduce", "fig1f", "--curve", "my curve.csv"]) == 0
    made = json.loads((here / "runs" / "reproduce" / "fig1f" / "made.json").read_text())
    assert made["command"] == "r2mae reproduce fig1f --scale full --curve 'my curve.csv'"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fig1b --seeds 3", "trains no runs: omit --seeds"),
        ("fig1b --earlier there", "fig1b trains no runs: omit --earlier"),
        ("table4 table6 --earlier there", "name one at a time"),
        ("table4 table3 --scale small --seeds 9", "--seeds must be 1 to 5"),
        ("table4 fig8 --scale small --seeds 3", "no runs under several seeds"),
        ("table4 --scale small --earlier there", "there has no made.json"),
        ("fig1b --workers 2", "fig1b trains no runs: omit --workers"),
        ("fig1b --data there", "fig1b: it has no data: omit --data"),
        ("table2 --scale smoke --store there", "table2: it has no store: omit --store"),
        ("fig1b --scale small --dry-run", "fig1b trains no runs: omit --dry-run"),
        ("fig1b --scale small --print-config", "fig1b trains no runs: omit --print-config"),
    ],
)
def test_options_that_a_study_cannot_use_are_refused_before_any_runs(
    here: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *line.split()]) == 2
    assert said in capsys.readouterr().err
    assert not list(here.iterdir())


def test_the_settings_of_all_rows_are_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "reproduce table2 --scale smoke --data my/corpus --accumulate 2 --print-config"
    assert main(line.split()) == 0
    configs = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [config["scheme"]["name"] for config in configs] == ["fixed", "r2mae"]
    for config in configs:
        assert config["data"]["source"] == "my/corpus"
        assert (config["optimizer"]["accumulate"], config["optimizer"]["steps"]) == (2, 2)
    assert not list(here.iterdir())


def test_a_dry_run_estimates_the_runs_of_each_set(
    here: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "table4", "--scale", "smoke", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("table4 on")] == ["table4 on csle:", "table4 on pig-airway:"]
    assert sum(line.startswith("2 runs; a run of fixed 0.25 takes about") for line in lines) == 2
    assert not list(here.rglob("model.*"))


def test_options_of_runs_are_recorded(here: Path, shared_data: Path) -> None:
    line = "reproduce fig8 --scale smoke --accumulate 2 --workers 1"
    assert main(line.split()) == 0
    made = json.loads((here / "runs" / "reproduce" / "fig8" / "made.json").read_text())
    assert made["command"] == "r2mae reproduce fig8 --scale smoke --workers 1 --accumulate 2"
    assert made["settings"] == {"workers": 1, "accumulate": 2}
    (config, _) = (yaml.safe_load(file.read_text()) for file in here.rglob("config.yaml"))
    assert (config["optimizer"]["accumulate"], config["machine"]["workers"]) == (2, 1)
