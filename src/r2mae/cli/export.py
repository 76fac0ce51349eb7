"""``r2mae export RUN --to LAYOUT -o OUT``: write a pretrained model for other libraries."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.cli.declared import add_options, given_options, listed
from r2mae.cli.early import loading, open_run
from r2mae.cli.parsing import Parser
from r2mae.domains.lookup import all_domains, format_writer
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.options import ModelFormat, Option

_DESCRIPTION = """Write the model of a finished run in the layout of another library, which loads it without r2mae.

"""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    domains = all_domains()
    values = _parser(domains).read(words)
    path = Path(values["run"])

    domain, _ = open_run(path)
    layout = _layout(domain, path, values["to"])
    given = given_options(values, _options(domains))
    own = {option.name: option for option in layout.options}
    for name in given:
        if name not in own:
            raise UserError(
                f"--to {layout.name} of the domain {domain.name} has no --{name.replace('_', '-')}: omit it"
            )
    if values["output"] is None:
        raise UserError(f"name the output: r2mae export {path} --to {layout.name} -o OUT")
    output = Path(values["output"])
    with loading():
        write = format_writer(domain, layout)
    opened = write(path, output, **{own[name].sets: value for name, value in given.items()})
    print(f"the model of {path} is in {output}: {opened}")
    return 0


def _layout(domain: "Domain", path: Path, name: str | None) -> "ModelFormat":
    """Return the layout `name` of the run's domain; refuse a missing or unknown name."""
    known = {one.name: one for one in domain.command_line.model_formats}
    if not known:
        raise UserError(
            f"{path} is a run of the domain {domain.name}, whose models no other library loads: use r2mae.load"
        )
    if name is None:
        raise UserError(f"name the layout: r2mae export {path} --to {'|'.join(known)} -o OUT")
    if name not in known:
        raise unknown(f"layout of the domain {domain.name}", name, known)
    return known[name]


def _parser(domains: "Sequence[Domain]") -> Parser:
    layouts = [(domain, one) for domain in domains for one in domain.command_line.model_formats]
    parser = Parser(
        "r2mae export",
        _DESCRIPTION
        + listed((domain.name, f"{_layout_help(domain)}.") for domain in domains if domain.command_line.model_formats),
        *(f"r2mae export {example}" for _, one in layouts for example in one.examples),
    )
    parser.add_argument("run", metavar="RUN", type=str, help="A run folder.")
    names = list(dict.fromkeys(one.name for _, one in layouts))
    parser.add_argument("--to", choices=names, help="The layout.")
    parser.add_argument("-o", "--output", type=str, help="File or folder to write; it must not exist.")
    add_options(parser, _options(domains))
    return parser


def _layout_help(domain: "Domain") -> str:
    """Return the layouts of a domain with their descriptions."""
    return "; ".join(f"--to {one.name}: {one.help}" for one in domain.command_line.model_formats)


def _options(domains: "Sequence[Domain]") -> "Iterator[tuple[Domain, Option]]":
    """Return the options of every domain's layouts, each once."""
    for domain in domains:
        own = {option.name: option for one in domain.command_line.model_formats for option in one.options}
        yield from ((domain, option) for option in own.values())
