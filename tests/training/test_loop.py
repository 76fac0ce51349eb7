import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.training import loop
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.loop import fit, keyed_torch
from r2mae.training.pretraining import pretrain
from r2mae.training.saving import load_model

from .conftest import NEEDS_BF16, InterruptAt, Interrupted, ToyConfig, ToyDomain, equal_bytes

pytestmark = pytest.mark.slow

VARIANTS: list[Any] = [
    {},
    {"workers": 2},
    {"accumulate": 4, "clip": 0.1},
    {"dropout": 0.5, "scheme": "mdlm"},
    {"scheme": "r2mae-cl", "accumulate": 2},
    {"scheme": "r2mae-dynamic", "validation": 0.2, "validate_every": 3, "optimizer": "adamw", "weight_decay": 0.1},
    {"per": "sample", "weighting": "sum"},
    {"schedule": "cosine", "warmup": 0.2, "ema": 0.9, "accumulate": 2},
    pytest.param(
        {"precision": "bf16", "clip": 1.0, "scheme": "cl", "cl_warmup": 0.1, "cl_start": 0.15, "cl_end": 0.5},
        marks=NEEDS_BF16,
    ),
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()) or "plain")
def test_a_run_cut_off_anywhere_ends_with_the_same_bytes(
    tmp_path: Path, domain: ToyDomain, options: dict[str, Any]
) -> None:
    config = ToyConfig.make(steps=30, **options)
    fit(config, domain, tmp_path / "whole")
    for place, cut in enumerate((1, 16)):
        out = tmp_path / f"cut-{place}"
        with pytest.raises(Interrupted):
            fit(config, domain, out, reporter=InterruptAt(cut))
        assert not RunFolder(out).trained
        fit(config, domain, out)
        assert equal_bytes(tmp_path / "whole", out), f"cut at step {cut}"


def test_a_run_that_resumes_on_another_machine_warns(
    tmp_path: Path, domain: ToyDomain, caplog: pytest.LogCaptureFixture
) -> None:
    config = ToyConfig.make(steps=12)  # saved at step 7
    for cut in (9, 10):
        with pytest.raises(Interrupted):
            fit(config, domain, tmp_path / "run", reporter=InterruptAt(cut))
        file = RunFolder(tmp_path / "run").environment_file
        begun = json.loads(file.read_text())
        assert "continued" not in begun
    file.write_text(json.dumps({**begun, "processor": "Abacus", "platform": "wood"}))
    assert not caplog.messages
    fit(config, domain, tmp_path / "run")
    (said,) = caplog.messages
    assert "resumes from step 7 in a changed environment (platform, processor). " in said
    continued = json.loads(file.read_text())["continued"]
    assert continued == [{"step": 7, "processor": begun["processor"], "platform": begun["platform"]}]


def test_a_run_restarted_on_another_machine_records_that_machine(
    tmp_path: Path, domain: ToyDomain, caplog: pytest.LogCaptureFixture
) -> None:
    config = ToyConfig.make(steps=12)
    with pytest.raises(Interrupted):  # before the first checkpoint
        fit(config, domain, tmp_path / "run", reporter=InterruptAt(3))
    file = RunFolder(tmp_path / "run").environment_file
    begun = json.loads(file.read_text())
    assert begun["device"] == "cpu"
    file.write_text(json.dumps({**begun, "processor": "Abacus"}))
    fit(config, domain, tmp_path / "run")
    assert json.loads(file.read_text()) == begun
    assert not caplog.messages


@pytest.mark.parametrize("text", ["{", '{"continued": "yesterday"}'])
def test_a_damaged_record_of_the_machine_does_not_stop_a_run(tmp_path: Path, domain: ToyDomain, text: str) -> None:
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(steps=9), domain, tmp_path / "run", reporter=InterruptAt(8))
    RunFolder(tmp_path / "run").environment_file.write_text(text)
    assert fit(ToyConfig.make(steps=9), domain, tmp_path / "run").resumed_from == 7


