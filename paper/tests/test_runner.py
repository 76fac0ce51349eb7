"""The runner: what it keeps, what it writes; of a study that is computed, and of one of runs."""

import csv
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure
from rich.console import Console

from r2mae.compare.gather import metrics_of
from r2mae.compare.runs import SweepRun, runs_of
from r2mae.environment import environment
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.images.config import ImagesConfig
from r2mae_paper.bases import fixed, grid
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import TableRow, Tables
from r2mae_paper.runner import run_study
from r2mae_paper.state import EarlierRuns, state_of
from r2mae_paper.studies import Entry, Size
from r2mae_paper.study import Parts, Study, get_study

pytestmark = pytest.mark.slow


COSTS = {"small": "seconds", "full": "seconds"}


def entry(name: str, title: str, **full: object) -> Entry:
    return Entry(name, title, "Nothing.", "none", COSTS, "none", full=full)


class Squares:
    """A study of a part for each number, which notes what it computes."""

    def __init__(self) -> None:
        self.computed: list[int] = []
        self.broken: int | None = None
        self.factor = 1.0
        self.title = "Squares of numbers"

    @property
    def study(self) -> Study:
        return Study(entry("squares", self.title, count=3), self.plot, self.table, self.parts)

    def parts(self, size: Size) -> Parts:
        return {f"{number}": lambda _, number=number: self.compute(number) for number in range(size.count)}

    def compute(self, number: int) -> list[TableRow]:
        if number == self.broken:
            raise KeyboardInterrupt
        self.computed.append(number)
        return [{"number": np.int64(number), "square": np.float64(number) ** 2 / 3, "none": np.nan}]

    def table(self, results: Mapping[str, list[TableRow]]) -> Tables:
        rows = [{**row, "square": self.factor * row["square"]} for part in results.values() for row in part]
        return {"squares": rows, "told": {"count": len(rows)}}

    def plot(self, tables: Tables, size: Size) -> Figures:
        figure = Figure()
        figure.subplots().plot([row["square"] for row in tables["squares"]])
        return {"picture": figure}


def test_it_writes_tables_and_figures(tmp_path: Path) -> None:
    done = run_study(Squares().study, tmp_path)
    assert [file.name for file in done.files] == ["squares.csv", "told.json", "picture.png", "picture.svg"]
    with done.files[0].open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["number", "square", "none"], ["0", "0.0", ""], ["1", "0.333333", ""], ["2", "1.33333", ""]
        ]  # fmt: skip


def test_what_is_computed_is_kept_and_what_is_made_of_it_is_not(tmp_path: Path) -> None:
    squares, seen = Squares(), []
    first = run_study(squares.study, tmp_path)
    before = [file.read_bytes() for file in first.files]
    second = run_study(squares.study, tmp_path, progress=lambda *done: seen.append(done))
    assert squares.computed == [0, 1, 2]
    assert (first.kept, second.kept, second.parts) == (0, 3, 3)
    assert [file.read_bytes() for file in second.files] == before
    assert seen == [(1, 3), (2, 3), (3, 3)]
    squares.factor = 3.0
    assert "2,4.0" in run_study(squares.study, tmp_path).files[0].read_text()
    run_study(squares.study, tmp_path, again=True)
    assert squares.computed == [0, 1, 2] * 2


def test_a_computation_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    squares = Squares()
    squares.broken = 2
    with pytest.raises(KeyboardInterrupt):
        run_study(squares.study, tmp_path)
    squares.broken = None
    assert run_study(squares.study, tmp_path).kept == 2
    assert squares.computed == [0, 1, 2]


def test_each_size_and_study_has_parts_of_its_own(tmp_path: Path) -> None:
    squares = Squares()
    for count in (2, 3, 2):
        run_study(squares.study, tmp_path, fields={"count": count})
    assert squares.computed == [0, 1, 0, 1, 2]
    squares.title = "Other squares of numbers"
    assert run_study(squares.study, tmp_path).kept == 0


def test_parts_of_another_version_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_study(Squares().study, tmp_path)
    monkeypatch.setattr("r2mae.__version__", "0.0.0")
    assert run_study(Squares().study, tmp_path).kept == 0


