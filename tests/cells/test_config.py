"""Whose schedules a run follows; folders that are older than the choice had HLCA's, whatever their preset."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from anndata import AnnData

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.masking.schemes import scheme_names
from r2mae.training import fit
from r2mae.training.folder import RunFolder

SIZE = {"n_top_genes": 10, "n_hidden": 8, "n_latent": 4, "steps": 4, "batch_size": 10, "threads": 1}
WORDS = [word for name, value in SIZE.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.mark.parametrize("scheme", scheme_names())
def test_timing_sets_the_options_of_schemes_with_a_schedule(scheme: str) -> None:
    hlca, sea_ad = (CellsConfig.make(data="x", scheme=scheme, timing=timing) for timing in ("hlca", "sea-ad"))
    no_schedule = scheme in ("fixed", "mdlm", "r2mae", "r2mae-per-sample")
    assert (hlca.scheme == sea_ad.scheme) == no_schedule
    assert bool(hlca.differences(sea_ad)) != no_schedule


@pytest.mark.parametrize(
    ("timing", "cells", "slowness"), [("hlca", 2_161_082, 300_000), ("sea-ad", 1_378_211, 150_000)]
)
@pytest.mark.parametrize("scheme", ["dynamic", "r2mae-dynamic"])
def test_the_ratio_falls_as_in_the_papers_runs(timing: str, cells: int, slowness: int, scheme: str) -> None:
    steps = round(50 * 0.9 * cells / 400)
    ratio = CellsConfig.make(data="x", scheme=scheme, timing=timing).scheme.make().bind(steps).ratio
    assert ratio.rate == pytest.approx(1 / slowness, rel=1e-12)


@pytest.mark.slow
def test_a_run_is_repeated_from_its_file(
    tmp_path: Path, make: Callable[..., AnnData], write: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(write(make(), tmp_path / "cells.h5ad"))
    config = CellsConfig.make(data=data, preset="sea-ad", scheme="dynamic", timing="sea-ad", **SIZE)
    file = str(fit(config, DOMAIN, tmp_path / "run").folder.config_file)
    assert main(["pretrain", "--config", file, "--out", str(tmp_path / "run")]) == 0
    assert "is finished already" in capsys.readouterr().out
    assert main(["pretrain", "--config", file, "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["scheme"]["decay_end"] < 1
    assert main(["pretrain", "--config", file, "--timing", "hlca", "--print-config"]) == 0
    assert (
        yaml.safe_load(capsys.readouterr().out)["scheme"]["decay_end"] == 240_000 / 243_121
    )  # what was not given follows the timing
    assert main(["pretrain", "--config", file, "--scheme", "cl", "--print-config"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["scheme"]["cl_end"] == pytest.approx(120_000 / 155_049)


def test_a_folder_keeps_its_own_timing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    mine = CellsConfig.make(data="x", preset="sea-ad", scheme="dynamic", timing="sea-ad")
    other = CellsConfig.make(data="x", preset="sea-ad", scheme="dynamic", timing="hlca")
    (tmp_path / "run").mkdir()
    folder.claim(mine, "print")
    folder.check_config(mine)
    with pytest.raises(UserError, match=r"decay_end is 0\.77\d+ there and 0\.98\d+ here"):
        folder.check_config(other)


def test_every_cell_may_have_a_ratio_of_its_own() -> None:
    for options in ({"scheme": "r2mae-per-sample"}, {"per": "sample", "sampling": "stratified"}, {"per": "sample"}):
        config = CellsConfig.make(data="x", **options)  # type: ignore[arg-type]
        ratio = config.scheme.make().ratio
        assert (ratio.low, ratio.high, ratio.per) == (0.1, 0.5, "sample")  # type: ignore[attr-defined]


REFUSED = {
    "--exclude condition=case": "exclude selects cells of probes, and there is no probe: name columns in --labels",
    "--only condition=case": "only selects cells of probes, and there is no probe",
    "--scheme fixed --timing sea-ad": "timing sets the schedules of the dynamic ratio and the curricula",
    "--timing sea-ad": "changes nothing for 'r2mae' with these options: omit it",
    "--n-top-genes 1": "n_top_genes must be 2 or more, not 1",
}


@pytest.mark.parametrize("options", REFUSED)
def test_typed_options_without_an_effect_are_refused(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "cells", "x.h5ad", *options.split(), "--print-config"]) == 2
    assert REFUSED[options] in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "pretrain cells x.h5ad --labels condition --exclude condition=case",
        "pretrain cells x.h5ad --regress age --only condition=case",
        "pretrain cells x.h5ad --scheme dynamic --timing sea-ad",
        "pretrain cells x.h5ad --scheme fixed --preset sea-ad",
        "pretrain cells combat --labels",  # the set brings rules
        "compare cells x.h5ad --timing sea-ad --schemes fixed dynamic --baselines none",
    ],
)
def test_what_a_set_a_preset_or_a_comparison_brings_is_kept(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--print-config"]) == 0
    assert "timing: " in capsys.readouterr().out
