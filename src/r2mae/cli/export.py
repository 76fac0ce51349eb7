"""``r2mae export RUN --to LAYOUT -o OUT``: write a pretrained model for other libraries."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.card import check_hub, check_output, model_card, push, write_card
from r2mae.cli.declared import Offer, run_parser, taken
from r2mae.cli.parsing import loading
from r2mae.domains.lookup import import_object, open_run
from r2mae.errors import UserError, unknown
from r2mae.fields import argument, option

if TYPE_CHECKING:
    from r2mae.domains.base import Domain


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
        File or folder to write; neither it nor OUT.md may exist. It gets a model card: README.md in a folder, OUT.md
        next to a file.
    push : str, optional
        Upload the output to this repository of the Hugging Face Hub, as USER/NAME. A new repository is private.
    public : bool
        Make a new repository of `push` public.
    """

    run: str = argument()
    to: str | None = option(None, metavar="LAYOUT")
    output: str | None = option(None, short="-o", metavar="OUT")
    push: str | None = option(None, metavar="USER/NAME")
    public: bool = option(False)


def _offer(domain: "Domain") -> Offer:
    layouts = domain.command_line.model_formats
    return Offer(
        [(domain.name, f"--to {one.name}: {one.help}.") for one in layouts],
        [example for one in layouts for example in one.examples],
        [(kind, domain.name) for kind in dict.fromkeys(one.options for one in layouts)],
        {"to": {"words": tuple(one.name for one in layouts)}},
    )


def run(path: Path, domain: "Domain", options: Options, given: dict[str, Any]) -> int:
    """Run the command."""
    known = {one.name: one for one in domain.command_line.model_formats}
    if not known:
        raise UserError(f"{path} is a run of {domain.name} that is not exported: use r2mae.load")
    if options.to is None:
        raise UserError(f"name the layout: r2mae export {path} --to {'|'.join(known)} -o OUT")
    if options.to not in known:
        raise unknown(f"layout of the domain {domain.name}", options.to, known)
    layout = known[options.to]
    for name in given.keys() - taken(given, Options).keys() - taken(given, layout.options).keys():
        raise UserError(f"--to {layout.name} of the domain {domain.name} has no --{name.replace('_', '-')}: omit it")
    if options.output is None:
        raise UserError(f"name the output: r2mae export {path} --to {layout.name} -o OUT")
    output = Path(options.output)
    check_output(output)
    if options.push is not None:
        check_hub(options.push)
    elif options.public:
        raise UserError("--public is about --push USER/NAME: name the repository, or omit it")
    with loading():
        write = import_object(domain.name, layout.write)
    opened = write(path, output, **taken(given, layout.options))
    card = write_card(model_card(path, domain, open_run(path)[1], output.stem, layout.name, opened), output)
    print(f"the model of {path} is in {options.output}: {opened}; its card is {card}")
    if options.push is not None:
        print(f"pushed to {push(output, card, options.push, options.public)}")
    return 0


parser = partial(run_parser, "export", Options, _offer, run)