def test_a_damaged_part_is_computed_again(tmp_path: Path) -> None:
    run_study(Squares().study, tmp_path)
    (file,) = (tmp_path / ".parts").glob("*/1.json")
    file.write_text("[{")
    squares = Squares()
    assert run_study(squares.study, tmp_path).kept == 2
    assert squares.computed == [1]


PRESETS = ("mlp-16-16", "mlp-16-64")


def widths_runs(size: Size, out: Path) -> list[SweepRun]:
    """Presets × ratios on digits, as Figs. 2A and 2B are."""
    base = ImagesConfig.make(data="digits", scheme="fixed", steps=2, batch_size=64)
    presets = {name: {"preset": name} for name in PRESETS}
    return runs_of(grid(base, {"preset": presets, "ratio": fixed([0.2, 0.6])}), size.seeds, out)


def widths_table(results: pd.DataFrame) -> Tables:
    means = results.groupby(["preset", "ratio"], sort=False)["probe_accuracy"].mean().reset_index()
    return {"widths": means.to_dict("records"), "runs": results.to_dict("records")}


def plot_widths(tables: Tables, size: Size) -> Figures:
    figure = Figure()
    axes = figure.subplots()
    for preset in PRESETS:
        own = [row for row in tables["widths"] if row["preset"] == preset]
        axes.plot([float(row["ratio"]) for row in own], [row["probe_accuracy"] for row in own], label=preset)
    return {"widths": figure}


def first_loss(run: SweepRun) -> Mapping[str, float]:
    """A number that is read from some of the runs' folders."""
    return {"first_loss": float(metrics_of(run)["loss"].iloc[0])} if run.config.scheme.options["ratio"] == 0.2 else {}


def table_of_runs(results: pd.DataFrame) -> Tables:
    """A table of runs that has all that its tables need."""
    kept = ["label", "preset", "ratio", "seed", "probe_accuracy", "first_loss"]
    means = results.groupby("label", sort=False)["probe_accuracy"].mean().reset_index()
    return {"table": means.to_dict("records"), "table-runs": results[kept].to_dict("records")}


WIDTHS = Study(
    entry("widths", "Accuracy by width and ratio", seeds=[0, 1]), plot_widths, widths_table, runs=widths_runs
)
MEASURED = replace(WIDTHS, scores_of_run=first_loss)
TABLE = Study(
    entry("table", "Accuracy by width and ratio, from a table of runs", seeds=[0, 1]),
    table=table_of_runs,
    runs=widths_runs,
    scores_of_run=first_loss,
)


def test_a_sweep_of_presets_and_ratios_is_a_study(tmp_path: Path) -> None:
    shown = Console(file=StringIO())
    first = run_study(WIDTHS, tmp_path, size=Size({"seeds": [0]}), console=shown)
    model = tmp_path / "runs" / "mlp-16-16-0.20" / "seed-0" / "model.safetensors"
    written = model.stat().st_mtime_ns
    done = run_study(WIDTHS, tmp_path, size=Size({"seeds": [0, 1]}), console=shown)
    assert ((first.parts, first.kept), (done.parts, done.kept)) == ((4, 0), (8, 4))
    made = json.loads((tmp_path / "made.json").read_text())
    assert (made["title"], made["scale"], made["size"], made["runs"]) == (WIDTHS.entry.title, "", {"seeds": [0, 1]}, 8)
    (trained,) = made["trained_on"]
    assert trained["runs"] == 8
    assert all(trained[key] == made["environment"][key] for key in ("processor", "commit", "versions"))
    assert model.stat().st_mtime_ns == written, "trained once"
    assert [file.name for file in done.files] == ["widths.csv", "runs.csv", "widths.png", "widths.svg"]
    runs, widths = (pd.read_csv(file) for file in (done.files[1], done.files[0]))
    assert list(zip(runs["preset"], runs["ratio"], runs["seed"], strict=True)) == [
        (preset, ratio, seed) for preset in PRESETS for ratio in (0.2, 0.6) for seed in (0, 1)
    ]
    assert list(widths["preset"]) == [preset for preset in PRESETS for _ in range(2)]
    np.testing.assert_allclose(widths["probe_accuracy"], runs["probe_accuracy"].to_numpy().reshape(4, 2).mean(1), 1e-5)
    assert len(set(runs["masked_mse"])) == 8
    config = yaml.safe_load((model.parent / "config.yaml").read_text())
    assert (config["model"]["hidden"], config["model"]["latent"]) == (16, 16)
    assert (config["scheme"]["ratio"], config["machine"]["threads"]) == (0.2, 1)


