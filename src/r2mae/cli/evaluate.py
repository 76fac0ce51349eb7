"""``r2mae evaluate RUN``: measure a pretrained model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import baselines_in_words, evaluations_of, listed, options_by_domain, run_in, taken
from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser
from r2mae.compare.lists import words_of
from r2mae.domains.checks import check_source, open_run
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError, unknown
from r2mae.training.fields import argument, docstring_part, option, options_of

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
        Device: auto, cpu, cuda or cuda:N.
    json : bool
        Print JSON, for scripts.
    """

    run: str = argument()
    what: str | None = argument(None)
    baselines: tuple[str, ...] = ()
    data: str | None = None
    device: str = option("auto", words=("auto", "cpu", "cuda"))
    json: bool = False


def parser(words: Sequence[str]) -> Parser:
    """Return the parser for the domain of a run; without a run, its help names the options of every domain."""
    path = run_in(words)
    if path is None:
        domains = all_domains()
        made = Parser("r2mae evaluate", _about(domains), *_examples(domains))
        made.add(options_of(Options))
        return made
    domain, _ = open_run(path)
    chosen = _evaluation(domain, words)
    examples = [f"r2mae evaluate {example}" for example in chosen.examples]
    made = Parser("r2mae evaluate", _about([domain]), *examples, run=partial(run, path, domain, chosen))
    made.lacks = f"{path} is a run of the domain {domain.name}, which has no"
    names = tuple(one.name or domain.name for one in evaluations_of(domain))
    helps: dict[str, dict[str, Any]] = {
        "what": {"words": names, "help": f"The evaluation: {', '.join(names)}."},
        "baselines": {"words": domain.default_baselines, "help": f"Baselines to measure: {_baselines([domain])}."},
    }
    made.add(replace(one, **helps.get(one.name, {})) for one in options_of(Options))
    made.add(options_of(chosen.options, chosen.name or domain.name))
    made.add(options_of(domain.command_line.reading, "with --data"))
    made.elsewhere = {
        one.typed: f"belongs to {other.name or domain.name}: r2mae evaluate {path} {other.name} {one.typed} …"
        for other in reversed(evaluations_of(domain))
        for one in options_of(other.options)
        if one.typed not in [own.typed for own in made.options.values()]
    }
    return made


def _evaluation(domain: "Domain", words: Sequence[str]) -> "Evaluation":
    """Return the evaluation that the word after RUN names, or the domain's default one."""
    found = {one.name or domain.name: one for one in evaluations_of(domain)}
    leading = list(takewhile(lambda word: not word.startswith("-"), words))
    named = leading[1] if len(leading) > 1 else domain.name
    if named not in found:
        raise unknown("evaluation", named, found)
    return found[named]


def _about(domains: "Sequence[Domain]") -> str:
    lines = [(one.name or domain.name, one.help) for domain in domains for one in evaluations_of(domain)]
    about = f"{docstring_part(Options)}\n\n{listed(lines)}"
    if len(domains) == 1:
        other = domains[0].command_line.other_data
        return f"{about}\n\nWith --data, {other}." if other else about
    kinds = [(one.name or domain.name, [one.options]) for domain in domains for one in evaluations_of(domain)]
    return f"{about}\n\n{options_by_domain('evaluate', kinds)}\n\nBaselines: {_baselines(domains)}."


def _baselines(domains: "Sequence[Domain]") -> str:
    return baselines_in_words(domains) or "none"


def _examples(domains: "Sequence[Domain]") -> Iterator[str]:
    return (
        f"r2mae evaluate {example}" for domain in domains for one in evaluations_of(domain) for example in one.examples
    )


def run(path: Path, domain: "Domain", evaluation: "Evaluation", given: dict[str, Any]) -> int:
    """Run the command."""
    _, config = open_run(path)
    values = Options(**taken(given, Options))
    options = {**taken(given, evaluation.options), **evaluation.fixed}
    reading = taken(given, domain.command_line.reading)
    if values.data is None:
        for one in options_of(domain.command_line.reading):
            if one.name in reading:
                raise UserError(f"{one.typed} is for other data: name them, --data OTHER, or omit it")
    elif evaluation.own_data:
        raise UserError(f"{evaluation.name} has its own data: omit --data")
    if not evaluation.own_data:
        check_source(domain, config, values.data or config.data.source)

    with loading():
        from r2mae.files import print_json
        from r2mae.report.scores_table import scores_table
        from r2mae.sweep.measure import evaluate
        from r2mae.training.progress import counting_bar

    with counting_bar("measuring", counted=False, transient=True) as progress:
        measurement = evaluate(
            path,
            source=values.data,
            reading=reading,
            own_data=evaluation.own_data,
            baselines=words_of(values.baselines),
            device=values.device,
            progress=progress,
            **options,
        )
    data = evaluation.name if evaluation.own_data else measurement.config.data.source
    measured = {name: options[name] for name in measurement.config.measured_fields if name in options}
    config = measurement.config.with_measurement(**measured)
    if values.json:
        printed = {
            "measured": config.measurement_settings(),
            "scores": measurement.scores,
            "baselines": measurement.baselines,
            "seconds": measurement.seconds,
        }
        print_json({"run": str(path), "data": data, **printed})
        return 0
    scores_table({path.name: measurement.scores, **measurement.baselines}, domain.metrics_of(config))
    if not evaluation.own_data and (method := config.measured_in_words()):
        print(method)
    print(f"measured on {data} in {measurement.seconds:.1f} s")
    return 0
