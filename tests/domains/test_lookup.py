"""Domains by name: built in, and of other packages through entry points."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import r2mae
from r2mae.cli.main import main
from r2mae.domains.base import Domain
from r2mae.domains.lookup import all_domains, domain_of, get_domain, public_sets
from r2mae.domains.sources import find_layers
from r2mae.errors import UserError, warn_once
from r2mae.registry import BUILT_IN, DOMAIN_COMMANDS, DOMAINS, package_of

DOMAIN = """
from dataclasses import dataclass
from typing import ClassVar

from r2mae.evaluation import Metric
from r2mae.masking import SchemeDefaults
from r2mae.training import RunConfig
from r2mae.domains import lookup
from r2mae.domains.base import Domain


@dataclass(frozen=True, kw_only=True)
class Config(RunConfig):
    domain: ClassVar[str] = "waves"
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(ratio=0.5, low=0.2, high=0.8, not_in_paper=True)


class Waves(Domain):
    name = "waves"
    title = "Waves"
    config = Config

    def metrics_of(self, config):
        return (Metric("score", "score"),)

    def fingerprint(self, config):
        return "waves"

    load = build = evaluate = embed = fingerprint


DOMAIN = Waves()
"""
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution on the path: a module, and an entry point to it."""

    def put(name: str, target: str, code: str) -> None:
        module = target.split(":", maxsplit=1)[0]
        site = tmp_path / module
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[r2mae.domains]\n{name} = {target}\n", encoding="utf-8")
        (site / f"{module}.py").write_text(code, encoding="utf-8")
        monkeypatch.syspath_prepend(site)

    warn_once.cache_clear()
    return put


