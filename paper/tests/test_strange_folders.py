"""Folders of results from strangers: `reproduce` follows no link out of them, and reads no pipe or device."""

import json
import os
from pathlib import Path

import pytest
from tests.cli.test_strange_folders import Said, _ends, said

__all__ = ["_ends", "said"]  # fixtures


@pytest.mark.parametrize("what", ["link", "pipe", "device"])
@pytest.mark.parametrize("name", ["made.json", "fig1b.csv"])
def test_files_of_targets(said: Said, tmp_path: Path, name: str, what: str) -> None:
    folder = tmp_path / "fig1b"
    folder.mkdir()
    (folder / "made.json").write_text(json.dumps({"domain": "images", "data": "digits"}))
    (folder / "fig1b.csv").write_text("a\n1\n")
    (folder / name).unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(folder / name)
    else:
        target = tmp_path / "elsewhere" / f"secret{Path(name).suffix or '.json'}"
        (folder / name).symlink_to(target if what == "link" else "/dev/zero")
    for line in (
        "reproduce --list",
        "reproduce --claims .",
        "reproduce fig1b --list --out .",
        "reproduce randomness-images --scale smoke --earlier fig1b --out again",
    ):
        said(line)