def test_workers_and_machine_do_not_matter(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=20), domain, tmp_path / "a")
    fit(ToyConfig.make(steps=20, workers=1, save_every=3), domain, tmp_path / "b")
    assert equal_bytes(tmp_path / "a", tmp_path / "b")


def test_the_global_generator_is_left_alone_and_does_not_matter(tmp_path: Path, domain: ToyDomain) -> None:
    torch.manual_seed(1)
    fit(ToyConfig.make(steps=10, dropout=0.5), domain, tmp_path / "a")
    torch.manual_seed(2)
    fit(ToyConfig.make(steps=10, dropout=0.5), domain, tmp_path / "b")
    assert equal_bytes(tmp_path / "a", tmp_path / "b")


def test_a_finished_run_is_not_repeated(tmp_path: Path, domain: ToyDomain) -> None:
    first = fit(ToyConfig.make(steps=10), domain, tmp_path)
    stamp = RunFolder(tmp_path).weights.stat().st_mtime_ns
    again = fit(ToyConfig.make(steps=10), domain, tmp_path)
    assert first.trained_now
    assert not again.trained_now
    assert again.steps == 10
    assert RunFolder(tmp_path).weights.stat().st_mtime_ns == stamp


def test_another_configuration_is_refused(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=10), domain, tmp_path)
    with pytest.raises(UserError, match=r"lr is 0\.01 there and 0\.5 here"):
        fit(ToyConfig.make(steps=10, lr=0.5), domain, tmp_path)


def test_other_data_under_the_same_name_are_refused(tmp_path: Path, domain: ToyDomain) -> None:
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(steps=30), domain, tmp_path, reporter=InterruptAt(8))
    domain.content = "replaced"
    with pytest.raises(UserError, match="noise has changed since"):
        fit(ToyConfig.make(steps=30), domain, tmp_path)
    domain.content = "as it was"
    fit(ToyConfig.make(steps=30), domain, tmp_path)
    domain.content = "replaced"
    with pytest.raises(UserError, match="noise has changed since"):
        fit(ToyConfig.make(steps=30), domain, tmp_path)


@pytest.mark.parametrize("left", [["environment.json"], ["environment.json", "data.json"]])
def test_what_a_crash_leaves_before_the_configuration_is_no_hindrance(
    tmp_path: Path, domain: ToyDomain, left: list[str]
) -> None:
    for name in left:
        (tmp_path / name).write_text("{}")
    assert fit(ToyConfig.make(steps=3), domain, tmp_path).trained_now


def test_a_folder_of_other_things_is_refused(tmp_path: Path, domain: ToyDomain) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match=r"holds other files \(thesis.tex\)"):
        fit(ToyConfig.make(steps=10), domain, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == ["thesis.tex"]


def test_a_folder_in_use_is_refused(tmp_path: Path, domain: ToyDomain) -> None:
    holder = (
        "import sys, time; from pathlib import Path; from r2mae.training.folder import FolderLock\n"
        "with FolderLock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="in use by another process"):
            fit(ToyConfig.make(steps=10), domain, tmp_path)
        process.kill()
    fit(ToyConfig.make(steps=2), domain, tmp_path)  # the lock of a killed process is free


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    # A file where a folder should be stops root, too, whom permissions do not.
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"cannot write to .* choose another --out"),
        FolderLock(tmp_path / "file" / "run"),
    ):
        pass


def test_a_non_finite_loss_stops_before_any_checkpoint(tmp_path: Path, domain: ToyDomain) -> None:
    with pytest.raises(UserError, match=r"the loss is (nan|inf) at step \d+ \(ratio .* lower --lr, or set --clip 1"):
        fit(ToyConfig.make(steps=60, lr=1e30, save_every=5), domain, tmp_path)
    checkpoint = RunFolder(tmp_path).checkpoint
    if checkpoint.exists():
        state = read_checkpoint(checkpoint)["state_dict"]
        assert all(bool(torch.isfinite(value).all()) for value in state.values())
    assert not RunFolder(tmp_path).trained


