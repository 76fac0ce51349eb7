from io import StringIO

from rich.console import Console

from r2mae.training.progress import Pace, ProgressBar


def terminal(width: int) -> str:
    """What a terminal of this width shows in the middle of a run."""
    file = StringIO()
    bar = ProgressBar("mnist, r2mae", Console(file=file, width=width, force_terminal=True, color_system=None))
    bar.start(0, 7031)
    for step in range(50, 500, 50):
        bar.update(Pace(step, 7031, 0.0594, 0.73, 12345.6))
    bar.stop()
    return file.getvalue()


def test_the_count_stays_whole_on_a_narrow_terminal() -> None:
    assert "450/7031" in terminal(80)
    assert "mnist, r2mae" in terminal(80)
    assert "12,346 samples/s" in terminal(140)


def test_a_pipe_gets_lines() -> None:
    file = StringIO()
    bar = ProgressBar("mnist, r2mae", Console(file=file))
    bar.start(3, 100)
    bar.update(Pace(50, 100, 0.05, 0.7, 10.0))
    bar.stop()
    assert file.getvalue().split("\n")[:2] == [
        "mnist, r2mae: goes on at step 3 of 100",
        "mnist, r2mae: step 50/100  loss 0.05  ratio 0.70  10 samples/s",
    ]
