"""What names the fields of a run: no source wins or loses in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.printed import fields
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.images.config import FinetuneConfig, ImagesConfig

Call = Callable[[str, str], tuple[int, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)

    def run(file: str, line: str) -> tuple[int, str]:
        Path("f.yaml").write_text(file, encoding="utf-8")
        code = main([*f"pretrain {line} --print-config".split()])
        shown = capsys.readouterr()
        return code, shown.err or shown.out

    return run


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("data: digits\n", "--config f.yaml mnist", "name the data before the options"),
        ("cls: 1\n", "digits --config f.yaml", "unknown field 'cls'"),
        ("optimizer: {seed: 5}\n", "digits --config f.yaml", "unknown field 'optimizer.seed': did you mean 'seed'?"),
        ("optimizer: {low: 0.3}\n", "digits --config f.yaml", "unknown field 'optimizer.low'"),
        ("optimizer: {domain: text}\n", "digits --config f.yaml", "unknown field 'optimizer.domain'"),
        ("model: {source: unet}\n", "digits --config f.yaml", "unknown field 'model.source'"),
        ("patience: 3\n", "digits --config f.yaml", "f.yaml: patience 3 needs a validation loss"),
        ("hidden: 64\n", "digits --config f.yaml --model unet", "f.yaml: hidden belongs to the model 'mlp'"),
        ("low: 0.3\n", "digits --config f.yaml --scheme fixed", "f.yaml: the scheme 'fixed' does not take 'low'"),
        (
            "scheme: {name: r2mae, strata: 8}\n",
            "digits --config f.yaml",
            "f.yaml: no scheme takes 'strata': choose from",
        ),
        ("model: unet\n", "digits --config f.yaml --model mlp --preset unet-8", "the model 'mlp' has no preset"),
        ("preset: tiny\n", "digits --config f.yaml", "f.yaml: unknown preset 'tiny': did you mean 'vit-mae-tiny'"),
        ("epochs: 3\n", "digits --config f.yaml --epochs -1", "r2mae: epochs must be"),
        ("scheme: mdlm\n", "digits --config f.yaml --low 0.1", "r2mae: the scheme 'mdlm' does not take 'low'"),
        ("model: unet\n", "digits --config f.yaml --hidden 3", "r2mae: hidden belongs to the model 'mlp'"),
        ("batch_size: 100\n", "digits --config f.yaml --accumulate 3", "r2mae: batch_size 100 does not split"),
        ("batch_size: 100\naccumulate: 3\n", "digits --config f.yaml --lr 1", "f.yaml: batch_size 100 does not split"),
        ("lr: x\n", "digits --config f.yaml --epochs -1", "f.yaml: lr takes a number, not 'x'"),
        ("bn_statistics: 1\n", "digits --config f.yaml", "f.yaml: bn_statistics takes one of yes, no, both, not 1"),
    ],
)
def test_mistakes_are_one_line(call: Call, file: str, line: str, message: str) -> None:
    code, told = call(file, line)
    assert code == 2 and message in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("preset: vit-mae-tiny\nlr: 0.003\n", "digits --config f.yaml", {"lr": 0.003, "base_lr": None}),
        ("preset: unet-8\n", "digits --config f.yaml --model mlp", {"preset": None, "lr": 0.003, "hidden": 512}),
        ("model: mlp\n", "digits --config f.yaml --preset vit-mae-tiny", {"preset": "vit-mae-tiny", "width": 192}),
        ("epochs: 3\n", "digits --config f.yaml --model vit-mae --model.layers 2", {"layers": 2}),
        ("scheme: {name: r2mae, low: 0.3}\n", "digits --config f.yaml", {"scheme": "r2mae"}),
        ("model.mask_input: true\n", "digits --config f.yaml", {"mask_input": True}),
        ("epochs: 3\n", "digits --config f.yaml --mask-input", {"mask_input": True, "epochs": 3}),
        ("patience: 3\n", "digits --config f.yaml --validation 0.1", {"patience": 3, "validation": 0.1}),
        ("model: unet\n", "digits --config f.yaml --preset mlp-16-64", {"model": "mlp", "hidden": 16}),
        ("preset: unet-8\n", "digits --config f.yaml --preset null", {"preset": None, "model": "mlp", "lr": 0.003}),
        ("preset: vit-mae-tiny\n", "digits --config f.yaml --preset mlp-16-64", {"model": "mlp", "base_lr": None}),
        ("layers: 2\n", "digits --config f.yaml --model vit-mae", {"layers": 2}),
        ("lr: 1e-4\nlow: 3e-1\n", "digits --config f.yaml", {"lr": 1e-4, "low": 0.3}),  # which YAML reads as text
        ("bn_statistics: no\n", "digits --config f.yaml", {"bn_statistics": "no"}),  # which YAML reads as false
    ],
)
def test_the_later_source_wins(call: Call, file: str, line: str, expected: dict[str, Any]) -> None:
    code, told = call(file, line)
    assert code == 0, told
    found = fields(told)
    if isinstance(found["scheme"], dict):
        found |= found["scheme"] | {"scheme": found["scheme"]["name"]}
    assert {name: found[name] for name in expected} == expected
    if "low" in file:
        assert found["low"] == 0.3


def test_a_comparison_refuses_an_unknown_scheme_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text("scheme: x\n", encoding="utf-8")
    assert main(["compare", "digits", "--config", "f.yaml", "--print-config"]) == 2
    assert "f.yaml: unknown scheme 'x'" in capsys.readouterr().err


def test_a_rate_replaces_the_other_kind_of_rate() -> None:
    base = ImagesConfig.make(data="digits", base_lr=0.1)
    assert base.replace(lr=3e-3).optimizer.peak_lr == 3e-3
    assert base.replace(lr=0.5).replace(base_lr=0.2).optimizer.peak_lr == 0.1
    assert FinetuneConfig.make(data="digits", run="x", lr=0.01).optimizer.peak_lr == 0.01
    with pytest.raises(UserError, match="exclude each other"):
        ImagesConfig.make(data="digits", lr=0.5, base_lr=0.2)


@pytest.mark.parametrize("words", ["--epochs 2 --steps 5", "--config steps.yaml --epochs 2"])
def test_epochs_beside_steps_are_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("steps.yaml").write_text("steps: 5\n")
    assert main(["pretrain", "images", "digits", *words.split(), "--out", "run"]) == 2
    assert "epochs has no effect, as steps is 5: omit it, or add --steps null" in capsys.readouterr().err
    assert main(["pretrain", "images", "digits", *words.split(), "--steps", "null", "--print-config"]) == 0
    assert not Path("run").exists()
