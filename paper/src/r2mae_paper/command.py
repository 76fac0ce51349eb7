"""``r2mae reproduce NAME...``: compute, write and draw figures and tables of the paper.

``--list`` lists them, and ``--claims`` says what results show of the paper's claims.
"""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from r2mae.cli.parsing import HELP, Parser, loading, parser_of
from r2mae.compare.cluster_options import ClusterFlags
from r2mae.errors import UserError, unknown
from r2mae.fields import argument, option
from r2mae_paper.state import state_of
from r2mae_paper.studies import ENTRIES, SCALES, entry_of

if TYPE_CHECKING:
    from r2mae.compare.runs import Variant
    from r2mae_paper.runner import Options as RunOptions
    from r2mae_paper.study import Study

_OUT = Path("runs") / "reproduce"
_FIELDS = ("data", "store", "variants", "only", "rows", "baselines")
"""Options that are fields of a study's size."""
_SETTINGS = ("workers", "accumulate", "devices", "precision", "cache")
"""Options that are fields of the configuration of every run."""


@dataclass(frozen=True, kw_only=True)
class Options(ClusterFlags):
    """Compute figures and tables of the paper, and write each one's numbers (CSV) and figure (PNG, SVG) to a folder.

    Parameters
    ----------
    names : list of str
        Which ones.
    list : bool
        List all, or those named, with data, cost by scale, and what of them is finished in the folder --out.
    scale : str
        The paper's sizes (full, or paper, which is the same), or small ones: seconds for simulations, hours for
        training runs, which have a third scale, smoke, of a few steps.
    out : str, optional
        Folder, with a subfolder for each NAME; by default runs/reproduce.
    jobs : int, optional
        Number of threads for simulations, or of processes for runs; by default 1. The results do not depend on it.
    again : bool
        Compute again, without the saved results of earlier calls of this size.
    seeds : int, optional
        For studies of runs: under how many seeds each row runs, in place of the scale's number (narrow models of
        fig2a at the paper's scale: under twice as many). Finished runs are kept: a larger number adds seeds.
    earlier : str, optional
        For one study of runs: a folder with its tables and made.json, of the same scale and version. Runs that its
        NAME-runs.csv holds are taken from there and not trained, so that seeds can be added without their folders.
    data : str, optional
        For Figs. 2A, 2B, 8 and 9, Table 2 and text-ratios: your copy of the data, such as FineWeb.
    store : str, optional
        For Table 3: the store of an alignment of the human genome, in place of viruses.
    variants : list of str, optional
        For Table 3 with --store: tables of variants, ClinVar's missense ones and OMIM's regulatory ones, with the
        columns chrom, pos, ref, alt, label (1 or 0, or Pathogenic or Common) and, of OMIM, consequence.
    rows : list of str, optional
        For tables of schemes: only these rows, such as "fixed 0.15" r2mae; paper: those that the paper prints.
    baselines : list of str, optional
        For Tables 1, 3, 4 and 6: what is measured without training, in place of the scale's. In Table 3 also columns of
        the variants, of which high values are harmful (CADD, phyloP); in Tables 4 and 6 also keys of obsm (scGPT, UCE).
    only : list of str, optional
        For Tables 4 and 6 to 8: the cells of the probes, as in r2mae pretrain cells. For the probe of Supertype the
        paper keeps some types of SEA-AD, which it does not name: Supertype:Subclass=NAME.
    workers, accumulate, devices : int, optional
        Of every run, as in r2mae pretrain.
    precision : str, optional
        Of every run, as in r2mae pretrain.
    cache : str, optional
        Of every run on images, as in r2mae pretrain.
    print_config : bool
        Print the configuration of every row, and train nothing.
    dry_run : bool
        Time a few steps, and estimate the time of all runs. Nothing is trained.
    curve : list of str
        For fig1f, fig1g and fig4: tables with the columns task, ratio (of pretraining) and accuracy (fractions), such
        as published ones; for fig2c also model. fig1f and fig2c need them.
    claims : list of str, optional
        Compute nothing; say of every claim of the paper what the results in these folders show. A folder holds results
        of studies or comparisons, or folders that do; without one it is runs/reproduce.
    markdown : str, optional
        With --claims: write the table into this page instead.

    Examples
    --------
    r2mae reproduce fig1b table5 --scale small
    r2mae reproduce fig1f --curve accuracies.csv
    r2mae reproduce randomness-images --scale small --seeds 10 --jobs 2
    r2mae reproduce table1 --scale paper --accumulate 4 --print-config
    r2mae reproduce --list
    r2mae reproduce --claims paper/results runs/reproduce
    """

    names: tuple[str, ...] = argument((), metavar="NAME")
    list: bool = False
    scale: str = option("full", words=tuple(SCALES))
    out: str | None = option(None, metavar="DIR")
    again: bool = False
    seeds: int | None = None
    earlier: str | None = option(None, metavar="FOLDER")
    data: str | None = option(None, metavar="PATH")
    store: str | None = option(None, metavar="FOLDER")
    variants: tuple[str, ...] | None = option(None, metavar="FILE")
    rows: tuple[str, ...] | None = option(None, metavar="ROW")
    baselines: tuple[str, ...] | None = option(None, metavar="NAME")
    only: tuple[str, ...] | None = option(None, metavar="[PROBE:]COLUMN=VALUE")
    workers: int | None = None
    accumulate: int | None = None
    devices: int | None = None
    precision: Literal["auto", "32", "bf16"] | None = None
    cache: str | None = option(None, metavar="MODE")
    print_config: bool = False
    dry_run: bool = False
    curve: tuple[str, ...] = option((), metavar="FILE.csv")
    claims: tuple[str, ...] | None = option(None, metavar="FOLDER")
    markdown: str | None = option(None, metavar="FILE.md")


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = _parser(listing=not words or any(word in HELP for word in words))
    options = Options(**parser.read(words))
    values = vars(options)
    if options.scale not in SCALES:
        raise unknown("--scale", options.scale, SCALES)
    if values["claims"] is not None:
        with loading("scientific libraries"):
            from r2mae_paper.claims.page import show_claims

        folders = [Path(word) for word in values["claims"]] or [_OUT]
        _check_alone(words, ("--claims", "--markdown"), "--claims only reads results")
        return show_claims(values["names"], folders, values["markdown"])
    if values["markdown"] is not None:
        raise UserError("--markdown belongs to --claims: r2mae reproduce --claims FOLDER --markdown FILE.md")
    out = Path(values["out"] or _OUT)
    if values["list"]:
        _check_alone(words, ("--list", "--out"), "--list computes nothing")
        return _list(values["names"], out)
    if not values["names"]:
        if words:
            raise UserError("name a study, before the options: r2mae reproduce fig1b --scale small, or --list for all")
        parser.print_help()
        return 0
    return _reproduce(options, out)


