"""The defaults that a run uses are in its help, in the printed configuration, and in its folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.printed import fields
from r2mae.cli.main import main
from r2mae.domains.lookup import get_domain
from r2mae.registry import DOMAINS

pytestmark = pytest.mark.slow

Run = Callable[[str], str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> str:
        try:
            code = main(line.split())
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return call


@pytest.mark.parametrize("command", ["pretrain", "compare"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_help_has_the_domains_numbers(run: Run, command: str, domain: str) -> None:
    told = " ".join(run(f"{command} {domain} --help-all").split())
    numbers = get_domain(domain).config.ratios
    whose = "" if numbers.not_in_paper else ", the paper's"
    assert f"Ratio of schemes that have one. (default: {numbers.ratio:g}{whose})" in told
    assert f"Lower end of the range of ratios. (default: {numbers.low:g}" in told
    assert f"Upper end of the range of ratios. (default: {numbers.high:g}{whose})" in told


def test_a_number_of_the_file_is_the_default_that_the_help_names(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("domain: images\ndata: digits\nlow: 0.4\n")
    told = " ".join(run("pretrain --config own.yaml --help").split())
    assert "Lower end of the range of ratios. (default: 0.4)" in told


def test_what_is_printed_and_kept_has_no_open_number(run: Run, tmp_path: Path) -> None:
    printed = fields(run("pretrain digits --scheme r2mae-cl --print-config"))["scheme"]
    assert None not in printed.values()
    assert (printed["low"], printed["high"], printed["cl_iterations"], printed["given"]) == (0.5, 0.9, 4, [])
    line = "pretrain digits --scheme fixed --epochs 1 --hidden 8 --latent 4 --threads 1 --out"
    run(f"{line} a")
    kept = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert kept["scheme"] == {"name": "fixed", "ratio": 0.7, "given": []}
    assert "finished already" in run(f"{line} a")
    assert "finished already" in run(f"{line} a --ratio 0.7")
    run("pretrain --config a/config.yaml --out b")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    assert (tmp_path / "a" / "metrics.csv").read_bytes() == (tmp_path / "b" / "metrics.csv").read_bytes()


def test_a_comparison_prints_no_scheme_beside_its_schemes(run: Run, tmp_path: Path) -> None:
    text = run("compare digits --schemes fixed dynamic --low 0.4 --print-config")
    printed = fields(text)
    assert "scheme" not in printed and "seed" not in printed
    assert printed["low"] == 0.4 and not {"ratio", "high", "decay_end"} & {*printed}
    (tmp_path / "c.yaml").write_text(text)
    assert run("compare --config c.yaml --print-config") == text


def test_defaults_of_a_finished_run_do_not_bind_another_scheme(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(run("pretrain digits --scheme r2mae --print-config"))
    (tmp_path / "own.yaml").write_text(run("pretrain digits --scheme r2mae --low 0.4 --print-config"))
    (tmp_path / "falling.yaml").write_text(run("pretrain digits --scheme dynamic --print-config"))

    def scheme(line: str) -> dict[str, Any]:
        return dict(fields(run(f"{line} --print-config"))["scheme"])

    assert scheme("pretrain --config run.yaml --scheme mdlm") == {
        "name": "mdlm", "sampling": "independent", "per": "batch", "given": []
    }  # fmt: skip
    same = scheme("pretrain --config run.yaml")
    assert (same["low"], same["high"], same["given"]) == (0.5, 0.9, [])
    kept = scheme("pretrain --config own.yaml --scheme dynamic")
    assert (kept["low"], kept["high"], kept["given"]) == (0.4, 0.9, ["low"])
    assert scheme("pretrain --config falling.yaml --decay-end 0.5")["given"] == ["decay_end"]
    assert scheme("pretrain --config run.yaml --model vit-mae")["low"] == 0.6  # the default of the model
    assert "low" not in fields(run("compare --config run.yaml --schemes mdlm --print-config"))


@pytest.mark.parametrize(
    ("text", "line", "options"),
    [
        ("ratio: 0.3\n", "--scheme fixed", {"ratio": 0.3}),
        ("scheme: fixed\nratio: 0.3\n", "--ratio 0.4", {"ratio": 0.4}),
        ("scheme: r2mae\nlow: 0.4\n", "", {"low": 0.4}),
    ],
)
def test_a_file_of_ones_own_names_options(
    run: Run, tmp_path: Path, text: str, line: str, options: dict[str, float]
) -> None:
    (tmp_path / "own.yaml").write_text(f"data: digits\n{text}")
    scheme = fields(run(f"pretrain --config own.yaml {line} --print-config"))["scheme"]
    assert {name: scheme[name] for name in scheme["given"]} == options
