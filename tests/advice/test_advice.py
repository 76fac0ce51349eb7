import csv
import json
from pathlib import Path

import numpy as np
import pytest

from r2mae.advice.advice import Report, cautions, choices, make_report, opening, paragraph, to_json, write
from r2mae.advice.advice_figure import draw
from r2mae.advice.data import Matrix, load_matrix
from r2mae.advice.trustworthiness import shape_of
from r2mae.theory import from_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits() -> Matrix:
    return load_matrix("digits")


@pytest.fixture(scope="module")
def bright() -> Matrix:
    """Without the pixels that hardly ever vary."""
    return load_matrix("digits", max_features=40)


@pytest.fixture(scope="module")
def report(bright: Matrix) -> Report:
    return make_report(bright, n=30)


def gaussian(rows: int, d: int, seed: int = 0) -> Matrix:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, d)) @ (np.eye(d) + 0.3 * rng.standard_normal((d, d)))
    return Matrix("normal", values, tuple(f"x{j}" for j in range(d)))


def test_the_paragraph_says_what_the_numbers_are(report: Report) -> None:
    words, advice = paragraph(report), report.advice
    assert "\n" not in words and "  " not in words
    assert words.startswith("digits: masked ridgeless regression on n = 30 rows of d = 40 standardised features")
    found, stakes = advice.suggested, advice.direction_stakes
    assert found is not None and stakes is not None
    assert f"Range for masked linear regression: {found.low:.2f} to {found.high:.2f}" in words
    assert f"mean risk is {stakes.drawn:.3f}" in words
    assert f"the best fixed ratio, {stakes.best:.3f}" in words
    assert f"{int(advice.directions.learnable.sum())} of 20 leading directions" in words or "all 20 leading" in words
    assert "diverges" not in words  # n < d


def test_the_paragraph_of_every_case(digits: Matrix, bright: Matrix) -> None:
    nothing = paragraph(make_report(gaussian(400, 300), n=4))
    assert "no range to suggest" in nothing
    peaked = paragraph(make_report(digits, n=183))
    assert "diverges at ratio d/n = 0.333" in peaked
    strict = make_report(bright, n=30, tolerance=0.001)
    assert strict.advice.minimax > 0.001
    assert "No ratio is within 0.001 of every learnable direction's best" in paragraph(strict)
    narrow = make_report(bright, n=30, ratios=np.array([0.1, 0.4, 0.9]))
    assert "linear regression does best at 0.40" in paragraph(narrow)


def test_a_range_of_one_ratio_is_one_number_everywhere(bright: Matrix) -> None:
    narrow = make_report(bright, n=30, ratios=np.array([0.1, 0.4, 0.9]))
    assert opening(narrow)[0].endswith(": for linear regression 0.40.")
    assert [row["ratio"] for row in choices(narrow)[-2:]] == ["0.40", "0.40"]
    labels = draw(narrow.advice, "digits").axes[2].get_legend_handles_labels()[1]
    assert "range for linear regression: 0.40" in labels
    close = make_report(bright, n=30, ratios=np.array([0.398, 0.4, 0.402]))
    assert "of its own best at 0.40 only" in paragraph(close)
    assert "own best ratios: 0.40;" in paragraph(close)


def test_cautions_know_gaussian_rows_from_rare_pixels(digits: Matrix) -> None:
    assert cautions(make_report(gaussian(2000, 40), n=400)) == []
    few = " ".join(cautions(make_report(gaussian(60, 8))))  # fewer rows than 20 times a Gaussian's kurtosis
    assert "vary" not in few
    told = " ".join(cautions(make_report(digits, n=183)))
    assert "hardly ever vary" in told and "lengths of the rows" in told
    assert cautions(make_report(load_matrix("digits", max_features=40), n=183)) == []
    assert "vary in less than about one of 30 rows" in " ".join(cautions(make_report(digits, n=30)))
    assert "estimate from 1.5 rows a feature" in " ".join(cautions(make_report(gaussian(60, 40))))


def test_more_rows_than_there_are_is_said() -> None:
    told = cautions(make_report(gaussian(2000, 40), n=3000))
    assert "The data have 2,000 rows. The risks are those of training on 3,000 rows like them" in " ".join(told)


def test_the_shape_by_its_definitions(digits: Matrix) -> None:
    for standardised in (True, False):
        cov = from_data(digits.values, "plain", scale=standardised)
        shape = shape_of(digits.values, cov, 183, standardised=standardised)
        x = digits.values - digits.values.mean(axis=0)
        if standardised:
            x /= x.std(axis=0)
        norms, sigma = (x**2).sum(axis=1), cov.matrix()
        expected = norms.var() / norms.mean() ** 2 / (2 * np.trace(sigma @ sigma) / np.trace(sigma) ** 2)
        assert shape.norm_spread == pytest.approx(expected)
        kurtosis = (x**4).mean(axis=0) / (x**2).mean(axis=0) ** 2
        assert shape.rare == ((183 / kurtosis < 20) & (kurtosis > 10)).sum()
        assert shape.unseen == (183 / kurtosis < 1).sum()
        assert shape.top_share == pytest.approx(np.linalg.eigvalsh(sigma)[-1] / np.trace(sigma))


