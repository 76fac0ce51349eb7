"""The options of ``r2mae theory risk`` and ``simulate`` that describe a linear model, and the problem they mean."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError, unknown
from r2mae.training.fields import option
from r2mae.training.memory import available_memory

if TYPE_CHECKING:
    import numpy as np

    from r2mae.theory import Covariance
    from r2mae.theory.problem import Problem

_TAKES: dict[str, tuple[str, ...]] = {
    "identity": (),
    "spiked": ("delta", "cosine"),
    "uniform": ("direction",),
    "beta": ("direction",),
    "latent": ("direction",),
    "plateau": (),
}
_BYTES = 500  # bytes per feature: some dozens of vectors


@dataclass(frozen=True)
class ModelOptions:
    """The linear model.

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
    """

    model: str | None = option(None, words=tuple(_TAKES))
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


def read_problem(options: ModelOptions) -> "Problem":
    """Build the problem that options describe.

    Raises
    ------
    UserError
        If options contradict each other or are out of range.
    """
    import numpy as np

    from r2mae.theory.problem import Problem, ordinal, parse_ratios, quantile_of
    from r2mae.theory.ranges import Range

    low, high = options.low, options.high
    if (low is None) != (high is None):
        raise UserError("--low and --high belong together: a range has two ends")
    fixed = np.array(parse_ratios(options.ratios))
    with user_errors():
        chosen = None if low is None or high is None else Range(low, high)
        cov, signal, title = _covariance(options)
        place = None if signal is not None else cov.at_quantile(quantile_of(options.direction))
    if place is not None:
        title += f", {ordinal(place)} eigenvector"
    title += f", n = {options.n:,}, d = {cov.d:,}"
    return Problem(cov, place, signal, title, options.n, options.noise, options.ridge, fixed, chosen)


def output_folder(text: str | None) -> Path | None:
    """Return the folder to write to; raise a :class:`UserError` for a file, before anything is computed."""
    if text is None:
        return None
    path = Path(text)
    found = next(part for part in (path, *path.absolute().parents) if part.exists())
    if not found.is_dir():
        raise UserError(f"--out {text}: a part of it is a file: give another folder")
    return path


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
        print_note(note)


def print_note(note: str) -> None:
    """Print a note on standard error."""
    print(f"note: {note}", file=sys.stderr)


def _covariance(options: ModelOptions) -> "tuple[Covariance, np.ndarray | None, str]":
    """Return the covariance, the signal (None for an eigenvector) and the name of the model."""
    from r2mae.theory.problem import load_covariance, named_covariance

    if options.seed < 0:
        raise UserError(f"--seed must be 0 or more, not {options.seed}")
    model = options.model or "spiked"
    if model not in _TAKES:
        raise unknown("model", model, _TAKES)
    what, takes = f"--model {model}", ("d", *_TAKES[model])
    if options.cov is not None:
        what, takes = "--cov", ("direction",)
        if options.model is not None:
            raise UserError("--model and --cov exclude each other: the file determines it")
    for name in ("d", "delta", "cosine", "direction"):
        if name not in takes and getattr(options, name) is not None:
            raise UserError(f"{what} does not take --{name}: see --help")
    if options.cov is not None:
        return load_covariance(Path(options.cov)), None, Path(options.cov).name
    d = 1000 if options.d is None else options.d
    check_memory(_BYTES * d + (4 * d * d if model == "latent" else 0), d, options.n)
    return named_covariance(model, d, options.seed, options.delta, options.cosine)


def check_memory(size: int, d: int, n: int) -> None:
    """Refuse a problem that takes at least `size` bytes if these are not free."""
    free = available_memory()
    if free is not None and size > free:
        raise UserError(
            f"{d:,} features and {n:,} rows take at least {size / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free: "
            "lower --d or --n"
        )


def show(
    options: ModelOptions,
    problem: "Problem",
    rows: Sequence[dict[str, Any]],
    title: str,
    properties: Mapping[str, Any],
    write: Callable[[Path], None],
) -> int:
    """Write rows to a folder, and print them with a title, or as JSON with the properties of the problem."""
    from r2mae.cli.theory_output import print_risks
    from r2mae.files import print_json
    from r2mae.theory.problem import summary_sentence

    sentence, out = summary_sentence(rows), output_folder(options.out)
    if out is not None:
        write(out)
    if options.json:
        print_json({**properties, "rows": rows, "words": sentence})
        return 0
    columns = [name for name in rows[0] if name != "ratio"]
    print_risks(rows, columns, f"{problem.title}; {title}")
    print(sentence)
    if out is not None:
        print(f"table and figure are in {out}")
    return 0
