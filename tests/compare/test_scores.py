import pytest

from r2mae.compare.scores import print_scores
from r2mae.evaluation.metrics import Metric
from r2mae.progress import counting_bar

METRICS = (Metric("loss", "masked loss", higher_is_better=False), Metric("accuracy", "masked accuracy"))


def test_scores_by_ratio_are_rows_with_their_labels(capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"loss": 4.92412, "accuracy": 0.038993, "loss_0.15": 4.9393, "r_0.5": 0.125}
    print_scores({"r2mae": scores}, METRICS)
    assert capsys.readouterr().out.splitlines() == [
        "masked loss          4.924",
        "masked accuracy      0.03899",
        "masked loss at 0.15  4.939",
        "r 0.5                0.1250",
    ]


def test_deviations_stand_behind_their_scores(capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"sst2_accuracy": 0.50306, "sst2_accuracy_sd": 0.010594, "other_sd": 2.5}
    print_scores({"run": scores}, (Metric("sst2_accuracy", "SST-2 accuracy"),))
    assert capsys.readouterr().out.splitlines() == ["SST-2 accuracy  0.503 ± 0.011", "other sd        2.500"]


def test_models_stand_side_by_side_with_equal_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    first = {"accuracy": 0.9, "accuracy_donors_low": 0.8, "accuracy_donors_high": 0.95, "rank": 143.21}
    print_scores({"run": first, "pca": {"accuracy": 0.85, "rank": 5.0}, "none": {"loss": float("nan")}}, METRICS)
    assert capsys.readouterr().out.splitlines() == [
        "                 run                     pca     none",
        "masked loss                                      –",  # noqa: RUF001
        "masked accuracy  0.900 (0.800 to 0.950)  0.8500",
        "rank             143.2                   5.0",
    ]


def test_what_is_counted_is_told_in_lines_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r2mae.progress.SECONDS_BETWEEN_LINES", 1e9)
    with counting_bar("measuring") as update:
        update(1, 4)
    assert capsys.readouterr().err.strip() == ""  # it ended before the first line was due
    monkeypatch.setattr("r2mae.progress.SECONDS_BETWEEN_LINES", -1.0)
    for counted, line in ((True, "measuring: 1/4"), (False, "measuring: 25%")):
        with counting_bar("measuring", counted=counted) as update:
            update(1, 4)
        assert capsys.readouterr().err.strip() == line
