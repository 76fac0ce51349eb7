"""``r2mae theory advise DATA``: advise on mask ratios for masked linear regression on data, by the closed formula."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.parsing import Parser
from r2mae.cli.theory_model import output_folder
from r2mae.errors import UserError

if TYPE_CHECKING:
    from r2mae.cli.theory_data import Matrix
    from r2mae.theory.advise import Advice

_RAW_FEATURES = 500  # fewer, as with raw features each ratio costs some d × d factorisations
FAILED, SETS, HELD = 6, 6, 16
"""Sets of paper/results/randomness on which advice was wrong for networks; fits of paper/results/theory/realdata."""
_CAVEAT = (
    "The formula describes a linear model without a ridge, with each row masked once. A network sees every row under "
    "many masks, and its training regularises it. To choose a ratio for pretraining, train: r2mae compare DATA "
    "--schemes fixed r2mae --ratios 0.1 0.3 0.5 0.7 0.9 --seeds 3. Until then, take the default range of r2mae."
)


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae theory advise",
        "Advise on the mask ratio of masked linear regression: its risk along the leading directions of the data and "
        "over their features, as a function of the ratio, by a closed formula. Nothing is trained. The advice is not "
        "for pretraining: for the networks that were measured, it was wrong. DATA is a named set "
        "(digits, mnist), a .npy of samples x features, a .csv, a .h5ad of single-cell counts, or images.",
        "r2mae theory advise digits --samples 200",
    )
    parser.add_argument("data", metavar="DATA", type=str, help="A named set or a path.")
    parser.add_argument(
        "--samples", type=int, help="Number of training rows, may exceed those of DATA; by default all."
    )
    parser.add_argument("--directions", type=int, default=20, help="Number of leading directions.")
    parser.add_argument(
        "--tolerance", type=float, default=0.05, help="Excess normalised risk that is regarded as zero."
    )
    parser.add_argument("--raw", action="store_true", help="Do not standardise the features (slower).")
    parser.add_argument(
        "--max_features", type=int, help="Use this many, the most variable: 2000 by default, with --raw 500."
    )
    parser.add_argument("--out", type=str, help="Folder for figure and tables; by default runs/advise-DATA.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    values = parser.read(words)
    samples, raw, most = values["samples"], values["raw"], values["max_features"]
    for option, least in (("samples", 2), ("directions", 1), ("max_features", 2)):  # before data are loaded
        if values[option] is not None and values[option] < least:
            raise UserError(f"--{option.replace('_', '-')} must be {least} or more, not {values[option]}")
    if not 0 < values["tolerance"] < 1:
        raise UserError(f"--tolerance must be above 0 and below 1, not {values['tolerance']:g}")
    out = output_folder(values["out"])

    import numpy as np

    from r2mae.cli.show import print_json
    from r2mae.cli.theory_data import MAX_FEATURES, load_matrix
    from r2mae.theory import advise, from_data
    from r2mae.theory.advise import caveats

    if most is None:
        most = _RAW_FEATURES if raw else MAX_FEATURES
    data = load_matrix(values["data"], max_features=most)
    x = data.values if raw else data.values / data.values.std(axis=0)
    n = len(x) if samples is None else samples
    ratios = np.arange(1, 20) / 20 if raw else np.arange(1, 100) / 100
    try:
        cov = from_data(data.values, scale=not raw)
        advice = advise(cov, n, directions=values["directions"], tolerance=values["tolerance"], ratios=ratios)
    except (ValueError, ArithmeticError) as error:
        raise UserError(f"{values['data']}: {error}") from None
    holds, cautions = caveats(x, cov, n)
    told = _told(data, advice, holds, cautions, "raw" if raw else "standardised")
    out = Path(f"runs/advise-{data.name}") if out is None else out
    _write(out, data, advice, told)
    if values["json"]:
        print_json(told)
    else:
        _print(told)
        print(f"figure and tables are in {out}")
    return 0


def _told(data: "Matrix", advice: "Advice", holds: bool, cautions: list[str], kind: str) -> dict[str, Any]:
    """Return all that is said, as plain types; no ratio where such advice was wrong on similar data."""
    import numpy as np

    lead, features, plateau = advice.directions, advice.features, advice.suggested if holds else None
    best, drawn = None, None
    answer = (
        f"Answer: no ratio for pretraining. Such advice failed for networks trained on {FAILED} of {SETS} sets, and "
        f"held in all {HELD} linear fits without nearly empty features"
    )
    words = (
        f"{data.name}: masked ridgeless regression on n = {advice.n:,} rows of d = {advice.d:,} {kind} features can "
        f"learn {int(lead.learnable.sum())} of {len(lead.variance)} leading directions ({100 * advice.share:.0f} % of "
        f"the variance) and {int(features.learnable.sum()):,} of {advice.d:,} features from the others."
    )
    if holds:
        means = {"directions": lead.mean, "features": features.weighted}
        best = {name: {"ratio": lead.ratio_of_lowest(mean), "risk": np.nanmin(mean)} for name, mean in means.items()}
        told = (f"{found['risk']:.3f} of the {name} at {found['ratio']:.2f}" for name, found in best.items())
        words += f" The lowest mean risks (1 is predicting zero): {', '.join(told)}."
    if plateau is not None and advice.drawn is not None:
        within, own = span(plateau.low, plateau.high), lead.best_ratio[lead.learnable]
        drawn = dict(zip(("directions", "features"), advice.drawn, strict=True))
        answer += f": for linear regression {within}."
        words += (
            f" The directions' own best ratios are {span(own.min(), own.max())}; at {advice.minimax_ratio:.2f} the "
            f"worst-served one loses least, {advice.minimax:.3f}, and in the range {within} at most "
            f"{advice.allowed:.3f}. With a ratio drawn from it for every row, the mean risks are "
            f"{drawn['directions']:.3f} and {drawn['features']:.3f}. By the formula no range beats the best fixed "
            "ratio for one goal: a range helps if that ratio is not known."
        )
    elif holds:
        answer += "; but here no direction can be learned: no ratio for linear regression either."
    else:
        answer += (
            "; these data have such features: no ratio for linear regression either (try a smaller --max-features)."
        )
    if advice.peak is not None:
        words += f" The risk diverges near ratio d/n = {advice.peak:.3g}, where kept rows equal features in number."
    return {
        "answer": answer,
        "caveat": _CAVEAT,
        "held": {"pretraining": False, "linear_regression": holds},
        "data": data.name,
        "n": advice.n,
        "d": advice.d,
        "standardised": kind == "standardised",
        "tolerance": advice.tolerance,
        "peak": advice.peak,
        "directions": len(lead.variance),
        "learnable_directions": int(lead.learnable.sum()),
        "learnable_features": int(features.learnable.sum()),
        "share_of_variance": advice.share,
        "minimax": {"excess": advice.minimax, "ratio": advice.minimax_ratio} if holds else None,
        "suggested_for_pretraining": None,
        "suggested_for_linear_regression": plateau and {**vars(plateau), "excess": advice.allowed},
        "best_fixed": best,
        "drawn_for_every_row": drawn,
        "notes": data.notes,
        "cautions": cautions,
        "paragraph": words,
    }


def _print(told: dict[str, Any]) -> None:
    import textwrap

    from r2mae.terminal import Terminal

    width = min(Terminal().width, 100)
    print(told["answer"])
    print(textwrap.fill(told["caveat"], width, break_on_hyphens=False), end="\n\n")
    for note in told["notes"]:
        print(f"note: {note}")
    for words in (told["paragraph"], *(f"Caution: {caution}" for caution in told["cautions"])):
        print(textwrap.fill(words, width, break_on_hyphens=False))


def _write(out: Path, data: "Matrix", advice: "Advice", told: dict[str, Any]) -> None:
    """Write ``advice.json``, ``curves.csv``, ``targets.csv`` and the figure ``advice`` to a folder."""
    import pandas as pd

    from r2mae.files import atomic_write, write_json
    from r2mae.report.style import save_figure
    from r2mae.report.theory_figures import advice_figure

    lead, features = advice.directions, advice.features
    names = [f"direction_{index + 1}" for index in range(len(lead.variance))]
    curves = pd.DataFrame(lead.normalised, columns=names)
    means = {"directions_mean": lead.mean, "features_weighted": features.weighted, "worst_excess": lead.worst_excess}
    targets = {
        "target": [*names, *data.features],
        "variance": [*lead.variance, *features.variance],
        "best_ratio": [*lead.best_ratio, *features.best_ratio],
        "lowest_risk": [*lead.lowest, *features.lowest],
        "learnable": [*lead.learnable.astype(int), *features.learnable.astype(int)],
    }
    tables = {"curves": pd.DataFrame({"ratio": lead.ratios, **means}).join(curves), "targets": pd.DataFrame(targets)}
    for name, table in tables.items():
        with atomic_write(out / f"{name}.csv") as file:
            table.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
    write_json(out / "advice.json", told)
    short = data.name if len(data.name) <= 28 else f"{data.name[:27]}…"
    save_figure(advice_figure(advice, short, holds=told["held"]["linear_regression"]), out, "advice")


def span(low: float, high: float) -> str:
    """Write a range of ratios; one number where both ends round to the same."""
    first, last = f"{low:.2f}", f"{high:.2f}"
    return first if first == last else f"{first} to {last}"
