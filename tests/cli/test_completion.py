"""Completion in a real bash: each command knows its own options and their values."""

import subprocess
from pathlib import Path

import pytest

from r2mae.cli.main import COMMANDS, SEPARATE, main
from r2mae.cli.theory import SUBCOMMANDS
from r2mae.cli.theory_model import MODELS
from r2mae.domains.lookup import public_sets
from r2mae.images.models import MODELS as IMAGE_MODELS
from r2mae.images.sets import SETS
from r2mae.masking.schemes import scheme_names
from r2mae.registry import DOMAINS

LINES: dict[str, set[str]] = {
    "": {*COMMANDS, *SEPARATE, "finetune", "logits", "score-variants"},
    "pre": {"pretrain"},
    "-": {"--help", "--version"},
    "pretrain dig": {"digits"},
    "pretrain ": {*DOMAINS, *public_sets(), "here.npz"},
    "pretrain images ": {*SETS, "here.npz"},
    "pretrain digits --scheme r2mae-c": {"r2mae-cl", "r2mae-cl-k0"},
    "pretrain digits --scheme = r2mae-c": {"r2mae-cl", "r2mae-cl-k0"},
    "pretrain digits --batch-s": {"--batch-size"},
    "pretrain digits --batch_s": set(),
    "pretrain digits --pri": {"--print-config"},
    "pretrain digits --preset mlp-16-6": {"mlp-16-64"},
    "pretrain cells --preset sm": {"small"},
    "pretrain digits --model ": set(IMAGE_MODELS),
    "pretrain cells --mod": {"--model"},
    "pretrain digits --optimizer ": {"adam", "adamw", "lars", "sgd"},
    "pretrain digits --resize-mode ": {"squash", "crop"},
    "pretrain digits --exact ": {"true", "false"},
    "pretrain digits --lr ": set(),
    "pretrain digits --config ": {"here.npz"},
    "pretrain digits --lay": set(),
    "pretrain text --lay": {"--layers"},
    "pretrain csle --lay": {"--layer"},
    "pretrain --lay": set(),
    "pretrain --sch": {"--schedule", "--scheme", "--scheme-options"},
    "compare digits --sche": {"--schedule", "--scheme-options", "--schemes"},
    "compare digits --schemes fixed cl-": {"cl-k0"},
    "compare digits --schemes fixed --jobs ": set(),
    "evaluate --l": {"--label", "--layer", "--limit"},
    "evaluate --probe ": {"head", "logistic"},
    "evaluate run gl": {"glue", "glue-probe"},
    "evaluate run --task sst2 qn": {"qnli"},
    "embed run digi": {"digits"},
    "embed run digits -o he": {"here.npz"},
    "export run --to ": {"transformers", "timm", "mae"},
    "export run --enc": {"--encoder"},
    "export run -o he": {"here.npz"},
    "pretrain digits --init he": {"here.npz"},
    "theory ": set(SUBCOMMANDS),
    "theory risk --model ": set(MODELS),
    "theory risk --cos": {"--cosine"},
    "theory advise --cos": set(),
    "theory advise wik": set(),
    "data ": {"list", "fetch", "path", "verify", "alignment"},
    "data alignment ": {"build", "info", "track", "export", "import"},
    "data alignment build he": {"here.npz"},
    "data fetch mn": {"mnist"},
    "data list ": set(),
    "runs he": {"here.npz"},
    "completion ": {"bash", "zsh"},
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a script that completes a line of each of its arguments, in a folder with one file."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "data").mkdir()
    (folder / "data" / "here.npz").touch()
    with pytest.MonkeyPatch.context() as patch:
        told: list[str] = []
        patch.setattr("builtins.print", lambda text, end="\n": told.append(text))
        assert main(["completion", "bash"]) == 0
    ending = """
cd "$1"; shift
for line in "$@"; do
    COMP_WORDS=(r2mae $line); case "$line" in *" " | "") COMP_WORDS+=("") ;; esac
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _r2mae; echo "${COMPREPLY[@]}"
done
"""
    file = folder / "complete.sh"
    file.write_text("".join(told) + ending)
    return file


def test_every_command_completes_its_own_options_and_values(script: Path) -> None:
    done = subprocess.run(
        ["bash", "-u", str(script), str(script.parent / "data"), *LINES], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    found = dict(zip(LINES, (set(line.split()) for line in done.stdout.split("\n")), strict=False))
    assert found == LINES


def test_every_scheme_is_offered(script: Path) -> None:
    done = subprocess.run(
        ["bash", str(script), str(script.parent / "data"), "pretrain digits --scheme "],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == set(scheme_names())


def test_zsh_and_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert main(["completion", "bsh"]) == 2
    assert "did you mean 'bash'" in capsys.readouterr().err