def test_runs_of_several_machines_are_told_apart(tmp_path: Path) -> None:
    shown = Console(file=StringIO())
    run_study(WIDTHS, tmp_path, size=Size({"seeds": [0]}), console=shown)
    file = tmp_path / "runs" / "mlp-16-64-0.60" / "seed-0" / "environment.json"
    moved = {"step": 2, "processor": "a third", "platform": "elsewhere"}
    file.write_text(json.dumps({**json.loads(file.read_text()), "processor": "another", "continued": [moved]}))
    (tmp_path / "runs" / "mlp-16-64-0.20" / "seed-0" / "environment.json").unlink()
    run_study(WIDTHS, tmp_path, size=Size({"seeds": [0]}), console=shown)
    made = json.loads((tmp_path / "made.json").read_text())
    found = {one["processor"] == "another": (one["runs"], one.get("continued")) for one in made["trained_on"]}
    assert found == {False: (2, None), True: (1, [{"processor": "a third"}])}


def test_a_study_may_read_numbers_from_the_folders_of_its_runs(tmp_path: Path) -> None:
    done = run_study(MEASURED, tmp_path, size=Size({"seeds": [0]}), console=Console(file=StringIO()))
    runs = pd.read_csv(done.files[1])
    for preset, row in zip(runs["preset"], runs.itertuples(), strict=True):
        if row.ratio == 0.2:
            losses = pd.read_csv(tmp_path / "runs" / f"{preset}-0.20" / "seed-0" / "metrics.csv")["loss"]
            assert row.first_loss == pytest.approx(losses[0], rel=1e-5)
        else:
            assert np.isnan(row.first_loss)


def test_seeds_are_added_to_a_table_whose_runs_are_gone(tmp_path: Path) -> None:
    shown = Console(file=StringIO())
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    run_study(TABLE, first, scale="small", seeds=1, console=shown, command="first call")
    shutil.rmtree(first / "runs")
    done = run_study(TABLE, second, scale="small", seeds=2, earlier=first, console=shown)
    assert (done.parts, done.kept) == (8, 4)
    assert state_of(second).in_words() == "finished (8 runs, small)"
    assert sorted(path.name for path in second.glob("runs/*/*")) == ["seed-1"] * 4, "seed 0 is not trained"
    run_study(TABLE, whole, scale="small", console=shown)
    for name in ("table.csv", "table-runs.csv"):
        one, other = (pd.read_csv(folder / name) for folder in (second, whole))
        pd.testing.assert_frame_equal(one, other, rtol=2e-6)
    made = json.loads((second / "made.json").read_text())
    assert (made["runs"], made["size"]) == (8, {"seeds": [0, 1]})
    assert [one["runs"] for one in made["trained_on"]] == [4]
    assert (made["earlier"]["runs"], made["earlier"]["seeds"], made["earlier"]["command"]) == (4, [0], "first call")
    assert list(made["data"]) == ["digits"]
    assert [one["runs"] for one in made["earlier"]["trained_on"]] == [4]
    with pytest.raises(UserError, match="has 4 runs without folders that the new table would not have: give --earlier"):
        run_study(TABLE, second, scale="small", seeds=2, console=shown)
    repeated = run_study(TABLE, second, scale="small", seeds=2, earlier=first, console=shown)
    assert (repeated.parts, repeated.kept) == (8, 8), "the same command may be given again"
    shutil.rmtree(second / "runs")
    again = run_study(TABLE, tmp_path / "again", scale="small", seeds=2, earlier=second, console=shown)
    assert (again.parts, again.kept) == (8, 8), "no run is left: tables are made again"
    one, other = (pd.read_csv(folder / "table.csv") for folder in (tmp_path / "again", second))
    pd.testing.assert_frame_equal(one, other, rtol=2e-6)
    with pytest.raises(UserError, match="has 4 runs without folders"):  # those of the second seed
        run_study(TABLE, tmp_path / "again", scale="small", seeds=1, earlier=tmp_path / "again", console=shown)
    remade = json.loads((tmp_path / "again" / "made.json").read_text())
    assert all(remade[key] == made[key] for key in ("trained_on", "data", "earlier", "size", "runs"))


