"""Tokenising shows a bar with a time to finish, or lines where there is no terminal."""

import io

import pytest
from rich.console import Console

from r2mae.text.encoding import Tokenised
from r2mae.text.tokenizer.progress_bar import tokenising_bar


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def shown(one: Console) -> str:
    assert isinstance(one.file, io.StringIO)
    return one.file.getvalue()


def test_lines_in_a_pipe_every_ten_seconds() -> None:
    pipe, clock = console(terminal=False), Clock()
    with tokenising_bar("wiki: tokenizer", pipe, clock=clock) as update:
        for clock.now in (1.0, 9.0, 11.0, 12.0, 25.0, 40.0):
            stage = "reading" if clock.now < 20 else "merging"
            fraction = None if clock.now == 40 else clock.now / 50
            left = None if fraction is None else 50 - clock.now
            update(Tokenised(7000, 0, fraction, clock.now, left, stage))
    assert shown(pipe).splitlines() == [
        "wiki: tokenizer, reading: 22%, 0:00:39 left",
        "wiki: tokenizer, merging: 50%, 0:00:25 left",
        "wiki: tokenizer, merging: 7,000 documents in 0:00:40",
    ]


def test_a_bar_on_a_terminal_names_the_stage() -> None:
    terminal = console(terminal=True)
    with tokenising_bar("wiki: tokenizer", terminal) as update:
        for number in range(1, 5):
            update(Tokenised(number, 0, number / 4, 1.0, 1.0, "reading"))
        update(Tokenised(0, 0, 0.5, 1.0, 1.0, "merging"))
    assert "wiki: tokenizer, merging" in shown(terminal)
    assert "50%" in shown(terminal)


def test_nothing_is_shown_where_nothing_is_done() -> None:
    for terminal in (True, False):
        one = console(terminal)
        with tokenising_bar("wiki", one):
            pass
        assert not shown(one)


def test_standard_error_by_default(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2mae.training.progress.SECONDS_BETWEEN_LINES", -1.0)
    with tokenising_bar("wiki") as update:
        update(Tokenised(1, 2, 0.5, 1.0, 1.0))
    assert capfd.readouterr().err == "wiki: 50%, 0:00:01 left\n"
