"""``r2mae theory risk | simulate | advise``: run a subcommand."""

import sys
from collections.abc import Sequence
from importlib import import_module

from r2mae.cli.early import loading
from r2mae.errors import UserError, nearest, unknown

# Each is a module r2mae.cli.theory_NAME with `run(argv) -> int`, imported only when it is called.
SUBCOMMANDS = {
    "risk": "the risk as a function of the mask ratio, by the closed formula",
    "simulate": "the risk measured on random rows and masks, compared with the formula",
    "advise": "mask ratios for given data",
}

_HELP = """usage: r2mae theory SUBCOMMAND ...

The test risk of masked ridgeless regression, a linear model, as a function of the mask ratio.

subcommands:
{subcommands}

example:
  r2mae theory risk --model spiked --delta 10 --low 0.5 --high 0.6
  r2mae theory risk --cov covariance.npy --n 500 --direction 0.1 --out runs/risk
  r2mae theory simulate --model beta --n 200 --repetitions 50 --jobs 2
  r2mae theory advise digits

`r2mae theory SUBCOMMAND --help` describes a subcommand.
"""


def run(words: Sequence[str]) -> int:
    """Run the subcommand."""
    if not words:
        raise UserError(f"r2mae theory what? {nearest('', SUBCOMMANDS)}")
    if words[0] in ("-h", "--help", "help"):
        lines = (f"  {name:<10}{text}" for name, text in SUBCOMMANDS.items())
        print(_HELP.format(subcommands="\n".join(lines)), end="")
        return 0
    if words[0] not in SUBCOMMANDS:
        raise unknown("subcommand of r2mae theory", words[0], SUBCOMMANDS)
    try:
        with loading("scientific libraries"):
            subcommand = import_module(f"r2mae.cli.theory_{words[0]}")
        code: int = subcommand.run(words[1:])
    except KeyboardInterrupt:  # there are no checkpoints to resume from
        print("r2mae: stopped; the same command starts again", file=sys.stderr)
        return 130
    return code
