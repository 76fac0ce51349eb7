"""``r2mae compare DATA``: run schemes × seeds, then write a table, figures and a report."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.cluster import add_cluster, read_cluster
from r2mae.cli.declared import baselines_in_words
from r2mae.cli.early import check_run, loading
from r2mae.cli.lists import parse_baselines, parse_ratios, parse_seeds, words_of
from r2mae.cli.parsing import (
    Parser,
    Subject,
    add_config,
    config_file,
    describe,
    example_data,
    make_config,
    options_of,
    print_config,
    read_subject,
)
from r2mae.cli.plans import add_plans, check_plans, print_estimate, print_power
from r2mae.cli.show import print_json
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError
from r2mae.masking.schemes import SCHEME_OPTIONS
from r2mae.terminal import Terminal
from r2mae.training.config import SCHEME_OWN, RunConfig

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.sweep.runs import Variant

_COMPARE_OPTIONS = ("schemes", "seeds", "ratios", "baselines")
_VARIANT_FIELDS = ("scheme", "seed")


def run(words: Sequence[str]) -> int:
    """Run the command."""
    from r2mae.compare.variants import plan_variants
    from r2mae.sweep.runs import runs_of
    from r2mae.sweep.worker_start import load_ahead

    subject = read_subject("compare", words)
    values = _parser(subject).read(subject.words)
    options = options_of(subject, values)
    config = make_config(subject, values)
    named = None if values["baselines"] is None else words_of(values["baselines"])
    baselines = parse_baselines(named, _default_baselines(subject.domain, config))
    values["baselines"] = baselines or ["none"]
    schemes, seeds = words_of(values["schemes"]), parse_seeds(words_of(values["seeds"]))
    ratios = None if values["ratios"] is None else parse_ratios(words_of(values["ratios"]))
    variants = plan_variants(config, schemes, options, ratios)  # finds mistakes before torch is imported
    if values["print_config"]:
        common = {name: value for name, value in options.items() if name in SCHEME_OPTIONS}
        own = [f"{name}={value!r}" for name, value in options.items() if name not in common]
        more = {**common, **({SCHEME_OWN: own} if own else {}), **{name: values[name] for name in _COMPARE_OPTIONS}}
        print_config(config, skip=_VARIANT_FIELDS, **more)
        return 0
    cluster = read_cluster(values)
    out = Path(values["out"] or f"runs/compare-{Path(config.data).stem}")
    runs = runs_of(variants, seeds, out)
    check_run(subject.domain, config, [run.folder for run in runs])
    check_plans(values, baselines=bool(named and baselines))
    plan: dict[str, Any] = {"schemes": schemes, "options": options, "seeds": seeds, "ratios": ratios}
    plan |= {"baselines": baselines, "out": out}
    if values["plan_power"] or values["dry_run"]:
        return _plan(subject.domain, config, variants, seeds, out, values)

    if cluster is None and any(not (run.folder / "results.json").exists() for run in runs):
        load_ahead()
    with loading():
        from r2mae.compare.again import gather_again
        from r2mae.compare.compare import compare
        from r2mae.report.publish import publish
        from r2mae.sweep.dispatch import FailedRunsError
        from r2mae.training.folder import FolderLock, read_json

    console = Terminal(quiet=True) if values["json"] else None
    try:
        comparison = compare(config, subject.domain, jobs=values["jobs"], cluster=cluster, **plan)
    except FailedRunsError:
        with FolderLock(out), suppress(UserError):  # if no run is finished, there is no table
            publish(gather_again(out), out, console=console)
        raise
    with FolderLock(out):  # otherwise another command would delete the files being written as remains of a crash
        publish(comparison, out, console=console)
    if values["json"]:
        print_json(read_json(out / "results.json"))
        return 0
    print(f"table, figures and report.html are in {out}")
    return 0


def _parser(subject: Subject) -> Parser:
    """Return the parser of the command for a kind of data."""
    from r2mae.compare.variants import DEFAULT_SCHEMES, per_ratio_schemes
    from r2mae.masking.schemes import scheme_names

    parser = Parser(
        f"r2mae compare {subject.domain.name} DATA",
        "Pretrain under several masking schemes and seeds, and say which wins. The same command resumes an interrupted "
        f"comparison; finished runs are never repeated. {describe(subject)}",
        f"r2mae compare {example_data(subject)} --schemes fixed r2mae mdlm --seeds 3 --out runs/mine",
    )
    add_config(parser, subject, skip=_VARIANT_FIELDS, more=_COMPARE_OPTIONS)
    parser.add_argument(
        "--schemes",
        nargs="+",
        type=str,
        default=list(DEFAULT_SCHEMES),
        help=f"Any of: {', '.join(scheme_names())}. With three variants each (the default ratio, low and high): "
        f"{', '.join(per_ratio_schemes())}.",
    )
    parser.add_argument(
        "--seeds", nargs="+", type=str, default=["3"], help="How many seeds, or which (two or more numbers)."
    )
    parser.add_argument("--ratios", nargs="+", type=str, help="Fixed ratios to compare, instead of those three.")
    parser.add_argument(
        "--baselines",
        nargs="+",
        type=str,
        help="Baselines to measure without pretraining, or the word none: "
        f"{baselines_in_words(all_domains(), default=True)}.",
    )
    parser.add_argument("--jobs", type=int, help="Number of processes; by default one per core.")
    add_cluster(parser)
    parser.add_argument("--out", type=str, help="Folder of the comparison; by default runs/compare-DATA.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    add_plans(parser)
    parser.set_defaults(**_options_from_file(subject.given, config_file(subject.words) or "--config"))
    return parser


def _plan(
    domain: "Domain",
    config: RunConfig,
    variants: "Sequence[Variant]",
    seeds: Sequence[int],
    out: Path,
    values: Mapping[str, Any],
) -> int:
    """Print what the comparison will take, or what it can decide."""
    with loading():
        from r2mae.compare.estimate import estimate
        from r2mae.compare.power import plan_power

    if values["plan_power"]:
        rows = plan_power(config, domain, variants, seeds, out)
        if values["json"]:
            print_json({"seeds": len(seeds), "rows": rows})
        else:
            print_power(rows, len(seeds))
        return 0
    found = estimate(config, domain, variants, seeds, out, jobs=values["jobs"])
    if values["json"]:
        print_json({"estimate": True, **asdict(found)})
    else:
        print_estimate(found)
    return 0


def _default_baselines(domain: "Domain", config: RunConfig) -> Sequence[str]:
    """Return the domain's default baselines that exist for the model of the configuration."""
    known = domain.baselines_of(config) if domain.default_baselines else ()
    return [name for name in domain.default_baselines if name in known]


def _options_from_file(given: Mapping[str, Any], file: str) -> dict[str, list[str]]:
    """Return the command's own options from a file, as lists; a single number or name becomes a list."""
    own = {}
    for name in _COMPARE_OPTIONS:
        if given.get(name) is not None:
            try:
                own[name] = words_of(given[name])
            except UserError as error:
                raise UserError(f"{file}: {name}: {error}") from None
    return own
