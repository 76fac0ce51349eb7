"""Print what a planned comparison can decide (``r2mae compare DATA --plan-power``)."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from r2mae.cli.dry_run import duration
from r2mae.cli.parsing import Parser
from r2mae.errors import UserError

if TYPE_CHECKING:
    from r2mae.compare.power import Decision, PowerPlan
    from r2mae.evaluation.metrics import Metric


def parse_matters(words: Sequence[str]) -> dict[str, float]:
    """Read ``--matters 0.002``, for the metric of the headline (its name is ""), and ``--matters masked_mse=0.001``."""
    found: dict[str, float] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        try:
            size = float(text)
        except ValueError:
            size = math.nan
        if not (math.isfinite(size) and size > 0) or bool(equals) != bool(name):
            raise UserError(f"--matters takes differences above 0, such as 0.002 or masked_mse=0.001, not {word!r}")
        if name in found:
            raise UserError(
                f"--matters names {name or 'the metric of the headline'} twice: give one difference for each"
            )
        found[name] = size
    return found


def add_power(parser: Parser) -> None:
    """Add the options to the parser of ``compare``."""
    parser.add_argument(
        "--plan_power",
        action="store_true",
        help="Say which differences the planned seeds can decide, and how many seeds decide one that matters, from the "
        "spread of a pilot: finished runs in the folder --out, or in --pilot. Nothing is trained or written.",
    )
    parser.add_argument(
        "--pilot", metavar="DIR", type=str, help="With --plan-power: another comparison's folder, as the pilot."
    )
    parser.add_argument(
        "--matters",
        metavar="X",
        nargs="+",
        type=str,
        help="With --plan-power: the difference that matters, in units of the headline's metric, or METRIC=X. By "
        "default 5 percent of what the reference falls short of a perfect score.",
    )


def check_power(values: Mapping[str, Any], *, baselines: bool) -> None:
    """Refuse options that would be ignored, with ``--plan-power`` or without it; `baselines` says if any were named."""
    ignored = {"--dry-run": values["dry_run"], "--cluster": values["cluster"] is not None, "--baselines": baselines}
    own = {"--pilot": values["pilot"] is not None, "--matters": values["matters"] is not None}
    for option, given in ignored.items():
        if given and values["plan_power"]:
            raise UserError(f"--plan-power runs nothing, so that {option} would be ignored: leave one of them out")
    for option, given in own.items():
        if given and not values["plan_power"]:
            raise UserError(f"{option} belongs to --plan-power: add that, or leave {option} out")


def print_power(plan: "PowerPlan") -> None:
    """Print a table for each metric, and what follows from them."""
    for metric in plan.metrics:
        if decisions := plan.of(metric.name):
            _print_metric(metric, decisions, given=metric.name in plan.given)
    print("\n".join(_sums(plan)))


def _print_metric(metric: "Metric", decisions: Sequence["Decision"], *, given: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from r2mae.compare.power import FRACTION
    from r2mae.report.wording import number
    from r2mae.terminal import Terminal

    places = _places([size for one in decisions for size in (one.sd, one.items_sd, one.matters)])
    table = Table(box=None, pad_edge=False)
    for name in ("scheme", "minus"):
        table.add_column(name, no_wrap=True)
    counted = any(one.items for one in decisions)
    sizes_of = ("sd", "sd ≤", *(["items"] if counted else []), "decides", "decides ≤", "matters")
    for name in ("pilot", *sizes_of, "seeds", "seeds ≤"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in decisions:
        items = (one.items_sd,) if counted else ()
        sizes = (one.sd, one.sd_high, *items, one.decides, one.decides_high, one.matters)
        table.add_row(
            escape(one.label),
            escape(one.against),
            number(one.difference, places, signed=True),
            *(number(size, places) for size in sizes),
            _count(one.seeds),
            _count(one.seeds_high),
        )
    how = "as given" if given else f"{FRACTION:.0%} of what the reference falls short of a perfect score"
    if not given and not math.isfinite(metric.bounds[1 if metric.higher_is_better else 0]):
        how = f"{FRACTION:.0%} of the reference's mean"
    console = Terminal(width=160)  # the most; a table is as wide as its words, and cut numbers would mislead
    print(f"{metric.label} {metric.arrow} (a difference matters: {how})")
    console.print_trimmed(table)
    print(f"intervals: {_over(decisions)}\n")


def _over(decisions: Sequence["Decision"]) -> str:
    """Say what the intervals under the planned seeds will be over, and why."""
    from r2mae.report.wording import listing

    groups: dict[str, list[str]] = {}
    for one in decisions:
        what = f"over seeds and {one.items:,} test items" if one.items else "over seeds alone"
        groups.setdefault(f"{what}, as {one.why}", []).append(f"{one.label} minus {one.against}")
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{what} (for {listing(pairs)})" for what, pairs in groups.items())


def _sums(plan: "PowerPlan") -> list[str]:
    from r2mae.compare.power import SURE
    from r2mae.evaluation.pairing import MIN_SEEDS_FOR_ITEMS, REASONS
    from r2mae.evaluation.power import CONFIDENCE, MOST_SEEDS, POWER
    from r2mae.report.wording import seeds

    counted = any(one.items for one in plan.decisions)
    few = any(one.why == REASONS["few seeds"] for one in plan.decisions)
    lines = [
        f"pilot: {plan.pilot}, {seeds(len(plan.pilot_seeds))}, whose mean difference and sd over seeds are shown; "
        f"planned: {seeds(len(plan.seeds))}",
        f"decides: the smallest true difference whose paired {CONFIDENCE:.0%} interval excludes 0 with "
        f"probability {POWER:.0%} under the planned seeds (noncentral t)",
        "seeds: how many decide a true difference as large as matters",
        f"sd ≤, decides ≤, seeds ≤: the upper {SURE:.0%} limit of the pilot's sd (chi-square), which few seeds leave "
        f"uncertain, and what follows from it{' and from that of the items' * counted}; plan with these. Not corrected "
        "for the number of comparisons",
        "–: not known, as differences of the pilot are all equal; or never, as 1 seed decides nothing, more than "  # noqa: RUF001
        f"{MOST_SEEDS:,} are not looked at{', or test items hide it' * (counted or few)}",
    ]
    if counted:
        lines.insert(
            3,
            "items: what the choice of test items adds to the standard error of a difference; more seeds do not lower "
            "it, and decides and seeds count it",
        )
    if few:
        lines.insert(
            3, f"seeds starts at {MIN_SEEDS_FOR_ITEMS}: from there on intervals count test items, too, and so does it"
        )
    if plan.differs:
        lines.append(
            f"the pilot's runs differ from the planned ones in {', '.join(plan.differs)}: so may their spread, and "
            "their times tell nothing"
        )
    if math.isfinite(plan.elapsed):
        lines.append(
            f"training: about {duration(plan.seconds)} for the {plan.left} of {plan.runs} runs that are left, "
            f"{duration(plan.elapsed)} with {plan.jobs} at a time; {duration(plan.seconds_per_seed)} for each further "
            "seed, by the times of the pilot's runs"
        )
    return [*lines, *_verdict(plan)]


def _verdict(plan: "PowerPlan") -> list[str]:
    """Say whether the planned seeds decide a difference that matters in the metric of the headline."""
    metric, decisions = plan.metrics[0], plan.of(plan.metrics[0].name)
    if not decisions:
        return [f"{metric.label}: the pilot has no pair to tell the spread from"]
    if any(math.isnan(one.sd) for one in decisions):
        return [
            f"{metric.label}: some differences of the pilot are all equal, which tells no spread: give it more seeds"
        ]
    return [f"{metric.label}: {line}" for line in _advice(plan, decisions)]


def _advice(plan: "PowerPlan", decisions: Sequence["Decision"]) -> list[str]:
    """Say what the planned seeds decide of what matters, and which number would decide more, if any is worth it."""
    from r2mae.compare.power import WORTH
    from r2mae.report.wording import seeds

    planned = len(plan.seeds)
    needed = [one.seeds_high for one in decisions if not one.decides_high <= one.matters]
    within = [count for count in needed if count is not None and count <= max(WORTH, planned)]
    enough = len(decisions) - len(needed)
    if not needed:
        return [f"{seeds(planned)} decide what matters, by the upper limits of the pilot's spread"]
    if planned == 1:
        lines = ["1 seed never decides anything: an interval takes two or more"]
    else:
        lines = [f"{seeds(planned)} decide what matters in {enough} of {len(decisions)} differences"]
    if within:
        hours = plan.seconds_per_seed * max(within)
        cost = f" (about {duration(hours)} of training in all)" if math.isfinite(hours) else ""
        all_of = "all of them" if len(within) == len(needed) else f"{enough + len(within)} of {len(decisions)}"
        lines[0] += f"; --seeds {max(within)}{cost} would decide what matters in {all_of}"
    if left := len(needed) - len(within):
        each = "this difference" if len(decisions) == 1 else f"{left} of {len(decisions)} differences"
        lines.append(
            f"no number of seeds that is worth running (up to {max(WORTH, planned)}) decides what matters in {each}: "
            "what matters there is too small, or the score too noisy. Raise --matters, measure with less noise "
            "(such as more test items), or do not run it for this"
        )
    return lines


def _places(sizes: Sequence[float]) -> int:
    known = [size for size in sizes if math.isfinite(size) and size > 0]
    return min(max(1 - math.floor(math.log10(min(known))), 0), 6) if known else 4


def _count(seeds: int | None) -> str:
    return "–" if seeds is None else f"{seeds:,}"  # noqa: RUF001
