"""``r2mae COMMAND …``: run the command, and turn a user's mistake into one line and exit code 2."""

import os
import sys
from collections.abc import Collection, Sequence
from contextlib import redirect_stderr, redirect_stdout
from errno import EDQUOT, EFBIG, ENOSPC
from importlib import import_module
from io import TextIOWrapper
from typing import Any

from r2mae import __version__
from r2mae.errors import UserError, nearest, unknown
from r2mae.registry import BUILT_IN, external_commands
from r2mae.screen import Screen
from r2mae.training.ranks import check_variables, is_first

# Each command is a module, imported only when it is called, with its `Options` and `run`, or `parser`. Domains declare
# further commands.
COMMANDS = {
    "compare": "pretrain under every scheme and several seeds, and say which wins",
    "pretrain": "pretrain one model",
    "evaluate": "measure a pretrained model",
    "embed": "embed data with a pretrained model",
    "pictures": "draw test images as pretrained models complete them",
    "export": "write a pretrained model for other libraries",
    "theory risk": "risk of masked regression as a function of the mask ratio, by the closed formula",
    "theory simulate": "the same risk on random rows and masks, compared with the formula",
    "theory advise": "mask ratios of masked linear regression for given data",
    "report": "make the report of a comparison again",
    "runs": "list run folders with their state",
    "data": "list, fetch and find public data sets",
    "completion": "print completion for a shell",
}

# Commands of distributions of this project that may not be installed.
SEPARATE = {"reproduce": ("a figure or table of the paper", "r2mae-paper", "pip install . ./paper")}

_RESUMES_FROM = dict.fromkeys(("compare", "pretrain"), " from the last checkpoint") | {"reproduce": ""}

