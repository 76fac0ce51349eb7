from io import StringIO

from rich.console import Console

from r2mae.progress import ProgressBar, RunProgress


def terminal(width: int) -> str:
    """What a terminal of this width shows in the middle of a run."""
    file = StringIO()
    bar = ProgressBar("mnist, r2mae", Console(file=file, width=width, force_terminal=True, color_system=None))
    bar.start(0, 7031)
    for step in range(50, 500, 50):
        bar.update(RunProgress(step, 7031, 0.0594, 0.73, 12345.6))
    bar.stop()
    return file.getvalue()


def test_the_count_is_not_truncated_on_a_narrow_terminal() -> None:
    assert "450/7031" in terminal(80)
    assert "mnist, r2mae" in terminal(80)
    assert "12,346 samples/s" in terminal(140)


def test_a_pipe_gets_lines_with_the_time_to_finish() -> None:
    file, now = StringIO(), [1000.0]
    bar = ProgressBar("mnist, r2mae", Console(file=file), clock=lambda: now[0])
    bar.start(20, 100)
    for seconds, step in ((1015, 30), (1020, 40), (1030, 60), (1050, 100)):
        now[0] = seconds
        bar.update(RunProgress(step, 100, 0.05, 0.7, 10.0))
    bar.stop()
    assert file.getvalue().splitlines() == [
        "mnist, r2mae: resumes at step 20 of 100",
        "mnist, r2mae: step 30/100  loss 0.05  ratio 0.70  10 samples/s  0:01:45 left",  # 1.5 s a step since the start
        "mnist, r2mae: step 60/100  loss 0.05  ratio 0.70  10 samples/s  0:00:30 left",
        "mnist, r2mae: step 100/100  loss 0.05  ratio 0.70  10 samples/s",
    ]


def test_a_long_run_is_warned_of_once_by_its_first_steps() -> None:
    file, now = StringIO(), [0.0]
    bar = ProgressBar("a", Console(file=file, width=200), clock=lambda: now[0])
    bar.start(0, 1000)
    for seconds, step in ((60, 1), (63, 2), (70, 6), (80, 11), (90, 16)):  # the first step compiles
        now[0] = seconds
        bar.update(RunProgress(step, 1000, 0.05, 0.7, 10.0))
    bar.stop()
    warned = [line for line in file.getvalue().splitlines() if "takes about" in line]
    assert len(warned) == 1 and "takes about 0:33:10 more on this machine (2 s a step)" in warned[0]


def test_a_short_run_is_not_warned_of() -> None:
    file, now = StringIO(), [0.0]
    bar = ProgressBar("a", Console(file=file, width=200), clock=lambda: now[0])
    bar.start(0, 300)
    for now[0], step in ((1, 1), (11, 11), (21, 21)):
        bar.update(RunProgress(step, 300, 0.05, 0.7, 10.0))
    bar.stop()
    assert "takes about" not in file.getvalue()