def chosen_runs(size: Size, out: Path) -> list[SweepRun]:
    return [run for run in widths_runs(size, out) if run.variant.values["preset"] in size.presets]


CHOSEN = replace(TABLE, entry=replace(TABLE.entry, chooses=("seeds", "presets")), runs=chosen_runs)


def test_rows_are_added_to_a_table_whose_runs_are_gone(tmp_path: Path) -> None:
    shown = Console(file=StringIO())
    size = Size({"seeds": [0], "presets": PRESETS[:1]})
    both = size.replace(presets=PRESETS)
    run_study(CHOSEN, tmp_path / "one", size=size, console=shown)
    done = run_study(CHOSEN, tmp_path / "both", size=both, earlier=tmp_path / "one", console=shown)
    assert (done.parts, done.kept) == (4, 2)
    assert {path.parent.name for path in (tmp_path / "both").glob("runs/*/*")} == {"mlp-16-64-0.20", "mlp-16-64-0.60"}
    made = json.loads((tmp_path / "both" / "made.json").read_text())
    assert made["earlier"]["size"]["presets"] == list(PRESETS[:1])
    fewer = run_study(CHOSEN, tmp_path / "fewer", size=size, earlier=tmp_path / "both", console=shown)
    remade = json.loads((tmp_path / "fewer" / "made.json").read_text())
    assert (fewer.parts, fewer.kept, remade["earlier"]["runs"], remade["trained_on"]) == (2, 2, 2, [])
    assert list(made["data"]) == ["digits"]


def test_fingerprints_are_of_the_sets_that_the_runs_read(tmp_path: Path) -> None:
    cells = widths_runs(Size({"seeds": [0]}), tmp_path)
    made = {"environment": {}, "data": {"digits": ["a"], "another": ["b"]}}
    told = EarlierRuns(pd.DataFrame(), made, tmp_path).record(cells, [], {})
    assert told["data"] == {"digits": ["a"]}


def test_finished_folders_are_read_before_the_lines_of_a_table(tmp_path: Path) -> None:
    shown = Console(file=StringIO())
    run_study(TABLE, tmp_path, scale="small", seeds=1, console=shown)
    exact = run_study(TABLE, tmp_path, scale="small", seeds=1, earlier=tmp_path, console=shown)
    made = json.loads((tmp_path / "made.json").read_text())
    assert exact.kept == 4
    assert [one["runs"] for one in made["trained_on"]] == [4]
    assert "earlier" not in made


def test_earlier_runs_on_other_data_are_refused(tmp_path: Path) -> None:
    folder = _earlier(tmp_path, data={"digits": ["another"]})
    with pytest.raises(UserError, match="digits is not what the runs in"):
        run_study(TABLE, tmp_path / "out", seeds=2, earlier=folder)


def test_a_table_that_does_not_distinguish_its_runs_is_refused(tmp_path: Path) -> None:
    folder = _earlier(tmp_path)
    (folder / "table-runs.csv").write_text("ratio,seed,probe_accuracy,first_loss\n0.2,0,0.9,1.0\n")
    with pytest.raises(UserError, match="does not distinguish its runs"):
        run_study(TABLE, tmp_path / "out", seeds=1, earlier=folder)


