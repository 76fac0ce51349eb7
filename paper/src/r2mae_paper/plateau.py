"""Figs. 1G and 4: the latent space model with q equal strong dimensions, and its plateaus.

The "eigenvalue 100" of the paper's text is either that of D (then that of WWᵀ is 10,000) or that of WWᵀ; both are
computed. The paper draws its curves beside ImageNet accuracies of He et al. (2022), which a table of yours can hold.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from r2mae.theory import plateau, risk
from r2mae.theory.simulate import simulate
from r2mae_paper.artefact import NOISE, Part, Size, TableRow, Tally, compared, paper_ratios
from r2mae_paper.curves import Accuracies, read_curves
from r2mae_paper.drawing import null_line, ratio_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Reading = Literal["D", "WW"]
READINGS: dict[Reading, str] = {"D": "D's entries are 100", "WW": "WWᵀ's eigenvalues are 100"}
# Noise variance over the null risk. The paper's variance of 0.04 is 0.002 of the null risk.
NOISES = (0.0, 0.5, 1.0, 1.5)
PUBLISHED = "published"  # first word of the name of the part with published accuracies


@dataclass(frozen=True)
class PlateauSize(Size):
    """How much is computed.

    Attributes
    ----------
    n, d, q : int
        Rows, features and latent dimensions; the paper: 100, 5000, 50.
    seeds : int
        Samples of the model, each with one design.
    repetitions : int
        Number of masks of each design.
    published : tuple of (str, float, float)
        Task, ratio and accuracy of each row of the user's tables.
    """

    n: int = 100
    d: int = 5000
    q: int = 50
    seeds: int = 20
    repetitions: int = 50
    published: Accuracies = ()

    drawn: ClassVar[tuple[str, ...]] = ("published",)
    small: ClassVar = {"n": 40, "d": 400, "q": 20, "seeds": 4, "repetitions": 20}


def samples(size: PlateauSize) -> list[Part]:
    """Return a part for each sample of the model under both readings."""
    return [
        Part(f"{reading}-{seed}", size.repetitions, partial(_measure, size, reading, seed))
        for reading in READINGS
        for seed in range(size.seeds)
    ]


def with_curves(size: PlateauSize, files: Sequence[Path]) -> PlateauSize:
    """Return the size with published accuracies, with the columns `task`, `ratio` and `accuracy`.

    Raises
    ------
    UserError
        As :func:`r2mae_paper.curves.read_curves`.
    """
    return replace(size, published=read_curves(files))


def published(size: PlateauSize) -> list[Part]:
    """Return a part that holds the published accuracies, if there are any."""
    if not size.published:
        return []
    rows = [{"task": task, "ratio": ratio, "accuracy": accuracy} for task, ratio, accuracy in size.published]
    name = hashlib.blake2b(repr(rows).encode(), digest_size=6).hexdigest()  # other tables are another part
    return [Part(f"{PUBLISHED}-{name}", 0, lambda jobs, tally: rows)]


def apart(results: Mapping[str, list[TableRow]]) -> tuple[list[TableRow], list[TableRow]]:
    """Return the rows of the samples, and the published ones."""
    groups: tuple[list[TableRow], list[TableRow]] = ([], [])
    for name, rows in results.items():
        groups[name.startswith(PUBLISHED)].extend(rows)
    return groups


def _measure(size: PlateauSize, reading: Reading, seed: int, jobs: int, tally: Tally) -> list[TableRow]:
    """Simulate one sample; risks are over βᵀΣβ."""
    ratios = paper_ratios()
    cov, beta = plateau(size.d, size.q, seed, of=reading)
    with compared():
        formula = risk(cov, beta, size.n, ratios, NOISE).normalised
    simulation = simulate(
        cov,
        beta,
        size.n,
        ratios,
        noise=NOISE,
        repetitions=size.repetitions,
        seed=seed,
        jobs=jobs,
        progress=tally.every(),
    )
    null = float(simulation.null)
    return [
        {
            "reading": reading,
            "sample": seed,
            "ratio": p,
            "null": null,
            "normalised_risk": simulation.normalised[i],
            "deviation": simulation.deviation[i] / null,
            "error": simulation.error[i] / null,
            "formula": formula[i],
        }
        for i, p in enumerate(ratios)
    ]


def describe(rows: list[TableRow]) -> list[TableRow]:
    """Return, for every sample and for the formula, the ends of the curve's plateaus, and its lowest point.

    The descent is the difference between the first and the lowest point. The first plateau reaches as far as the curve
    stays within a tenth of the descent of its first point. The second plateau is the range of ratios around the lowest
    point in which the curve is within a tenth of the descent of that point.
    """
    described = []
    for reading, sample in dict.fromkeys((row["reading"], row["sample"]) for row in rows):
        own = [row for row in rows if (row["reading"], row["sample"]) == (reading, sample)]
        ratios = np.array([row["ratio"] for row in own])
        curves = {sample: "normalised_risk"} | ({"formula": "formula"} if sample == 0 else {})
        for name, key in curves.items():
            described.append({"reading": reading, "sample": name, **plateaus(ratios, np.array([r[key] for r in own]))})
    return described


def plateaus(ratios: Float[np.ndarray, " p"], curve: Float[np.ndarray, " p"]) -> dict[str, float]:
    """Return the plateaus of one curve (see :func:`describe`)."""
    lowest = int(np.argmin(curve))
    slack = 0.1 * (curve[0] - curve[lowest])
    left = np.flatnonzero(curve[: lowest + 1] < curve[0] - slack)
    end = int(left[0]) - 1 if len(left) else lowest
    near = curve <= curve[lowest] + slack
    low = high = lowest
    while low > 0 and near[low - 1]:
        low -= 1
    while high + 1 < len(curve) and near[high + 1]:
        high += 1
    return {
        "first_risk": float(curve[0]),
        "first_until": float(ratios[end]),
        "best_ratio": float(ratios[lowest]),
        "best_risk": float(curve[lowest]),
        "near_best_from": float(ratios[low]),
        "near_best_until": float(ratios[high]),
    }


def noisy(size: PlateauSize) -> list[TableRow]:
    """Return the formula's curves for several noise variances, given as fractions of the null risk.

    The risk is affine in the noise variance, so one evaluation is enough for all of them.
    """
    fine = paper_ratios(0.01)
    fine = fine[fine * size.n >= 1]
    rows = []
    for reading in READINGS:
        cov, beta = plateau(size.d, size.q, 0, of=reading)
        with compared():
            formula = risk(cov, beta, size.n, fine, NOISE)
        null = float(formula.null)
        for share in NOISES:
            noise = max(NOISE, share * null)
            curve = (formula.risk + (noise - NOISE) * formula.noise_gain) / null
            rows += [
                {"reading": reading, "noise": noise, "noise_over_null": noise / null, "ratio": p, "formula": value}
                for p, value in zip(fine, curve, strict=True)
            ]
    return rows


def finish(axes: "Axes", title: str) -> None:
    """Label a panel of normalised risk."""
    null_line(axes)
    ratio_axis(axes)
    axes.set_ylim(0, 1.5)
    axes.set_ylabel("normalised test risk")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
