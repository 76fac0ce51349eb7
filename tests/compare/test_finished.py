"""A comparison is everything that is finished in its folder, whichever command made it."""

import json
import shutil
from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.compare.gather import gather_again
from r2mae.compare.run_states import finished_runs, shared_fields
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN

pytestmark = pytest.mark.slow

SIZE = ["--steps", "2", "--hidden", "4", "--latent", "2", "--jobs", "1", "--baselines", "mean"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a comparison by two commands: rows r2mae and mean, then dynamic with an end of its decay."""
    out = tmp_path_factory.mktemp("comparison") / "c"
    for words in (["r2mae", "--sampling", "stratified"], ["dynamic", "--decay-end", "0.5", "--baselines", "none"]):
        assert main(["compare", "digits", *SIZE, "--seeds", "1", "--out", str(out), "--schemes", *words]) == 0
    return out


def findings(out: Path) -> dict[str, dict[str, object]]:
    read: dict[str, dict[str, object]] = json.loads((out / "results.json").read_text())
    return read


def test_the_report_is_of_everything_that_is_finished(made: Path) -> None:
    found = findings(made)
    assert found["config"]["schemes"] == ["dynamic", "r2mae", "mean"]  # in the default order, baselines last
    report = (made / "report.html").read_text()
    assert all(label in report for label in ("dynamic", "r2mae", "mean"))


def test_every_row_tells_the_options_that_it_used(made: Path) -> None:
    config = findings(made)["config"]
    rows = config["rows"]
    assert set(rows) == {"dynamic", "r2mae"}
    assert rows["dynamic"] == {
        "scheme": "dynamic",
        "low": 0.5,
        "high": 0.9,
        "decay_in": "steps",
        "decay_end": 0.5,
        "given": ["decay_end"],
    }
    assert rows["r2mae"]["sampling"] == "stratified"
    assert "decay_end" not in rows["r2mae"]
    assert not {"decay_end", "sampling", "per", "cl_warmup", "low", "high", "epochs"} & set(
        config
    )  # not all rows used them
    assert config["steps"] == 2


def test_the_report_is_made_again(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "again"
    shutil.copytree(made, out)
    for name in ("results.json", "results.csv", "report.html"):
        (out / name).unlink()
    shutil.rmtree(out / "figures")
    assert main(["report", str(out)]) == 0
    assert "r2mae" in capsys.readouterr().out
    assert findings(out)["summary"] == findings(made)["summary"]
    command = {"command": findings(made)["config"]["command"]}  # only the command itself knows it
    assert findings(out)["config"] | command == findings(made)["config"]
    assert (out / "results.csv").read_text() == (made / "results.csv").read_text()
    assert (out / "figures" / "reconstructions.png").exists()


def test_damaged_results_of_a_run_are_told_with_the_remedy(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "damaged"
    shutil.copytree(made, out)
    (file,) = out.glob("runs/dynamic/seed-*/results.json")
    file.write_text(file.read_text()[:40])
    assert main(["report", str(out)]) == 0
    said = (
        "results.json cannot be read, or belongs to other weights: repeat the `r2mae compare` command of the comparison"
    )
    shown = capsys.readouterr().out  # a terminal may break a long path anywhere
    assert "".join(said.split()) in "".join(shown.split())
    assert any(said in note for note in findings(out)["notes"])


def test_a_folder_that_is_no_comparison_is_told_in_a_line(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "compare.json").write_text("{")
    for folder, message in (
        (tmp_path / "nothing", "there is no folder"),
        (made / "runs", "has no compare.json"),
        (made.parent, f"did you mean {made}?"),
        (broken, "compare.json is not readable"),
    ):
        before = sorted(path.name for path in made.iterdir())
        assert main(["report", str(folder)]) == 2
        told = capsys.readouterr().err.strip()
        assert message in told
        assert "\n" not in told
        assert sorted(path.name for path in made.iterdir()) == before


def test_a_comparison_without_a_finished_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ImagesConfig.make(data="digits")
    (tmp_path / "compare.json").write_text(json.dumps(shared_fields(config)))
    assert main(["report", str(tmp_path)]) == 2
    assert "no run in" in capsys.readouterr().err


def test_runs_of_a_row_agree_on_its_options(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "digits", *SIZE, "--seeds", "0", "1", "--out", str(made), "--schemes", "dynamic"]
    assert main([*words, "--decay-end", "0.2"]) == 2
    assert "belongs to another configuration (decay_end is 0.5" in capsys.readouterr().err
    words[words.index("--seeds") + 1 : words.index("--out")] = ["1", "2"]
    assert main([*words, "--decay-end", "0.2"]) == 2
    assert "ran with decay_end 0.5, and seed 1 of 'dynamic' has 0.2" in capsys.readouterr().err
    assert not (made / "runs" / "dynamic" / "seed-1").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hidden", "2147483647"], "make it smaller (--hidden is 2,147,483,647)"),
        (["--device", "tpu", "--decay-end", "0.2"], "device"),
        (["--resize", "100000000", "--decay-end", "0.2"], "resize"),
    ],
)
def test_mistakes_of_options_are_told_before_those_of_the_folder(
    made: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    words = ["compare", "digits", *SIZE, "--seeds", "0", "1", "--out", str(made), "--schemes", "dynamic"]
    assert main([*words, *options]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "another configuration" not in told


def test_what_is_unfinished_or_foreign_is_left_out(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    shutil.copytree(made, out)
    (out / "runs" / "dynamic" / "seed-0" / "model.json").unlink()
    (out / "runs" / "notes" / "seed-x").mkdir(parents=True)
    base = ImagesConfig.make(data="digits", epochs=100.0, steps=2, hidden=4, latent=2)
    assert [run.variant.label for run in finished_runs(out, DOMAIN, base)] == ["r2mae", "mean"]
    assert [run.variant.label for run in finished_runs(out, DOMAIN, base, ["mean", "r2mae", "cl"])] == ["mean", "r2mae"]


def test_seeds_are_added_to_finished_runs_whose_folders_hold_the_numbers_used(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "more"
    shutil.copytree(made, out)
    words = ["r2mae", "--sampling", "stratified", "--seeds", "2"]
    assert main(["compare", "digits", *SIZE, "--out", str(out), "--schemes", *words]) == 0
    assert {run["seed"] for run in findings(out)["runs"] if run["label"] == "r2mae"} == {0, 1}


def test_another_way_of_measuring_trains_nothing_and_measures_again(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "as-trained"
    shutil.copytree(made, out)
    run = out / "runs" / "r2mae" / "seed-0"
    weights, before = (run / "model.safetensors").stat().st_mtime_ns, json.loads((run / "results.json").read_text())
    words = ["r2mae", "--sampling", "stratified", "--seeds", "1", "--bn-statistics", "no"]
    assert main(["compare", "digits", *SIZE, "--out", str(out), "--schemes", *words]) == 0
    after = json.loads((run / "results.json").read_text())
    assert (run / "model.safetensors").stat().st_mtime_ns == weights
    assert (before["measured"]["bn_statistics"], after["measured"]["bn_statistics"]) == ("yes", "no")
    assert before["scores"]["masked_mse"] != after["scores"]["masked_mse"]
    assert "bn_statistics: 'no'" in (run / "config.yaml").read_text()  # it is used as it was measured
    assert "dynamic" not in findings(out)["config"]["schemes"]  # it is still measured as before, and a line says so
    assert "measured with other options" in caplog.text
    assert "Batch statistics: those of training, as in the paper." in findings(out)["measured"]


def test_a_damaged_report_is_no_hindrance_to_making_it_again(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "damaged"
    shutil.copytree(made, out)
    (out / "results.json").write_text('{"config": {"schemes": 5}}')
    assert main(["report", str(out)]) == 0


def test_ratios_of_single_samples_are_shown_as_their_range(tmp_path: Path) -> None:
    """The steps of such a run have the means over their samples, which hardly differ."""
    out = tmp_path / "c"
    words = [
        "--schemes",
        "fixed",
        "r2mae-per-sample",
        "--ratios",
        "0.5",
        "--low",
        "0.2",
        "--high",
        "0.8",
        "--seeds",
        "1",
    ]
    assert main(["compare", "digits", *SIZE[:-2], *words, "--baselines", "none", "--out", str(out)]) == 0
    comparison = gather_again(out)
    assert comparison.by_sample == ("r2mae-per-sample",)
