"""Many masks a row: networks that are trained together, and the tables of advice and of ranges."""

import numpy as np
import pytest
import torch

from r2mae_paper.many_masks import (
    BATCH,
    MEASURES,
    RATIOS,
    SAME,
    SAMPLE,
    networks,
    p_eff,
    parts,
    rows_of_set,
    tables,
)
from r2mae_paper.many_networks import FRACTIONS, Network, Rows, _Inputs, missing_entries, train
from r2mae_paper.studies import ENTRIES

ROWS = Rows(
    *(np.random.default_rng(seed).normal(3, 1, (rows, 6)).astype(np.float32) for seed, rows in ((0, 60), (1, 20)))
)
SMALL = {"batch": 20, "hidden": 8, "latent": 4}


def test_networks_that_are_trained_together_do_not_share_anything() -> None:
    both = [Network("mean", 0.3, 0.3), Network("zeros", 0.1, 0.9, by_sample=True)]
    together = train(ROWS, both, seeds=2, epochs=(2,), **SMALL)
    for place, one in enumerate(both):
        alone = train(ROWS, [one], seeds=2, epochs=(2,), **SMALL)
        np.testing.assert_allclose(together[:, :, place], alone[:, :, 0], rtol=2e-5)
    assert np.ptp(together, axis=1).min() > 1e-4  # seeds differ


def test_a_shorter_training_is_the_beginning_of_a_longer_one() -> None:
    long = train(ROWS, [Network("mean", 0.3, 0.7)], seeds=1, epochs=(1, 3), **SMALL)
    short = train(ROWS, [Network("mean", 0.3, 0.7)], seeds=1, epochs=(1,), **SMALL)
    np.testing.assert_allclose(long[0], short[0], rtol=2e-5)
    assert long.shape == (2, 1, 1, 1 + len(FRACTIONS))


@pytest.mark.parametrize(("rule", "expected"), [("zeros", [5.0, 0.0]), ("mean", [2.0, 0.0]), ("rescaled", [4.0, 0.0])])
def test_what_hidden_entries_become(rule: str, expected: list[float]) -> None:
    rows = Rows(np.full((1, 2), 3.0, np.float32), np.full((1, 2), 3.0, np.float32))
    inputs = _Inputs(rows, [Network(rule, 0.5, 0.5)], 1, torch.device("cpu"))  # type: ignore[arg-type]
    centred, hidden = torch.full((1, 1, 2), 2.0), torch.tensor([[[False, True]]])
    assert inputs(centred, hidden, torch.full((1, 1, 1), 0.5)).flatten().tolist() == expected


def test_p_eff_of_each_rule() -> None:
    q = (np.arange(200_000) + 0.5) / 200_000 * 0.8 + 0.1
    assert p_eff("zeros") == p_eff("mean") == pytest.approx((q * (1 - q)).mean() / (1 - q).mean(), abs=1e-6)
    odds = (q / (1 - q)).mean()
    assert p_eff("rescaled") == pytest.approx(odds / (1 + odds), abs=1e-5)


def _results(best: dict[str, int]) -> dict[str, object]:
    """Return made-up results: the error rises by 0.1 with each ratio away from the best, and random ratios have 1.0."""
    found: dict[str, object] = {}
    for name, place in best.items():
        curve = [1.0 + 0.1 * abs(number - place) for number in range(len(RATIOS))]
        by_scheme = {f"{ratio:.2f}": error for ratio, error in zip(RATIOS, curve, strict=True)}
        by_scheme |= {SAME: 1.01, BATCH: 1.0, SAMPLE: 1.0}
        one = [[by_scheme[label.split()[1]]] * (1 + len(FRACTIONS)) for label in networks()]
        errors = np.array([[one, np.multiply(one, 2.0).tolist(), np.multiply(one, 3.0).tolist()]])
        errors *= 1 + 1e-6 * np.random.default_rng(0).random(errors.shape)
        found[f"networks-{name}"] = {"n": 10, "d": 3, "epochs": [4], "errors": errors.tolist()}
        keys = [f"{rule}/{measure}" for rule in ("zeros", "mean", "rescaled") for measure in MEASURES]
        found[f"baselines-{name}"] = {"mean": 1.0, "gaussian": 0.5}
        found[f"theory-{name}"] = {
            **{f"{key}/{masks}": [None, *range(6, 0, -1)] for key in keys for masks in ("1", "4", "inf")},
            **{f"{key}/{scheme}": 0.5 for key in keys for scheme in (BATCH, SAME)},
        }
    return found


def test_advice_is_judged_by_what_following_it_costs() -> None:
    found = tables(_results({"a": 2, "b": 4, "c": 4}))
    row = next(row for row in found["many-masks"] if row["set"] == "a" and row["measure"] == MEASURES[1])
    assert (row["best"], row["best_low"], row["best_high"]) == (0.2, 0.2, 0.2)
    assert (row["ratio_infinity"], row["regret_infinity"]) == (0.9, pytest.approx(0.4, abs=1e-4))
    assert row["regret_half"] == row["regret_others"] == pytest.approx(0.2, abs=1e-4)  # b and c are best at 0.50
    other = next(row for row in found["many-masks"] if row["set"] == "b")
    assert other["ratio_others"] in (0.2, 0.35, 0.5)  # without b's own errors
    assert other["regret_half"] == pytest.approx(0.0, abs=1e-4)


def test_ranges_within_the_margin_are_equal() -> None:
    found = tables(_results({"a": 2, "b": 4, "c": 4}))["many-masks-ranges"]
    row = next(row for row in found if (row["set"], row["scheme"], row["against"]) == ("a", BATCH, SAME))
    assert row["quotient"] == pytest.approx(1 / 1.01 - 1, abs=1e-4)
    assert (row["quotient_is"], row["formula"]) == ("equal", 0.0)
    row = next(row for row in found if (row["set"], row["scheme"], row["against"]) == ("a", SAMPLE, "0.50"))
    assert (row["quotient"], row["quotient_is"]) == (pytest.approx(1 / 1.2 - 1, abs=1e-4), "better")


def test_baselines_are_of_the_missing_entries_of_the_networks() -> None:
    size = ENTRIES["many-masks"].size("small")
    found = parts(size)["baselines-latent"](jobs=1)
    rows = rows_of_set("latent", size)
    hidden = [missing_entries(rows.test, fraction) for fraction in FRACTIONS]
    mean = rows.train.mean(axis=0)
    assert found["mean"] == pytest.approx(np.mean([((mean - rows.test)[one] ** 2).mean() for one in hidden]), rel=1e-4)
    assert found["gaussian"] < found["mean"]
    assert [one.mean() for one in hidden] == pytest.approx(FRACTIONS, abs=0.05)


def test_every_set_has_its_parts() -> None:
    size = ENTRIES["many-masks"].size("full")
    assert len(parts(size)) == 3 * len(size.sets) and len(size.sets) >= 12
