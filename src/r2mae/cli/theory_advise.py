"""``r2mae theory advise DATA``: advise on mask ratios for masked linear regression on data, by the closed formula."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from r2mae.cli.early import loading
from r2mae.cli.theory_model import output_folder
from r2mae.errors import UserError
from r2mae.training.fields import argument, option

_RAW_FEATURES = 500  # fewer, as with raw features each ratio costs some d × d factorisations


@dataclass(frozen=True)
class Options:
    """Advise on the mask ratio of masked linear regression, by a closed formula.

    It computes the risk along the leading directions of the data and over their features, as a function of the ratio.
    Nothing is trained. Without --epochs each row is masked once, which is not advice for pretraining: it was wrong for
    the networks that were measured. With --epochs the ratio is that of many masks a row, not yet tested on networks.
    DATA is a named set (digits, mnist), a .npy of samples x features, a .csv, a .h5ad of single-cell counts, or images.

    Parameters
    ----------
    data : str
        A named set or a path.
    samples : int, optional
        Number of training rows, may exceed those of DATA; by default all.
    epochs : int, optional
        Number of epochs, each with a fresh mask for every row; by default one.
    missing : float, float, optional
        Ends of the share of entries that is missing in use; by default nothing is missing.
    fill : str
        Hidden entries are zero, have the feature's mean, or have it and kept ones are divided by the kept share.
    directions : int
        Number of leading directions.
    tolerance : float
        Excess normalised risk that is regarded as zero.
    raw : bool
        Do not standardise the features (slower).
    max_features : int, optional
        Use this many, the most variable: 2000 by default, with --raw 500.
    out : str, optional
        Folder for figure and tables; by default runs/advise-DATA.
    json : bool
        Print JSON, for scripts.

    Examples
    --------
    r2mae theory advise digits --samples 200
    """

    data: str = argument(words=("digits", "mnist"))
    samples: int | None = None
    epochs: int | None = None
    missing: tuple[float, ...] | None = option(None, metavar="LOW HIGH")
    fill: Literal["zeros", "mean", "rescaled"] = "mean"
    directions: int = 20
    tolerance: float = 0.05
    raw: bool = False
    max_features: int | None = None
    out: str | None = option(None, metavar="DIR")
    json: bool = False


def run(options: Options) -> int:
    """Run the command."""
    samples, raw, most = options.samples, options.raw, options.max_features
    for name, given, least in (
        ("samples", samples, 2), ("epochs", options.epochs, 1), ("directions", options.directions, 1),
        ("max-features", most, 2),
    ):  # fmt: skip
        if given is not None and given < least:  # before data are loaded
            raise UserError(f"--{name} must be {least} or more, not {given}")
    if not 0 < options.tolerance < 1:
        raise UserError(f"--tolerance must be above 0 and below 1, not {options.tolerance:g}")
    missing = (0.0, 0.0) if options.missing is None else options.missing
    if not (len(missing) == 2 and 0 <= missing[0] <= missing[1] < 1):
        raise UserError("--missing must be two shares, LOW and HIGH, of at least 0 and below 1, for example 0.1 0.9")
    out = output_folder(options.out)
    with loading("scientific libraries"):
        import numpy as np

        from r2mae.cli.theory_output import print_advice, write_advice
        from r2mae.files import print_json
        from r2mae.matrices import MAX_FEATURES, load_matrix
        from r2mae.theory import Inputs, Range, advise, from_data
        from r2mae.theory.advice_text import advice_text
        from r2mae.theory.advise import caveats

    slow = raw or options.fill == "zeros"
    if most is None:
        most = _RAW_FEATURES if slow else MAX_FEATURES
    data = load_matrix(options.data, max_features=most)
    x = data.values if raw else data.values / data.values.std(axis=0)
    n = len(x) if samples is None else samples
    ratios = np.arange(1, 20) / 20 if slow else np.arange(1, 100) / 100
    try:
        cov = from_data(data.values, scale=not raw)
        inputs = Inputs(
            "rescaled" if options.fill == "rescaled" else "zeros",
            Range(*missing),
            x.mean(axis=0) if options.fill == "zeros" else None,
        )
        advice = advise(
            cov,
            n,
            directions=options.directions,
            tolerance=options.tolerance,
            ratios=ratios,
            masks=options.epochs or 1,
            inputs=inputs,
        )
    except (ValueError, ArithmeticError) as error:
        raise UserError(f"{options.data}: {error}") from None
    holds, cautions = caveats(x, cov, n)
    text = advice_text(data.name, data.notes, advice, holds, cautions, "raw" if raw else "standardised")
    out = Path(f"runs/advise-{data.name}") if out is None else out
    write_advice(out, data.name, data.features, advice, text)
    if options.json:
        print_json(text)
    else:
        print_advice(text)
        print(f"figure and tables are in {out}")
    return 0
