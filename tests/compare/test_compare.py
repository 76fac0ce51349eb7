import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from r2mae.cli.main import main
from r2mae.compare.compare import compare
from r2mae.compare.publish import publish
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN

pytestmark = pytest.mark.slow

BASE = ImagesConfig.make(data="digits", epochs=2.0, hidden=32, latent=16)


def test_a_comparison_runs_once_grows_and_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    first = compare(BASE, DOMAIN, schemes=["fixed", "r2mae"], seeds=[0], out=out, ratios=[0.5], jobs=2)
    assert first.labels == ["fixed 0.50", "r2mae"]
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert len(stamps) == 2

    grown = compare(BASE, DOMAIN, schemes=["fixed", "r2mae", "r2mae-cl"], seeds=[0, 1], out=out, ratios=[0.5], jobs=2)
    assert "2 of 6 runs are finished already" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    table = grown.table
    assert table[["label", "seed"]].to_numpy().tolist() == [
        [label, seed] for label in ("fixed 0.50", "r2mae", "r2mae-cl") for seed in (0, 1)
    ]
    pd.testing.assert_frame_equal(
        first.table.drop(columns="seconds"),
        table[(table["seed"] == 0) & (table["label"] != "r2mae-cl")].drop(columns="seconds").reset_index(drop=True),
    )
    assert grown.curves.groupby(["label", "seed"]).size().min() > 10
    assert set(grown.reconstructions) == {"fixed 0.50", "r2mae", "r2mae-cl"}
    assert grown.config["default_fixed_label"] == "fixed 0.70"

    with (tmp_path / "table.txt").open("w") as file:
        publish(grown, out, console=Console(file=file, width=100))
    assert "r2mae-cl" in (tmp_path / "table.txt").read_text()
    names = {path.name for path in out.iterdir()}
    assert {"results.csv", "times.csv", "results.json", "report.html", "figures"} <= names
    assert len(pd.read_csv(out / "results.csv")) == 6
    assert "seconds" not in pd.read_csv(out / "results.csv")  # the clock makes no difference to the table
    assert (pd.read_csv(out / "times.csv")["seconds"] > 0).all()
    assert json.loads((out / "results.json").read_text())["title"] == "digits"

    with pytest.raises(UserError, match=r"epochs is 2\.0 there and 3\.0 here"):
        compare(BASE.replace(epochs=3.0), DOMAIN, schemes=["r2mae"], seeds=[0], out=out)


def test_a_failed_cell_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    compare(BASE, DOMAIN, schemes=["r2mae"], seeds=[0], out=tmp_path, jobs=1)
    checkpoint = tmp_path / "runs" / "r2mae" / "seed-0" / "checkpoints" / "last.ckpt"
    (checkpoint.parents[1] / "model.json").unlink()
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"r2mae, seed 0: .*last\.ckpt cannot be read.*the other runs are kept"):
        compare(BASE, DOMAIN, schemes=["r2mae", "mdlm"], seeds=[0], out=tmp_path, jobs=1)
    assert (tmp_path / "runs" / "mdlm" / "seed-0" / "results.json").exists()


def test_the_table_stands_where_a_run_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"compare digits --schemes r2mae --steps 3 --batch-size 64 --hidden 8 --latent 4 --jobs 1 --out {tmp_path}"
    assert main([*words.split(), "--baselines", "none", "--seeds", "0", "1"]) == 0
    runs = tmp_path / "runs" / "r2mae"
    (runs / "seed-1" / "model.json").unlink()
    (runs / "seed-1" / "checkpoints" / "last.ckpt").write_bytes(b"no checkpoint")
    (tmp_path / "results.csv").unlink()
    capsys.readouterr()
    assert main([*words.split(), "--baselines", "none", "--seeds", "0", "1"]) == 2
    out, err = capsys.readouterr()
    assert len(pd.read_csv(tmp_path / "results.csv")) == 1
    assert "linear probe" in out
    assert "all its features are zero" not in out
    assert err.splitlines()[-1].startswith("r2mae: r2mae, seed 1: ")
    assert err.splitlines()[-1].endswith("; the other runs are kept")
    (runs / "seed-0" / "results.json").unlink()
    (runs / "seed-0" / "model.json").unlink()
    (runs / "seed-0" / "checkpoints" / "last.ckpt").write_bytes(b"no checkpoint")
    (tmp_path / "results.csv").unlink()
    assert main([*words.split(), "--baselines", "none", "--seeds", "0", "1"]) == 2
    assert "(1 more failed); the other runs are kept" in capsys.readouterr().err
    assert not (tmp_path / "results.csv").exists()


def test_a_collapsed_run_lacks_a_score_and_the_table_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"compare digits --schemes r2mae --steps 3 --batch-size 64 --hidden 8 --latent 4 --jobs 1 --out {tmp_path}"
    assert main([*words.split(), "--baselines", "none", "--seeds", "0", "1"]) == 0
    run = tmp_path / "runs" / "r2mae" / "seed-1"
    weights = load_file(run / "model.safetensors")
    with safe_open(run / "model.safetensors", "pt") as file:
        said = file.metadata()
    nothing = {name: value * 0 for name, value in weights.items()}
    save_file(nothing, run / "model.safetensors", metadata=said)
    (run / "results.json").unlink()
    description = json.loads((run / "model.json").read_text())
    del description["sha256"]  # as if the run itself had written these weights
    (run / "model.json").write_text(json.dumps(description))
    capsys.readouterr()
    assert main([*words.split(), "--baselines", "none", "--seeds", "0", "1"]) == 0
    out = capsys.readouterr().out
    assert "r2mae has no effective rank for seed 1: all its features are zero." in " ".join(out.split())
    table = pd.read_csv(tmp_path / "results.csv")
    assert table["effective_rank"].notna().tolist() == [True, False]
    assert table["masked_mse"].notna().all()
    assert "all its features are zero" in (tmp_path / "report.html").read_text()


def test_damage_is_named_or_mended(tmp_path: Path) -> None:
    options: dict[str, Any] = {"schemes": ["r2mae"], "seeds": [0], "out": tmp_path, "jobs": 1}
    scores = compare(BASE, DOMAIN, **options).table
    run = tmp_path / "runs" / "r2mae" / "seed-0"
    (run / "results.json").write_text("{")
    again = compare(BASE, DOMAIN, **options).table
    pd.testing.assert_frame_equal(scores.drop(columns="seconds"), again.drop(columns="seconds"))
    for content in ("", "junk\n1\n", "step,ratio,loss,lr,validation_loss\n1,a,b,c,\n"):
        (run / "metrics.csv").write_text(content)
        with pytest.raises(UserError, match=r"metrics\.csv cannot be read .*: delete .* and rerun the same command"):
            compare(BASE, DOMAIN, **options)
    (tmp_path / "compare.json").write_text("[")
    with pytest.raises(UserError, match=r"compare\.json is not readable"):
        compare(BASE, DOMAIN, **options)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match=r"holds other files \(thesis.tex\)"):
        compare(BASE, DOMAIN, schemes=["r2mae"], seeds=[0], out=tmp_path)
