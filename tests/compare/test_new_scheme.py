"""A scheme of one's own is one function: rows, options, refusals, colours, help and training follow from it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from r2mae.cli.main import main
from r2mae.compare.figures import scheme_colours
from r2mae.compare.gather import gather
from r2mae.compare.runs import plan_variants, runs_of, variant_of
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.masking import Key, Ratio, Scheme, register, schemes
from r2mae.training.folder import read_yaml as read_config
from r2mae.training.pretraining import pretrain

SMALL = {"steps": 1, "batch_size": 32, "hidden": 4, "latent": 2, "threads": 1, "device": "cpu"}


class Bent(Ratio):
    """low + (high - low) u^power, with a kind of ratio that the package does not know."""

    def __init__(self, low: float, high: float, power: float) -> None:
        self.low, self.high, self.power = low, high, power

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bent) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, step: int, key: Key) -> float:
        return float(self.low + (self.high - self.low) * key.fold(step).uniform() ** self.power)

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        at = np.linspace(0, 1, 9)
        return self.low + (self.high - self.low) * at**self.power, np.full(9, 1 / 9)


@pytest.fixture(autouse=True)
def bent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register a scheme, and forget it after the test."""
    monkeypatch.setattr(schemes, "_REGISTRY", dict(schemes._REGISTRY))

    @register("bent")
    def build(low: float, high: float, power: float = 2.0) -> Scheme:
        """A power of a uniform number, between low and high."""
        return Scheme("bent", Bent(low, high, power))

    yield


def test_its_row_holds_its_options_and_no_other_does() -> None:
    base, options = ImagesConfig.make(data="digits"), {"low": 0.4, "power": 3.0}
    rows = {row.label: row for row in plan_variants(base, ["fixed", "r2mae", "bent"], options)}
    assert rows["bent"].values["low"] == 0.4 and rows["bent"].values["high"] == 0.9
    given = [rows[label].config.scheme.given_options for label in ("bent", "r2mae", "fixed 0.40")]
    assert given == [{"low": 0.4, "power": 3.0}, {"low": 0.4}, {"ratio": 0.4}]
    assert variant_of(rows["bent"].config) == rows["bent"]
    with pytest.raises(UserError, match=r"none of fixed, r2mae takes 'power': .*\(bent\)"):
        plan_variants(base, ["fixed", "r2mae"], options)
    with pytest.raises(UserError, match=r"the scheme 'bent' does not take 'ratio': .*\(fixed, cl, cl-k0\)"):
        plan_variants(base, ["bent"], {"ratio": 0.3})


def test_its_options_are_told_and_compared_as_numbers() -> None:
    plain, same, other = (
        ImagesConfig.make(data="digits", scheme="bent", **options)
        for options in ({}, {"scheme.power": 2}, {"scheme.power": "2.50"})
    )
    assert plain.scheme.options == {"low": 0.5, "high": 0.9, "power": 2.0}
    assert other.scheme.options["power"] == 2.5
    assert plain == same
    assert plain.differences(other) == {"power": (2.0, 2.5)}
    assert other.scheme.make().ratio == Bent(0.5, 0.9, 2.5)


def test_a_scheme_may_stand_for_every_fixed_ratio() -> None:
    @register("held", per_ratio=True)
    def held(ratio: float, extra: float = 0.0) -> Scheme:
        """One ratio."""
        return Scheme("held", Bent(ratio, ratio, 1 + extra))

    rows = plan_variants(ImagesConfig.make(data="digits"), ["held", "r2mae"])
    assert [row.label for row in rows] == ["held 0.50", "held 0.70", "held 0.90", "r2mae"]
    own = plan_variants(ImagesConfig.make(data="digits"), ["held"], {"extra": 1.0}, [0.3])
    assert [(row.label, row.config.scheme.options) for row in own] == [("held 0.30", {"ratio": 0.3, "extra": 1.0})]


def test_it_has_a_colour_of_its_own() -> None:
    colours = scheme_colours()
    assert len(set(colours.values())) == len(colours) and "bent" in colours


def test_the_command_line_takes_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    line = "pretrain digits --scheme bent --scheme.power 3 --low 0.3 --print-config"
    assert main(line.split()) == 0
    printed = capsys.readouterr().out
    assert "power: 3.0" in printed
    assert main([*line.replace("bent", "r2mae").split()]) == 2
    assert "the scheme 'r2mae' does not take 'power'" in capsys.readouterr().err


@pytest.mark.slow
def test_it_trains_and_its_row_tells_its_options(tmp_path: Path) -> None:
    base = ImagesConfig.make(data="digits", **SMALL)
    runs = runs_of(plan_variants(base, ["bent"], {"power": 3.0}), [0], tmp_path)
    for run in runs:
        pretrain(run.config, DOMAIN, run.folder)
    assert read_config(runs[0].folder / "config.yaml")["scheme"]["power"] == 3.0
    assert 0.5 <= pd.read_csv(runs[0].folder / "metrics.csv")["ratio"][0] <= 0.9
    found = gather(runs, DOMAIN, base, {}, examples=False)
    assert found.config["rows"]["bent"] == {"scheme": "bent", "low": 0.5, "high": 0.9, "power": 3.0, "given": ["power"]}
