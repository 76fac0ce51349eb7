"""``r2mae completion bash|zsh``: print what makes a shell complete commands, options and their values (argcomplete)."""

import argparse
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from r2mae.errors import UserError
from r2mae.fields import argument


@dataclass(frozen=True)
class Options:
    """Print completion for a shell: commands, and each one's options, schemes, models, presets, data sets and files.

    Parameters
    ----------
    shell : {"bash", "zsh"}
        The shell.

    Examples
    --------
    r2mae completion bash >> ~/.bashrc
    r2mae completion zsh >> ~/.zshrc
    """

    shell: Literal["bash", "zsh"] = argument(metavar="SHELL")


def run(options: Options) -> int:
    """Run the command."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["r2mae"], shell=options.shell), end="")
    return 0


def answer_shell(**settings: Any) -> None:
    """Print the completions of a command line, which the shell passes in variables of the environment, and exit.

    Settings are those of argcomplete.
    """
    from argcomplete import autocomplete
    from argcomplete.lexers import split_line

    from r2mae.cli.commands import next_words, parser_for, split_command

    start = int(os.environ["_ARGCOMPLETE"])  # the number of words that precede the options
    words = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3][start:]
    name, first, rest = split_command(words)
    parser = argparse.ArgumentParser()
    with suppress(UserError):  # then there is nothing to complete
        if name:
            parser = parser_for(name, [*rest, "--help-all"])
        else:
            parser.add_argument("--version", action="store_true")
            parser.add_argument("command", choices=next_words(words))
    os.environ["_ARGCOMPLETE"] = str(start + len(first if name else words))
    autocomplete(parser, always_complete_options=False, print_suppressed=True, **settings)
