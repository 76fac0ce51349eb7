"""What is told before any heavy library is loaded."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HEAVY = ("torch", "lightning", "transformers", "anndata", "sklearn", "matplotlib")
LINES = {
    "pretrain images none.npz": "none.npz: no such file or folder",
    "pretrain images minst": "did you mean 'mnist'?",
    "pretrain cells none.h5ad": "none.h5ad does not exist",
    "pretrain text none.txt": "none.txt does not exist",
    "pretrain digits --logger wandb": "needs the package wandb",
    "compare images none.npz": "none.npz: no such file or folder",
    "compare cells none.h5ad": "none.h5ad does not exist",
    "evaluate none": "there is no run folder none",
    "finetune none": "there is no run folder none",
    "evaluate run --data none.npz": "none.npz: no such file or folder",
    "evaluate run": "gone.npz: no such file or folder",
    "embed none digits": "there is no run folder none",
    "embed run none.npz": "none.npz: no such file or folder",
    "report none": "there is no folder none",
}
_PROBE = """
import sys
sys.modules["wandb"] = None  # hidden, where it is installed
from r2mae.cli.main import main
for line in sys.argv[1].split(";"):
    code = main(line.split())
    print(code, *[name for name in %r if name in sys.modules], flush=True)
    sys.stderr.flush()
"""


def test_mistakes_are_told_before_heavy_libraries_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("domain: images\ndata: {source: gone.npz}\n")
    lines = [*LINES]
    done = subprocess.run(
        [sys.executable, "-c", _PROBE % (HEAVY,), ";".join(lines)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if line[0] == "2" and line[1:].strip() in ("", *HEAVY)]
    assert told == ["2"] * len(lines), done.stdout
    for line in lines:
        assert LINES[line] in done.stderr + done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "images", "digits", "--steps", "1", "--out", "run"],
        ["compare", "digits", "--steps", "1", "--out", "runs"],
    ],
)
def test_a_terminal_hears_of_the_command_before_torch_is_there(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os, time\ntime.sleep(1)\nos.write(2, b'TORCH')\nos._exit(7)\n")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "r2mae", *words],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "TERM": "xterm"},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    told = b""
    with suppress(OSError):  # which a terminal's end is
        while piece := os.read(ours, 1 << 12):
            told += piece
    os.close(ours)
    assert process.wait(timeout=60) == 7, told
    before, torch, _ = told.partition(b"TORCH")
    assert torch
    assert b"loading" in before


@pytest.mark.parametrize("launched", [False, True])
def test_the_first_line_of_a_run_comes_before_torch_is_loaded(tmp_path: Path, launched: bool) -> None:
    """Once: of the processes of a run, the command that starts them says it."""
    code = "import sys; sys.modules['torch'] = None; from r2mae.cli.main import main; sys.exit(main(sys.argv[1:]))"
    line = [sys.executable, "-c", code, "pretrain", "digits", "--seed", "3", "--out", str(tmp_path / "a")]
    environment = {**os.environ, **({"R2MAE_LAUNCHED": "1"} if launched else {})}
    done = subprocess.run(line, check=False, capture_output=True, text=True, env=environment)
    assert done.stdout == ("" if launched else f"digits, r2mae: model mlp, seed 3, in {tmp_path / 'a'}\n")
    assert done.returncode == 2 and "torch" in done.stderr