def test_choices_hold_the_curves_values(report: Report) -> None:
    rows, advice = choices(report), report.advice
    assert [row["choice"] for row in rows] == [
        "best fixed, directions", "best fixed, features", "least worst excess",
        "one fixed, picked blindly", "drawn for every row",
    ]  # fmt: skip
    assert rows[0]["directions"] == pytest.approx(np.nanmin(advice.directions.mean))
    assert rows[1]["features"] == pytest.approx(np.nanmin(advice.features.weighted))
    assert rows[2]["worst_excess"] == pytest.approx(advice.minimax)


def test_files(report: Report, tmp_path: Path) -> None:
    paths = write(report, tmp_path)
    assert {path.name for path in paths} == {"advice.json", "curves.csv", "targets.csv", "advice.png", "advice.svg"}
    assert all(path.stat().st_size > 500 for path in paths)
    curves = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    assert [float(row["ratio"]) for row in curves] == pytest.approx(list(report.advice.ratios))
    assert curves[0]["directions_mean"] == ""  # less than one kept row
    assert float(curves[20]["direction_1"]) == pytest.approx(report.advice.directions.normalised[20, 0], rel=1e-5)
    targets = list(csv.DictReader((tmp_path / "targets.csv").read_text().splitlines()))
    assert len(targets) == 20 + 40
    assert targets[20]["target"] == report.data.features[0]
    assert json.loads((tmp_path / "advice.json").read_text())["n"] == 30


def test_json_needs_no_nan(report: Report) -> None:
    json.dumps(to_json(report), allow_nan=False)


@pytest.mark.parametrize("n", [3, 40, 183])
def test_the_figure_shows_the_curves_and_breaks_at_the_peak(digits: Matrix, n: int) -> None:
    advice = make_report(digits, n=n).advice
    figure = draw(advice, "digits")
    top, middle, bottom = figure.axes[:3]
    curves = [line for line in top.lines if len(line.get_xdata()) > 2]
    assert len(curves) == 20
    x, y = curves[0].get_data()
    np.testing.assert_array_equal(y[np.isin(x, advice.ratios)], advice.directions.normalised[:, 0])
    if advice.peak is not None:
        assert np.isnan(y[np.searchsorted(x, advice.peak)])
    assert middle.get_legend_handles_labels()[1] == [
        "middle 80 %", "middle half", "median feature", "mean feature", "best fixed ratio for the mean",
    ]  # fmt: skip
    labels = " ".join(bottom.get_legend_handles_labels()[1])
    assert ("range for linear regression" in labels) == (advice.suggested is not None)


def test_the_bar_of_ranks_lies_beside_the_curves(digits: Matrix) -> None:
    figure = draw(make_report(digits, n=40).advice, "digits")
    figure.canvas.draw()
    top = figure.axes[0]
    (bar,) = top.child_axes
    assert bar.get_window_extent().x0 >= top.get_window_extent().x1


def test_nothing_is_suggested_where_advice_has_not_held(digits: Matrix, tmp_path: Path) -> None:
    """Pixels that hardly ever vary: with n > d, and with n < d."""
    for n in (183, 20):
        report = make_report(digits, n=n)
        assert report.advice.suggested is not None and not report.holds
        line, words, found = opening(report)[0], paragraph(report), to_json(report)
        assert line.endswith("these data have such features: no ratio for linear regression either.")
        assert "No ratio is given" in words and cautions(report)
        assert not any(told in words for told in ("best fixed ratio", "Range for", "own best"))
        assert choices(report) == [] == found["choices"] == found["within_tolerance"]
        for key in ("suggested_for_pretraining", "suggested_for_linear_regression", "minimax", "risk_of_directions"):
            assert found[key] is None
        write(report, tmp_path / str(n))
        labels = draw(report.advice, "digits", holds=False).axes[2].get_legend_handles_labels()[1]
        assert not any("range for linear regression" in label for label in labels)


def test_the_answer_comes_in_one_line(report: Report) -> None:
    line, caveat, hint = opening(report)
    found = report.advice.suggested
    assert found is not None
    assert "\n" not in line and line.startswith("Answer: no ratio for pretraining.")
    assert line.endswith(f"for linear regression {found.low:.2f} to {found.high:.2f}.")
    assert "masked once" in caveat and "r2mae compare DATA" in hint
    nothing = make_report(gaussian(400, 300), n=4)
    assert opening(nothing)[0].endswith("no direction can be learned: no ratio for linear regression either.")