def _reproduce(given: Options, out: Path) -> int:
    """Make the studies, each in its folder. All are checked first, as computing one may take minutes."""
    values = vars(given)
    names = list(dict.fromkeys(entry_of(name).name for name in values["names"]))
    if values["jobs"] is not None and values["jobs"] < 1:
        raise UserError(f"--jobs must be 1 or more, not {values['jobs']}")
    if values["earlier"] is not None and len(names) > 1:
        raise UserError("--earlier has the tables of one study: name one at a time")
    earlier, cluster = None if values["earlier"] is None else Path(values["earlier"]), given.read()
    with loading("scientific libraries"):
        from r2mae.progress import counting_bar
        from r2mae_paper.runner import Options, run_study, size_of
        from r2mae_paper.study import get_study

        studies = {name: get_study(name) for name in names}

    files = [Path(word) for word in values["curve"]]
    if files and not any(study.curves for study in studies.values()):
        raise UserError("--curve belongs to fig1f, fig1g, fig2c and fig4: r2mae reproduce fig1f --curve FILE.csv")
    fields, settings = (
        {name: values[name] for name in names if values[name] is not None} for names in (_FIELDS, _SETTINGS)
    )
    options = {
        name: Options(
            scale=SCALES[values["scale"]], seeds=values["seeds"], jobs=values["jobs"], again=values["again"],
            earlier=earlier, cluster=cluster, curve=files if study.curves else [], fields=fields, settings=settings,
        )
        for name, study in studies.items()
    }  # fmt: skip
    for name, study in studies.items():
        size_of(study, **options[name])
    if values["print_config"] or values["dry_run"]:
        for name, study in studies.items():
            _preview(study, out / name, options[name], dry_run=values["dry_run"])
        return 0
    for name, study in studies.items():
        begun = time.monotonic()
        command = _command(name, values, options[name])
        with counting_bar(name, counted=False) as progress:
            done = run_study(study, out / name, progress=progress, command=command, **options[name])
        before = "parts computed before" if study.runs is None else "runs from before"
        kept = f", {done.kept} of {done.parts} {before}" if done.kept else ""
        print(f"{study.entry.title} ({time.monotonic() - begun:.0f} s{kept})")
        for file in done.files:
            print(f"  {file}")
    return 0


