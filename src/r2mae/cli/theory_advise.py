"""``r2mae theory advise DATA``: advise on mask ratios for masked linear regression on data, by the closed formula."""

import sys
import textwrap
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from r2mae.cli.parsing import loading
from r2mae.errors import UserError
from r2mae.fields import Range, Size, argument, check_fields, option

_AtLeastTwo = Annotated[int, Range(2)]
_FEWER = 500  # features by default, where each ratio costs some d × d factorisations
_WIDEST = 100  # columns of a paragraph


@dataclass(frozen=True)
class Options:
    """Advise on the mask ratio of masked linear regression, by a closed formula.

    It computes the risk along the leading directions of the data and over their features, as a function of the ratio.
    Nothing is trained. Without --epochs each row is masked once, which is not advice for pretraining: it was wrong for
    the networks that were measured. With --epochs the ratio is that of many masks a row, which helped some networks
    only (docs/theory/networks.md). DATA is a named set (digits, mnist), a .npy of samples x features, a .csv, a .h5ad
    of single-cell counts, or images.

    Parameters
    ----------
    data : str
        A named set or a path.
    samples : int, optional
        Number of training rows, may exceed those of DATA; by default all.
    epochs : int, optional
        Number of epochs, each with a fresh mask for every row; by default one.
    missing : float, float, optional
        Ends of the share of entries that is missing in use.
    fill : str
        Hidden entries are zero, have the feature's mean, or have it and kept ones are divided by the kept share.
    max_features : int, optional
        Use this many, the most variable: 2000 by default, with --fill zeros 500.
    out : str, optional
        Folder for figure and tables; by default runs/advise-DATA.
    json : bool
        Print JSON, for scripts.

    Examples
    --------
    r2mae theory advise digits --samples 200
    """

    data: str = argument(words=("digits", "mnist"))
    samples: _AtLeastTwo | None = None
    epochs: Size | None = None
    missing: tuple[float, ...] = option((0.0, 0.0), metavar="LOW HIGH")
    fill: Literal["zeros", "mean", "rescaled"] = "mean"
    max_features: _AtLeastTwo | None = None
    out: str | None = option(None, metavar="DIR")
    json: bool = False


def run(options: Options) -> int:
    """Run the command."""
    check_fields(options, lambda name: f"--{name.replace('_', '-')}")  # before data are loaded
    missing = options.missing
    if not (len(missing) == 2 and 0 <= missing[0] <= missing[1] < 1):
        raise UserError("--missing must be two shares, LOW and HIGH, of at least 0 and below 1, for example 0.1 0.9")
    if options.out is not None and any(part.is_file() for part in (Path(options.out), *Path(options.out).parents)):
        raise UserError(f"--out {options.out}: a part of it is a file: give another folder")
    with loading("scientific libraries"):
        import numpy as np

        from r2mae.compare.theory_figures import write_advice
        from r2mae.files import print_json
        from r2mae.masking import Uniform
        from r2mae.matrices import MAX_FEATURES, load_matrix
        from r2mae.terminal import Terminal
        from r2mae.theory import Inputs, advise, effective_ratio, from_data
        from r2mae.theory.advice_text import advice_text
        from r2mae.theory.advise import caveats

    fill, uncentred = options.fill, options.fill == "zeros"
    data = load_matrix(options.data, max_features=options.max_features or (_FEWER if uncentred else MAX_FEATURES))
    x = data.values / data.values.std(axis=0)
    n = options.samples or len(x)
    in_use = missing[0] if missing[0] == missing[1] else Uniform(*missing)
    inputs = Inputs("rescaled" if fill == "rescaled" else "zeros", in_use, x.mean(axis=0) if uncentred else None)
    ratios = np.arange(1, 20) / 20 if uncentred else np.arange(1, 100) / 100
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            cov = from_data(data.values, scale=True)
            advice = advise(cov, n, ratios=ratios, masks=options.epochs or 1, inputs=inputs)
        except (ValueError, ArithmeticError) as error:
            raise UserError(str(error)) from None
    for note in dict.fromkeys(str(one.message) for one in caught):
        print(f"note: {note}", file=sys.stderr)
    holds, cautions = caveats(x, cov, n)
    effective = effective_ratio(Uniform(0.1, 0.9), "batches", inputs.rule)
    text = advice_text(data.name, data.notes, advice, holds, cautions, effective)
    out = Path(options.out or f"runs/advise-{data.name}")
    write_advice(out, data.name, data.features, advice, text)
    if options.json:
        print_json(text)
        return 0
    wrapped = partial(textwrap.fill, width=min(Terminal().width, _WIDEST), break_on_hyphens=False)
    print(text["answer"], wrapped(text["caveat"]), "", *(f"note: {note}" for note in text["notes"]), sep="\n")
    print(wrapped(text["paragraph"]), *(wrapped(f"Caution: {caution}") for caution in cautions), sep="\n")
    print(f"figure and tables are in {out}")
    return 0
