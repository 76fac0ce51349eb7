"""``r2mae COMMAND …``: run the command, and turn a user's mistake into one line and exit code 2."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from errno import EDQUOT, EFBIG, ENOSPC
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from typing import Any

from r2mae import __version__
from r2mae.cli.lists import expand_home
from r2mae.errors import UserError, unknown
from r2mae.registry import external_commands
from r2mae.screen import Screen
from r2mae.training.ranks import check_variables, is_first

# Each command is a module with `run(argv) -> int`, imported only when it is called. Domains declare further commands.
COMMANDS = {
    "compare": "pretrain under every scheme and several seeds, and say which wins",
    "pretrain": "pretrain one model",
    "evaluate": "measure a pretrained model",
    "embed": "embed data with a pretrained model",
    "pictures": "draw test images as pretrained models complete them",
    "export": "write a pretrained model for other libraries",
    "theory": "risk of masked regression: formula, simulation, advice",
    "report": "make the report of a comparison again",
    "runs": "list run folders with their state",
    "data": "list, fetch and find public data sets",
    "completion": "print completion for a shell",
}

# Commands of distributions of this project that may not be installed.
SEPARATE = {"reproduce": ("a figure or table of the paper", "r2mae-paper", "pip install . ./paper")}

_RESUMES_FROM = dict.fromkeys(("compare", "pretrain"), " from the last checkpoint") | {"reproduce": ""}

_HELP = """usage: r2mae COMMAND ...

Masked pretraining with randomly random mask ratios (R²MAE).

commands:
{commands}

examples:
  r2mae compare digits
  r2mae pretrain images digits --scheme r2mae --low 0.5 --high 0.9 --out runs/a
  r2mae evaluate runs/a

`r2mae COMMAND --help` describes a command; `r2mae --version` prints the version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, or 2 for a user's mistake."""
    words = list(map(expand_home, sys.argv[1:] if argv is None else argv))
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
            hint = f"; the same command resumes{_RESUMES_FROM[words[0]]}" if resumable else ""
            print(f"r2mae: stopped{hint}", file=sys.stderr)
        return 130


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        commands = all_commands()
        width = max(map(len, commands)) + 2
        lines = (f"  {name:<{width}}{text}" for name, text in commands.items())
        print(_HELP.format(commands="\n".join(lines)), end="")
        return 0
    if words[0] in ("-V", "--version"):
        print(f"r2mae {__version__}")
        return 0
    code: int = command_of(words[0])(words[1:])
    return code


def all_commands() -> dict[str, str]:
    """Return every command with its description: those of this package, of the domains, and of other packages."""
    from r2mae.domains.lookup import domain_commands

    separate = {name: text for name, (text, _, _) in SEPARATE.items()}
    others = {name: f"a command of {package}" for name, (_, package) in external_commands().items()}
    found = dict(COMMANDS)
    for commands in (separate, domain_commands(), others):  # in this order of listing; the first of a name counts
        found |= {name: text for name, text in commands.items() if name not in found}
    return found


def command_of(name: str) -> Callable[[Sequence[str]], int]:
    """Return the function that runs a command.

    Raises
    ------
    UserError
        If there is no such command, or it is of another package that is missing or broken.
    """
    if name in COMMANDS:
        run: Callable[[Sequence[str]], int] = import_module(f"r2mae.cli.{name}").run
        return run
    if name in external_commands():
        return _of_other_package(name)
    if name in SEPARATE:
        _, package, install = SEPARATE[name]
        hint = f"{install} in a checkout of r2mae"
        raise UserError(f"`r2mae {name}` comes with {package}, which is not installed: {hint}")
    from r2mae.domains.lookup import domain_command

    found = domain_command(name)
    if found is None:
        raise unknown("command", name, all_commands())
    from r2mae.cli.declared import run_command

    return partial(run_command, *found)


def _of_other_package(name: str) -> Callable[[Sequence[str]], int]:
    location, package = external_commands()[name]
    module, _, function = location.partition(":")
    try:
        run: Callable[[Sequence[str]], int] = getattr(import_module(module), function or "run")
    except Exception as error:  # foreign code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        hint = f"repair or uninstall {package}"
        raise UserError(f"the command {name!r} of {package} cannot be loaded ({reason}): {hint}") from None
    return run
