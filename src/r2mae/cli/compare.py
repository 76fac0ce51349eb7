"""``r2mae compare DATA``: run schemes × seeds, then write a table, figures and a report."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.configs import config_parser, print_config
from r2mae.cli.parsing import Parser, loading
from r2mae.compare.cluster_options import ClusterFlags
from r2mae.domains.lookup import check_run, get_domain
from r2mae.domains.sources import Sources, make_base
from r2mae.errors import UserError
from r2mae.fields import option
from r2mae.training.config import RunConfig, option_names

if TYPE_CHECKING:
    from rich.console import Console

    from r2mae.compare.comparison import Comparison
    from r2mae.compare.runs import Variant
    from r2mae.domains.base import Domain

VARIANT_FIELDS = ("scheme", "seed")


@dataclass(frozen=True)
class Options(ClusterFlags):
    """Pretrain under several schemes and seeds, and say which is better. The same command resumes.

    Parameters
    ----------
    schemes : list of str
        Schemes to compare. Fixed has a variant for each of --ratios.
    seeds : list of str
        How many seeds, or which (two or more numbers).
    ratios : list of str
        Fixed ratios to compare; by default the domain's ratio, low and high.
    against : float or str, optional
        Ratio or scheme to compare the others with; the headline is about it. One of --ratios or --schemes, by default
        the best fixed ratio, chosen without the seed.
    baselines : list of str
        Baselines to measure without pretraining, or the word none; by default those of the domain.
    out : str, optional
        Folder of the comparison; by default runs/compare-DATA.
    config : str, optional
        YAML file with any of these options, such as a run's config.yaml.
    print_config : bool
        Print the configuration as such a file, and end.
    dry_run : bool
        Time a few steps of one variant, and estimate the time of the comparison. Nothing is written.
    plan_power : bool
        Say what --seeds would decide, and how many seeds the differences so far need: from the finished runs in --out,
        at least two seeds a variant. Nothing is trained or written.
    json : bool
        Print JSON, for scripts.
    """

    schemes: tuple[str, ...] | None = option(None, metavar="SCHEME")
    seeds: tuple[int, ...] = option((3,), metavar="N")
    ratios: tuple[float, ...] | None = option(None, metavar="RATIO")
    against: float | str | None = option(None, metavar="RATIO|SCHEME", common=False)
    baselines: tuple[str, ...] | None = None
    out: str | None = option(None, metavar="DIR")
    config: str | None = option(None, metavar="FILE", common=False)
    print_config: bool = option(False, common=False)
    dry_run: bool = option(False, common=False)
    plan_power: bool = False
    json: bool = option(False, common=False)


@dataclass(frozen=True)
class Plan:
    """What the command is to run: mistakes in it were found, and torch was not imported."""

    config: RunConfig
    domain: "Domain"
    schemes: list[str]
    of_schemes: dict[str, Any]
    baselines: list[str]
    variants: "list[Variant]"
    seeds: Sequence[int]
    against: str | None
    out: Path


def make_plan(sources: Sources, options: Options, given: Mapping[str, Any], *, which: bool = False) -> Plan:
    """Return what the options describe; one number of seeds is how many, or with `which` the seed."""
    from r2mae.compare.runs import against_label, default_schemes, plan_variants, seeds_of

    domain = sources.domain
    config, of_schemes = make_base(sources, given)
    baselines = _baselines(options, domain, config)
    schemes = default_schemes(config) if options.schemes is None else list(options.schemes)
    variants = plan_variants(config, schemes, of_schemes, options.ratios)
    against, out = against_label(options.against, variants), f"runs/compare-{Path(config.data.source).stem}"
    one = len(options.seeds) == 1 and not which
    seeds, out = seeds_of(options.seeds[0] if one else options.seeds), options.out or out
    return Plan(config, domain, schemes, of_schemes, baselines, variants, seeds, against, Path(out))


def run(sources: Sources, options: Options, given: Mapping[str, Any], *, words: Sequence[str]) -> int:
    """Run the command, whose words the report repeats with more seeds."""
    plan = make_plan(sources, options, given)
    if options.print_config:
        shown = {"schemes": plan.schemes, "seeds": list(options.seeds), "ratios": options.ratios and [*options.ratios]}
        shown |= {"against": options.against, "baselines": plan.baselines or ["none"]}
        print_config(plan.config, VARIANT_FIELDS, **option_names(plan.of_schemes), **shown)
        return 0
    if options.plan_power or options.dry_run:
        options.read()  # mistakes in it are found here, too
        from r2mae.compare.runs import runs_of

        check_run(plan.domain, plan.config, [run.folder for run in runs_of(plan.variants, plan.seeds, plan.out)])
        return _plan(options, plan.config, plan.variants, plan.seeds, plan.out, plan.against)
    with loading():
        from r2mae.files import print_json
        from r2mae.terminal import Terminal
        from r2mae.training.folder import read_json

    carry_out(plan, options, table=Terminal(quiet=True) if options.json else None, command=_repeated(words))
    if options.json:
        print_json(read_json(plan.out / "results.json"))
    return 0


def carry_out(
    plan: Plan,
    options: Options,
    progress: "Console | None" = None,
    table: "Console | None" = None,
    command: Sequence[str] = (),
) -> "Comparison":
    """Run what is missing, write the output, and return the comparison; progress and table have their own consoles."""
    from r2mae.compare.run import start_server
    from r2mae.compare.runs import runs_of

    cluster, out, domain = options.read(), plan.out, plan.domain
    runs = runs_of(plan.variants, plan.seeds, out)
    check_run(domain, plan.config, [run.folder for run in runs])
    if cluster is None and any(not (run.folder / "results.json").exists() for run in runs):
        start_server(domain.name)
    with loading():
        from r2mae.compare.compare import compare
        from r2mae.compare.gather import gather_again
        from r2mae.compare.publish import publish
        from r2mae.compare.run import FailedRunsError
        from r2mae.training.folder import FolderLock

    what: dict[str, Any] = {"schemes": plan.schemes, "options": plan.of_schemes, "seeds": plan.seeds, "out": out}
    what |= {"ratios": options.ratios, "baselines": plan.baselines, "against": plan.against, "console": progress}
    try:
        comparison = compare(plan.config, domain, jobs=options.jobs, cluster=cluster, **what)
    except FailedRunsError:
        with FolderLock(out), suppress(UserError):  # if no run is finished, there is no table
            publish(gather_again(out, plan.against), out, console=table)
        raise
    comparison = replace(comparison, config={**comparison.config, "command": [*command]})
    with FolderLock(out):  # otherwise another command would delete the files being written as remains of a crash
        return publish(comparison, out, console=table)


def _repeated(words: Sequence[str]) -> list[str]:
    """Return the words of the command without its seeds and folder."""
    kept, omit = ["r2mae", "compare"], False
    for word in words:
        if word.startswith("-"):
            omit = word.partition("=")[0] in ("--seeds", "--out", "--json")
        if not omit:
            kept.append(word)
    return kept


def _baselines(options: Options, domain: "Domain", config: RunConfig) -> list[str]:
    """Return the named baselines, or by default those of the domain that exist for the model of the configuration."""
    if options.baselines is None:
        return list(domain.default_baselines_of(config))
    named = [name for name in options.baselines if name != "none"]
    if named and len(named) < len(options.baselines):
        raise UserError(f"--baselines none omits all baselines: name either none or {' '.join(named)}")
    return named


def _plan(
    options: Options,
    config: RunConfig,
    variants: "Sequence[Variant]",
    seeds: Sequence[int],
    out: Path,
    against: str | None,
) -> int:
    """Print what the comparison will take, or what it can decide; refuse options that have no effect on that."""
    if options.plan_power and options.dry_run:
        raise UserError("--plan-power trains nothing, and --dry-run times steps: give one of them")
    if options.cluster is not None:
        raise UserError("plans are made on this machine, so --cluster would be ignored: omit it")
    if options.plan_power and options.baselines not in (None, ("none",)):
        raise UserError("plans are made of pretrained variants, so --baselines would be ignored: omit it")
    with loading():
        from r2mae.compare.estimate import estimate, plan_power, print_estimate, print_power
        from r2mae.files import print_json

    domain = get_domain(config.domain)
    if options.dry_run:
        found = estimate(config, domain, variants, seeds, out, jobs=options.jobs)
        print_json({"estimate": True, **found}) if options.json else print_estimate(found)
        return 0
    rows = plan_power(config, domain, variants, seeds, out, against)
    print_json({"seeds": len(seeds), "rows": rows}) if options.json else print_power(rows, len(seeds))
    return 0


_EXAMPLE = "--schemes fixed r2mae mdlm --seeds 3 --out runs/mine"


def parser(words: Sequence[str]) -> Parser:
    """Return the parser of the command for these words."""
    return config_parser("compare", Options, _EXAMPLE, partial(run, words=words), words, omitted=VARIANT_FIELDS)
