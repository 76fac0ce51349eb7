"""Whose schedules a run follows; folders that are older than the choice had HLCA's, whatever their preset."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from anndata import AnnData

from r2mae.cells.api import MaskedAutoencoder
from r2mae.cells.config import TIMINGS, CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.masking.schemes import scheme_names
from r2mae.training import fit
from r2mae.training.folder import RunFolder
from r2mae.training.saving import load_model
from r2mae.training.scheme_defaults import ratios_of
from r2mae.training.scheme_options import scheme_of

SIZE = {"n_top_genes": 10, "n_hidden": 8, "n_latent": 4, "steps": 4, "batch_size": 10, "threads": 1}
WORDS = [word for name, value in SIZE.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.mark.parametrize("timing", ["hlca", "sea-ad"])
@pytest.mark.parametrize("scheme", scheme_names())
def test_timing_is_idle_where_the_scheme_has_no_schedule(scheme: str, timing: str) -> None:
    config = CellsConfig.from_dict({"data": "x", "scheme": scheme, "timing": timing})
    idle = scheme in ("fixed", "mdlm", "r2mae", "r2mae-per-sample")
    assert config.idle_fields == (frozenset({"timing"}) if idle else frozenset())


def test_nothing_is_idle_in_what_this_version_does_not_know() -> None:
    assert CellsConfig(data="x", scheme="later").idle_fields == frozenset()
    assert CellsConfig(data="x", scheme="r2mae", decay=0.1).idle_fields == frozenset()


@pytest.fixture(params=["r2mae", "dynamic"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def old(scheme: str, tmp_path: Path, make: Callable[..., AnnData], write: Callable[..., Path]) -> Path:
    """A run with the preset `sea-ad`, made before there was `timing`."""
    config = CellsConfig(data=str(write(make(), tmp_path / "cells.h5ad")), preset="sea-ad", scheme=scheme, **SIZE)
    path = fit(config, DOMAIN, tmp_path / "run").folder.config_file
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert written.pop("timing") == "hlca"
    path.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    return path.parent


def command(old: Path, scheme: str, *more: str) -> int:
    """Repeat the command of the run."""
    data = str(old.parent / "cells.h5ad")
    return main(["pretrain", "cells", data, "--preset", "sea-ad", *WORDS, "--scheme", scheme, "--out", str(old), *more])


@pytest.mark.slow
def test_an_old_folder_opens_with_the_schedule_that_it_ran_with(old: Path, make: Callable[..., AnnData]) -> None:
    assert load_model(old, DOMAIN)[0].to_dict()["timing"] == "hlca"
    assert main(["evaluate", str(old)]) == 0
    assert main(["embed", str(old), str(old.parent / "cells.h5ad"), "-o", str(old.parent / "e.npz")]) == 0
    assert MaskedAutoencoder.load(old, make()).get_latent_representation().shape == (30, 4)


@pytest.mark.slow
def test_its_command_is_repeated_unless_it_means_another_schedule_now(
    old: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (old / "model.safetensors").read_bytes()
    code = command(old, scheme)
    if scheme == "dynamic":
        assert code == 2
        assert "(timing is 'hlca' there and 'sea-ad' here): choose another --out, or repeat" in capsys.readouterr().err
        code = command(old, scheme, "--timing", "hlca")
    assert code == 0
    assert "is finished already" in capsys.readouterr().out
    assert (old / "model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_its_file_runs_it_again(old: Path, scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(old / "config.yaml")
    assert main(["pretrain", "--config", file, "--out", str(old)]) == 0
    assert "is finished already" in capsys.readouterr().out
    assert main(["pretrain", "--config", file, "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["timing"] == "hlca"
    code = main(["pretrain", "--config", file, "--timing", "sea-ad", "--print-config"])
    told = capsys.readouterr()
    if scheme == "dynamic":
        assert yaml.safe_load(told.out)["timing"] == "sea-ad"
    else:
        assert (code, "changes nothing for" in told.err) == (2, True)


def test_a_new_folder_keeps_its_own_timing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    mine = CellsConfig(data="x", preset="sea-ad", scheme="dynamic", timing="sea-ad")
    other = CellsConfig(data="x", preset="sea-ad", scheme="dynamic")
    (tmp_path / "run").mkdir()
    folder.claim(mine, "print", ratios_of(DOMAIN, mine))
    folder.check_config(mine, ratios_of(DOMAIN, mine))
    with pytest.raises(UserError, match="timing is 'sea-ad' there and 'hlca' here"):
        folder.check_config(other, ratios_of(DOMAIN, other))


def test_every_cell_may_have_a_ratio_of_its_own() -> None:
    for options in ({"scheme": "r2mae-per-sample"}, {"per": "sample", "sampling": "stratified"}, {"per": "sample"}):
        config = CellsConfig(data="x", **options)  # type: ignore[arg-type]
        ratio = scheme_of(config, TIMINGS["hlca"]).ratio
        assert (ratio.low, ratio.high, ratio.per) == (0.1, 0.5, "sample")  # type: ignore[attr-defined]
        assert config.idle_fields == {"timing"}


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
