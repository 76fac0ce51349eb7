"""A ratio of one's own, as on the page "Add a scheme", wherever a ratio is taken."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from r2mae.errors import UserError
from r2mae.integrations.masks import boolean_mask, random_masking, random_token_mask
from r2mae.integrations.ratios import RatioSetter
from r2mae.masking import Key, MaskRatio, Ratio, Scheme
from r2mae.masking.ratios import as_ratio
from r2mae.theory import Inputs, identity, kept_rows, risk, simulate

KEY = Key.root(0).fold("ratio")


@dataclass(frozen=True)
class TwoPoint(Ratio):
    low: float
    high: float

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([self.low, self.high]), np.array([0.25, 0.75])


class Falling(TwoPoint):
    """`high` in the first half of the run, then `low`."""

    scheduled = True
    steps = 2

    def bind(self, total_steps: int) -> "Falling":
        bound = Falling(self.low, self.high)
        object.__setattr__(bound, "steps", total_steps)
        return bound

    def __call__(self, step: int, key: Key) -> float:
        return self.high if step < self.steps / 2 else self.low


RATIO = TwoPoint(0.2, 0.6)


def test_defaults_follow_from_the_nodes() -> None:
    drawn = [RATIO(step, KEY) for step in range(2000)]
    assert set(drawn) == {0.2, 0.6}
    assert np.mean(np.array(drawn) == 0.2) == pytest.approx(0.25, abs=0.04)
    assert RATIO.draw(3, KEY, 8) == drawn[3]
    assert RATIO.ends == Scheme("x", RATIO).bind(10, 2.5, 4).ends == (0.2, 0.6)
    assert not RATIO.scheduled | RATIO.per_sample | RATIO.never_falls
    assert RATIO.bind(5) is RATIO.with_rows(4) is RATIO.with_epochs(3) is as_ratio(RATIO) is RATIO


def test_fields_of_an_own_ratio_may_be_called_as_its_members() -> None:
    @dataclass(frozen=True)
    class Own(TwoPoint):
        per_sample: bool
        scheduled: bool
        ends: tuple[float, float] = (0.0, 1.0)

    own = Own(0.2, 0.6, True, False)
    assert own.per_sample and not own.scheduled and own.ends == (0.0, 1.0) and not own.never_falls
    assert set(np.asarray(own.draw(3, KEY, 64))) == {0.2, 0.6}


def test_masks_of_other_libraries_take_what_it_draws() -> None:
    for step in range(8):
        share = RATIO(step, KEY)
        assert int(boolean_mask(2, 10, share, KEY).sum()) == round(20 * share)
        assert random_token_mask((2, 11), share, KEY)[1].shape[1] == round(10 * share)
        assert random_masking(torch.zeros(2, 10, 3), share, KEY)[0].shape[1] == round(10 * (1 - share))


def test_callbacks_set_it() -> None:
    model = nn.Linear(2, 2)
    model.mask_ratio = 0.5  # type: ignore[assignment]
    step = RatioSetter(RATIO)
    step.begin(model, 10)
    assert {step.set(number) for number in range(40)} == {0.2, 0.6}
    falling = RatioSetter(Falling(0.2, 0.6))
    falling.begin(model, 4)
    assert [falling.set(number) for number in range(4)] == [0.6, 0.6, 0.2, 0.2]


def test_the_callback_of_lightning_takes_it() -> None:
    pytest.importorskip("lightning")
    from r2mae.integrations.lightning import MaskRatioCallback

    assert MaskRatioCallback(RATIO).ratio.given is RATIO


def test_the_collator_takes_it_unless_it_is_scheduled(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from r2mae.integrations.transformers import FixedMasks, MaskCollator, MaskRatioCallback

    def pad(rows: Any, **_: Any) -> dict[str, torch.Tensor]:
        return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

    class Tokenizer(SimpleNamespace):
        def __len__(self) -> int:
            return 50

    words: Any = Tokenizer(mask_token_id=1, pad_token_id=0, all_special_ids=[0, 1], pad=pad)
    words.deprecation_warnings = {}
    collator, rows = MaskCollator(words, RATIO), [{"input_ids": [*range(2, 42)]}] * 3
    hidden = set()
    for epoch in range(20):
        collator.set_epoch(epoch)
        hidden.add(int((collator(rows)["labels"] >= 0).sum()))
    assert hidden == {24, 72}
    assert len(FixedMasks(rows, words, RATIO)[0]["labels"]) == 40
    assert MaskRatioCallback(RATIO).ratio.given is RATIO
    with pytest.raises(ValueError, match="depends on the step"):
        MaskCollator(words, Falling(0.2, 0.6))
    with pytest.raises(TypeError):
        collator.set_epoch(0.5)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::r2mae.theory.DominantWarning")
def test_formula_and_simulation_agree_on_it() -> None:
    beta = np.full(60, 0.2)
    found = risk(identity(60), beta, 400, RATIO, 0.1, inputs=Inputs(missing=RATIO))
    tried = simulate(identity(60), beta, 400, [RATIO], noise=0.1, repetitions=40, inputs=Inputs(missing=RATIO))
    assert float(np.mean(tried.risk)) == pytest.approx(float(found.risk), rel=0.05)
    assert kept_rows(100, RATIO).count == pytest.approx(50)


def test_an_own_ratio_of_samples_draws_one_for_each() -> None:
    class OfSamples(TwoPoint):
        per_sample = True

    ratio = OfSamples(0.2, 0.6)
    drawn = ratio.draw(3, KEY, 400)
    assert np.shape(drawn) == (400,)
    assert np.mean(drawn == 0.2) == pytest.approx(0.25, abs=0.1)
    np.testing.assert_array_equal(drawn, [ratio.draw(3, KEY.rows(row), 1)[0] for row in range(400)])
    with pytest.raises(UserError, match="one ratio for each sample"):
        ratio(3, KEY)


def test_a_curriculum_is_refused_where_its_weights_are_not_learned() -> None:
    with pytest.raises(UserError, match="learns weights"):
        RatioSetter(MaskRatio("cl", ratio=0.5, low=0.5, high=0.9, total_steps=10))


@pytest.mark.parametrize("field", ["seed", "total_steps", "batch_size"])
def test_whole_numbers_of_any_type(field: str) -> None:
    given = {"total_steps": 10, field: 4}
    made = MaskRatio("dynamic", low=0.2, high=0.8, **given)
    for value in (4.0, np.int32(4), np.float64(4)):
        other = MaskRatio("dynamic", low=0.2, high=0.8, **{**given, field: value})
        assert [other(np.float64(step)) for step in range(4)] == [made(step) for step in range(4)]
    with pytest.raises(UserError, match=field):
        MaskRatio("dynamic", low=0.2, high=0.8, **{**given, field: 1.5})
