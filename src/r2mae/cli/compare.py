"""``r2mae compare DATA``: run schemes × seeds, then write a table, figures and a report."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.cluster import ClusterOptions, read_cluster
from r2mae.cli.configs import config_parser, print_config
from r2mae.cli.early import loading
from r2mae.cli.lists import parse_baselines, parse_ratios, parse_seeds, words_of
from r2mae.cli.parsing import Parser
from r2mae.domains.checks import check_run
from r2mae.domains.sources import Sources, make_base
from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.fields import option
from r2mae.training.layers import option_names

if TYPE_CHECKING:
    from r2mae.compare.runs import Variant
    from r2mae.domains.base import Domain

_IN_FILE = ("schemes", "seeds", "ratios", "baselines")
_VARIANT_FIELDS = ("scheme", "seed")
_SEEDS = ["3"]


@dataclass(frozen=True)
class Options(ClusterOptions):
    """Pretrain under several masking schemes and seeds, and say which wins. The same command resumes.

    Parameters
    ----------
    schemes : list of str
        Schemes to compare; those with one ratio have a variant for each of --ratios.
    seeds : list of str
        How many seeds, or which (two or more numbers).
    ratios : list of str
        Fixed ratios to compare; by default the domain's ratio, low and high.
    baselines : list of str
        Baselines to measure without pretraining, or the word none; by default those of the domain.
    jobs : int, optional
        Number of processes; by default one per core.
    out : str, optional
        Folder of the comparison; by default runs/compare-DATA.
    config : str, optional
        YAML file with any of these options, such as a run's config.yaml.
    print_config : bool
        Print the configuration as such a file, and end.
    dry_run : bool
        Time a few steps of one variant, and estimate the time of the comparison. Nothing is written.
    plan_power : bool
        From the finished runs in --out, at least two seeds a variant: which differences the planned --seeds decide, and
        how many seeds the differences so far need. Nothing is trained or written.
    json : bool
        Print JSON, for scripts.
    """

    schemes: tuple[str, ...] | None = option(None, metavar="SCHEME")
    seeds: tuple[str, ...] | None = option(None, metavar="N")
    ratios: tuple[str, ...] | None = option(None, metavar="RATIO")
    baselines: tuple[str, ...] | None = None
    out: str | None = option(None, metavar="DIR")
    config: str | None = option(None, metavar="FILE")
    print_config: bool = option(False, common=False)
    dry_run: bool = option(False, common=False)
    plan_power: bool = option(False, common=False)
    json: bool = option(False, common=False)


def parser(words: Sequence[str]) -> Parser:
    """Return the parser for a kind of data."""
    example = "--schemes fixed r2mae mdlm --seeds 3 --out runs/mine"
    return config_parser("compare", Options, example, run, words, in_file=_IN_FILE, omitted=_VARIANT_FIELDS)


def run(sources: Sources, options: Options, given: Mapping[str, Any]) -> int:
    """Run the command."""
    from r2mae.compare.run import start_server
    from r2mae.compare.runs import runs_of
    from r2mae.compare.variants import DEFAULT_SCHEMES, plan_variants

    domain = sources.domain
    config, of_schemes = make_base(sources, given)
    own = {name: None if getattr(options, name) is None else words_of(getattr(options, name)) for name in _IN_FILE}
    baselines = parse_baselines(own["baselines"], domain.default_baselines_of(config))
    schemes = list(DEFAULT_SCHEMES) if own["schemes"] is None else own["schemes"]
    seeds = parse_seeds(_SEEDS if own["seeds"] is None else own["seeds"])
    ratios = None if own["ratios"] is None else parse_ratios(own["ratios"])
    variants = plan_variants(config, schemes, of_schemes, ratios)  # finds mistakes before torch is imported
    if options.print_config:
        shown = {"schemes": schemes, "seeds": own["seeds"] or _SEEDS, "ratios": own["ratios"]}
        shown |= {"baselines": baselines or ["none"]}
        print_config(config, skip=_VARIANT_FIELDS, **option_names(of_schemes), **shown)
        return 0
    cluster = read_cluster(options)
    out = Path(options.out or f"runs/compare-{Path(config.data.source).stem}")
    runs = runs_of(variants, seeds, out)
    check_run(domain, config, [run.folder for run in runs])
    if options.plan_power or options.dry_run:
        _check_plan(options, baselines=bool(own["baselines"] and baselines))
        return _plan(domain, config, variants, seeds, out, options)

    if cluster is None and any(not (run.folder / "results.json").exists() for run in runs):
        start_server(domain.name)
    with loading():
        from r2mae.compare.compare import compare
        from r2mae.compare.gather import gather_again
        from r2mae.compare.publish import publish
        from r2mae.compare.run import FailedRunsError
        from r2mae.files import print_json
        from r2mae.terminal import Terminal
        from r2mae.training.folder import FolderLock, read_json

    console = Terminal(quiet=True) if options.json else None
    plan: dict[str, Any] = {"schemes": schemes, "options": of_schemes, "seeds": seeds, "ratios": ratios}
    plan |= {"baselines": baselines, "out": out}
    try:
        comparison = compare(config, domain, jobs=options.jobs, cluster=cluster, **plan)
    except FailedRunsError:
        with FolderLock(out), suppress(UserError):  # if no run is finished, there is no table
            publish(gather_again(out), out, console=console)
        raise
    with FolderLock(out):  # otherwise another command would delete the files being written as remains of a crash
        publish(comparison, out, console=console)
    if options.json:
        print_json(read_json(out / "results.json"))
        return 0
    print(f"table, figures and report.html are in {out}")
    return 0


def _check_plan(options: Options, *, baselines: bool) -> None:
    """Refuse options that a plan would ignore; `baselines` says if any were named."""
    if options.plan_power and options.dry_run:
        raise UserError("--plan-power trains nothing, and --dry-run times steps: give one of them")
    ignored = {"--cluster": options.cluster is not None, "--baselines": baselines and options.plan_power}
    for name, given in ignored.items():
        if given:
            raise UserError(f"plans are made on this machine, so {name} would be ignored: omit it")


def _plan(
    domain: "Domain",
    config: RunConfig,
    variants: "Sequence[Variant]",
    seeds: Sequence[int],
    out: Path,
    options: Options,
) -> int:
    """Print what the comparison will take, or what it can decide."""
    with loading():
        from r2mae.compare.estimate import estimate, print_estimate
        from r2mae.compare.power import plan_power, print_power
        from r2mae.files import print_json

    if options.plan_power:
        rows = plan_power(config, domain, variants, seeds, out)
        if options.json:
            print_json({"seeds": len(seeds), "rows": rows})
        else:
            print_power(rows, len(seeds))
        return 0
    found = estimate(config, domain, variants, seeds, out, jobs=options.jobs)
    if options.json:
        print_json({"estimate": True, **asdict(found)})
    else:
        print_estimate(found)
    return 0
