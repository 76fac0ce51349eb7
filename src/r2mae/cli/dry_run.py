"""Print the estimated cost of a comparison (``r2mae compare DATA --dry-run``)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2mae.compare.estimate import Estimate

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_MOST_OF_A_UNIT = 100  # larger numbers of a unit of time are given in the next unit


def print_estimate(estimate: "Estimate") -> None:
    """Print a table of the variants, and the totals below it."""
    from rich.markup import escape
    from rich.table import Table

    from r2mae.terminal import Terminal

    if estimate.variants:
        table = Table(box=None, pad_edge=False)
        table.add_column("variant", no_wrap=True)
        for name in ("left", "steps", "a step", "a run", "weights", "optim.", "activ.", "disk"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in estimate.variants:
            timing = row.timing
            table.add_row(
                escape(row.label),
                str(row.runs - row.finished),
                f"{row.steps:,}",
                f"{1000 * timing.seconds_per_step:,.3g} ms",
                duration(row.seconds_per_run),
                *map(size, (timing.parameters, timing.optimizer, timing.activations, row.disk)),
            )
        Terminal().print_trimmed(table)
    print("\n".join(_summary_lines(estimate)))


def _summary_lines(estimate: "Estimate") -> Sequence[str]:
    finished = f", {estimate.finished} of them finished already" if estimate.finished else ""
    baselines = f"; {estimate.baselines} baselines are measured, too" if estimate.baselines else ""
    if not estimate.variants:
        return [f"{estimate.runs} runs{finished}: nothing is left to train{baselines}"]
    most = "at most " if estimate.at_most else ""
    fewest = min(row.timing.timed for row in estimate.variants)
    steps = sum(row.steps_left for row in estimate.variants)
    return [
        f"{estimate.runs} runs{finished}{baselines}; {steps:,} steps are left",
        f"training: {most}about {duration(estimate.seconds)} in all, {duration(estimate.elapsed)} with "
        f"{estimate.jobs} at a time, and measuring the runs comes on top",
        f"memory: about {size(estimate.memory)} for {estimate.jobs} at a time (weights, gradients, optimiser, "
        "activations), and the data come on top",
        f"disk: about {size(estimate.disk)} of run folders",
        f"an estimate, from {fewest:.3g} steps of each variant alone on this machine at its present load: several runs "
        "at a time may be slower. Nothing was written",
    ]


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that suits it: ``3.2 h``."""
    for limit, unit, name in (
        (_MOST_OF_A_UNIT, 1.0, "s"),
        (_MOST_OF_A_UNIT * _MINUTE, _MINUTE, "min"),
        (_MOST_OF_A_UNIT * _HOUR, _HOUR, "h"),
    ):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / _DAY:,.3g} days"


def size(number: float) -> str:
    """Return a number of bytes in words: ``1.2 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"
