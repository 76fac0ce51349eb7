"""``r2mae theory risk``: compute the risk curve of a linear model by the closed formula."""

from dataclasses import dataclass
from functools import partial

from r2mae.cli.early import loading
from r2mae.cli.theory_model import ModelOptions, output_folder, read_problem, show, user_errors


@dataclass(frozen=True)
class Options(ModelOptions):
    """The test risk of masked ridgeless regression as a function of the mask ratio, by a closed formula.

    It is given with its bias, its variance, and the mean square of the predictions. Normalised risk 1 is a prediction
    of zero.

    Examples
    --------
    r2mae theory risk --model beta --direction 0.1 --low 0.5 --high 0.6 --out runs/risk
    r2mae theory risk --cov covariance.npy --n 500 --direction 0.1
    """


def run(options: Options) -> int:
    """Run the command."""
    output_folder(options.out)
    with loading("scientific libraries"):
        from r2mae.cli.theory_output import write_curves
        from r2mae.theory.problem import risk_rows

        problem = read_problem(options)
    with user_errors():
        result = problem.formula()
    rows, null = risk_rows(problem, result), float(result.null[0])
    title = f"risk of predicting zero {null:.4g}"
    return show(options, problem, rows, title, problem.properties(null), partial(write_curves, problem, result, rows))
