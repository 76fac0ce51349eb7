"""Which settings of cells are chosen when a set is left out."""

import numpy as np
import pandas as pd
import pytest

from r2mae_paper.cells_defaults import choose, differences_from_pca, main


def rows_of(name: str, setting: str, gain: float, steps: float, seed: float, reading: str | None = "latent") -> list:
    """Return a row for each of two splits, which differ by what PCA has, too."""
    return [
        {"set": name, "setting": setting, "seed": seed, "steps": steps, "reading": reading, "split": split,
         "score": 0.5 + 0.1 * split + gain}
        for split in range(2)
    ]  # fmt: skip


@pytest.fixture
def table() -> pd.DataFrame:
    gains = {"csle": {"low": 0.01, "high": 0.05, "scvi": 1.0}, "combat": {"low": 0.02, "high": -0.2, "scvi": 1.0}}
    rows = [row for name in gains for row in rows_of(name, "pca", 0.0, np.nan, np.nan, None)]
    for name, steps in (("csle", 500), ("combat", 2000)):
        for setting, gain in gains[name].items():
            for seed in range(3):
                rows += rows_of(name, setting, gain + 0.001 * (seed - 1), steps, seed)
                rows += rows_of(name, setting, 9.0, steps / 4, seed)
                rows += rows_of(name, setting, 9.0, steps, seed, "hidden")
    return pd.DataFrame([*rows, *rows_of("csle", "nowhere else", 5.0, 500, 0)])


def test_differences_are_from_pca_under_the_same_splits_at_the_default_number_of_steps(table: pd.DataFrame) -> None:
    found = differences_from_pca(table)
    assert found.loc[("low", 0), "csle"] == pytest.approx(0.009)
    assert found.loc[("high", 2), "combat"] == pytest.approx(-0.199)


def test_the_setting_is_chosen_on_the_other_sets(table: pd.DataFrame) -> None:
    found = choose(table).set_index("left out")
    assert found.loc["csle", "chosen"] == "low"  # the best on combat; neither scVI nor what combat lacks
    assert found.loc["csle", "here"] == pytest.approx(0.01)
    assert found.loc["csle", "half of 95 %"] == pytest.approx(4.3027 * 0.001 / 3**0.5, rel=1e-4)
    assert found.loc["combat", "chosen"] == "high"
    assert found.loc["combat", "here"] == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["choose", "missing.csv"], "no such file: missing.csv; name the table that run wrote"),
        (["choose", "table.csv", "other.csv"], "unrecognized arguments: other.csv"),
        (["choose", "table.csv", "--sets", "csle"], "unrecognized arguments: --sets csle"),
        (["prepare", "folder", "--seeds", "9"], "unrecognized arguments: --seeds 9"),
        (["run", "missing"], "the following arguments are required: out"),
        (["run", "missing", "table.csv", "--sets", "mnist"], "invalid choice: 'mnist'"),
        (["run", "missing", "table.csv", "--sets", "csle"], "missing has no csle.npz: make it with prepare"),
    ],
)
def test_what_is_missing_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
