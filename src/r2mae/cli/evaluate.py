"""``r2mae evaluate RUN``: measure a pretrained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import Offer, run_parser, taken
from r2mae.cli.parsing import Parser, loading
from r2mae.cores import DEVICES
from r2mae.domains.baselines import known_baselines
from r2mae.domains.lookup import open_run
from r2mae.errors import UserError, unknown
from r2mae.fields import argument, option, options_of

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.options import Evaluation


@dataclass(frozen=True)
class Options:
    """Measure a pretrained model of any domain on test data that it was not trained on: those of the run, or others.

    RUN/results.json is not changed.

    Parameters
    ----------
    run : str
        A run folder.
    what : str, optional
        The evaluation; by default that of the run's domain.
    baselines : list of str
        Baselines to measure as well.
    data : str, optional
        Measure on other data: a named set or a path. Probes are fitted on the training part of these data.
    device : str
        Device: auto, cpu, cuda, cuda:N or mps.
    json : bool
        Print JSON, for scripts.
    """

    run: str = argument()
    what: str | None = argument(None)
    baselines: tuple[str, ...] = ()
    data: str | None = None
    device: str = option("auto", words=DEVICES)
    json: bool = False


def parser(words: Sequence[str]) -> Parser:
    """Return the parser for the domain of a run; without a run, its help names the evaluations of every domain."""
    return run_parser("evaluate", Options, partial(_offer, words), partial(run, words), words)


def _offer(words: Sequence[str], domain: "Domain") -> Offer:
    declared, every, chosen = domain.command_line, _evaluations(domain), _chosen(domain, words)
    lines = [(name, one.help) for name, one in every.items()]
    if declared.other_data:
        lines.append(("", f"With --data, {declared.other_data}."))
    known = (*known_baselines(domain.name), *filter(None, [declared.baselines]))
    baselines = f"Baselines to measure: {', '.join(known)}."
    return Offer(
        lines,
        chosen.examples,
        [(chosen.options, chosen.name or domain.name), (declared.reading, "with --data")],
        {
            "what": {"words": tuple(every), "help": f"The evaluation: {', '.join(every)}."},
            "baselines": {"words": known, "help": baselines},
        },
        {one.typed: name for name, other in reversed(every.items()) for one in options_of(other.options)},
    )


def _evaluations(domain: "Domain") -> dict[str, "Evaluation"]:
    """Return the domain's default evaluation, then the others, by name."""
    every = (domain.command_line.evaluation, *domain.command_line.evaluations)
    return {one.name or domain.name: one for one in every}


def _chosen(domain: "Domain", words: Sequence[str]) -> "Evaluation":
    """Return the evaluation that the word after RUN names, or the domain's default one."""
    every, leading = _evaluations(domain), list(takewhile(lambda word: not word.startswith("-"), words))
    named = leading[1] if len(leading) > 1 else domain.name
    if named not in every:
        raise unknown("evaluation", named, every)
    return every[named]


def run(words: Sequence[str], path: Path, domain: "Domain", options: Options, given: dict[str, Any]) -> int:
    """Run the command."""
    (_, config), evaluation = open_run(path), _chosen(domain, words)
    if (options.what or domain.name) != (evaluation.name or domain.name):
        raise UserError(f"name the evaluation before the options: r2mae evaluate {path} {options.what} --…")
    asked = {**taken(given, evaluation.options), **evaluation.fixed}
    reading = taken(given, domain.command_line.reading)
    if reading and options.data is None:
        name = next(iter(reading)).replace("_", "-")
        raise UserError(f"--{name} is for other data: name them, --data OTHER, or omit it")
    if options.data is not None and evaluation.own_data:
        raise UserError(f"{evaluation.name} has its own data: omit --data")
    if not evaluation.own_data:
        domain.check_source(config.replace(data=options.data or config.data.source))

    with loading():
        from r2mae.compare.measure import evaluate
        from r2mae.compare.scores import print_scores
        from r2mae.files import print_json
        from r2mae.progress import counting_bar

    with counting_bar("measuring", counted=False, transient=True) as progress:
        found = evaluate(
            path,
            source=options.data,
            reading=reading,
            own_data=evaluation.own_data,
            baselines=options.baselines,
            device=options.device,
            progress=progress,
            **asked,
        )
    config = found.config
    data = evaluation.name if evaluation.own_data else config.data.source
    if options.json:
        scores = {"scores": found.scores, "baselines": found.baselines}
        print_json({"run": str(path), "data": data, "measured": found.measured, **scores, "seconds": found.seconds})
        return 0
    print_scores({path.name: found.scores, **found.baselines}, domain.metrics_of(config))
    if not evaluation.own_data and (method := config.measured_in_words()):
        print(method)
    columns = {name: config[name] for name in config.measured_data if name in asked}
    if columns:
        texts = (f"{name} {one if isinstance(one, str) else ' '.join(one)}" for name, one in columns.items())
        print(f"columns in place of the run's: {', '.join(texts)}")
    print(f"measured on {data} in {found.seconds:.1f} s")
    return 0