def _earlier(folder: Path, **changes: object) -> Path:
    made = {
        "title": TABLE.entry.title,
        "size": {"seeds": [0]},
        "environment": environment(),
        "trained_on": [],
        **changes,
    }
    write_json(folder / "made.json", {key: value for key, value in made.items() if value is not None})
    lines = ["label,preset,ratio,seed,probe_accuracy,first_loss", "mlp-16-16 0.20,mlp-16-16,0.20,0,0.9,1.0"]
    (folder / "table-runs.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_data_of_new_runs_alone_is_not_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cells = widths_runs(Size({"seeds": [0]}), tmp_path)
    earlier = EarlierRuns(pd.DataFrame(), {"environment": {}, "data": {"another": ["b"]}}, tmp_path)
    earlier.check_data([], {"digits": ["a"], "another": ["c"]})
    assert not caplog.records
    earlier.check_data(cells[:1], {"digits": ["a"]})
    assert "does not tell the content of what its runs were trained on: digits" in caplog.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"title": "Another"}, "made with title = 'Another'"),
        ({"size": {"seeds": [0], "steps": 3}}, "made with steps = 3, not None"),
        ({"settings": {"precision": "bf16", "workers": 2}}, "made with precision = 'bf16', not None"),
        ({"environment": {"versions": {"r2mae": "0.0.1"}}}, r"made with r2mae = '0\.0\.1', not"),
        ({"environment": None}, r"no made\.json that tells how"),
        ({"environment": {"versions": None}}, r"no made\.json that tells how"),
        ({"data": ["a"]}, r"no made\.json that tells how"),
    ],
)
def test_earlier_tables_of_something_else_are_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        run_study(TABLE, tmp_path / "out", earlier=_earlier(tmp_path, **changes))
    assert not (tmp_path / "out").exists()


def test_earlier_tables_that_are_missing_or_damaged_are_refused(tmp_path: Path) -> None:
    folder = _earlier(tmp_path)
    (folder / "table-runs.csv").write_text("label,accuracy\nx,0.1\n")
    with pytest.raises(UserError, match="has no column 'seed'"):
        run_study(TABLE, tmp_path / "out", earlier=folder)
    (folder / "table-runs.csv").write_text("")
    with pytest.raises(UserError, match="is empty"):
        run_study(TABLE, tmp_path / "out", earlier=folder)
    (folder / "table-runs.csv").unlink()
    with pytest.raises(UserError, match=r"one table of runs, NAME-runs\.csv; found 0"):
        run_study(TABLE, tmp_path / "out", earlier=folder)


def test_an_earlier_table_that_was_changed_is_refused(tmp_path: Path) -> None:
    shown = Console(file=StringIO())
    run_study(TABLE, tmp_path / "a", scale="small", seeds=1, console=shown)
    made = json.loads((tmp_path / "a" / "made.json").read_text())
    assert sorted(made["tables"]) == ["table-runs.csv", "table.csv"]
    file = tmp_path / "a" / "table-runs.csv"
    file.write_text(file.read_text().replace("probe_accuracy", "foo"))
    with pytest.raises(UserError, match=r"table-runs\.csv is not as it was written"):
        run_study(TABLE, tmp_path / "b", scale="small", seeds=1, earlier=tmp_path / "a", console=shown)


def test_lines_of_runs_must_hold_all_that_the_table_has(tmp_path: Path) -> None:
    folder, shown = _earlier(tmp_path), Console(file=StringIO())
    lines = (folder / "table-runs.csv").read_text()
    (folder / "table-runs.csv").write_text(lines.replace(",first_loss", "").replace(",1.0", ""))
    with pytest.raises(UserError, match="no column 'first_loss'"):
        run_study(TABLE, tmp_path / "out", seeds=1, earlier=folder, console=shown)


def test_seeds_and_earlier_tables_are_for_studies_that_can_use_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="trains no runs: omit --seeds"):
        run_study(Squares().study, tmp_path / "out", seeds=3)
    with pytest.raises(UserError, match="no runs under several seeds: omit --seeds"):
        Size({"count": 3}).with_seeds(3)
    with pytest.raises(UserError, match="must be 1 to 5, as each holds out another part, not 6"):
        run_study(get_study("table3"), tmp_path / "out", scale="small", seeds=6)
    with pytest.raises(UserError, match="--seeds must be 1 or more, not 0"):
        run_study(TABLE, tmp_path / "out", seeds=0)
    with pytest.raises(UserError, match="trains no runs: omit --earlier"):
        run_study(Squares().study, tmp_path / "out", earlier=tmp_path)
    with pytest.raises(UserError, match="drawn from trained models"):
        run_study(replace(TABLE, plot_runs=lambda runs, size: {}), tmp_path / "out", earlier=_earlier(tmp_path))


def test_runs_are_not_trained_again(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choose another --out, or omit --again"):
        run_study(WIDTHS, tmp_path, again=True)
    assert not list(tmp_path.iterdir())
