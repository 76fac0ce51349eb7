"""``r2mae export RUN --to LAYOUT -o OUT``: write a pretrained model for other libraries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import listed, run_in, taken
from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser
from r2mae.domains.checks import open_run
from r2mae.domains.lookup import all_domains, format_writer
from r2mae.errors import UserError, unknown
from r2mae.training.fields import argument, docstring_part, option, options_of

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.options import ModelFormat


@dataclass(frozen=True)
class Options:
    """Write the model of a finished run in the layout of another library, which loads it without r2mae.

    Parameters
    ----------
    run : str
        A run folder.
    to : str
        The layout.
    output : str
        File or folder to write; it must not exist.
    """

    run: str = argument()
    to: str | None = option(None, metavar="LAYOUT")
    output: str | None = option(None, short="-o", metavar="OUT")


def parser(words: Sequence[str]) -> Parser:
    """Return the parser for the domain of a run, or of all domains."""
    path = run_in(words)
    domains = all_domains() if path is None else [open_run(path)[0]]
    layouts = [(domain, one) for domain in domains for one in domain.command_line.model_formats]
    about = f"{docstring_part(Options)}\n\n" + listed(
        (domain.name, f"--to {one.name}: {one.help}.") for domain, one in layouts
    )
    examples = [f"r2mae export {example}" for _, one in layouts for example in one.examples]
    made = Parser("r2mae export", about, *examples, run=None if path is None else partial(run, path, domains[0]))
    names = tuple(dict.fromkeys(one.name for _, one in layouts))
    made.lacks = f"--to {'|'.join(names)} of the domain {domains[0].name} has no" if path is not None and names else ""
    made.add(replace(one, words=names) if one.name == "to" else one for one in options_of(Options))
    kinds = dict.fromkeys(one.options for _, one in layouts)
    made.add(option for kind in kinds for option in options_of(kind))
    return made


def run(path: Path, domain: "Domain", given: dict[str, Any]) -> int:
    """Run the command."""
    values = Options(**taken(given, Options))
    layout = _layout(domain, path, values.to)
    for name in given.keys() - taken(given, Options).keys() - taken(given, layout.options).keys():
        raise UserError(f"--to {layout.name} of the domain {domain.name} has no --{name.replace('_', '-')}: omit it")
    if values.output is None:
        raise UserError(f"name the output: r2mae export {path} --to {layout.name} -o OUT")
    output = Path(values.output)
    with loading():
        write = format_writer(domain, layout)
    opened = write(path, output, **taken(given, layout.options))
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