def test_a_domain_of_another_package(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    assert "waves" not in DOMAINS
    install("waves", "waves_of_another:DOMAIN", DOMAIN)
    assert list(DOMAINS) == [*BUILT_IN, "waves"]
    assert package_of("waves") == "waves_of_another"
    assert get_domain("waves") in all_domains()
    assert main(["pretrain", "waves", "sea.wav", "--print-config"]) == 0
    assert "domain: waves" in capsys.readouterr().out


BROKEN = {
    "no_such_object": ("waves", "no_such_object:WAVES", "", "cannot be loaded (AttributeError: "),
    "raises": ("waves", "raises:DOMAIN", "1 / 0", "cannot be loaded (ZeroDivisionError: "),
    "lacks": ("waves", "lacks:DOMAIN", "import no_such_library", "no_such_library"),
    "module_alone": ("waves", "module_alone", "", "names a module alone: write module_alone:OBJECT"),
    "old": ("waves", "old:DOMAIN", "class DOMAIN: name = 'waves'", "inherits from r2mae.domains.base.Domain"),
}


COMMAND = """
from r2mae.domains.options import Command, CommandLine

Waves.command_line = CommandLine(commands={"listen": Command("waves:listen")})
"""
BROKEN["presets"] = ("waves", "moved:DOMAIN", DOMAIN + "\nWaves.presets = {}\n", "presets belong to the class of its c")
BROKEN["commands"] = ("waves", "commands:DOMAIN", DOMAIN + COMMAND, "of commands declares the command 'listen'")


@pytest.mark.parametrize(("name", "target", "code", "told"), BROKEN.values(), ids=BROKEN)
def test_a_broken_domain_costs_one_line(
    install: Install,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    name: str,
    target: str,
    code: str,
    told: str,
) -> None:
    install(name, target, code)
    with pytest.raises(UserError) as error:
        get_domain(name)
    line = str(error.value)
    assert told in line
    assert target.split(":", maxsplit=1)[0] in line
    assert "\n" not in line
    assert main(["pretrain", name, "sea.wav"]) == 2
    assert (capsys.readouterr().err, caplog.records) == (f"r2mae: {line}\n", [])
    with caplog.at_level(logging.WARNING, logger="r2mae"):
        assert [domain.name for domain in all_domains()] == list(BUILT_IN)
        assert public_sets()
    assert [record.getMessage() for record in caplog.records] == [line]  # once, though asked for twice


def test_a_built_in_name_wins(install: Install) -> None:
    install("images", "other_images:DOMAIN", DOMAIN)
    assert DOMAINS["images"] == BUILT_IN["images"]
    assert list(DOMAINS) == list(BUILT_IN)


def test_entry_points_are_not_read_for_built_in_domains() -> None:
    code = (
        "import r2mae.registry as registry\n"
        "from r2mae.domains.lookup import get_domain, domain_of\n"
        "registry._external_entries = None\n"
        "assert get_domain('images').name == domain_of('digits') == 'images'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_listed_commands_are_those_of_the_domains() -> None:
    declared = {(name, domain.name) for domain in all_domains() for name in domain.command_line.commands}
    assert declared == {(name, domain) for name, (domain, _) in DOMAIN_COMMANDS.items()}


def test_domains_of_sets() -> None:
    assert {name: domain_of(name) for name in public_sets()} == {n: entry.domain for n, entry in public_sets().items()}


def test_the_defaults_are_those_of_a_domain() -> None:
    domain = Domain()
    assert domain.examples(None, None, None, None) is None  # type: ignore[arg-type]
    assert [*domain.exporters] == [".npz"]
    assert domain.check(None) is None  # type: ignore[func-returns-value]


@pytest.mark.slow
def test_a_run_is_loaded_under_every_name(tmp_path: Path) -> None:
    from r2mae.front import PretrainedRun, load
    from r2mae.images.config import ImagesConfig
    from r2mae.training import fit

    fit(
        ImagesConfig.make(data="digits", steps=1, hidden=4, latent=2, threads=1), get_domain("images"), tmp_path / "run"
    )
    for function in (r2mae.load, load):
        loaded = function(tmp_path / "run")
        assert isinstance(loaded, PretrainedRun)
        assert loaded.config.data.source == "digits"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.yaml").write_text("domain: sounds\n", encoding="utf-8")
    with pytest.raises(UserError, match="names no domain of this version"):
        r2mae.load(tmp_path / "other")
    assert {"load", "__version__"} <= set(dir(r2mae))


def test_presets_belong_to_models() -> None:
    for domain in all_domains():
        models = list(domain.config.models)
        for preset in domain.presets:
            own = domain.config.model_of(preset)
            assert own is None or own in models
            for model in models:
                try:
                    find_layers(domain, None, None, {}, preset, model)
                    assert own in (None, model)
                except UserError as error:
                    assert own != model and f"the model {model!r} has no preset {preset!r}: " in str(error)


def test_a_preset_that_says_nothing_of_models_fits_all(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = get_domain("images")
    monkeypatch.setattr(domain.config, "presets", {"slow": {"epochs": 900.0}})
    for model in domain.config.models:
        find_layers(domain, None, None, {}, "slow", model)
    monkeypatch.setattr(domain.config, "presets", {"mlp-8": {"hidden": 8}})
    with pytest.raises(UserError, match="the model 'unet' has no preset 'mlp-8': omit preset"):
        find_layers(domain, None, None, {}, "mlp-8", "unet")


def test_methods_of_a_domain_may_be_static_or_of_the_class() -> None:
    class Own(Domain):
        load = staticmethod(lambda config: config)
        embed = classmethod(lambda cls, config: (cls, config))

    assert (Own().load(3), Own().embed(4)) == (3, (Own, 4))


def test_a_broken_package_of_baselines_costs_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {"median": ("no_such_module_of_baselines", "medians")}
    monkeypatch.setattr("r2mae.domains.baselines.external_baselines", lambda: entries)
    images = get_domain("images")
    config = images.config.make(data="digits")
    assert "untrained" in images.baselines_of(config)
    with pytest.raises(UserError, match="unknown baseline 'median'"):
        images.baseline(config, "median")
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "the baseline 'median' of medians cannot be loaded"
    ]
