"""Loss and accuracy of hidden bases, of models and of baselines."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from genome.made import task, windows
from genome.test_data import aligned, config
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore
from r2mae.genome.batches import load_data
from r2mae.genome.domain import DOMAIN
from r2mae.genome.evaluate import RATIOS, alignment_logs, composition, curve_scores, evaluate
from r2mae.genome.task import HiddenBases
from r2mae.masking.keys import Key


@pytest.fixture
def small(tmp_path: Path) -> AlignmentStore:
    return aligned(tmp_path)


def test_a_model_that_knows_all_and_one_that_knows_nothing(small: AlignmentStore) -> None:
    data = load_data(config(small))
    assert data.measured is not None
    known = curve_scores(lambda one: 50.0 * one_hot(one.targets, 4), data.measured)
    assert known["accuracy"] == 1
    assert known["masked_loss"] == pytest.approx(0, abs=1e-9)
    nothing = curve_scores(lambda one: torch.zeros(*one.targets.shape, 4), data.measured)
    assert nothing["masked_loss_0.3"] == pytest.approx(math.log(4))
    assert {f"accuracy_{ratio:g}" for ratio in RATIOS} < known.keys()


def test_masks_are_the_same_whatever_is_asked(small: AlignmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_data(config(small, test_regions=("chr1:1-1200",)))
    assert data.measured is not None

    def masks(ratios: tuple[float, ...], rows: int) -> list[np.ndarray]:
        seen: list[HiddenBases] = []
        monkeypatch.setattr("r2mae.genome.evaluate._ROWS", rows)

        def predict(one: HiddenBases) -> torch.Tensor:
            seen.append(one)
            return torch.zeros(*one.targets.shape, 4)

        assert data.measured is not None
        curve_scores(predict, data.measured, ratios=ratios)
        of_ratio = [one for one in seen if one.columns.shape[1] == 5]
        times = -(-500 // len(data.measured))
        return [np.concatenate([one.hidden.view(-1, 16).numpy() for one in of_ratio[at::times]]) for at in range(times)]

    whole = masks((0.3,), 64)
    assert len(whole) > 1
    assert (whole[0] != whole[1]).any()
    np.testing.assert_array_equal(whole, masks((0.1, 0.3), 7))


def test_a_model_is_measured_with_the_mask_token_and_without_weights(
    small: AlignmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r2mae.genome.evaluate._MOST_REPEATS", 2)
    scores, plain = [], config(small)
    for fields in ({"corruption": "mask", "repeat_weight": 1.0}, {"corruption": "80-10-10", "repeat_weight": 0.0}):
        data = load_data(config(small, width=16, layers=1, heads=2, **fields))
        own, _ = DOMAIN.build(data.architecture)
        torch.manual_seed(0)
        _, model = DOMAIN.build(data.architecture)
        scores.append(evaluate(plain, own, model, data))
    assert scores[0] == scores[1]
    assert evaluate(plain, own, model, load_data(config(small, validation=0.0))) == {}


def test_frequencies_of_the_aligned_species_by_hand() -> None:
    batch = windows(1, 4, 3, plain=True)
    batch["aligned"][0] = torch.tensor([[0, 0, 1], [4, 5, 5], [2, 2, 2], [3, 0, 4]], dtype=torch.uint8)
    corrupted = task().corrupt(batch, 0.75, Key.root(0))
    prior = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)
    found = alignment_logs(corrupted, prior).exp()[0]
    by_position = {
        0: [2.4 / 4, 1.1 / 4, 0.2 / 4, 0.3 / 4],
        1: [0.4, 0.1, 0.2, 0.3],
        2: [0.4 / 4, 0.1 / 4, 3.2 / 4, 0.3 / 4],
        3: [1.4 / 3, 0.1 / 3, 0.2 / 3, 1.3 / 3],
    }
    for place, column in enumerate(corrupted.columns[0].tolist()):
        assert found[place].tolist() == pytest.approx(by_position[column])


def test_baselines(small: AlignmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2mae.genome.evaluate._MOST_REPEATS", 5)
    run = config(small)
    data = load_data(run)
    fractions = composition(data)
    assert float(fractions.sum()) == pytest.approx(1)
    plain = DOMAIN.score_baseline(run, "composition", data)
    assert plain["masked_loss"] == pytest.approx(-float((fractions * fractions.log()).sum()), rel=0.2)
    scores = DOMAIN.score_baseline(run, "alignment", data)
    assert scores != plain
    # Without aligned species in the model the baseline has all that the store has.
    assert DOMAIN.score_baseline(run, "alignment", load_data(config(small, species=("none",)))) == scores
    assert DOMAIN.score_baseline(run, "alignment", load_data(config(small, species=("s1",)))) != scores
    assert DOMAIN.score_baseline(run, "alignment", data) == scores
    assert DOMAIN.score_baseline(run, "alignment", load_data(config(small, validation=0.0))) == {}


def test_held_out_windows_are_as_many_as_the_run_or_its_measurement_says(
    small: AlignmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r2mae.genome.evaluate._MOST_REPEATS", 2)
    default = config(small, width=16, layers=1, heads=2)
    data = load_data(default)
    task, model = DOMAIN.build(data.architecture)
    said = config(small, width=16, layers=1, heads=2, eval_windows=2)
    few = DOMAIN.evaluate(said, task, model, data)
    assert few != DOMAIN.evaluate(default, task, model, data)
    assert DOMAIN.evaluate(default.with_measurement(eval_windows=2), task, model, data) == few
    assert DOMAIN.score_baseline(said, "alignment", data) != DOMAIN.score_baseline(default, "alignment", data)
    assert "2 windows" in said.measured_in_words()
    assert default.measured_in_words() == ""
    assert said.with_measurement(variants="other.tsv", label="score").evaluation.eval_windows == 2
    with pytest.raises(UserError, match="eval_windows must be 1 or more"):
        config(small, eval_windows=0)
