"""Folders of results from strangers: no link out of them is followed, and no pipe or device is read."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
import yaml

from r2mae.cli.main import main
from r2mae.files import confined_file, read_confined

SECRET = "do-not-show-this"
Said = Callable[[str], str]


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """A pipe that is read would hold the tests for ever."""

    def stop(_: int, __: FrameType | None) -> None:
        raise AssertionError("it waits for a pipe")

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("secret.csv", "secret.json", "secret.svg", "secret.yaml"):
        (elsewhere / name).write_text(f'"{SECRET}"\n{SECRET}\n' if name.endswith("csv") else f'{{"a": "{SECRET}"}}')

    def call(line: str) -> str:
        main(line.split())
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert SECRET not in out + err
        return out + err

    return call


def strange(folder: Path, *names: str) -> Path:
    """Make a folder in which each name is a link out, a pipe, and a device."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        stem, suffix = name.split(".")
        (folder / name).symlink_to(folder.parent / "elsewhere" / f"secret.{suffix}")
        os.mkfifo(folder / f"{stem}-pipe.{suffix}")
        (folder / f"{stem}-device.{suffix}").symlink_to("/dev/zero")
        (folder / f"{stem}-gone.{suffix}").symlink_to("/nowhere")
    return folder


def run_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"domain": "images", "data": {"source": "digits"}, "scheme": "fixed"})
    )
    return folder


@pytest.mark.parametrize("what", ["link", "pipe", "device", "gone", "folder"])
@pytest.mark.parametrize(
    "name", ["config.yaml", "metrics.csv", "results.json", "model.json", "items.safetensors", "data.json", ".lock"]
)
def test_files_of_a_run(said: Said, tmp_path: Path, name: str, what: str) -> None:
    folder = run_folder(tmp_path / "all" / "a")
    path = folder / name
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        targets = {"link": tmp_path / "elsewhere" / "secret.yaml", "device": "/dev/zero", "gone": "/nowhere"}
        path.symlink_to(targets[what])
    before = (tmp_path / "elsewhere" / "secret.yaml").read_bytes()
    for line in ("report all", "evaluate all/a", "report all/a"):
        said(line)
    assert (tmp_path / "elsewhere" / "secret.yaml").read_bytes() == before


@pytest.mark.parametrize("what", ["link", "pipe", "device"])
@pytest.mark.parametrize("name", ["compare.json", "results.json", "results.csv"])
def test_files_of_comparisons(said: Said, tmp_path: Path, name: str, what: str) -> None:
    folder = tmp_path / "compared"
    folder.mkdir()
    (folder / "compare.json").write_text(json.dumps({"domain": "images", "data": "digits"}))
    (folder / name).unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(folder / name)
    else:
        target = tmp_path / "elsewhere" / f"secret{Path(name).suffix}"
        (folder / name).symlink_to(target if what == "link" else "/dev/zero")
    said("report compared")


def test_what_is_a_files_own(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").write_text("outside")
    (tmp_path / "a" / "d").write_text("inside")
    (tmp_path / "a" / "link").symlink_to("d")
    (tmp_path / "a" / "b" / "up").symlink_to("../d")
    (tmp_path / "a" / "out").symlink_to("../c")
    (tmp_path / "a" / "loop").symlink_to("loop")
    (tmp_path / "whole").symlink_to("a")  # the folder itself may be a link, such as to another disk
    assert read_confined(tmp_path / "a" / "link") == b"inside"
    assert read_confined(tmp_path / "whole" / "d") == b"inside"
    assert read_confined(tmp_path / "a" / "b" / "up", folder=tmp_path / "a") == b"inside"
    for path, told in {"a/out": "outside its folder", "a/b/up": "outside its folder", "a": "no regular file"}.items():
        with pytest.raises(ValueError, match=told):
            confined_file(tmp_path / path)
    for gone in ("a/loop", "a/none"):
        with pytest.raises(OSError, match=gone):
            confined_file(tmp_path / gone)
    with pytest.raises(ValueError, match="more than 5 bytes"):
        read_confined(tmp_path / "a" / "d", 5)
    with (tmp_path / "a" / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="it has more than 67,108,864 bytes"):
        read_confined(tmp_path / "a" / "large")
