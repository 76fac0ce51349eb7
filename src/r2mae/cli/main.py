"""``r2mae COMMAND …``: run the command, and turn a user's mistake into one line and exit code 2."""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from errno import EDQUOT, EEXIST, EFBIG, ENOSPC, ENOTDIR
from functools import partial
from typing import Any

from r2mae import __version__
from r2mae.cli.commands import COMMANDS, all_commands, next_words, parser_for, split_command
from r2mae.cli.launch import run_on_devices
from r2mae.errors import UserError, install, nearest, unknown
from r2mae.registry import external_commands
from r2mae.screen import Screen
from r2mae.training.ranks import is_first

_AFTER_CTRL_C = {
    **dict.fromkeys(("compare", "pretrain"), "; the same command resumes from the last checkpoint"),
    "reproduce": "; the same command resumes",
}

_HELP = """usage: {prog} COMMAND ...

{about}

commands:
{commands}

`r2mae COMMAND --help` describes a command; `r2mae --version` prints the version.
"""
_ABOUT = """Masked pretraining with randomly random mask ratios (R²MAE). For example:

  r2mae compare digits
  r2mae pretrain images digits --scheme r2mae --low 0.5 --high 0.9 --out runs/a
  r2mae evaluate runs/a"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, or 2 for a user's mistake."""
    if "_ARGCOMPLETE" in os.environ and argv is None:
        from r2mae.cli.completion import answer_shell

        answer_shell()
    os.environ["MPLBACKEND"] = "agg"  # figures are files; matplotlib does not load with an unknown one
    words = list(sys.argv[1:] if argv is None else argv)
    out: Any = Screen(sys.stdout)
    err: Any = Screen(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        return _run(words)


def _run(words: list[str]) -> int:
    try:
        if nul := next((word for word in words if "\0" in word), None):
            raise UserError(f"{nul!r} holds a NUL character, which no name or path can contain: omit it")
        return run_on_devices(partial(_dispatch, words))
    except BrokenPipeError:  # `r2mae data list | head`
        sys.stderr.close()
        return 0
    except (UserError, OSError, MemoryError, ModuleNotFoundError, RecursionError) as error:
        print(f"r2mae: {' '.join(_in_words(error, words).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if not stop.args and is_first():  # otherwise training has printed the message
            hint = "" if "--again" in words else _AFTER_CTRL_C.get(words[0], "")
            print(f"r2mae: stopped{hint}", file=sys.stderr)
        return 130


def _in_words(error: Exception, words: Sequence[str]) -> str:
    """Return what to say of a user's mistake, or of what the machine lacks."""
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").startswith("r2mae"):
            raise error
        return f"this needs {error.name!r}, which is not installed: {install(error.name, words[:2])}"
    if isinstance(error, RecursionError):
        return "a path or a file is nested too deeply: name another"
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"there is not enough memory{reason}: ask for less, or take a larger machine"
    if isinstance(error, OSError):
        hint = ""
        if error.errno in (ENOSPC, EDQUOT, EFBIG):
            hint = "; free some space, and run the same command again to resume"
        elif error.errno in (EEXIST, ENOTDIR):
            hint = "; it is no folder, and a folder is needed there: name another output"
        return f"{error.filename or 'the system'}: {error.strerror or error}{hint}"
    return str(error)


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("-V", "--version"):
        print(f"r2mae {__version__}")
        return 0
    name, group, rest = split_command(words)
    if name in external_commands() and name not in COMMANDS:
        from r2mae.domains.lookup import load_foreign

        location, package = external_commands()[name]
        return int(load_foreign(f"the command {name!r}", package, location)(rest))
    if name:
        made = parser_for(name, rest)
        values = made.read(rest)
        if made.run is None:  # such as of evaluate, without a run
            raise UserError(f"{made.prog}: name what it works on before the options")
        return int(made.run(values))
    if words == group or rest[0] in ("-h", "--help", "help"):
        if words and not rest:
            raise UserError(f"{' '.join(group)} what? {nearest('', next_words(group))}")
        _print_help(group)
        return 0
    raise unknown(f"subcommand of r2mae {' '.join(group)}" if group else "command", rest[0], next_words(group))


def _print_help(group: Sequence[str]) -> None:
    """Print the commands, or those of a group."""
    prog = " ".join(["r2mae", *group])
    commands = {name: text for name, text in all_commands().items() if f"r2mae {name} ".startswith(f"{prog} ")}
    width = max(map(len, commands)) + 2
    lines = "\n".join(f"  {name:<{width}}{text}" for name, text in commands.items())
    print(_HELP.format(prog=prog, about=f"Commands of {prog}." if group else _ABOUT, commands=lines), end="")
