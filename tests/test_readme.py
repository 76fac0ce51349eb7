"""What the README and the page on choosing claim is so; their commands are in test_commands.py."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import r2mae
from r2mae.evaluation import Difference, best_fixed, paired_difference

pytestmark = pytest.mark.slow

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
CHOOSING = (README.parent / "docs" / "choosing.md").read_text(encoding="utf-8")
CELLS = "csle_44donors.h5ad"
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_python_blocks_run(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    if CELLS in block:
        (tmp_path / CELLS).symlink_to(request.getfixturevalue("shared_data") / "cells" / CELLS)
    exec(compile(block, "README.md", "exec"), {})


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if not link.startswith("http")]
    assert links
    for path, _, anchor in (link.partition("#") for link in links):
        page = README.parent / path if path else README
        assert page.exists()
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings], anchor


def test_it_is_short() -> None:
    assert 450 <= len(TEXT.split()) <= 550


def test_the_changed_line_is_what_the_object_does() -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", TEXT, flags=re.DOTALL)
    after = "\n".join(line[2:] for line in diff.splitlines() if not line.startswith("-"))
    seen: list[float] = []

    def model(images: int, mask_ratio: float) -> tuple[int]:
        seen.append(mask_ratio)
        return (images,)

    exec(after, {"r2mae": r2mae, "loader": range(50), "model": model})
    assert len(set(seen)) == 50
    assert 0.5 <= min(seen) < 0.6 and 0.8 < max(seen) <= 0.9


def test_counts_of_claims_are_those_of_their_table() -> None:
    claims = (README.parent / "paper" / "claims.md").read_text(encoding="utf-8")
    counts = re.search(r"Of the paper's (\d+) claims (\d+) were reproduced, (\d+) were not", claims)
    said = re.search(r"Of the paper's (\d+) claims, (\d+) were reproduced at our size and (\d+) were not", TEXT)
    assert counts and said and counts.groups() == said.groups()


def test_no_imputer_was_better_than_ours() -> None:
    rows = _table("imputers/by-table.csv")
    tables = {row["table"] for row in rows}
    assert f"on any of {len(tables)} tables" in TEXT
    assert "better" not in {row["percent_above_ours_is"] for row in rows}


def _table(path: str) -> list[dict[str, str]]:
    with (README.parent / "paper" / "results" / path).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _minus_best_fixed(rows: list[dict[str, str]], label: str, measure: str) -> Difference:
    by_label: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        by_label.setdefault(row["label"], []).append(float(row[measure]))
    best = best_fixed(np.array([scores for name, scores in by_label.items() if name.startswith("fixed")]).T)
    return paired_difference(np.array(by_label[label]), best.partner(np.array(by_label[label])))


@pytest.mark.parametrize(
    ("start", "path", "measure", "chosen"),
    [
        ("| ten classes of Tiny-ImageNet, small ViT, 504", "images/table1/table1-runs.csv", "probe_accuracy", {}),
        ("| perez-tcells", "cells/table6/table6-runs.csv", "score", {"set": "perez-tcells"}),
        ("| MNIST, the paper", "mnist/batch-statistics/results.csv", "probe_accuracy", {}),
    ],
)
def test_probes_are_those_of_the_results(start: str, path: str, measure: str, chosen: dict[str, str]) -> None:
    """The table of differences from the best fixed ratio, again from the runs."""
    (line,) = (line for line in CHOOSING.splitlines() if line.startswith(start))
    rows = [row for row in _table(path) if row[measure] and chosen.items() <= row.items()]
    for label, cell in zip(("r2mae", "dynamic"), line.split(" | ")[3:], strict=True):
        found = _minus_best_fixed(rows, label, measure)
        numbers = [float(text) for text in re.findall(r"[+-]\d\.\d+", cell.replace("\N{MINUS SIGN}", "-"))]
        assert numbers == pytest.approx([found.mean, found.low, found.high], abs=0.00006)


def test_the_largest_loss_of_a_probe_is_that_of_the_results() -> None:
    found = _minus_best_fixed(_table("theory/many-masks/vit-mnist.csv"), "r2mae", "probe_accuracy")
    said = f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f}"
    assert said.replace("-", "\N{MINUS SIGN}") in CHOOSING


def test_errors_are_those_of_the_results() -> None:
    """The table of errors at hidden pixels."""
    folder = "randomness/randomness-images/randomness-images"
    means = {
        (row["set"], row["label"]): float(row["mean"])
        for row in _table(f"{folder}.csv")
        if row["score"] == "masked_mse"
    }
    seeds: dict[tuple[str, str], list[float]] = {}
    for row in _table(f"{folder}-baselines.csv"):
        seeds.setdefault((row["set"], row["label"]), []).append(float(row["masked_mse"]))
    means |= {name: float(np.mean(errors)) for name, errors in seeds.items()}
    for start, labels in {
        "| the best of five fixed ratios | ": [f"fixed {ratio:.2f}" for ratio in (0.1, 0.3, 0.5, 0.7, 0.9)],
        "| `r2mae-per-sample`, 0.05 to 0.95 | ": ["r2mae-per-sample"],
        "| Gaussian conditional mean | ": ["gaussian"],
    }.items():
        (line,) = (line for line in CHOOSING.splitlines() if line.startswith(start))
        best = [min(means[name, label] for label in labels) for name in ("digits", "mnist", "tiny-imagenet")]
        assert [float(text) for text in re.findall(r"\d\.\d{4}", line)] == pytest.approx(best, abs=0.00006)
