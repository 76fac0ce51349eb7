"""Start-up time: `import r2mae` and `r2mae --help`, next to Python itself."""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.timing import alternate

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import r2mae": [sys.executable, "-c", "import r2mae"],
    "r2mae --help": [sys.executable, "-m", "r2mae", "--help"],
    "r2mae pretrain images --help": [sys.executable, "-m", "r2mae", "pretrain", "images", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(argv)

    def run(command: list[str]) -> None:
        subprocess.run(command, check=True, capture_output=True)

    times = alternate({name: (lambda c=command: run(c)) for name, command in COMMANDS.items()}, options.rounds)
    for name, timing in times.items():
        print(f"{name:30} {timing.median:6.3f} s ± {timing.spread:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
