"""``python -m r2mae_paper.realdata --out DIR [--scale full|small] [--jobs N]``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from r2mae_paper.realdata.fits import Outcome, cases, study
from r2mae_paper.realdata.report import publish


def run(out: Path, jobs: int, scale: Literal["full", "small"]) -> list[Outcome]:
    """Run the study and write ``results.csv``, ``summary.csv``, ``summary.md`` and the figure to a folder.

    Parameters
    ----------
    out : Path
        The folder.
    jobs : int
        Threads.
    scale : {"full", "small"}
        All sets with 60 samples (400 for digits), or digits with 30.
    """
    outcomes = []
    for case in cases(scale):
        repetitions = 30 if scale == "small" else 400 if case.data == "digits" else 60
        outcomes.append(study(case, repetitions=repetitions, jobs=jobs))
    publish(outcomes, out)
    return outcomes


def main(words: Sequence[str] | None = None) -> None:
    """Run the study from a command line."""
    parser = argparse.ArgumentParser(description="Measured against predicted risk on real data.")
    parser.add_argument("--out", type=Path, required=True, help="Folder to write.")
    parser.add_argument("--jobs", type=int, default=1, help="Threads.")
    parser.add_argument("--scale", choices=["full", "small"], default="full")
    values = parser.parse_args(words)
    run(values.out, values.jobs, values.scale)


if __name__ == "__main__":
    main()