_HELP = """usage: {prog} COMMAND ...

{title}

commands:
{commands}

examples:
{examples}

`r2mae COMMAND --help` describes a command; `r2mae --version` prints the version.
"""
_TITLE = "Masked pretraining with randomly random mask ratios (R²MAE)."
_EXAMPLES = (
    "r2mae compare digits",
    "r2mae pretrain images digits --scheme r2mae --low 0.5 --high 0.9 --out runs/a",
    "r2mae evaluate runs/a",
    "r2mae theory risk --model spiked --low 0.5 --high 0.6",
    "r2mae data alignment build chr1.maf.gz chr2.maf.gz -o human",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, or 2 for a user's mistake."""
    if "_ARGCOMPLETE" in os.environ and argv is None:
        from r2mae.cli.completion import answer_shell

        answer_shell()
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # file names may contain bytes that are not valid UTF-8
            stream.reconfigure(errors="backslashreplace")
    out: Any = Screen(sys.stdout)
    err: Any = Screen(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        return _run(words)


def _run(words: list[str]) -> int:
    try:
        if nul := next((word for word in words if "\0" in word), None):
            raise UserError(f"{nul!r} holds a NUL character, which no name or path can contain: omit it")
        check_variables()
        return _dispatch(words)
    except UserError as error:
        print(f"r2mae: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # `r2mae data list | head`
            sys.stderr.close()
            return 0
        full = error.errno in (ENOSPC, EDQUOT, EFBIG)
        hint = "; free some space, and run the same command again to resume" if full else ""
        print(f"r2mae: {error.filename or 'the system'}: {error.strerror or error}{hint}", file=sys.stderr)
        return 2
    except MemoryError as error:
        reason = f" ({' '.join(str(error).split())})" if str(error) else ""
        print(f"r2mae: there is not enough memory{reason}: ask for less, or take a larger machine", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if not stop.args and is_first():  # otherwise training has printed the message
            resumable = words[0] in _RESUMES_FROM and "--again" not in words
            again = "; the same command starts again" if words[0] == "theory" else ""  # which has no checkpoints
            hint = f"; the same command resumes{_RESUMES_FROM[words[0]]}" if resumable else again
            print(f"r2mae: stopped{hint}", file=sys.stderr)
        return 130


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("-V", "--version"):
        print(f"r2mae {__version__}")
        return 0
    name, rest = split_command(words)
    if name in external_commands() and name not in COMMANDS:
        return _run_of_other_package(name, rest)
    if name:
        made = parser_for(name, rest)
        values = made.read(rest)
        if made.run is None:  # such as of evaluate, without a run
            raise UserError(f"{made.prog}: name what it works on before the options")
        code: int = made.run(values)
        return code
    if not words or words[-1] in ("-h", "--help", "help"):
        _print_help(words[:-1])
        return 0
    group, _ = _group_of(words)
    if words[0] in SEPARATE:
        _, package, install = SEPARATE[words[0]]
        hint = f"{install} in a checkout of r2mae"
        raise UserError(f"`r2mae {words[0]}` comes with {package}, which is not installed: {hint}")
    if group and len(words) == len(group):
        raise UserError(f"{' '.join(group)} what? {nearest('', next_words(group))}")
    kind = f"subcommand of r2mae {' '.join(group)}" if group else "command"
    raise unknown(kind, words[len(group)], next_words(group))


def split_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that begins the words, such as "theory risk", or "" if none does, and the other words."""
    own = {name for domain in BUILT_IN.values() for name in domain.commands} | {*COMMANDS}
    name = _longest(words, own)
    if name is None:  # which imports the domains of other packages
        name = _longest(words, {*all_commands()} - ({*SEPARATE} - {*external_commands()}))
    return name or "", list(words[len(name.split()) :]) if name else list(words)


def _longest(words: Sequence[str], names: Collection[str]) -> str | None:
    """Return the longest name that begins the words; "" for the beginning of names only, and None for neither."""
    for size in range(min(3, len(words)), 0, -1):
        start = " ".join(words[:size])
        if start in names:
            return start
        if any(name.startswith(f"{start} ") for name in names):
            return ""
    return None


def _group_of(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the first words that begin several commands, such as "theory", and those commands."""
    commands = all_commands()
    for size in range(min(2, len(words)), 0, -1):
        start = " ".join(words[:size]) + " "
        if found := {name: text for name, text in commands.items() if name.startswith(start)}:
            return list(words[:size]), found
    return [], commands


def next_words(typed: Sequence[str]) -> list[str]:
    """Return the words that may follow these in the name of a command."""
    names = [name.split() for name in all_commands()]
    return list(dict.fromkeys(name[len(typed)] for name in names if name[: len(typed)] == [*typed] != name))


def _print_help(words: Sequence[str]) -> None:
    """Print the commands, or those of a group."""
    group, commands = _group_of(words)
    if len(group) < len(words):
        raise unknown("command", words[len(group)], next_words(group))
    width = max(map(len, commands)) + 2
    lines = "\n".join(f"  {name:<{width}}{text}" for name, text in commands.items())
    prog = " ".join(["r2mae", *group])
    examples = [one for one in _EXAMPLES if one.startswith(f"{prog} ")][: None if group else 3]
    title = f"Commands of {prog}." if group else _TITLE
    print(_HELP.format(prog=prog, title=title, commands=lines, examples="\n".join(f"  {e}" for e in examples)), end="")


def all_commands() -> dict[str, str]:
    """Return every command with its description: those of this package, of the domains, and of other packages."""
    from r2mae.domains.lookup import domain_commands

    separate = {name: text for name, (text, _, _) in SEPARATE.items()}
    others = {name: f"a command of {package}" for name, (_, package) in external_commands().items()}
    found = dict(COMMANDS)
    for commands in (separate, domain_commands(), others):  # in this order of listing; the first of a name counts
        found |= {name: text for name, text in commands.items() if name not in found}
    return found


def parser_for(name: str, words: Sequence[str]) -> Any:
    """Return the parser of a command for these words, a :class:`r2mae.cli.parsing.Parser`.

    Raises
    ------
    UserError
        If the words do not say enough for the parser, such as a run folder that does not exist.
    """
    from r2mae.cli.parsing import parser_of

    if name in COMMANDS:
        module = import_module(f"r2mae.cli.{name.replace(' ', '_')}")
        if hasattr(module, "parser"):
            return module.parser(words)
        return parser_of(name, module.Options, lambda values: module.run(module.Options(**values)), words)
    from r2mae.cli.declared import domain_parser
    from r2mae.domains.lookup import domain_command

    found = domain_command(name)
    if found is None:
        raise unknown("command", name, all_commands())
    return domain_parser(*found, words)


def _run_of_other_package(name: str, words: Sequence[str]) -> int:
    location, package = external_commands()[name]
    module, _, function = location.partition(":")
    try:
        run = getattr(import_module(module), function or "run")
    except Exception as error:  # foreign code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        hint = f"repair or uninstall {package}"
        raise UserError(f"the command {name!r} of {package} cannot be loaded ({reason}): {hint}") from None
    code: int = run(words)
    return code
