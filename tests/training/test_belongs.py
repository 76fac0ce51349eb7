"""What a run's folder holds belongs together, and lies in the folder."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from r2mae.errors import UserError
from r2mae.files import read_json, write_json
from r2mae.images import DOMAIN, ImagesConfig
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.pretraining import items_of, pretrain
from r2mae.training.saving import load_model

SIZES = {"data": "digits", "steps": 3, "batch_size": 20, "hidden": 16, "latent": 8}


def _halve(path: Path) -> None:
    save_file({name: value * 0.5 for name, value in load_file(path).items()}, path)


@pytest.mark.slow
def test_results_are_shown_for_their_own_weights(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    config = ImagesConfig.make(**SIZES)
    pretrain(config, DOMAIN, folder.path)
    assert folder.results_for(config) is not None
    files = (folder.weights, folder.statistics, folder.items_file)
    assert set(folder.results["sha256"]) == {file.name for file in files}
    assert items_of(folder) is not None
    items = folder.items_file.read_bytes()
    folder.items_file.write_bytes(items[:-1] + bytes([items[-1] ^ 1]))
    assert items_of(folder) is None
    for file in (folder.weights, folder.statistics):
        before = file.read_bytes()
        _halve(file)
        assert folder.results is None
        with pytest.raises(UserError, match=rf"{file.name} is damaged or belongs .* not the file that the run wrote"):
            load_model(folder.path, DOMAIN, unmasked=True)
        file.write_bytes(before)
    assert folder.results is not None
    description = read_json(folder.model_file)
    write_json(folder.model_file, {name: value for name, value in description.items() if name != "sha256"})
    lower = {name: value - 9 * ("var" in name) for name, value in load_file(folder.statistics).items()}
    save_file(lower, folder.statistics)
    with pytest.raises(UserError, match="running_var is negative"):
        load_model(folder.path, DOMAIN, unmasked=True)


@pytest.mark.parametrize(
    "stand_in",
    [
        lambda path, outside: path.symlink_to(outside),
        lambda path, outside: path.symlink_to(outside / "file"),
        lambda path, outside: os.mkfifo(path),
    ],
)
@pytest.mark.parametrize("name", ["checkpoints", "figures", "looks.json", "runs/a"])
def test_a_folder_with_links_out_of_it_is_not_written_into(
    tmp_path: Path, name: str, stand_in: Callable[[Path, Path], None]
) -> None:
    folder, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    (folder / "runs").mkdir(parents=True)
    (folder / "inside").symlink_to("runs")
    (folder / "loop").symlink_to("loop")  # leads nowhere
    with FolderLock(folder):
        pass
    stand_in(folder / name, outside)
    with pytest.raises(UserError, match=rf"{name} is (a link that leads out|neither a file)"), FolderLock(folder):
        pass
    assert not list(outside.iterdir())


def test_a_folder_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choose another --out"), FolderLock(tmp_path / "/".join(["d"] * 2000)):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "call"),
    [
        ("set_start_method('spawn', force=True)", "fit(config, DOMAIN, 'run')"),
        ("set_start_method('forkserver')", "fit(config, DOMAIN, 'run')"),
        ("get_context()", "compare(config, DOMAIN, schemes='r2mae', seeds=9, out=Path('runs'), jobs=2)"),
        ("get_context()", "import r2mae; r2mae.compare('digits', schemes='r2mae', out='runs', jobs=2)"),
    ],
)
def test_a_script_without_a_guard_is_named(tmp_path: Path, start: str, call: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import multiprocessing\nfrom pathlib import Path\nmultiprocessing.{start}\n"
        "from r2mae.images import DOMAIN, ImagesConfig\nfrom r2mae.training import fit\n"
        "from r2mae.compare.compare import compare\n"
        f"config = ImagesConfig.make(workers=2, **{SIZES})\n{call}\n"
    )
    ended = subprocess.run(
        [sys.executable, script], check=False, capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert ended.returncode == 1
    assert "Error: each worker process runs this script again" in ended.stderr.splitlines()[-1]
