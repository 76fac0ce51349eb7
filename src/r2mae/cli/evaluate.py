"""``r2mae evaluate RUN``: measure a pretrained model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import (
    add_options,
    baselines_in_words,
    evaluation_of,
    evaluations_of,
    given_options,
    listed,
    parameters_of,
)
from r2mae.cli.early import check_source, loading, open_run
from r2mae.cli.lists import words_of
from r2mae.cli.parsing import Parser
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.options import Evaluation, Option

_DESCRIPTION = """Measure a pretrained model of any domain on test data that it was not trained on: those of the run,
or other data (--data). RUN/results.json is not changed.

"""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    domains = all_domains()
    values = _parser(domains).read(words)
    path = Path(values["run"])

    domain, config = open_run(path)
    given = given_options(values, _options(domains))
    evaluation = evaluation_of(domain, path, values["what"], given)
    options = {**parameters_of(path, domain, evaluation.options, given), **evaluation.fixed}
    reading = _given_reading_options(domains, domain, path, values, evaluation)
    if not evaluation.own_data:
        check_source(domain, config, values["data"] or config.data)

    with loading():
        from r2mae.cli.show import print_json, scores_table
        from r2mae.sweep.measure import evaluate
        from r2mae.training.progress import counting_bar

    with counting_bar("measuring", counted=False, transient=True) as progress:
        measurement = evaluate(
            path,
            source=values["data"],
            reading=reading,
            own_data=evaluation.own_data,
            baselines=words_of(values["baselines"]),
            device=values["device"],
            progress=progress,
            **options,
        )
    data = evaluation.name if evaluation.own_data else measurement.config.data
    given = {name: options[name] for name in measurement.config.measurement_fields if name in options}
    config = measurement.config.with_measurement(**given)
    measured = config.measurement_settings()
    if values["json"]:
        printed = {
            "measured": measured,
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


def _parser(domains: "Sequence[Domain]") -> Parser:
    named = [(domain, one) for domain in domains for one in domain.command_line.evaluations]
    default = [(domain.name, domain.command_line.evaluation.help) for domain in domains]
    others = [(one.name, f"for {domain.name}: {one.help}") for domain, one in named]
    parser = Parser(
        "r2mae evaluate",
        _DESCRIPTION + listed([*default, *others]),
        *(
            f"r2mae evaluate {example}"
            for domain in domains
            for one in evaluations_of(domain)
            for example in one.examples
        ),
    )
    parser.add_argument("run", metavar="RUN", type=str, help="A run folder.")
    also = "".join(f"; for {domain.name} also {one.name}" for domain, one in named)
    parser.add_argument(
        "what", metavar="WHAT", nargs="?", type=str, help=f"The run's domain (its default evaluation){also}."
    )
    add_options(parser, _options(domains))
    parser.add_argument(
        "--baselines",
        nargs="+",
        type=str,
        default=[],
        help=f"Baselines to measure as well: {baselines_in_words(domains)}.",
    )
    special = ", ".join(domain.command_line.other_data for domain in domains if domain.command_line.other_data)
    parser.add_argument(
        "--data",
        type=str,
        help="Measure on other data: a named set or a path. Probes are fitted on the training part of these data"
        f"{special and '; '}{special}.",
    )
    add_options(parser, _reading_options(domains), "with --data, ")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    return parser


def _options(domains: "Sequence[Domain]") -> "Iterator[tuple[Domain, Option]]":
    """Return the options of every domain's evaluations, each once."""
    for domain in domains:
        own = {option.name: option for one in evaluations_of(domain) for option in one.options}
        yield from ((domain, option) for option in own.values())


def _reading_options(domains: "Sequence[Domain]") -> "Iterator[tuple[Domain, Option]]":
    return ((domain, option) for domain in domains for option in domain.command_line.reading)


def _given_reading_options(
    domains: "Sequence[Domain]", domain: "Domain", path: Path, values: Mapping[str, Any], evaluation: "Evaluation"
) -> dict[str, Any]:
    """Return the given options for reading other data; refuse those without effect."""
    given = given_options(values, _reading_options(domains))
    reading = parameters_of(path, domain, domain.command_line.reading, given)
    if values["data"] is None:
        for name in given:
            raise UserError(f"--{name.replace('_', '-')} is for other data: name them, --data OTHER, or omit it")
    elif evaluation.own_data:
        raise UserError(f"{evaluation.name} has its own data: omit --data")
    return reading
