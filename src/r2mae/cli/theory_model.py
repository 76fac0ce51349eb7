"""The linear model that options of ``r2mae theory`` describe: covariance, signal, rows, noise and ratios."""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.parsing import Parser
from r2mae.errors import UserError, unknown
from r2mae.training.memory import available_memory

if TYPE_CHECKING:
    import numpy as np

    from r2mae.theory import Covariance, RatioLike, Risk
    from r2mae.theory.ranges import Range

MODELS = {
    "identity": "Σ = I",
    "spiked": "I + δvvᵀ, v from uniform entries",
    "uniform": "spectrum from U(1, 10)",
    "beta": "spectrum from Beta(2, 6) on 1 to 10",
    "latent": "I + WWᵀ with d/2 latent dimensions",
    "plateau": "I + WWᵀ with 50 latent dimensions of eigenvalue 10⁴, β through them (the paper's Fig. 1G)",
}
_SPECTRA = ("uniform", "beta", "latent")
_BYTES = 500  # bytes per feature: some dozens of vectors
_MOST = 1000  # most ratios of a curve


def add_model(parser: Parser) -> None:
    """Add the options that describe the model."""
    models = "; ".join(f"{name}: {what}" for name, what in MODELS.items())
    parser.add_argument("--model", type=str, help=f"Covariance of the features. {models}. By default spiked.")
    parser.add_argument(
        "--cov", metavar="FILE.npy", type=str, help="A covariance of your own, d by d, instead of --model."
    )
    parser.add_argument("--d", type=int, help="Number of features; by default 1000.")
    parser.add_argument("--n", type=int, default=200, help="Number of rows before masking.")
    parser.add_argument("--delta", type=float, help="spiked: strength of the spike; by default 10.")
    parser.add_argument("--cosine", type=float, help="spiked: cosine between signal and spike; by default 1.")
    parser.add_argument(
        "--direction",
        type=str,
        help="uniform, beta, latent, --cov: the eigenvector that is the signal: top (the default), or a quantile from "
        "the top, such as 0.1.",
    )
    parser.add_argument("--noise", type=float, default=0.04, help="Variance of the noise.")
    parser.add_argument(
        "--ratios", type=str, default="0.05:0.95:0.05", help="FIRST:LAST:STEP, or ratios separated by commas."
    )
    parser.add_argument(
        "--low", type=float, help="With --high: adds R²MAE, which draws a ratio from this range for each row."
    )
    parser.add_argument("--high", type=float, help="See --low.")
    parser.add_argument("--ridge", type=float, default=0.0, help="λ of a ridge penalty; 0 is the ridgeless limit.")
    parser.add_argument("--seed", type=int, default=0, help="Seed for the model (and for the simulation).")
    parser.add_argument("--out", metavar="DIR", type=str, help="Folder for table (csv) and figure (png, svg).")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")


@dataclass(frozen=True, eq=False)
class Problem:
    """One regression problem.

    Attributes
    ----------
    cov : Covariance
    place : int or None
        Number of the eigenvector that is the signal (0: largest eigenvalue), or None if `signal` is given.
    signal : array (d,) or None
    title : str
        The model in words.
    n : int
    noise, ridge : float
    ratios : list
        The fixed ratios, then the range if there is one.
    fixed : array (P,)
        The fixed ratios.
    range : Range or None
    """

    cov: "Covariance"
    place: int | None
    signal: "np.ndarray | None"
    title: str
    n: int
    noise: float
    ridge: float
    fixed: "np.ndarray"
    range: "Range | None"

    @property
    def ratios(self) -> "list[float | RatioLike]":
        """The fixed ratios, then the range if there is one."""
        return [*map(float, self.fixed), *([] if self.range is None else [self.range])]

    @property
    def beta(self) -> "np.ndarray":
        """The signal."""
        import numpy as np

        if self.place is not None:
            return self.cov.eigenvectors(np.array([self.place]))[:, 0]
        assert self.signal is not None
        return self.signal

    @property
    def peak(self) -> float | None:
        """The ratio at which the risk diverges, as the number of kept rows equals that of features; or None."""
        return self.cov.d / self.n if self.ridge == 0 and self.cov.d < self.n else None

    def labels(self) -> list[str]:
        """Return each ratio in words."""
        names = [f"{p:.4g}" for p in self.fixed]
        return names if self.range is None else [*names, range_label(self.range)]

    def formula(self) -> "Risk":
        """Return the closed form, of shape (P, 1): one signal.

        Raises
        ------
        UserError
            If an option is out of range.
        """
        import numpy as np

        from r2mae.theory import Rotated, direction_risk, risk

        with user_errors():
            if self.place is not None and self.cov.eigenvalues[self.place] <= 1e-12 * self.cov.eigenvalues[0]:
                raise ValueError(
                    "the covariance has no variance along --direction, so nothing can be predicted: give a smaller one"
                )
            if self.place is not None and isinstance(self.cov, Rotated):  # avoids computing eigenvectors
                return direction_risk(
                    self.cov, self.n, self.ratios, self.noise, which=np.array([self.place]), ridge=self.ridge
                )
            return risk(self.cov, self.beta[:, None], self.n, self.ratios, self.noise, ridge=self.ridge)


def range_label(chosen: "Range") -> str:
    """Return a range in words."""
    return f"R²MAE {chosen.low:g}–{chosen.high:g}"  # noqa: RUF001


