"""``r2mae theory risk``: the risk curve of a linear model by the closed formula. `simulate` shares its options."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from r2mae.cli.parsing import loading
from r2mae.cores import available_memory
from r2mae.errors import UserError
from r2mae.fields import option

if TYPE_CHECKING:
    from r2mae.theory.problem import Problem

_BYTES = 500  # bytes per feature: some dozens of vectors


@dataclass(frozen=True)
class Options:
    """The test risk of masked ridgeless regression as a function of the mask ratio, by a closed formula.

    It is given with its bias, its variance, and the mean square of the predictions. Normalised risk 1 is a prediction
    of zero.

    Parameters
    ----------
    model : str, optional
        Covariance of the features. identity: Σ = I; spiked (the default): I + δvvᵀ, v from uniform entries; uniform:
        spectrum from U(1, 10); beta: spectrum from Beta(2, 6) on 1 to 10; latent: I + WWᵀ with d/2 latent dimensions;
        plateau: I + WWᵀ with 50 latent dimensions of eigenvalue 10⁴, β through them (the paper's Fig. 1G).
    cov : str, optional
        A covariance of your own, d by d, instead of --model.
    d : int, optional
        Number of features; by default 1000.
    n : int
        Number of rows before masking.
    delta : float, optional
        Of spiked: strength of the spike; by default 10.
    cosine : float, optional
        Of spiked: cosine between signal and spike; by default 1.
    direction : str, optional
        Of uniform, beta, latent and --cov: the eigenvector that is the signal: top (the default), or a quantile from
        the top, such as 0.1.
    noise : float
        Variance of the noise.
    ratios : str
        FIRST:LAST:STEP, or ratios separated by commas.
    low, high : float, optional
        Adds R²MAE, which draws a ratio from this range for each row.
    ridge : float
        λ of a ridge penalty; 0 is the ridgeless limit.
    seed : int
        Seed for the model (and for the simulation).
    out : str, optional
        Folder for table (csv) and figure (png, svg).
    json : bool
        Print JSON, for scripts.

    Examples
    --------
    r2mae theory risk --model beta --direction 0.1 --low 0.5 --high 0.6 --out runs/risk
    r2mae theory risk --cov covariance.npy --n 500 --direction 0.1
    """

    model: Literal["identity", "spiked", "uniform", "beta", "latent", "plateau"] | None = option(None, metavar="NAME")
    cov: str | None = option(None, metavar="FILE.npy")
    d: int | None = None
    n: int = 200
    delta: float | None = None
    cosine: float | None = None
    direction: str | None = None
    noise: float = 0.04
    ratios: str = "0.05:0.95:0.05"
    low: float | None = None
    high: float | None = None
    ridge: float = 0.0
    seed: int = 0
    out: str | None = option(None, metavar="DIR")
    json: bool = False


def run(options: Options) -> int:
    """Run the command."""
    with loading("scientific libraries"):
        from r2mae.theory.problem import risk_rows

        problem = problem_of(options)
    with user_errors():
        result = problem.formula()
    null = float(result.null[0])
    return show(options, problem, risk_rows(problem, result), null, f"risk of predicting zero {null:.4g}")


def problem_of(options: Options) -> "Problem":
    """Return the problem that options describe."""
    from r2mae.theory.problem import read_problem

    check_folder(options.out)
    if options.cov is None:
        d = 1000 if options.d is None else options.d
        check_memory(_BYTES * d + (4 * d * d if options.model == "latent" else 0), d, options.n)
    with user_errors():
        return read_problem(**{
            field.name: getattr(options, field.name) for field in fields(Options) if field.name not in ("out", "json")
        })  # fmt: skip


def check_folder(out: str | None) -> None:
    """Refuse an output folder that is, or is below, a file, before anything is computed."""
    if out is not None and any(part.is_file() for part in (Path(out), *Path(out).parents)):
        raise UserError(f"--out {out}: a part of it is a file: give another folder")


def check_memory(size: int, d: int, n: int) -> None:
    """Refuse a problem that takes at least `size` bytes if these are not free."""
    free = available_memory()
    if free is not None and size > free:
        raise UserError(
            f"{d:,} features and {n:,} rows take at least {size / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free: "
            "lower --d or --n"
        )


@contextmanager
def user_errors() -> Iterator[None]:
    """Within the block, raise exceptions of the theory as :class:`UserError`, and print its warnings as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except (ValueError, ArithmeticError) as error:
            raise UserError(str(error)) from None
    for note in dict.fromkeys(str(one.message) for one in caught):
        print(f"note: {note}", file=sys.stderr)


def show(
    options: Options, problem: "Problem", rows: Sequence[dict[str, Any]], null: float, title: str, **properties: Any
) -> int:
    """Print the rows of a risk curve, or JSON with the properties of the problem; write table and figure to --out."""
    from r2mae.compare.theory_figures import print_curve, write_curve
    from r2mae.files import print_json
    from r2mae.theory.problem import summary_sentence

    sentence = summary_sentence(rows)
    if options.out is not None:
        write_curve(problem, rows, null, Path(options.out))
    if options.json:
        print_json({**problem.properties(null), **properties, "rows": rows, "words": sentence})
        return 0
    print(f"{problem.title}; {title}")
    print_curve(rows)
    print(sentence)
    if options.out is not None:
        print(f"table and figure are in {options.out}")
    return 0
