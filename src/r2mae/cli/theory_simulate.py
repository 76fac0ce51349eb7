"""``r2mae theory simulate``: measure the risk on random rows and masks, and compare it with the formula."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

from r2mae.cli import theory_risk
from r2mae.cli.parsing import loading
from r2mae.cli.theory_risk import check_memory, problem_of, show, user_errors

_NOTE = "all repetitions use one draw of rows; the formula is the mean over draws, which --design fresh measures"
_BYTES = 12  # bytes per entry of the rows: its value, and the random numbers of its mask


@dataclass(frozen=True)
class Options(theory_risk.Options):
    """Measure the test risk of masked ridgeless regression, and compare it with the closed formula.

    Rows and masks are random; of each draw, the minimum-norm solution and its exact risk are computed.

    Parameters
    ----------
    repetitions : int
        Number of draws of masks (and with --design fresh of rows).
    design : {"fixed", "fresh"}
        fixed: rows are drawn once (the paper); fresh: in each repetition.
    jobs : int
        Number of threads; the results do not depend on it.

    Examples
    --------
    r2mae theory simulate --model spiked --n 200 --d 1000 --repetitions 50 --jobs 2 --out runs/simulation
    """

    repetitions: int = 50
    design: Literal["fixed", "fresh"] = "fixed"
    jobs: int = 1


def run(options: Options) -> int:
    """Run the command."""
    with loading("scientific libraries"):
        from r2mae.progress import counting_bar
        from r2mae.theory.problem import simulation_rows

        problem = problem_of(options)
    check_memory(_BYTES * problem.n * problem.cov.d, problem.cov.d, problem.n)
    draws: dict[str, Any] = {"repetitions": options.repetitions, "design": options.design}
    with user_errors(), counting_bar("simulating", transient=True) as progress:
        formula = problem.formula()
        measured = problem.simulate(seed=options.seed, jobs=options.jobs, progress=progress, **draws)
        if options.design == "fixed":
            warnings.warn(_NOTE, stacklevel=1)
    title = f"{options.repetitions} repetitions, {options.design} design"
    rows = simulation_rows(problem, formula, measured)
    return show(options, problem, rows, float(measured.null), title, **draws)
