import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from cli.printed import fields
from locks import is_locked
from r2mae.cli.commands import COMMANDS
from r2mae.cli.main import main
from r2mae.domains.lookup import get_domain
from r2mae.images.domain import DOMAIN
from r2mae.masking.schemes import scheme_names
from r2mae.registry import DOMAINS
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.metrics import read_metrics

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str, str]:
        try:
            code = main(line.split())
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_help_names_every_command(run: Run) -> None:
    for line in ("", "--help", "-h", "help"):
        code, out, _ = run(line)
        assert code == 0
        assert all(f"\n  {name} " in out for name in COMMANDS)
    assert run("--version")[1].startswith("r2mae 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run: Run, command: str) -> None:
    code, out, _ = run(f"{command} --help")
    assert code == 0
    assert re.search(r"examples?:\n  r2mae ", out)
    assert "_" not in " ".join(word for word in out.split() if word.startswith("--")).replace("_config", "")


def test_the_examples_of_the_help_parse(run: Run) -> None:
    for command in ("pretrain", "compare"):
        example = run(f"{command} --help")[1].split("example:\n  r2mae ")[1].strip()
        assert run(f"{example} --print_config")[0] == 0
    for command in ("evaluate", "embed"):
        examples = run(f"{command} --help")[1].split("examples:\n")[1].strip().splitlines()
        assert len(examples) >= 3
        for example in examples:  # nothing but the run is missing
            code, _, err = run(example.split("r2mae ", 1)[1])
            assert (code, "no run folder runs/" in err) == (2, True)


def test_the_short_help_of_text_is_for_text(run: Run) -> None:
    told = " ".join(run("pretrain text --help")[1].split())
    for said in ("--low 0.15 --high 0.4", "--steps N", "Continue a checkpoint of AutoModelForMaskedLM."):
        assert said in told


def test_help_without_a_domain_tells_of_all(run: Run) -> None:
    for command in ("pretrain", "compare"):
        told, usage = run(f"{command} --help")[1], run(command)[2]
        for domain in DOMAINS:
            assert re.search(rf"\n  r2mae {command} {domain} \w+", told)
            assert f"r2mae {command} {domain} " in usage
        assert f"r2mae {command} DOMAIN --help" in told
        assert "Each domain has its own" not in run(f"{command} images --help")[1]


def test_help_serves_every_domain(run: Run) -> None:
    for command in ("evaluate", "embed"):
        out = run(f"{command} --help")[1]
        assert all(f"\n  {domain} " in out for domain in DOMAINS)
        assert all(f" runs/{name}" in out for name in ("digits", "cells", "text"))
    told = " ".join(run("evaluate --help")[1].split())
    assert "5 epochs each, mean of three seeds" in told
    assert "saved in RUN/evaluation.json and not repeated" in told
    assert "`documents`, their first 80 characters" in run("embed --help")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_speaks_of_null_as_a_default(run: Run, command: str) -> None:
    assert "default: null" not in " ".join(run(f"{command} --help")[1].split())


def test_the_help_of_presets_names_the_default(run: Run) -> None:
    assert "(default: mini)" not in run("pretrain text --help")[1]
    assert "(default: mini)" in " ".join(run("pretrain text --preset mini --help")[1].split())


@pytest.mark.parametrize("command", ["pretrain", "compare"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_help_fits_a_screen_and_help_all_has_every_option(
    run: Run, command: str, domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(run(f"{command} {domain} --help")[1].splitlines()) <= 45
    monkeypatch.setenv("COLUMNS", "118")
    short, every = run(f"{command} {domain} --help")[1], run(f"{command} {domain} --help-all")[1]
    for name in scheme_names():
        assert re.search(rf"\n  \w* +{name} +\S+( \S+){{3,5}}\n", short), name
    for group in ("data", "model", "scheme", "optimizer", "machine"):
        assert f"\n{group}:\n" in every
    options = set(re.findall(r"^  (?:-\w, )?--([\w-]+)", every, re.MULTILINE))
    names = {name.replace("_", "-") for name in get_domain(domain).config.names()}
    idle = {"domain", "data"} | ({"scheme", "seed"} if command == "compare" else set())
    assert options >= names - idle
    common = set(re.findall(r"^  (?:-\w, )?--([\w-]+)", short, re.MULTILINE))
    assert options > common >= options & {"fill", "norm", "devices", "precision", "workers", "plan-power"}


def test_the_sizes_of_presets_are_those_of_their_models() -> None:
    for domain in map(get_domain, DOMAINS):
        assert set(domain.config.preset_sizes) == set(domain.presets)
    for name, size in DOMAIN.config.preset_sizes.items():
        config = DOMAIN.config.make(data="digits", preset=name)
        side = {"mlp": 28, "unet": 64}.get(config.model.name, config.data.resize)
        shape = [side, side, 1 if config.model.name == "mlp" else 3]
        with torch.device("meta"):
            _, model = DOMAIN.build({**config.model.architecture(), "shape": shape, "exact": False})
        found = sum(weights.numel() for weights in model.parameters()) / 1e6
        assert abs(found - size) < 0.04 * size + 0.005, name


def test_options_are_spelled_with_dashes_or_underscores(run: Run) -> None:
    lines = ("--batch-size 64 --compile", "--batch_size=64 --compile=true", "--batch_size 64 --compile true")
    first, *others = [run(f"pretrain digits {line} --print-config") for line in lines]
    assert first[0] == 0 and all(other == first for other in others)
    assert fields(first[1])["batch_size"] == 64
    assert fields(run("pretrain digits --compile=false --print-config")[1])["compile"] is False
    line = "pretrain digits --preset vit-mae-tiny --base-lr null --print-config"
    assert fields(run(line)[1])["base_lr"] is None


def test_a_file_may_be_nested_by_group(run: Run, tmp_path: Path) -> None:
    nested = {
        "data": {"source": "digits", "resize": 8},
        "model": {"name": "unet", "channels": 8},
        "optimizer": {"epochs": 3},
        "machine": {"threads": 1},
    }
    (tmp_path / "nested.yaml").write_text(yaml.safe_dump(nested))
    flat = run("pretrain digits --model unet --model.channels 8 --resize 8 --epochs 3 --threads 1 --print-config")
    assert flat[0] == 0
    assert run("pretrain --config nested.yaml --print-config") == flat


MISTAKES = {
    "frobnicate": "unknown command 'frobnicate'",
    "pretian": "did you mean 'pretrain'?",
    "pretrain": "pretrain what?",
    "pretrain images": "name the data",
    "pretrain digit": "did you mean 'digits'?",
    "pretrain images minst": "did you mean 'mnist'?",
    "pretrain images digits more": "takes one data set, not 2 (digits more): name one, such as a folder;",
    "pretrain digits more": "takes one data set, not 2 (digits more): name one",
    "pretrain cells a.h5ad b.h5ad": "join other files first (anndata.concat)",
    "pretrain text in/a.txt in/b.txt": "name one, such as a folder; quote a pattern",
    "pretrain text in/a.txt b.txt": "quote a pattern of texts ('notes/*.txt')",
    "compare text a.gz b.gz c.gz d.gz e.gz": "not 5 (a.gz b.gz c.gz d.gz e.gz): name one",
    "pretrain txt in/a.txt": "unknown domain 'txt': did you mean 'text'?",
    "compare image a.npy b.npy": "unknown domain 'image': did you mean 'images'?",
    "pretrain a.txt b.txt": "not 2 (a.txt b.txt): name one",
    "pretrain digits --ration 0.3": "did you mean '--ratio'?",
    "pretrain digits --scheme fixed --ratio 1.5": "ratio must be a number between 0 and 1, not 1.5",
    "pretrain digits --scheme fixed --ratio 0": "nothing to learn from",
    "pretrain digits --scheme fixed --ratio half": "--ratio takes a number, not 'half'",
    "pretrain digits --low 0.9 --high 0.5": "swap them",
    "pretrain digits --scheme r2mea": "did you mean 'r2mae'?",
    "pretrain digits --ratio 0.3": "'r2mae' does not take 'ratio'",
    "pretrain digits --model vitmae --preset vit-mae-tiny": "unknown model 'vitmae': did you mean 'vit-mae'?",
    "pretrain digits --preset tiny": "unknown preset 'tiny': did you mean 'vit-mae-tiny'?",
    "pretrain digits --preset mlp-512-255": "did you mean 'mlp-512-256'?",
    "pretrain digits --batch-size 0": "batch_size must be 1 or more",
    "pretrain digits --optimizer rmsprop": "--optimizer takes one of adam, adamw, sgd, not 'rmsprop'",
    "pretrain digits --device tpu": "unknown device 'tpu'",
    "pretrain images none.npz": "none.npz: no such file",
    "pretrain images empty": "empty",
    "pretrain images cut.gz": "cut.gz",
    "pretrain images nan.npy": "nan.npy",
    "pretrain --config none.yaml": "there is no configuration none.yaml",
    "pretrain --config typo.yaml": "typo.yaml: unknown field 'epoch': did you mean 'epochs'?",
    "compare digits --schemes fixed fxed": "did you mean 'fixed'?",
    "compare digits --schemes r2mae r2mae": "named twice",
    "compare digits --scheme r2mae-cl": "did you mean '--schemes'?",
    "compare digits --seed 7": "did you mean '--seeds'?",
    "compare images none.npz": "none.npz: no such file",
    "pretrain --out a images digits": "name the data before the options",
    "pretrain digits --batch-size 1": "needs two images",
    "pretrain digits --resize 1": "two pixels or more",
    "pretrain digits --seed 18446744073709551616": "seed must be 0 to",
    "pretrain digits --threads 4000": "threads must be 1 to 1,024",
    "compare digits --threads 4000": "threads must be 1 to 1,024",
    "pretrain digits --cl-warmup 3": "does not take 'cl_warmup'",
    "compare digits --seeds 0": "a comparison takes 1 to 10,000 seeds, not 0",
    "compare digits --seeds a": "--seeds takes a list (each a whole number), not 'a'",
    "compare digits --seeds 1 1": "different numbers",
    "compare digits --jobs 0": "jobs must be 1 or more",
    "compare digits --schemes r2mae --ratios 0.5": "add it to --schemes",
    "compare digits --ratios 0 0.5": "nothing to learn from",
    "compare digits --seeds -1 2": "different numbers of 0 or more, not -1 2",
    "compare digits --ratios": "ratios is an empty list: name ratios, or omit the option",
    "compare digits --ratios half": "--ratios takes a list (each a number), not 'half'",
    "compare digits --seeds": "seeds must be their number, or different numbers of 0 or more, not an empty list",
    "compare digits --schemes --baselines none": "schemes is an empty list: name schemes, or omit the option",
    "compare digits --baselines none pca": "name either none or pca",
    "compare digits --out mine": "holds other files (thesis.tex)",
    "evaluate none": "no run folder none",
    "evaluate checkpoint": "r2mae pretrain DOMAIN DATA --init checkpoint (to score it as it is, add --steps 1 --lr",
    "evaluate empty": "not a run folder",
    "evaluate empty --probe svm": "not a run folder",
    "embed none digits": "no run folder none",
    "data steal": "ACTION takes one of list, fetch, path, not 'steal'",
    "data fetch": "name a data set to fetch",
    "data list nosuch": "data list lists all sets: omit 'nosuch'",
    "evaluate": "required: RUN; for example: r2mae evaluate runs/",
    "embed none": "no run folder none",
    "embed": "required: RUN, DATA; for example: r2mae embed runs/",
    "report": "required: DIR; for example: r2mae report runs/compare-digits",
    "data alignment build a.fa": "required: -o/--out; for example: r2mae data alignment build ",
    "pretrain digits --model unet --preset vit-mae-tiny": "the model 'unet' has no preset 'vit-mae-tiny': choose from:",
    "data path minst": "did you mean 'mnist'?",
    "pretrain faces": "unknown domain or data set 'faces': choose from: images",
    "pretrain digits --logger wandb": "needs the package wandb, which is not installed: pip install wandb, or omit",
    "compare digits --logger wandb": "needs the package wandb",
    "pretrain --config bad.yaml": "bad.yaml: batch_size must be 1 or more, not 0",
    "pretrain --config odd.yaml": "odd.yaml: epochs takes a number, not 'many'",
    "compare digits --config=bad.yaml": "bad.yaml: batch_size must be 1 or more, not 0",
    "evaluate none --data digits": "no run folder none",
}


# A folder is locked before one looks into it.
LEAVES_A_LOCK = ("compare digits --out mine", "compare images none.npz")


@pytest.mark.usefixtures("no_trackers")
@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_with_exit_code_2_and_leaves_nothing(run: Run, line: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text("{}")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("important")
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "typo.yaml").write_text("domain: images\ndata: digits\nepoch: 3\n")
    (tmp_path / "bad.yaml").write_text("domain: images\ndata: digits\nbatch_size: 0\n")
    (tmp_path / "odd.yaml").write_text("domain: images\ndata: digits\nepochs: many\n")
    images = np.zeros((5, 4, 4), dtype=np.float32)
    images[3, 1, 1] = np.nan
    np.save(tmp_path / "nan.npy", images)
    before = sorted(tmp_path.rglob("*"))
    code, _, err = run(line)
    assert code == 2
    assert MISTAKES[line] in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("r2mae: ")
    left = set(tmp_path.rglob("*")) - set(before)
    assert not left or line in LEAVES_A_LOCK, left


def test_a_named_set_implies_its_domain_and_its_defaults(run: Run) -> None:
    values = fields(run("pretrain digits --print_config")[1])
    assert (values["domain"], values["data"], values["epochs"]) == ("images", "digits", 100.0)
    assert fields(run("pretrain images mnist --print-config")[1])["epochs"] == 15


def test_options_win_over_presets_and_presets_over_sets(run: Run) -> None:
    values = fields(run("pretrain digits --preset mlp-16-64 --latent 32 --exact --print_config")[1])
    assert (values["hidden"], values["latent"], values["exact"]) == (16, 32, True)
    assert values["preset"] == "mlp-16-64"
    for preset, expected in DOMAIN.presets.items():
        values = fields(run(f"pretrain digits --preset {preset} --print_config")[1])
        assert {name: values[name.removeprefix("model.")] for name in expected} == {
            name: list(value) if isinstance(value, tuple) else value for name, value in expected.items()
        }


def test_a_configuration_file_is_read_and_options_win(run: Run, tmp_path: Path) -> None:
    text = run("pretrain digits --scheme fixed --ratio 0.3 --batch-size 64 --print_config")[1]
    (tmp_path / "c.yaml").write_text(text)
    assert run("pretrain --config c.yaml --print_config")[1] == text
    values = fields(run("pretrain --config=c.yaml --ratio 0.4 --print_config")[1])
    assert (values["scheme"]["ratio"], values["batch_size"]) == (0.4, 64)


def test_a_preset_on_the_command_line_wins_over_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(run("pretrain digits --preset mlp-16-64 --print_config")[1])
    values = fields(run("pretrain --config c.yaml --print_config")[1])
    assert (values["preset"], values["hidden"], values["latent"]) == ("mlp-16-64", 16, 64)
    values = fields(run("pretrain --config c.yaml --preset mlp-512-32 --print_config")[1])
    assert (values["preset"], values["hidden"], values["latent"]) == ("mlp-512-32", 512, 32)


def test_a_comparison_can_be_rerun_from_its_configuration(run: Run, tmp_path: Path) -> None:
    line = "compare digits --schemes fixed mdlm --seeds 3 5 --ratios 0.2 0.4 --against 0.4 --epochs 3 --print_config"
    text = run(line)[1]
    (tmp_path / "c.yaml").write_text(text)
    assert run("compare --config c.yaml --print_config")[1] == text
    values = fields(text)
    assert (values["schemes"], values["seeds"], values["ratios"]) == (["fixed", "mdlm"], [3, 5], [0.2, 0.4])
    assert values["against"] == 0.4


def test_paths_are_kept_so_that_they_can_be_found_from_elsewhere(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((9, 4, 4), dtype=np.uint8))
    values = fields(run("pretrain images x.npy --print_config")[1])
    assert values["data"] == str(tmp_path / "x.npy")


def test_pretrain_evaluate_and_embed(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("pretrain digits --epochs 2 --hidden 16 --latent 16 --out a --threads 1")
    assert code == 0
    assert "linear probe accuracy" in out
    assert "finished already" in run("pretrain digits --epochs 2 --hidden 16 --latent 16 --out a --threads 1")[1]
    code, _, err = run("pretrain digits --epochs 3 --hidden 16 --latent 16 --out a --threads 1")
    assert code == 2
    assert "epochs is 2.0 there and 3.0 here" in err
    assert "linear probe accuracy" in run("evaluate a")[1]
    assert "1797 embeddings of 16 numbers" in run("embed a digits -o out/e.npz")[1]
    assert "written as .npz, not '.csv': -o x.npz" in run("embed a digits -o x.csv")[2]
    with np.load(tmp_path / "out" / "e.npz", allow_pickle=False) as arrays:
        assert arrays["embedding"].shape == (1797, 16)
        assert arrays["labels"].shape == (1797,)
        assert arrays["classes"][arrays["labels"][0]] in "0123456789"
        assert np.bincount(arrays["split"]).tolist() == [1438, 359]  # the run's own division
    (tmp_path / "a" / "results.json").write_text("{")
    assert "linear probe accuracy" in run("pretrain digits --epochs 2 --hidden 16 --latent 16 --out a --threads 1")[1]
    assert (tmp_path / "a" / "results.json").read_text().startswith('{\n  "scores"')
    np.save(tmp_path / "other.npy", np.zeros((3, 5, 5), dtype=np.uint8))
    assert "a folder is needed there: name another output" in run("embed a digits -o other.npy/e.npz")[2]
    code, _, err = run("embed a other.npy")
    assert code == 2
    assert "5 x 5" in err


def test_batch_statistics_of_a_model_without_any_are_refused(run: Run) -> None:
    assert run("pretrain digits --norm layer --steps 2 --hidden 8 --latent 8 --threads 1 --out a")[0] == 0
    for value in ("yes", "no", "both"):
        code, _, err = run(f"evaluate a --bn-statistics {value}")
        assert (code, "bn_statistics has no effect on the model 'mlp'" in err) == (2, True)


def test_pretrain_and_evaluate_speak_json(run: Run) -> None:
    short = "pretrain digits --hidden 16 --latent 16 --threads 1 --epochs 2"
    answer = json.loads(run(f"{short} --out runs/a --json")[1])
    assert answer["worked"]
    assert answer["steps"] == 22
    assert 0 < answer["scores"]["probe_accuracy"] <= 1
    assert json.loads(run("evaluate runs/a --json")[1])["scores"] == answer["scores"]


def test_runs_tells_running_from_stopped(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "r2mae",
        "pretrain",
        "digits",
        "--steps",
        "100000",
        "--save-every",
        "5",
        "--workers",
        "2",
    ]
    out = tmp_path / "a"
    with subprocess.Popen(
        [*command, "--hidden", "16", "--out", str(out)], stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while not (out / "checkpoints" / "last.ckpt").exists():
            time.sleep(0.05)
            assert process.poll() is None
        assert is_locked(out)
        os.killpg(process.pid, signal.SIGTERM)  # as SLURM does: to the loaders, too
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not is_locked(out)
    saved = read_checkpoint(out / "checkpoints" / "last.ckpt")["r2mae_step"]
    assert read_metrics(out / "metrics.csv")["step"].iloc[-1] == saved


@pytest.fixture
def hearing() -> Iterator[None]:
    """Let processes hear of Ctrl-C, even if these tests are a background job, which a shell starts deaf to it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("hearing")
def test_one_ctrl_c_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "r2mae", "pretrain", "digits", "--steps", "1000000", "--save-every", "5"]
    out = tmp_path / "a"
    with subprocess.Popen(
        [*command, "--hidden", "16", "--out", str(out)],
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        while not (out / "checkpoints" / "last.ckpt").exists():
            time.sleep(0.05)
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=240) == 128 + signal.SIGINT
        assert process.stderr is not None
        told = [line for line in process.stderr.read().split("\n")[:-1] if "samples/s" not in line]  # the pace
    assert len(told) == 1, told
    assert told[0].startswith("r2mae: stopping after this step")


@pytest.mark.usefixtures("hearing")
def test_ctrl_c_twice_ends_a_comparison_and_its_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "r2mae", "compare", "digits", "--schemes", "r2mae", "--seeds", "2", "--jobs", "1"]
    out = tmp_path / "a"
    options = ["--steps", "100000", "--save-every", "5", "--hidden", "16", "--out", str(out)]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, start_new_session=True, text=True) as process:
        while not list(out.glob("runs/*/*/checkpoints/last.ckpt")):
            time.sleep(0.05)
            assert process.poll() is None
        for _ in range(2):  # as `timeout` does, to the process and to its group
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=240) == 128 + signal.SIGINT
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    with pytest.raises(ProcessLookupError):
        while True:  # the group ends with its last process
            os.killpg(process.pid, 0)
            time.sleep(0.05)


def test_comparisons_speak_json(run: Run) -> None:
    line = "compare digits --schemes r2mae --seeds 1 --epochs 1 --hidden 8 --latent 8 --jobs 1 --out c --json"
    answer = json.loads(run(line)[1])
    assert [cell["label"] for cell in answer["runs"]] == ["r2mae", "untrained", "pixels", "pca", "mean", "gaussian"]


def test_data(run: Run) -> None:
    code, out, _ = run("data list")
    assert code == 0
    assert "digits" in out
    assert "mnist" in out
    assert "is part of scikit-learn" in run("data path digits")[1]


def test_an_unknown_backend_of_figures_does_not_matter() -> None:
    code = "from r2mae.cli.main import main; main(['--version']); import matplotlib, r2mae.compare.figures"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "MPLBACKEND": "x"})


def test_a_machine_without_a_compiler(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", (None, "/nowhere/g++"))
    code, _, err = run("pretrain images digits --compile --device cpu --out a")
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith("r2mae: torch.compile does not work here") and "omit --compile" in err


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "r2mae", "frobnicate"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("r2mae: unknown command")
