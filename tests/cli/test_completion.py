"""Completion: each command knows its own options and their values."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from r2mae.cli.commands import COMMANDS, SEPARATE
from r2mae.cli.main import main
from r2mae.domains.lookup import public_sets
from r2mae.images.models import MODELS as IMAGE_MODELS
from r2mae.images.sets import SETS
from r2mae.masking.schemes import scheme_names
from r2mae.registry import DOMAINS

FIRST = {name.split()[0] for name in (*COMMANDS, *SEPARATE)}
FILES = {"here.npz", "run/", "text/"}
LINES: dict[str, set[str]] = {
    "": {*FIRST, "finetune", "score-variants"},
    "pre": {"pretrain"},
    "--": {"--help", "--version"},
    "pretrain dig": {"digits"},
    "pretrain ": {*DOMAINS, *public_sets(), *FILES},
    "pretrain images ": {*SETS, *FILES},
    "pretrain digits --scheme r2mae-c": {"r2mae-cl", "r2mae-cl-k0"},
    "pretrain digits --scheme ": set(scheme_names()),
    "pretrain digits --batch-s": {"--batch-size"},
    "pretrain digits --pri": {"--print-config"},
    "pretrain digits --preset mlp-16-6": {"mlp-16-64"},
    "pretrain cells --preset sm": {"small"},
    "pretrain digits --model ": set(IMAGE_MODELS),
    "pretrain digits --model vit-mae --model.lay": {"--model.layers"},
    "pretrain cells --mod": {"--model", "--model.n-hidden", "--model.n-latent", "--model.norm"},
    "pretrain digits --optimizer ": {"adam", "adamw", "sgd"},
    "pretrain digits --cache ": {"auto", "memory", "mmap", "none"},
    "pretrain digits --exact ": {"true", "false"},
    "pretrain digits --lr ": set(),
    "pretrain digits --config ": FILES,
    "pretrain digits --lay": set(),
    "pretrain text --lay": {"--layers"},
    "pretrain csle --lay": {"--layer"},
    "pretrain none.npz --lay": set(),
    "pretrain text x.txt --glue sst2 qn": {"qnli"},
    "compare digits --sche": {"--schedule", "--schemes"},
    "compare digits --schemes fixed cl-": {"cl-k0"},
    "compare digits --schemes fixed --jobs ": set(),
    "evaluate run --bn": {"--bn-statistics"},
    "evaluate run --bn-statistics ": {"yes", "no", "both"},
    "evaluate text gl": {"glue"},
    "evaluate text glue --task sst2 qn": {"qnli"},
    "evaluate text glue --probe sst2 qn": {"qnli"},
    "embed run digi": set(),
    "embed run here.npz -o he": {"here.npz"},
    "export run --to ": {"transformers", "timm", "mae"},
    "export run -o he": {"here.npz"},
    "pretrain digits --init he": {"here.npz"},
    "data ": {"list", "fetch", "path", "alignment", *public_sets()},
    "data alignment ": {"build", "info", "track", "export"},
    "data alignment build he": {"here.npz"},
    "data fetch mn": {"mnist"},
    "report he": {"here.npz"},
    "completion ": {"bash", "zsh"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file and two runs."""
    monkeypatch.chdir(tmp_path)
    Path("here.npz").touch()
    for name, domain in (("run", "images"), ("text", "text")):
        Path(name).mkdir()
        Path(name, "config.yaml").write_text(f"domain: {domain}\ndata: {{source: here.npz}}\n")
    return tmp_path


_EACH = """
import json, os, sys
from io import StringIO
from r2mae.cli.completion import answer_shell
for line in sys.argv[1:]:
    os.environ |= {"_ARGCOMPLETE": "1", "COMP_LINE": f"r2mae {line}", "COMP_POINT": str(len(line) + 6)}
    found = StringIO()
    answer_shell(exit_method=lambda code: None, output_stream=found)
    print(json.dumps([word.strip() for word in found.getvalue().split("\\013") if word]))
"""


@pytest.fixture
def found(folder: Path) -> dict[str, set[str]]:
    """The completions of every line, found in a process of its own: argcomplete takes file descriptors."""
    done = subprocess.run([sys.executable, "-c", _EACH, *LINES], capture_output=True, text=True, check=True)
    return dict(zip(LINES, (set(json.loads(line)) for line in done.stdout.splitlines()), strict=True))


def test_every_command_completes_its_own_options_and_values(found: dict[str, set[str]]) -> None:
    assert {line: words for line, words in found.items() if words != LINES[line]} == {}


def test_bash_completes(folder: Path) -> None:
    """The script works in a real shell, on a command line of its own."""
    command = folder / "bin" / "r2mae"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m r2mae "$@"\n')
    command.chmod(0o755)
    script = """
source <(r2mae completion bash)
COMP_LINE="r2mae pretrain digits --scheme r2mae-c"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
COMP_WORDS=($COMP_LINE); COMP_CWORD=4
_python_argcomplete r2mae
echo "${COMPREPLY[@]}"
"""
    path = f"{command.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout.split() == ["r2mae-cl", "r2mae-cl-k0"], done.stderr


def test_zsh_and_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "compdef" in capsys.readouterr().out
    assert main(["completion", "bsh"]) == 2
    assert "SHELL takes one of bash, zsh, not 'bsh'" in capsys.readouterr().err
