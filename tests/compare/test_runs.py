from pathlib import Path

import numpy as np
import pytest

from r2mae.compare.runs import Variant, against_label, plan_variants, runs_of, seeds_of
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig

BASE = ImagesConfig.make(data="digits", scheme="fixed")


def test_runs_are_seed_by_seed_in_folders_of_their_own() -> None:
    rows = [Variant(f"fixed {ratio:.2f}", BASE.replace(ratio=ratio)) for ratio in (0.1, 0.5)]
    runs = runs_of(rows, [2, 3], Path("out"))
    assert len({run.folder for run in runs}) == 4
    assert [(run.config.seed, run.config.scheme.options["ratio"]) for run in runs] == [
        (2, 0.1),
        (2, 0.5),
        (3, 0.1),
        (3, 0.5),
    ]


def test_ratios_and_seeds_of_numpy(unchecked: None) -> None:
    rows = plan_variants(BASE, np.array(["fixed", "r2mae"]), None, np.array([0.25, 0.5], dtype=np.float32))
    assert [row.label for row in rows] == ["fixed 0.25", "fixed 0.50", "r2mae"]
    runs, plain = (runs_of(rows, seeds, Path("out")) for seeds in (np.arange(2), [0, 1]))
    assert runs == plain and all(type(run.seed) is int for run in runs)
    with pytest.raises(UserError, match=r"seed takes a whole number, not 0\.5"):
        runs_of(rows, np.array([0.5]), Path("out"))
    with pytest.raises(UserError, match="--against '1_0' is not one"):
        against_label("1_0", rows)


def test_labels_that_are_no_names_of_folders(tmp_path: Path) -> None:
    """Names of the user's columns: their folders are next to the others, and no two variants share one."""
    labels = ["fixed 0.50", "phyloP/100way", "/etc", "..", "50%2F", 'a:b*"c"']
    runs = runs_of([Variant(label, BASE, {}, baseline=True) for label in labels], [0], tmp_path)
    assert {run.folder.parent.parent.resolve() for run in runs} == {(tmp_path / "runs").resolve()}
    assert len({run.folder.parent.name for run in runs}) == len(labels)
    assert runs[0].folder == tmp_path / "runs" / "fixed-0.50" / "seed-0", "as ever"
    with pytest.raises(UserError, match="'x y' and 'x-y' would share the folder x-y: omit one of them"):
        runs_of([Variant(label, BASE, {}, baseline=True) for label in ("x y", "x-y")], [0], tmp_path)


def test_one_value_or_several(unchecked: None) -> None:
    assert seeds_of(3) == seeds_of(np.int64(3)) == seeds_of(range(3)) == seeds_of(np.arange(3)) == [0, 1, 2]
    assert seeds_of([7]) == [7], "a list has the seeds themselves"
    (one,) = plan_variants(BASE, "fixed", None, 0.3)
    assert [one] == plan_variants(BASE, ["fixed"], None, iter([0.3]))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        *((given, "different numbers of 0 or more") for given in ([0, 0], [], [-1], [2, -1])),
        *((given, "1 to 10,000 seeds") for given in (0, -1, 10**9, 10**400)),
        *((given, "seeds takes a whole number, or a list") for given in (None, "a", 0.5, [0.5], [[1]], np.add)),
        (range(10**9), "more than 10,000"),
    ],
)
def test_seeds_that_are_none(given: object, line: str, unchecked: None) -> None:
    with pytest.raises(UserError, match=line):
        seeds_of(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("ratios", [[], "x", [None], True, 10**400, [2.0]])
def test_ratios_that_are_none(ratios: object, unchecked: None) -> None:
    with pytest.raises(UserError, match="ratio"):
        plan_variants(BASE, "fixed", None, ratios)  # type: ignore[arg-type]