def read_problem(values: dict[str, Any]) -> Problem:
    """Build the problem that options describe.

    Raises
    ------
    UserError
        If options contradict each other or are out of range.
    """
    import numpy as np

    from r2mae.theory.ranges import Range

    low, high = values["low"], values["high"]
    if (low is None) != (high is None):
        raise UserError("--low and --high belong together: a range has two ends")
    fixed = np.array(parse_ratios(values["ratios"]))
    with user_errors():
        chosen = None if low is None else Range(low, high)
        cov, signal, title = _covariance(values)
        place = None if signal is not None else cov.at_quantile(_quantile(values["direction"]))
    if place is not None:
        title += f", {_ordinal(place)} eigenvector"
    return Problem(
        cov=cov,
        place=place,
        signal=signal,
        title=f"{title}, n = {values['n']:,}, d = {cov.d:,}",
        n=values["n"],
        noise=values["noise"],
        ridge=values["ridge"],
        fixed=fixed,
        range=chosen,
    )


def parse_ratios(text: str) -> list[float]:
    """Read "0.05:0.95:0.05" or "0.1,0.5,0.9".

    Raises
    ------
    UserError
        If it is neither, or a ratio is not from 0 to below 1.
    """
    wanted = f"--ratios takes FIRST:LAST:STEP such as 0.05:0.95:0.05, or ratios such as 0.1,0.5, not {text!r}"
    parts = text.split(":")
    try:
        words = parts if len(parts) == 3 else re.split(r"[,\s]+", text.strip(", "))
        numbers = [float(word.encode("ascii")) for word in words]
    except ValueError:
        raise UserError(wanted) from None
    if len(parts) == 3:
        first, last, step = numbers
        if not (step > 0 and first <= last):
            raise UserError(f"{wanted}: LAST not below FIRST, and STEP above 0")
        steps = (last - first) / step + 1e-9
        if not steps < _MOST:
            raise UserError(f"--ratios asks for {steps + 1:,.0f} ratios: at most {_MOST:,}, take a larger STEP")
        numbers = [round(first + k * step, 10) for k in range(int(steps) + 1)]
    wrong = [number for number in numbers if not 0 <= number < 1]
    if wrong:
        raise UserError(f"--ratios must be at least 0 and below 1, not {wrong[0]:g}")
    return sorted(set(numbers))


def output_folder(text: str | None) -> Path | None:
    """Return the folder to write to; raise a :class:`UserError` for a file, before anything is computed."""
    path = None if text is None else Path(text)
    for part in () if path is None else (path, *path.parents):
        if part.exists():
            if not part.is_dir():
                raise UserError(f"--out {text}: {part} is a file: give another folder")
            break
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


def _covariance(values: dict[str, Any]) -> "tuple[Covariance, np.ndarray | None, str]":
    """Return the covariance, the signal (None for an eigenvector) and the name of the model."""
    from r2mae import theory

    model, seed = values["model"], values["seed"]
    if seed < 0:
        raise UserError(f"--seed must be 0 or more, not {seed}")
    if values["cov"] is not None:
        for name in ("model", "d"):
            if values[name] is not None:
                raise UserError(f"--{name} and --cov exclude each other: the file determines it")
        _refuse_options(values, "--cov", "delta", "cosine")
        return _load_covariance(Path(values["cov"])), None, Path(values["cov"]).name
    model, d = model or "spiked", 1000 if values["d"] is None else values["d"]
    if model not in MODELS:
        raise unknown("model", model, MODELS)
    check_memory(_BYTES * d + (4 * d * d if model == "latent" else 0), d, values["n"])
    if model != "spiked":
        _refuse_options(values, f"--model {model}", "delta", "cosine")
    if model not in _SPECTRA:
        _refuse_options(values, f"--model {model}", "direction")
    if model == "identity":
        return theory.identity(d), theory.uniform_direction(d, seed), "identity"
    if model == "spiked":
        delta = 10.0 if values["delta"] is None else values["delta"]
        cosine = 1.0 if values["cosine"] is None else values["cosine"]
        v = theory.uniform_direction(d, seed)
        return theory.spiked(delta, v), theory.signal_at(v, cosine, seed), f"spiked, δ = {delta:g}, cos = {cosine:g}"
    if model == "plateau":
        return *theory.plateau(d, min(50, d), seed), "plateau"
    if model == "latent":
        return theory.latent(d, seed), None, model
    spectrum = theory.uniform_spectrum if model == "uniform" else theory.beta_spectrum
    return spectrum(d, seed), None, model


def check_memory(size: int, d: int, n: int) -> None:
    """Refuse a problem that takes at least `size` bytes if these are not free."""
    free = available_memory()
    if free is not None and size > free:
        raise UserError(
            f"{d:,} features and {n:,} rows take at least {size / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free: "
            "lower --d or --n"
        )


def _refuse_options(values: dict[str, Any], what: str, *names: str) -> None:
    for name in names:
        if values[name] is not None:
            raise UserError(f"{what} does not take --{name}: see --help")


def _load_covariance(path: Path) -> "Covariance":
    import numpy as np

    from r2mae.theory import Dense

    try:
        matrix = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; --cov takes a .npy file of a d by d matrix") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; --cov takes a .npy file of a d by d matrix") from None
    except (ValueError, EOFError):
        raise UserError(f"{path}: not a .npy file of numbers: write one with numpy.save") from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or not matrix.size:
        raise UserError(f"{path}: --cov takes a d by d matrix of real numbers")
    try:
        return Dense(matrix if matrix.dtype.kind == "f" else matrix.astype(np.float64))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def _quantile(direction: str | None) -> float:
    if direction in (None, "top"):
        return 0.0
    try:
        quantile = float(direction)
    except ValueError:
        quantile = -1.0
    if not 0 <= quantile <= 1:
        raise UserError(f"--direction takes top, or a quantile from the top such as 0.1, not {direction!r}")
    return quantile


def _ordinal(index: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get((index + 1) % 10 if (index + 1) % 100 not in (11, 12, 13) else 0, "th")
    return f"{index + 1}{ending}"
