"""``r2mae theory risk``: compute the risk curve of a linear model by the closed formula."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2mae.cli.early import loading
from r2mae.cli.theory_model import ModelOptions, output_folder, read_problem, user_errors

if TYPE_CHECKING:
    pass

_COLUMNS = ("kept_rows", "risk", "normalised", "bias", "variance", "magnitude")


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
    out = output_folder(options.out)
    with loading("scientific libraries"):
        from r2mae.files import print_json
        from r2mae.report.theory_output import print_risks, write_curves
        from r2mae.theory.problem import risk_rows, summary_sentence

        problem = read_problem(options)
    with user_errors():
        result = problem.formula()
    rows, null = risk_rows(problem, result), float(result.null[0])
    sentence = summary_sentence(rows)
    if out is not None:
        write_curves(problem, result, rows, out)
    if options.json:
        print_json({**problem.properties(null), "rows": rows, "words": sentence})
        return 0
    print_risks(rows, _COLUMNS, f"{problem.title}; risk of predicting zero {null:.4g}")
    print(sentence)
    if out is not None:
        print(f"table and figure are in {out}")
    return 0
