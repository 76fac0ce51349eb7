"""Schemes of other packages, found by their entry points."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.compare.measure import check_scheme, train_run
from r2mae.errors import UserError, warn_once
from r2mae.masking import Fixed, Scheme, SchemeDefaults, make_scheme, register, scheme_names, schemes

DEFAULTS = SchemeDefaults(ratio=0.7, low=0.5, high=0.9)
WIDE = """
from r2mae.masking import Scheme, Uniform, register

@register("r2mae-wide")
def r2mae_wide(low):
    \"\"\"p ~ U(low, 1).\"\"\"
    return Scheme("r2mae-wide", Uniform(low, 1.0))
"""
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution on the path: a module, and an entry point to it."""

    def create(name: str, module: str, code: str) -> None:
        site = tmp_path / module
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[r2mae.schemes]\n{name} = {module}\n", encoding="utf-8")
        (site / f"{module}.py").write_text(code, encoding="utf-8")
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, module, raising=False)

    monkeypatch.setattr(schemes, "_REGISTRY", dict(schemes._REGISTRY))
    monkeypatch.setattr(schemes, "_PLUGINS", set())
    warn_once.cache_clear()
    return create


def test_a_plugin_is_imported_when_it_is_named(install: Install) -> None:
    before = scheme_names()
    install("r2mae-wide", "wide_when_named", WIDE)
    assert make_scheme("r2mae", DEFAULTS).ends == (0.5, 0.9)
    assert "wide_when_named" not in sys.modules
    assert make_scheme("r2mae-wide", DEFAULTS, low=0.6).ends == (0.6, 1.0)
    assert scheme_names() == [*before, "r2mae-wide"]


def test_a_plugin_is_imported_when_all_schemes_are_listed(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("r2mae-wide", "wide_when_listed", WIDE)
    assert scheme_names()[-1] == "r2mae-wide"
    assert main(["pretrain", "digits", "--scheme", "r2mae-wide", "--low", "0.6", "--print-config"]) == 0
    assert "name: r2mae-wide" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["compare", "digits", "--help"])
    assert "r2mae-wide" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_of_the_kind", r"cannot be loaded \(ModuleNotFoundError: .*\): repair or uninstall broken"),
        ("1 / 0", r"cannot be loaded \(ZeroDivisionError: division by zero\)"),
        ("", "'lost' of broken_.* is not registered by broken_"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_logged_once(
    install: Install, caplog: pytest.LogCaptureFixture, code: str, message: str
) -> None:
    install("lost", f"broken_{abs(hash(code))}", code)
    with pytest.raises(ValueError, match=message):
        make_scheme("lost", DEFAULTS)
    with caplog.at_level(logging.WARNING, "r2mae"):
        assert "lost" not in scheme_names()
        assert "r2mae" in scheme_names()
    assert len(caplog.records) == 1


def test_a_plugin_cannot_replace_a_scheme_of_the_paper(install: Install) -> None:
    install("r2mae", "another_r2mae", "raise SystemExit")
    assert make_scheme("r2mae", DEFAULTS).ends == (0.5, 0.9)
    assert scheme_names().index("r2mae") < len(scheme_names()) - 1


def test_entry_points_are_not_read_for_schemes_of_the_paper() -> None:
    code = (
        "import r2mae.registry as registry\n"
        "from r2mae.masking import scheme_kind, SchemeDefaults, make_scheme\n"
        "registry._external_entries = None\n"
        "make_scheme('r2mae', SchemeDefaults(ratio=0.7, low=0.5, high=0.9))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_the_processes_of_a_comparison_know_a_plugin(install: Install, tmp_path: Path) -> None:
    install("r2mae-wide", "wide_in_processes", WIDE)
    out = tmp_path / "runs"
    words = "compare digits --schemes r2mae-wide --seeds 2 --steps 2 --hidden 8 --latent 4 --baselines none --jobs 1"
    assert main([*words.split(), "--out", str(out)]) == 0
    assert "r2mae-wide" in (out / "results.csv").read_text(encoding="utf-8")


def test_a_process_reports_a_scheme_that_it_does_not_know(install: Install, tmp_path: Path) -> None:
    """As in a notebook, whose schemes new processes do not know."""
    with pytest.raises(UserError, match=r"unknown scheme 'noted': .* \(processes of a comparison know"):
        train_run("images", {"data": "digits", "scheme": {"name": "noted", "given": []}}, tmp_path, None, None)
    register("noted")(lambda: Scheme("noted", Fixed(0.5)))
    check_scheme("noted")
