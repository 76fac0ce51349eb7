"""``r2mae theory simulate``: measure the risk on random rows and masks, and compare it with the formula."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from r2mae.cli.early import loading
from r2mae.cli.theory_model import (
    ModelOptions,
    check_memory,
    output_folder,
    print_note,
    read_problem,
    show,
    user_errors,
)

_BYTES = 12  # bytes per entry of the rows: its value, and the random numbers of its mask


@dataclass(frozen=True)
class Options(ModelOptions):
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
    output_folder(options.out)
    with loading("scientific libraries"):
        from r2mae.cli.theory_output import write_curves
        from r2mae.theory import simulate
        from r2mae.theory.problem import simulation_rows
        from r2mae.training.progress import counting_bar

        problem = read_problem(options)
    check_memory(_BYTES * problem.n * problem.cov.d, problem.cov.d, problem.n)
    with user_errors(), counting_bar("simulating", transient=True) as progress:
        formula = problem.formula()
        measured = simulate(
            problem.cov,
            problem.beta,
            problem.n,
            problem.ratios,
            noise=problem.noise,
            repetitions=options.repetitions,
            design=options.design,
            ridge=problem.ridge,
            seed=options.seed,
            jobs=options.jobs,
            progress=progress,
        )
    rows = simulation_rows(problem, formula, measured)
    if options.design == "fixed":
        print_note(
            "all repetitions use one draw of rows; the formula is the mean over draws, which --design fresh measures"
        )
    more = {"repetitions": options.repetitions, "design": options.design}
    return show(
        options,
        problem,
        rows,
        f"{options.repetitions} repetitions, {options.design} design",
        {**problem.properties(float(measured.null)), **more},
        partial(write_curves, problem, formula, rows, measured=measured),
    )
