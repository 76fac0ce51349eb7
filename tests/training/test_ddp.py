"""Two processes do what one does, and end together."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit
from r2mae.training.pretraining import pretrain

from .conftest import InterruptAt, Interrupted, ToyConfig, ToyDomain

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("ddp.py")


RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mdlm, average": {"scheme": "mdlm", "ema": 0.9, "schedule": "cosine"},
    "curriculum, accumulation, clipping": {"scheme": "r2mae-cl", "accumulate": 2, "clip": 0.5},
    "per sample, validation": {"per": "sample", "validation": 0.2, "validate_every": 5},
    "spread, accumulation": {"scheme": "r2mae-per-sample", "accumulate": 2},
    "batches that draw": {"dimmed": True, "accumulate": 2},
}


def train(runs: dict[Path, dict[str, Any]], launcher: Sequence[str] = (sys.executable,)) -> None:
    """Train with two processes, one run after the other."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    words = [word for out, options in runs.items() for word in (str(out), json.dumps({"devices": 2, **options}))]
    done = subprocess.run(
        [*launcher, str(SCRIPT), *words], check=False, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Do all runs with the same two processes of torchrun, which take long to start."""
    folder = tmp_path_factory.mktemp("pairs")
    found = {name: folder / str(place) for place, name in enumerate(RUNS)}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    train({found[name]: {"steps": 20, **options} for name, options in RUNS.items()}, [sys.executable, *torchrun])
    return found


@pytest.mark.parametrize("name", list(RUNS))
def test_two_processes_of_torchrun_equal_one(
    tmp_path: Path,
    domain: ToyDomain,
    name: str,
    pairs: dict[str, Path],
    weights_of: Callable[[Path], dict[str, torch.Tensor]],
) -> None:
    options, pair = RUNS[name], pairs[name]
    fit(ToyConfig.make(steps=20, threads=1, **options), domain, tmp_path / "one")
    one, two = (pd.read_csv(path / "metrics.csv") for path in (tmp_path / "one", pair))
    assert two["step"].tolist() == one["step"].tolist()
    if options.get("per") != "sample":  # there the file tells the mean of the first rank's ratios
        assert two["ratio"].tolist() == one["ratio"].tolist()
    assert two["loss"].to_numpy() == pytest.approx(one["loss"].to_numpy(), rel=1e-5)
    weights = weights_of(pair)
    for name, value in weights_of(tmp_path / "one").items():
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-4)


def test_two_processes_go_on_where_one_was_cut_off(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=20, threads=1), domain, tmp_path / "one")
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(steps=20, threads=1), domain, tmp_path / "two", reporter=InterruptAt(14))
    train({tmp_path / "two": {"steps": 20}})
    one, two = (pd.read_csv(tmp_path / name / "metrics.csv") for name in ("one", "two"))
    assert two["loss"].to_numpy() == pytest.approx(one["loss"].to_numpy(), rel=1e-5)
    assert RunFolder(tmp_path / "two").trained


def test_the_command_line_with_batch_norm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With batch statistics the losses differ, but not ratios, masks and order."""
    words = ["pretrain", "digits", "--steps", "8", "--hidden", "16", "--threads", "1"]
    line = [sys.executable, "-m", "r2mae", *words, "--devices", "2", "--out", str(tmp_path / "2")]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(line, check=False, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert main([*words, "--out", str(tmp_path / "1")]) == 0
    for told in (done.stdout, capfd.readouterr().out):
        assert told.count("linear probe accuracy") == 1
    one, two = (pd.read_csv(tmp_path / devices / "metrics.csv") for devices in ("1", "2"))
    assert one["ratio"].tolist() == two["ratio"].tolist()
    assert one["loss"].to_numpy() == pytest.approx(two["loss"].to_numpy(), rel=0.2)


def test_batches_must_divide() -> None:
    with pytest.raises(UserError, match="does not split among 3 devices"):
        ToyConfig.make(batch_size=20, devices=3)
    with pytest.raises(UserError, match="needs two images"):
        ImagesConfig.make(data="digits", batch_size=4, devices=4)


def test_tasks_of_slurm_on_one_device_are_runs_of_their_own(
    tmp_path: Path, domain: ToyDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_JOB_ID", "7"), ("SLURM_JOB_NAME", "x")):
        monkeypatch.setenv(name, value)
    fit(ToyConfig.make(steps=3), domain, tmp_path)
    assert RunFolder(tmp_path).trained


@pytest.mark.parametrize(
    ("around", "options", "told"),
    [
        ({"R2MAE_TEST_EXIT": "1"}, {}, "process 2 of 2 (rank 1) ended with exit code 3; rerun the same command"),
        ({}, {"killed_at": 10}, "process 1 of 2 (rank 0) was ended by SIGKILL (out of memory?); rerun the same"),
    ],
)
def test_when_one_process_ends_all_do_with_one_line(
    tmp_path: Path, around: dict[str, str], options: dict[str, int], told: str
) -> None:
    """The other process holds the pipe of standard error as long as it lives, so that this would wait for it."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **around}
    line = [sys.executable, str(SCRIPT), str(tmp_path), json.dumps({"steps": 100_000, "devices": 2, **options})]
    done = subprocess.run(line, check=False, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("r2mae: ")]
    assert len(ours) == 1, done.stderr
    assert ours[0].startswith(f"r2mae: {told}")
    assert "Traceback" not in done.stderr


def running(folder: Path) -> list[int]:
    """Return the processes that have a folder in their command."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in command.read_bytes():
                found.append(int(command.parent.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("number", "code", "told"),
    [
        (signal.SIGINT, 130, "r2mae: stopping after this step"),
        (signal.SIGTERM, 143, "r2mae: stopping after this step"),
        (signal.SIGKILL, -9, "r2mae: stopping after this step"),
    ],
)
def test_a_signal_to_the_command_saves_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals, code: int, told: str
) -> None:
    out = tmp_path / "run"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, str(SCRIPT), str(out), json.dumps({"steps": 100_000, "devices": 2, "save_every": 5})]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment) as command:
        until = time.monotonic() + 200
        while not RunFolder(out).checkpoint.exists():
            assert time.monotonic() < until
            assert command.poll() is None
            time.sleep(0.05)
        command.send_signal(number)
        _, text = command.communicate(timeout=100)  # waits for all that hold the pipe
    assert command.returncode == code, text
    assert next(said for said in text.splitlines() if said.startswith("r2mae: ")).startswith(told)
    assert text.count("r2mae: ") == 1, text
    assert "Traceback" not in text
    assert not running(tmp_path)
    steps = read_checkpoint(RunFolder(out).checkpoint)["r2mae_step"]
    assert steps == len(pd.read_csv(out / "metrics.csv"))


def test_a_script_without_torchrun_is_told_of_it(tmp_path: Path) -> None:
    config = ImagesConfig.make(data="digits", steps=2, devices=2, threads=1, device="cpu")
    with pytest.raises(UserError, match=r"torchrun --nproc-per-node 2 SCRIPT\.py"):
        pretrain(config, DOMAIN, tmp_path / "run")


def test_a_script_of_torchrun_has_the_results_in_every_process(tmp_path: Path) -> None:
    """A failed measurement ends the call in both; the script measures again. Started again, they have no group."""
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, pathlib\n"
        "from r2mae.errors import UserError\n"
        "from r2mae.images import ImagesConfig\n"
        "from r2mae.images.domain import ImagesDomain\n"
        "from r2mae.training.pretraining import pretrain\n"
        "class Failing(ImagesDomain):\n"
        "    left = 1\n"
        "    def evaluate(self, *arguments, **options):\n"
        "        Failing.left -= 1\n"
        "        if Failing.left >= 0: raise UserError('no scores')\n"
        "        return super().evaluate(*arguments, **options)\n"
        "out = pathlib.Path(__file__).parent\n"
        'config = ImagesConfig.make(data="digits", steps=2, devices=2, threads=1, device="cpu")\n'
        "said = []\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        fitted, results = pretrain(config, Failing(), out / 'run')\n"
        "        assert fitted.folder.trained\n"
        "        said.append(results)\n"
        "    except UserError as error: said.append(str(error))\n"
        "(out / f\"{os.environ['RANK']}.json\").write_text(json.dumps(said))\n"
    )
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        done = subprocess.run(line, check=False, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
        assert first[0] == "no scores"
        assert second[0].startswith("the first process of this run could not measure the model")
        assert first[1] == second[1] == RunFolder(tmp_path / "run").results
        RunFolder(tmp_path / "run").results_file.unlink()
