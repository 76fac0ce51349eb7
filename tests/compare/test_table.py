"""The console table: its numbers are those of the comparison, and it fits."""

import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from r2mae.compare.analysis import analyse
from r2mae.compare.comparison import Comparison
from r2mae.compare.table import UNLIMITED, comparison_tables, print_comparison

Make = Callable[..., Comparison]


def shown(comparison: Comparison, width: int = 100) -> str:
    console = Console(width=width, record=True, file=StringIO())
    print_comparison(console, comparison, analyse(comparison), Path("a"))
    return console.export_text()


def line(text: str, label: str) -> str:
    rows = text[text.index("\nscheme ") :].splitlines()
    return next(row for row in rows if row.startswith(f"{label} "))


def test_a_verdict_that_the_correction_takes_back_is_marked(tiny: Make) -> None:
    scores = {"fixed 0.50": [0.0, 0.0, 0.0, 0.0], "a": [0.9, 1.1, 1.0, 1.05], "b": [0.2, 0.15, 0.3, 0.1]}
    scores |= {name: [0.1, -0.2, 0.3, -0.1] for name in "cdef"}
    rows = shown(tiny(scores))
    assert line(rows, "a ").split()[-1] == "better" and line(rows, "b ").split()[-1] == "better*"
    assert "; * not once all schemes and looks are counted" in rows


def test_a_named_ratio_has_the_first_column_and_best_fixed_the_second(comparison: Comparison) -> None:
    named = replace(comparison, config={**comparison.config, "against": "fixed 0.50"})
    text, found = shown(named, 140), analyse(named)
    head = " ".join(text[text.index(comparison.title) : text.index("\nr2mae ")].split())
    assert "minus" in head and "fixed 0.50" in head
    row = line(text, "r2mae")
    gaps = [found.difference("r2mae", "probe_accuracy", against) for against in ("fixed 0.50", "best fixed")]
    places = [row.index(f"+{one['mean']:.4f}") for one in gaps if one is not None]
    assert places == sorted(places) and len(set(places)) == 2
    assert row.count("better") + row.count("undecided") == 1, "the verdict is that of the headline"


def test_without_fixed_ratios_nothing_is_minus_best_fixed(tiny: Make) -> None:
    text = shown(tiny({"a": [0.9, 0.8], "b": [0.7, 0.9]}, against="a"))
    assert text.count("minus") == 1 and "fixed" not in text


def test_values_are_those_of_the_runs(comparison: Comparison) -> None:
    scores = comparison.table.pivot(index="seed", columns="label", values="probe_accuracy")
    values = scores["r2mae"]
    half = stats.t.ppf(0.975, 2) * stats.sem(values)
    row = line(shown(comparison), "r2mae")
    assert f"{values.mean():.4f} ±{half:.4f}" in row
    fixed = scores[["fixed 0.50", "fixed 0.70", "fixed 0.90"]]
    chosen = [fixed.loc[seed, fixed.drop(seed).mean().idxmax()] for seed in fixed.index]
    gaps = values.to_numpy() - np.array(chosen)
    gap_half = stats.t.ppf(0.975, 2) * stats.sem(gaps)
    sign = "+" if gaps.mean() > 0 else "−"  # noqa: RUF001
    assert f"{sign}{abs(gaps.mean()):.4f} ±{gap_half:.4f}" in row
    assert ("undecided" in row) == (abs(gaps.mean()) < gap_half)
    error = comparison.table.query("label == 'r2mae'")["masked_mse"].mean()
    assert f"{error:.5f}" in row


@pytest.mark.parametrize("how", [{}, {"ratios": tuple(np.arange(1, 10) / 10)}, {"seeds": 1}])
@pytest.mark.parametrize("width", [60, 80, 100, 200, UNLIMITED])
def test_the_table_is_whole_at_any_width_and_at_most_six_lines_follow(
    make_comparison: Make, how: dict[str, Any], width: int
) -> None:
    made = make_comparison(**how)
    asked = [replace(one, question=word) for one, word in zip(made.metrics, ("a", "b", "", ""), strict=True)]
    comparison = replace(made, metrics=tuple(asked))
    wide, text = shown(comparison, UNLIMITED), shown(comparison, width)
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    blocks = text.split("\n\n")
    for label in comparison.labels:
        rows = [
            row.removeprefix(label).split()
            for row in "\n".join(blocks[:-1]).splitlines()
            if row.startswith(f"{label} ")
        ]
        assert [*chain.from_iterable(rows)] == line(wide, label).removeprefix(label).split()
    assert len(wide.split("\n\n")) == 2 and (len(blocks) > 2) == (width <= 100)
    assert len(wide.split("\n\n")[1].strip().splitlines()) <= 6


def test_the_next_command_has_the_words_of_this_one_but_seeds_and_folder(tiny: Make) -> None:
    from r2mae.cli.compare import _repeated

    words = _repeated(
        ["digits", "--seeds", "0", "1", "--low", "0.1", "--out=a", "--ratios", "0.5", "--json", "--out", "b"]
    )
    assert words == ["r2mae", "compare", "digits", "--low", "0.1", "--ratios", "0.5"]
    comparison = tiny({"fixed 0.50": [1.0, 1.1], "r2mae": [1.2, 0.9]}, command=words)
    assert re.search(
        r"Next: r2mae compare digits --low 0.1 --ratios 0.5 --seeds \d+ --out a-\d+-seeds ", shown(comparison)
    )


def test_the_best_mean_is_bold_and_the_verdict_coloured(tiny: Make) -> None:
    comparison = tiny({"fixed 0.50": [1.0, 1.1, 1.2], "r2mae": [2.0, 2.1, 2.3], "mdlm": [0.1, 0.2, 0.2]})
    (table,) = comparison_tables(comparison, analyse(comparison))
    cells = [list(column.cells) for column in table.columns]
    assert [cell.style for cell in cells[1]] == ["", "bold", ""]
    assert [cell.plain for cell in cells[3]] == ["", "better", "worse"]
    assert cells[2][0].plain == "best fixed"


def test_seeds_get_a_column_where_they_differ(tiny: Make) -> None:
    text = shown(tiny({"fixed 0.50": [1.0, 1.1, 1.2], "r2mae": [2.0, None, 2.3]}))
    assert "2 to 3 seeds" in text
    assert line(text, "r2mae").split()[1] == "2"
    assert "r2mae has no the score for seed 1" in " ".join(text.split())


def test_square_brackets_in_names_are_text(comparison: Comparison) -> None:
    odd = replace(comparison, title="[red]set[/red] [/]")
    assert "[red]set[/red] [/]" in shown(odd)
