"""``r2mae theory simulate``: measure the risk on random rows and masks, and compare it with the formula."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.early import loading
from r2mae.cli.theory_model import ModelOptions, check_memory, output_folder, print_note, read_problem, user_errors
from r2mae.cli.theory_risk import print_risks
from r2mae.errors import unknown
from r2mae.training.fields import option

if TYPE_CHECKING:
    from r2mae.theory import Risk, Simulation
    from r2mae.theory.problem import Problem

_COLUMNS = ("kept_rows", "risk", "normalised", "sd", "standard_error", "formula", "difference_in_errors", "magnitude")
_DESIGNS = ("fixed", "fresh")
_BYTES = 12  # bytes per entry of the rows: its value, and the random numbers of its mask


@dataclass(frozen=True)
class Options(ModelOptions):
    """Measure the test risk of masked ridgeless regression, and compare it with the closed formula.

    Rows and masks are random; of each draw, the minimum-norm solution and its exact risk are computed.

    Parameters
    ----------
    repetitions : int
        Number of draws of masks (and with --design fresh of rows).
    design : str
        fixed: rows are drawn once (the paper); fresh: in each repetition.
    jobs : int
        Number of threads; the results do not depend on it.

    Examples
    --------
    r2mae theory simulate --model spiked --n 200 --d 1000 --repetitions 50 --jobs 2 --out runs/simulation
    """

    repetitions: int = 50
    design: str = option("fixed", words=_DESIGNS)
    jobs: int = 1


def run(options: Options) -> int:
    """Run the command."""
    if options.design not in _DESIGNS:
        raise unknown("design", options.design, _DESIGNS)
    out = output_folder(options.out)
    with loading("scientific libraries"):
        from r2mae.files import print_json
        from r2mae.theory import simulate
        from r2mae.theory.problem import summary_sentence
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
    rows = _table(problem, formula, measured)
    sentence = summary_sentence(rows)
    if out is not None:
        _write(problem, formula, measured, rows, out)
    if options.design == "fixed":
        print_note(
            "all repetitions use one draw of rows; the formula is the mean over draws, which --design fresh measures"
        )
    if options.json:
        more = {"repetitions": options.repetitions, "design": options.design}
        print_json({**problem.properties(float(measured.null)), **more, "rows": rows, "words": sentence})
        return 0
    print_risks(rows, _COLUMNS, f"{problem.title}; {values['repetitions']} repetitions, {values['design']} design")
    print(sentence)
    if out is not None:
        print(f"table and figure are in {out}")
    return 0


def _table(problem: "Problem", formula: "Risk", measured: "Simulation") -> list[dict[str, Any]]:
    import numpy as np

    expected = formula.risk[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(np.isfinite(expected), (measured.risk - expected) / measured.error, np.nan)
    parts = {
        "kept_rows": measured.kept.mean(axis=0),
        "risk": measured.risk,
        "normalised": measured.normalised,
        "sd": measured.deviation,
        "standard_error": measured.error,
        "formula": expected,
        "difference_in_errors": np.where(np.isfinite(gap), gap, np.nan),
        "magnitude": measured.magnitude,
    }
    return [
        {"ratio": label, **{name: float(part[index]) for name, part in parts.items()}}
        for index, label in enumerate(problem.labels())
    ]


def _write(
    problem: "Problem", formula: "Risk", measured: "Simulation", rows: Sequence[dict[str, Any]], out: Path
) -> None:
    from r2mae.files import write_rows
    from r2mae.report.style import save_figure
    from r2mae.report.theory_figures import simulation_figure

    write_rows(out / "simulation.csv", rows, list(rows[0]))
    null, count = float(measured.null), len(problem.fixed)
    chosen = None
    if problem.range is not None:
        low, high = problem.range.low, problem.range.high
        chosen = (float(low), float(high), float(measured.normalised[-1]))
    figure = simulation_figure(
        problem.fixed,
        formula.risk[:count, 0] / null,
        measured.normalised[:count],
        measured.deviation[:count] / null,
        title=problem.title,
        peak=problem.peak,
        chosen=chosen,
    )
    save_figure(figure, out, "simulation")