def test_weights_broken_by_the_last_update_are_not_kept(tmp_path: Path, domain: ToyDomain) -> None:
    with pytest.raises(UserError, match=r"weights are no longer finite at step 1: .* lower --lr"):
        fit(ToyConfig.make(steps=1, lr=1e39), domain, tmp_path)
    assert not RunFolder(tmp_path).checkpoint.exists()
    assert not RunFolder(tmp_path).trained


def test_clipping_bounds_the_step(tmp_path: Path, domain: ToyDomain) -> None:
    """Plain gradient norms are far above 1e-9, so with Adam's epsilon of 1e-8 the weights hardly move."""
    config = {"steps": 3, "lr": 0.1}
    before = dict(ToyDomain().build({"pixels": 12, "dropout": 0.0})[1].named_parameters())
    fit(ToyConfig.make(**config), domain, tmp_path / "free")
    fit(ToyConfig.make(**config, clip=1e-12), domain, tmp_path / "clipped")
    free, clipped = (pd.read_csv(tmp_path / name / "metrics.csv")["loss"] for name in ("free", "clipped"))
    assert len(before) == 4
    assert abs(clipped[2] - clipped[0]) < abs(free[2] - free[0])


class SignalAt(InterruptAt):
    """A reporter during whose update the process gets a signal."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(step)
        self.number = number

    def update(self, pace: Any) -> None:
        if pace.step == self.step:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_signal_saves_the_step_from_which_the_run_resumes(
    tmp_path: Path,
    domain: ToyDomain,
    number: int,
    error: type[BaseException],
    capfd: pytest.CaptureFixture[str],
) -> None:
    if number == signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN:
        # A shell starts background jobs with SIGINT ignored; the loop would rightly leave it so.
        signal.signal(number, signal.default_int_handler)
    handler = signal.getsignal(number)
    config = ToyConfig.make(steps=40, validation=0.1, validate_every=13)  # a report at step 13, where nothing is saved
    fit(config, domain, tmp_path / "whole")
    with pytest.raises(error):
        fit(config, domain, tmp_path / "cut", reporter=SignalAt(13, number))
    assert signal.getsignal(number) == handler
    told = capfd.readouterr().err.split("\n")
    assert [line for line in told if line] == [
        "r2mae: stopping after this step, to save it (again: at once); rerun the same command to resume"
    ]
    assert read_checkpoint(RunFolder(tmp_path / "cut").checkpoint)["r2mae_step"] == 13
    assert fit(config, domain, tmp_path / "cut").resumed_from == 13
    assert equal_bytes(tmp_path / "whole", tmp_path / "cut")


def test_a_signal_in_the_last_step_ends_the_call_before_measuring(tmp_path: Path, domain: ToyDomain) -> None:
    config = ToyConfig.make(steps=20)
    with pytest.raises(SystemExit):
        pretrain(config, domain, tmp_path, reporter=SignalAt(20, signal.SIGTERM))
    folder = RunFolder(tmp_path)
    assert folder.trained and not folder.results_file.exists()
    fitted, results = pretrain(config, domain, tmp_path)
    assert not fitted.trained_now and results["steps"] == 20


def test_memory_that_ends_on_the_device_is_one_line(
    tmp_path: Path, domain: ToyDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 384.00 MiB.")

    monkeypatch.setattr(loop, "take_steps", full)
    with pytest.raises(UserError, match="does not hold 10 samples at a time: double --accumulate"):
        fit(ToyConfig.make(steps=2, accumulate=2), domain, tmp_path)


def test_an_ignored_signal_stays_ignored(tmp_path: Path, domain: ToyDomain) -> None:
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert fit(ToyConfig.make(steps=20), domain, tmp_path, reporter=SignalAt(7, signal.SIGINT)).steps == 20
    finally:
        signal.signal(signal.SIGINT, handler)


def test_workers_of_a_killed_process_do_not_hold_the_lock(tmp_path: Path, domain: ToyDomain) -> None:
    holder = (
        "import os, sys, time; from pathlib import Path; from r2mae.training.folder import FolderLock\n"
        "with FolderLock(Path(sys.argv[1])):\n"
        "    if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.kill()
        process.wait()
        fit(ToyConfig.make(steps=2), domain, tmp_path)
        os.killpg(process.pid, signal.SIGKILL)


def test_seconds_count_all_calls(tmp_path: Path, domain: ToyDomain) -> None:
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(steps=40), domain, tmp_path, reporter=InterruptAt(30))
    before = read_checkpoint(RunFolder(tmp_path).checkpoint)["r2mae_seconds"]
    whole = fit(ToyConfig.make(steps=40), domain, tmp_path)
    assert whole.seconds > before > 0
    assert fit(ToyConfig.make(steps=40), domain, tmp_path).seconds == pytest.approx(whole.seconds)


def test_accumulation_equals_one_large_batch(
    tmp_path: Path, domain: ToyDomain, weights_of: Callable[[Path], dict[str, torch.Tensor]]
) -> None:
    """Counts of hidden pixels differ between micro-batches; a mean of their means would not pass."""
    runs = {}
    for parts in (1, 2, 10):
        fit(ToyConfig.make(steps=20, accumulate=parts, scheme="mdlm"), domain, tmp_path / str(parts))
        runs[parts] = weights_of(tmp_path / str(parts))
        losses = pd.read_csv(tmp_path / str(parts) / "metrics.csv")["loss"]
        reference = pd.read_csv(tmp_path / "1" / "metrics.csv")["loss"]
        assert losses.to_numpy() == pytest.approx(reference.to_numpy(), rel=1e-4)
    for parts in (2, 10):
        for name, value in runs[1].items():
            torch.testing.assert_close(runs[parts][name], value, rtol=1e-3, atol=1e-4)


def test_batches_larger_than_the_data_are_no_special_case(tmp_path: Path, domain: ToyDomain) -> None:
    fitted = fit(ToyConfig.make(steps=5, samples=6, batch_size=64, accumulate=8), domain, tmp_path)
    assert fitted.steps == 5


def test_metrics_tell_every_step(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=123, validation=0.2, validate_every=50), domain, tmp_path)
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    assert metrics["step"].tolist() == list(range(1, 124))
    assert metrics["ratio"].between(0.2, 0.8).all()
    assert metrics["ratio"].nunique() == 123
    assert metrics["loss"].notna().all()
    assert metrics["step"][metrics["validation_loss"].notna()].tolist() == [50, 100, 123]


def test_early_stopping(tmp_path: Path, domain: ToyDomain) -> None:
    config = ToyConfig.make(steps=400, validation=0.2, validate_every=5, patience=3, lr=0.1)
    fitted = fit(config, domain, tmp_path / "a")
    assert 15 < fitted.steps < 400
    losses = pd.read_csv(tmp_path / "a" / "metrics.csv")["validation_loss"].dropna().to_numpy()
    assert losses[:-3].min() <= losses[-3:].min()
    said = json.loads((tmp_path / "a" / "model.json").read_text())
    assert (said["steps"], said["planned_steps"]) == (fitted.steps, 400), "schedules are of the planned length"
    # Cut off after the checkpoint of the stop itself: nothing more is trained.
    (tmp_path / "a" / "model.json").unlink()
    assert fit(config, domain, tmp_path / "a").steps == fitted.steps


def test_validation_does_not_change_the_training(tmp_path: Path, domain: ToyDomain) -> None:
    for every in (1, 10):
        config = ToyConfig.make(steps=10, validation=0.2, validate_every=every, dropout=0.5)
        fit(config, domain, tmp_path / str(every))
    assert (tmp_path / "1/model.safetensors").read_bytes() == (tmp_path / "10/model.safetensors").read_bytes()


def test_the_configuration_in_the_folder_reruns_it(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=10, scheme="cl", ratio=0.4), domain, tmp_path / "a")
    values = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    fit(ToyConfig.from_dict(values), domain, tmp_path / "b")
    assert equal_bytes(tmp_path / "a", tmp_path / "b")


def test_seeds_differ(tmp_path: Path, domain: ToyDomain) -> None:
    for seed in (0, 1):
        fit(ToyConfig.make(steps=3, seed=seed), domain, tmp_path / str(seed))
    assert not equal_bytes(tmp_path / "0", tmp_path / "1")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:99"])
def test_devices_that_are_not_there(tmp_path: Path, domain: ToyDomain, name: str) -> None:
    with pytest.raises(UserError, match="device"):
        fit(ToyConfig.make(steps=3, device=name), domain, tmp_path)


def test_loading_a_finished_run(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=3), domain, tmp_path)
    config, _, model = load_model(tmp_path, domain)  # type: ignore[arg-type]
    assert config == ToyConfig.make(steps=3)
    assert not model.training


def test_loading_what_is_damaged(tmp_path: Path, domain: ToyDomain) -> None:
    with pytest.raises(UserError, match="no run folder"):
        load_model(tmp_path / "none", domain)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not a run folder"):
        load_model(tmp_path, domain)  # type: ignore[arg-type]
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(steps=30), domain, tmp_path / "half", reporter=InterruptAt(8))
    with pytest.raises(UserError, match="not finished"):
        load_model(tmp_path / "half", domain)  # type: ignore[arg-type]
    fit(ToyConfig.make(steps=3), domain, tmp_path / "a")
    weights = tmp_path / "a" / "model.safetensors"
    whole = weights.read_bytes()
    for broken in (b"", whole[:50], whole[:-1], b"\x80\x04" + whole):
        weights.write_bytes(broken)
        with pytest.raises(UserError, match=r"damaged or belongs to another model|is not finished"):
            load_model(tmp_path / "a", domain)  # type: ignore[arg-type]
    weights.write_bytes(whole)
    (tmp_path / "a" / "model.json").write_text("{")
    with pytest.raises(UserError, match="not readable JSON"):
        load_model(tmp_path / "a", domain)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "data.json"])
def test_a_damaged_file_of_a_model_is_written_again_as_its_error_says(
    tmp_path: Path, domain: ToyDomain, name: str
) -> None:
    fit(ToyConfig.make(steps=3), domain, tmp_path)
    folder = RunFolder(tmp_path)
    whole = folder.weights.read_bytes()
    damaged = folder.path / name
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(UserError, match="delete") as caught:  # weights are looked at where they are used
        load_model(fit(ToyConfig.make(steps=3), domain, tmp_path).folder.path, domain)  # type: ignore[arg-type]
    (folder.data_file if name == "data.json" else folder.model_file).unlink()
    assert ("delete it;" if name == "data.json" else f"delete {folder.model_file} ") in str(caught.value)
    assert fit(ToyConfig.make(steps=3), domain, tmp_path).steps == 3
    assert folder.weights.read_bytes() == whole
    load_model(tmp_path, domain)  # type: ignore[arg-type]


def test_a_checkpoint_of_another_model_is_named(tmp_path: Path, domain: ToyDomain) -> None:
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(steps=30), domain, tmp_path, reporter=InterruptAt(14))
    path = RunFolder(tmp_path).checkpoint
    checkpoint = read_checkpoint(path)
    checkpoint["state_dict"] = {"other": torch.zeros(1)}
    torch.save(checkpoint, path)
    with pytest.raises(UserError, match="belongs to another model: delete it"):
        fit(ToyConfig.make(steps=30), domain, tmp_path)


def test_the_generators_of_devices_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[int]] = []
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: kept.append(list(devices)) or nullcontext())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for used in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda used=used: used)
        with keyed_torch(Key.root(0)):
            pass
    assert kept == [[], [0, 1]]
