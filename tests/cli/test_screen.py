"""What commands show: control characters of strangers are escapes; paths begin at home; every end is one line."""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from cli.printed import fields
from r2mae.cli.main import main
from r2mae.cli.parsing import Parser
from r2mae.fields import ConfigOption
from r2mae.screen import Screen, visible
from r2mae.terminal import Terminal

OWNED = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\r\x9b1A\x7f"


def is_plain(text: str) -> bool:
    return visible(text) == text


@pytest.mark.parametrize("line", ["evaluate a", "report a", "embed a --data digits"])
def test_no_command_sends_escapes_of_a_strangers_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    config = {"domain": "images", "data": {"source": OWNED}, "scheme": {"name": OWNED, "given": []}, "seed": 1}
    (tmp_path / "a" / "config.yaml").write_text(yaml.safe_dump(config))
    main(line.split())
    said = capsys.readouterr()
    assert is_plain(said.out)
    assert is_plain(said.err)


def test_a_terminal_gets_the_colours_of_rich_alone() -> None:
    raw = StringIO()
    out: Any = Screen(raw)
    with redirect_stdout(out), redirect_stderr(out):
        console = Terminal(force_terminal=True, color_system="standard", width=200)
        table = Table(OWNED, title=OWNED)
        table.add_row(OWNED, style="bold")
        with Progress(console=console, transient=True) as bar:  # which puts itself before both streams
            bar.add_task(OWNED)
            print(f"printed {OWNED}")
            console.print(table)
            console.print(Text(OWNED), f"[green]{OWNED}[/]")
        print(f"later {OWNED}")
        console.print_trimmed(table)
    sent = raw.getvalue()
    assert "\x1b[32m" in sent  # green
    assert "\x1b[1m" in sent
    assert "\x1b]0" not in sent
    assert "\x07" not in sent
    assert "\x1b[2J" not in sent
    assert "\x9b" not in sent
    assert "\x7f" not in sent
    assert r"later \x1b]0;owned\x07\x1b[2J" in sent
    assert r"\x9b1A\x7f" in sent


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("~/x", "HOME/x"),
        ("~", "HOME"),
        ("--out=~/x", "HOME/x"),
        ("-o=~/x", "HOME/x"),
        ("-o~/x", "HOME/x"),
        ("--out=~/a=~/b", "HOME/a=~/b"),
        ("./~/x", "./~/x"),
        ("a~b", "a~b"),
        ("--out=a~/x", "a~/x"),
        ("~nobody-of-this-name/x", "~nobody-of-this-name/x"),
        ("~/a\nb", "HOME/a\nb"),
    ],
)
def test_paths_begin_at_home(word: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    parser = Parser("r2mae test", "")
    parser.add([ConfigOption("data", str, None, positional=True), ConfigOption("out", str | None, None, short="-o")])
    assert list(parser.read([word]).values()) == [found.replace("HOME", "/home/me")]


def test_a_file_may_name_the_folder_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "me").mkdir()
    np.savez(tmp_path / "me" / "d.npz", images=np.zeros((20, 8, 8), np.uint8))
    Path("c.yaml").write_text("domain: images\ndata: ~/d.npz\n")
    capsys.readouterr()
    assert main(["pretrain", "--config", "c.yaml", "--print-config"]) == 0
    assert fields(capsys.readouterr().out)["data"] == str(tmp_path / "me" / "d.npz")
    assert not (tmp_path / "~").exists()


def one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("r2mae: ")
    assert len(err.splitlines()) == 1, err
    return err


def test_memory_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_much(given: dict[str, Any]) -> int:
        return np.empty(1 << 60, np.uint8).size

    monkeypatch.setattr("r2mae.cli.data.run", too_much)
    assert "not enough memory (Unable to allocate 1.00 EiB" in one_line(["data", "list"], capsys)


def test_a_library_that_is_not_installed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks(given: dict[str, Any]) -> int:
        raise ModuleNotFoundError("No module named 'zarr'", name="zarr")

    monkeypatch.setattr("r2mae.cli.data.run", lacks)
    assert "this needs 'zarr', which is not installed: pip install 'r2mae[genome]'" in one_line(
        ["data", "list"], capsys
    )
