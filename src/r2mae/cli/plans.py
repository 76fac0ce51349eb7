"""Print what a comparison will take (``--dry-run``), and what its seeds can decide (``--plan-power``)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from r2mae.cli.parsing import Parser
from r2mae.errors import UserError

if TYPE_CHECKING:
    from r2mae.compare.estimate import Estimate

_UNITS = ((100.0, 1.0, "s"), (6_000.0, 60.0, "min"), (360_000.0, 3600.0, "h"), (float("inf"), 86_400.0, "days"))


def add_plans(parser: Parser) -> None:
    """Add the options to the parser of ``compare``."""
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="Time a few steps of one variant, and estimate the time of the comparison. Nothing is written.",
    )
    parser.add_argument(
        "--plan_power",
        action="store_true",
        help="From the finished runs in --out, at least two seeds a variant: which differences the planned --seeds "
        "decide, and how many seeds the differences so far need. Nothing is trained or written.",
    )


def check_plans(values: Mapping[str, Any], *, baselines: bool) -> None:
    """Refuse options that a plan would ignore; `baselines` says if any were named."""
    ignored = {"--cluster": values["cluster"] is not None, "--baselines": baselines and values["plan_power"]}
    if values["plan_power"] and values["dry_run"]:
        raise UserError("--plan-power trains nothing, and --dry-run times steps: give one of them")
    for option, given in ignored.items():
        if given and (values["plan_power"] or values["dry_run"]):
            raise UserError(f"plans are made on this machine, so {option} would be ignored: omit it")


def print_estimate(estimate: "Estimate") -> None:
    """Print the time of one run, and of all."""
    done = f", {estimate.finished} of them finished" if estimate.finished else ""
    per_run = duration(estimate.steps * estimate.seconds_per_step)
    print(f"{estimate.runs} runs{done}; a run of {estimate.timed} takes about {per_run} ({estimate.steps:,} steps)")
    print(
        f"training: about {duration(estimate.seconds)} in all, {duration(estimate.elapsed)} with {estimate.jobs} at a "
        "time; start-up, validation and measuring come on top. Nothing was written"
    )


def print_power(rows: Sequence[Mapping[str, Any]], seeds: int) -> None:
    """Print a line for each variant."""
    from rich.markup import escape
    from rich.table import Table

    from r2mae.terminal import Terminal

    table = Table(box=None, pad_edge=False, title=f"{rows[0]['metric']}, minus {rows[0]['against']}")
    table.add_column("variant", no_wrap=True)
    for name in ("difference", "sd", "seeds so far", f"{seeds} seeds decide", "seeds that decide the difference"):
        table.add_column(name, justify="right")
    for row in rows:
        needed = "more than 10,000" if row["seeds"] is None else f"{row['seeds']:,}"
        numbers = (f"{row['difference']:+.2g}", f"{row['sd']:.2g}", str(row["pairs"]), f"{row['decides']:.2g}", needed)
        table.add_row(escape(row["label"]), *numbers)
    Terminal().print_trimmed(table)
    print("decided four times in five, by 95% intervals over seeds. Choose the number of seeds before they run")


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that suits it: ``3.2 h``."""
    _, unit, name = next(one for one in _UNITS if seconds < one[0])
    return f"{seconds / unit:,.3g} {name}"