def _preview(study: "Study", out: Path, options: "RunOptions", *, dry_run: bool) -> None:
    """Print the configuration of every row of a study, or how long its runs will take; train nothing.

    The data of the runs are prepared in the folder, such as a store.
    """
    from r2mae.cli.configs import print_config
    from r2mae.compare.estimate import estimate, print_estimate
    from r2mae.domains.lookup import get_domain
    from r2mae_paper.runner import planned_runs, size_of

    name = study.entry.name
    if study.runs is None:
        raise UserError(f"{name} trains no runs: omit --{'dry-run' if dry_run else 'print-config'}")
    runs = planned_runs(study, size_of(study, **options), out, options["settings"])
    groups: dict[Path, dict[str, Variant]] = {}
    for run in runs:
        if not run.variant.baseline:
            groups.setdefault(run.folder.parents[2], {}).setdefault(
                run.variant.label, replace(run.variant, config=run.config)
            )
    seeds = sorted({run.seed for run in runs})
    for folder, variants in groups.items():
        config = next(iter(variants.values())).config
        if dry_run:
            domain, jobs = get_domain(config.domain), options["jobs"] or 1
            print(f"{name} on {Path(config.data.source).name}:")
            print_estimate(estimate(config, domain, list(variants.values()), seeds, folder, jobs=jobs))
            continue
        for label, variant in variants.items():
            print(f"--- # {name}: {label}")
            print_config(variant.config)


def _command(name: str, values: Mapping[str, Any], options: "RunOptions") -> str:
    """Return what repeats a study's tables, but for folders and the number of jobs."""
    given = {"scale": values["scale"], "seeds": values["seeds"], **options["fields"], **options["settings"]}
    given["curve"] = options["curve"] or None
    words = [f"r2mae reproduce {name}"]
    for key, value in given.items():
        if value is not None:
            words += [f"--{key}", shlex.join(map(str, [value] if isinstance(value, str | int) else value))]
    return " ".join(words)


def _check_alone(words: Sequence[str], allowed: Sequence[str], why: str) -> None:
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in allowed:
            raise UserError(f"{why}: omit {word.partition('=')[0]}")


def _list(names: Sequence[str], out: Path) -> int:
    """Print a line for each figure, table and study: name, state, title, data and cost."""
    entries = {name: entry_of(name) for name in names or ENTRIES}
    states = {name: state_of(out / entry.name).in_words() for name, entry in entries.items()}
    wide, wider = max(map(len, entries)), max(map(len, states.values()))
    for name, entry in entries.items():
        cost = "; ".join(f"{scale}: {cost}" for scale, cost in entry.cost.items())
        print(f"{name:<{wide}}  {states[name]:<{wider}}  {entry.title}; data: {entry.data}; {cost}")
    return 0


def _parser(*, listing: bool) -> Parser:
    """Return the parser; with `listing` its help names every study."""
    width = max(map(len, ENTRIES)) + 2
    parser = parser_of("reproduce", Options, lambda given: 0, HELP)
    if listing:
        lines = "\n".join(f"  {name:<{width}}{entry.title}" for name, entry in ENTRIES.items())
        parser.description = f"{parser.description}\n\nNAME is one of:\n\n{lines}"
    return parser
