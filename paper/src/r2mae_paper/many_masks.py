"""Does the theory of many masks a row predict networks? Best ratios, ranges against one ratio, and input rules.

Autoencoders are trained on rows of images, cells and simulated data, at seven fixed ratios, at random ratios and at
their p_eff, with hidden entries zero, at the mean, or rescaled. The formula gets the same training rows: their
covariance (Ledoit-Wolf) and mean, the number of rows, and K, the number of masks of each row. It predicts the mean
squared error of hidden entries, at one hidden entry and over all missing fractions. Nothing is fitted to the networks.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from r2mae.cells.sets import SETS as CELLS
from r2mae.compare.style import BLUE, GREEN, ORANGE
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.evaluation.statistics import Difference, mean_interval, paired_difference
from r2mae.images.data import load_images
from r2mae.masking import Uniform
from r2mae.masking.keys import Key, permutation
from r2mae.matrices import load_matrix
from r2mae.theory import Covariance, Inputs, beta_spectrum, effective_ratio, feature_risk, from_data, latent
from r2mae_paper.drawing import Figures, panels, plain_log
from r2mae_paper.many_networks import FRACTIONS, Network, Rows, Rule, missing_entries, train
from r2mae_paper.rows import TableRow, Tables, difference_columns, records
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Parts, Study, compared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES: Sequence[Rule] = ("zeros", "mean", "rescaled")
RATIOS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
LOW, HIGH = 0.1, 0.9
"""The range of the random ratios, and of the missing fractions."""
BATCH, SAMPLE, SAME = "r2mae", "r2mae-per-sample", "p_eff"
MEASURES = ("one hidden", "all fractions")
MARGIN = 0.02
"""Relative difference of errors within which two rules are called equal; chosen before the runs."""
_KINDS = {"infinity": "K = ∞", "own": "K = epochs", "one": "K = 1"}
_COLOURS = dict(zip(_KINDS, (BLUE, GREEN, ORANGE), strict=True))
_BOOTSTRAPS = 2000
_VERDICTS = ("better", "equal", "worse", "undecided")


def p_eff(rule: Rule) -> float:
    """Return the single ratio that the range equals for many masks, each mini-batch counting alike."""
    return effective_ratio(Uniform(LOW, HIGH), "batches", "rescaled" if rule == "rescaled" else "zeros")


def networks() -> dict[str, Network]:
    """Return the networks of a data set by name: rule and scheme."""
    found: dict[str, Network] = {}
    for rule in RULES:
        found |= {f"{rule} {ratio:.2f}": Network(rule, ratio, ratio) for ratio in RATIOS}
        found[f"{rule} {SAME}"] = Network(rule, p_eff(rule), p_eff(rule))
        found[f"{rule} {BATCH}"] = Network(rule, LOW, HIGH)
        found[f"{rule} {SAMPLE}"] = Network(rule, LOW, HIGH, by_sample=True)
    return found


def rows_of_set(name: str, size: Size) -> Rows:
    """Return the rows of a data set: ``latent``, ``beta``, a set of cells, or images ``NAME`` or ``NAME-SIDE``.

    At most :attr:`size.rows` rows are for training and a quarter as many for the test. Features that vary in fewer than
    twenty of the training rows are left out.
    """
    most = size.rows + size.rows // 4
    if name in ("latent", "beta"):
        cov = (latent if name == "latent" else beta_spectrum)(size.features, seed=0)
        x = cov.sample(most, np.random.default_rng(1))
    elif name in CELLS:
        x = load_matrix(name, max_features=size.features).values
    else:
        data, _, side = name.partition("-x")
        images = load_images(data, resize=int(side) if side else None)[0].images
        x = np.asarray(images, dtype=np.float64).reshape(len(images), -1) / 255
    x = x[permutation(Key.root(0).fold("rows"), len(x))[:most]]
    count = len(x) * 4 // 5 // size.batch * size.batch
    varies = (x[:count] != np.median(x[:count], axis=0)).sum(axis=0) >= min(20, count // 10)
    train_rows, test = x[:count, varies], x[count:, varies]
    scale = train_rows.std(axis=0)
    return Rows((train_rows / scale).astype(np.float32), (test / scale).astype(np.float32))


def parts(size: Size) -> Parts:
    """Return for each set a part that trains the networks, one that evaluates the formula, and one of baselines."""
    kinds = {"networks": _networks, "theory": _theory, "baselines": _baselines}
    return {f"{kind}-{name}": partial(compute, name, size) for name in size.sets for kind, compute in kinds.items()}


def _networks(name: str, size: Size, jobs: int) -> TableRow:
    """Return the errors of all networks of a set, by number of epochs, seed, network and missing fraction."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(jobs)
    rows = rows_of_set(name, size)
    errors = train(
        rows, list(networks().values()), seeds=size.seeds, epochs=size.epochs, batch=size.batch, hidden=size.hidden,
        latent=size.latent, device=device,
    )  # fmt: skip
    return {
        "n": len(rows.train),
        "d": rows.train.shape[1],
        "epochs": list(size.epochs),
        "errors": np.round(errors, 6).tolist(),
    }


def _theory(name: str, size: Size, jobs: int) -> TableRow:
    """Return the formula's error by input rule, measure and number of masks, at each of the fixed ratios."""
    rows = rows_of_set(name, size)
    x = rows.train.astype(np.float64)
    found: TableRow = {}
    with compared(), threadpool_limits(jobs):
        cov, mean = from_data(x, scale=True), x.mean(axis=0)
        for rule in RULES:
            for measure in MEASURES:
                missing = 0.0 if measure == MEASURES[0] else Uniform(LOW, HIGH)
                inputs = Inputs(
                    "rescaled" if rule == "rescaled" else "zeros", missing, mean if rule == "zeros" else None
                )
                for masks in (1.0, *map(float, size.epochs), math.inf):
                    key = f"{rule}/{measure}/{masks:g}"
                    if key not in found:
                        found[key] = [_formula(cov, len(x), ratio, masks, inputs) for ratio in RATIOS]
                for key, ratio in ((BATCH, Uniform(LOW, HIGH)), (SAME, p_eff(rule))):
                    risk = feature_risk(cov, len(x), ratio, keep=1.0, masks=math.inf, inputs=inputs).risk
                    found[f"{rule}/{measure}/{key}"] = round(float(risk.mean()), 6)
    return found


def _baselines(name: str, size: Size, jobs: int) -> TableRow:
    """Return the error over all missing fractions of the mean and of the Gaussian conditional mean."""
    rows = rows_of_set(name, size)
    fitted = GaussianConditionalMean.fit(rows.train)
    errors = []
    for fraction in FRACTIONS:
        hidden = missing_entries(rows.test, fraction)
        filled = fitted.fill(rows.test, hidden)
        errors.append([float(((guess - rows.test)[hidden] ** 2).mean()) for guess in (fitted.mean, filled)])
    return dict(zip(("mean", "gaussian"), np.mean(errors, axis=0).round(6).tolist(), strict=True))


def _formula(cov: Covariance, n: int, ratio: float, masks: float, inputs: Inputs) -> float | None:
    """Return the mean risk of the features, or None too close to where kept rows equal features in number."""
    try:
        return round(float(feature_risk(cov, n, ratio, masks=masks, inputs=inputs).risk.mean()), 6)
    except ArithmeticError:
        return None


def tables(results: Mapping[str, Any]) -> Tables:
    """Return best ratios with the regret of each advice, what ranges are worth, and all errors."""
    sets = [name.removeprefix("networks-") for name in results if name.startswith("networks-")]
    errors = pd.concat([_errors_of(name, results[f"networks-{name}"]) for name in sets], ignore_index=True)
    advice = _advice(errors, {name: results[f"theory-{name}"] for name in sets})
    ranges = _ranges(errors, results)
    over_seeds = {f"{measure} {kind}": (measure, kind) for measure in MEASURES for kind in ("mean", "std")}
    by_network = errors.groupby(["set", "n", "d", "epochs", "rule", "scheme"], sort=False)
    theory = [
        {"set": name, "rule": rule, "measure": measure, "masks": masks, "ratio": ratio, "error": error}
        for name in sets
        for key, curve in results[f"theory-{name}"].items()
        for rule, measure, masks in [key.split("/")]
        for ratio, error in (zip(RATIOS, curve, strict=True) if isinstance(curve, list) else [("", curve)])
    ]
    return {
        "many-masks": advice,
        "many-masks-summary": _summary(pd.DataFrame(advice)),
        "many-masks-epochs": _over_epochs(pd.DataFrame(advice)),
        "many-masks-ranges": ranges,
        "many-masks-gains": _gains(pd.DataFrame(ranges)),
        "many-masks-errors": records(by_network.agg(**over_seeds).reset_index()),
        "many-masks-theory": theory,
        "many-masks-baselines": [{"set": name, **results[f"baselines-{name}"]} for name in sets],
    }


def _errors_of(name: str, result: TableRow) -> pd.DataFrame:
    """Return a row for each number of epochs, network and seed of a set, with both measures."""
    errors = np.asarray(result["errors"])
    labels, size = list(networks()), {"set": name, "n": result["n"], "d": result["d"]}
    return pd.DataFrame(
        [
            {
                **size,
                **{"epochs": epochs, "rule": label.split()[0], "scheme": label.split()[1], "seed": seed},
                **dict(zip(MEASURES, (own[0], own[1:].mean()), strict=True)),
            }
            for epochs, of_epochs in zip(result["epochs"], errors, strict=True)
            for seed, of_seed in enumerate(of_epochs)
            for label, own in zip(labels, of_seed, strict=True)
        ]
    )


def _by_ratio(errors: pd.DataFrame, measure: str) -> Float[np.ndarray, "seeds ratios"]:
    """Return the errors of the fixed ratios of one set, rule and number of epochs."""
    wide = errors.pivot(index="seed", columns="scheme", values=measure)
    return np.asarray(wide[[f"{ratio:.2f}" for ratio in RATIOS]])


def _advice(errors: pd.DataFrame, theory: Mapping[str, Mapping[str, Any]]) -> list[TableRow]:
    """Return the best ratio, measured and predicted, and what following each advice costs.

    `best` has the lowest mean error of the fixed ratios, and its interval is of resampled seeds. A regret is the error
    at the advised ratio over the lowest, less one. Besides the formula's advice there are two constants: 0.50, and the
    ratio of the lowest mean regret over all other sets.
    """
    rows, groups = [], errors.groupby(["rule", "epochs"], sort=False)
    for (rule, epochs), group in groups:
        for measure in MEASURES:
            found = {str(name): _by_ratio(own, measure) for name, own in group.groupby("set", sort=False)}
            regrets = {name: values.mean(0) / values.mean(0).min() - 1 for name, values in found.items()}
            for name, values in found.items():
                others = [regret for other, regret in regrets.items() if other != name] or [regrets[name]]
                keys = {"infinity": "inf", "own": f"{epochs:g}", "one": "1"}
                curves = {kind: theory[name][f"{rule}/{measure}/{key}"] for kind, key in keys.items()}
                advised = {kind: int(np.nanargmin(np.array(curve, dtype=float))) for kind, curve in curves.items()}
                advised |= {"half": RATIOS.index(0.5), "others": int(np.mean(others, axis=0).argmin())}
                low, high = _resampled_best(values)
                rows.append(
                    {"set": name, "rule": rule, "epochs": epochs, "measure": measure, "seeds": len(values)}
                    | {"best": RATIOS[int(regrets[name].argmin())], "best_low": low, "best_high": high}
                    | {f"ratio_{kind}": RATIOS[place] for kind, place in advised.items()}
                    | {f"regret_{kind}": round(float(regrets[name][place]), 5) for kind, place in advised.items()}
                )
    return rows


def _resampled_best(values: Float[np.ndarray, "seeds ratios"]) -> tuple[float, float]:
    """Return the middle 95 % of the best ratio over resampled seeds."""
    drawn = np.random.default_rng(0).integers(len(values), size=(_BOOTSTRAPS, len(values)))
    best = np.array(RATIOS)[values[drawn].mean(axis=1).argmin(axis=1)]
    low, high = np.quantile(best, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def _summary(advice: pd.DataFrame) -> list[TableRow]:
    """Return over all sets: distance from the measured best ratio, and regret, of each advice; intervals are over sets.

    `over_half` is the regret minus that of the ratio 0.50.
    """
    rows = []
    for (rule, epochs, measure), group in advice.groupby(["rule", "epochs", "measure"], sort=False):
        for kind in (*_KINDS, "half", "others"):
            distance = mean_interval((group[f"ratio_{kind}"] - group["best"]).abs())
            regret = group[f"regret_{kind}"]
            over = paired_difference(regret, group["regret_half"], higher_is_better=False)
            rows.append(
                {"rule": rule, "epochs": epochs, "measure": measure, "advice": kind, "sets": len(group)}
                | {"distance": distance.mean, "distance_low": distance.low, "distance_high": distance.high}
                | {"regret": regret.mean(), "worst_regret": regret.max(), "worst_set": group["set"][regret.idxmax()]}
                | difference_columns("over_half", over)
            )
    return rows


def _over_epochs(advice: pd.DataFrame) -> list[TableRow]:
    """Return the best ratio by number of epochs, mean over sets, and the change from the first to the last."""
    rows = []
    for (rule, measure), group in advice.groupby(["rule", "measure"], sort=False):
        best = group.pivot(index="set", columns="epochs", values="best")
        change = best.iloc[:, -1] - best.iloc[:, 0]
        found = mean_interval(change)
        rows.append(
            {"rule": rule, "measure": measure, "sets": len(best)}
            | {f"epochs {epochs:g}": value for epochs, value in best.mean().items()}
            | {"change": found.mean, "change_low": found.low, "change_high": found.high}
            | {"falls": int((change < 0).sum()), "rises": int((change > 0).sum())}
        )
    return rows


def _ranges(errors: pd.DataFrame, results: Mapping[str, Any]) -> list[TableRow]:
    """Return the error of random ratios over that of p_eff, of 0.50 and of the best fixed ratio, less one.

    Quotients are paired over seeds, by their logarithms. They are equal if the interval lies within the margin.
    `formula` is what the formula has for K = ∞.
    """
    rows = []
    for (name, rule, epochs), group in errors.groupby(["set", "rule", "epochs"], sort=False):
        for measure in MEASURES:
            fixed = _by_ratio(group, measure)
            wide = group.pivot(index="seed", columns="scheme", values=measure)
            against = {SAME: wide[SAME], "0.50": wide["0.50"], "best fixed": fixed[:, int(fixed.mean(0).argmin())]}
            theory = results[f"theory-{name}"]
            curve, drawn, same = (theory[f"{rule}/{measure}/{key}"] for key in ("inf", BATCH, SAME))
            lowest = min(value for value in curve if value is not None)
            formula = {SAME: same, "0.50": curve[RATIOS.index(0.5)], "best fixed": lowest}
            for scheme in (BATCH, SAMPLE):
                for other, values in against.items():
                    columns = difference_columns("quotient", _quotient(wide[scheme], values))
                    rows.append(
                        {"set": name, "rule": rule, "epochs": epochs, "measure": measure, "scheme": scheme}
                        | {"against": other, **columns, "formula": drawn / formula[other] - 1}
                    )
    return rows


def _gains(ranges: pd.DataFrame) -> list[TableRow]:
    """Return over all sets how random ratios compare, measured and by the formula, and the number of each verdict.

    `off` is the mean distance between measured and predicted quotients.
    """
    rows = []
    for keys, group in ranges.groupby(["rule", "epochs", "measure", "scheme", "against"], sort=False):
        verdicts = group["quotient_is"].value_counts()
        rows.append(
            dict(zip(("rule", "epochs", "measure", "scheme", "against"), keys, strict=True))
            | {"sets": len(group), **{name: int(verdicts.get(name, 0)) for name in _VERDICTS}}
            | {"networks": group["quotient"].mean(), "formula": group["formula"].mean()}
            | {"off": (group["quotient"] - group["formula"]).abs().mean()}
            | {"correlation": _correlation(group["quotient"], group["formula"])}
        )
    return rows


def _correlation(a: pd.Series, b: pd.Series) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if min(np.ptp(a), np.ptp(b)) > 0 else float("nan")


def _quotient(a: pd.Series, b: Any) -> Difference:
    """Return a/b − 1 with its interval, from the paired differences of logarithms."""
    found = paired_difference(np.log(a), np.log(b), higher_is_better=False)
    mean, low, high = np.expm1([found.mean, found.low, found.high]).tolist()
    equal = low > -MARGIN and high < MARGIN
    return Difference(mean, low, high, found.n, found.method, verdict="equal" if equal else found.verdict)


def plot(tables: Tables, size: Size) -> Figures:
    """Draw best ratios predicted and measured, best ratios over epochs, and random ratios against fixed ones."""
    advice, ranges = pd.DataFrame(tables["many-masks"]), pd.DataFrame(tables["many-masks-ranges"])
    return {
        "many-masks": _draw_best(advice[advice["epochs"] == size.shown]),
        "many-masks-epochs": _draw_epochs(advice[advice["rule"] == "mean"]),
        "many-masks-ranges": _draw_ranges(ranges[ranges["epochs"] == size.epochs[-1]]),
    }


def _draw_best(advice: pd.DataFrame) -> "Figure":
    """Draw measured against predicted best ratios: a panel for each number of masks and measure."""
    figure, grid = panels(len(_KINDS), len(MEASURES), width=2.7, height=2.8)
    for axes, (measure, kind) in zip(grid, [(m, k) for m in MEASURES for k in _KINDS], strict=True):
        own = advice[advice["measure"] == measure]
        for rule, mark in zip(RULES, "osv", strict=True):
            group = own[own["rule"] == rule]
            counts = group.groupby([f"ratio_{kind}", "best"]).size().reset_index(name="sets")
            shift = 1 + 0.06 * (RULES.index(rule) - 1)
            axes.scatter(
                counts[f"ratio_{kind}"] * shift, counts["best"] * shift, s=18 * counts["sets"], marker=mark,
                alpha=0.75, label=f"hidden: {rule}", linewidths=0,
            )  # fmt: skip
        axes.plot([0.04, 1], [0.04, 1], color="#333333", lw=0.8, zorder=0)
        for which in "xy":
            plain_log(axes, which, (1.0, 2.0, 5.0))
        axes.set(xlim=(0.04, 1), ylim=(0.04, 1))
        axes.set_title(f"{_KINDS[kind]}, {measure}", fontsize=9)
    for axes in grid[-len(_KINDS) :]:
        axes.set_xlabel("best ratio by the formula", fontsize=9)
    for axes in grid[:: len(_KINDS)]:
        axes.set_ylabel("best ratio of networks", fontsize=9)
    grid[0].legend(fontsize=6.5, loc="lower right")
    return figure


def _draw_epochs(advice: pd.DataFrame) -> "Figure":
    """Draw best ratios over the number of epochs, with the mean over sets and what the formula says."""
    figure, grid = panels(len(MEASURES), width=3.6, height=3.2)
    for axes, measure in zip(grid, MEASURES, strict=True):
        own = advice[advice["measure"] == measure]
        for _, group in own.groupby("set", sort=False):
            axes.plot(group["epochs"], group["best"], color="#b8b8b8", lw=0.8)
        mean = own.groupby("epochs")[["best", *(f"ratio_{kind}" for kind in _KINDS)]].mean()
        axes.plot(mean.index, mean["best"], color="black", lw=2, marker="o", label="networks, mean over sets")
        for kind, name in _KINDS.items():
            axes.plot(
                mean.index, mean[f"ratio_{kind}"], color=_COLOURS[kind], lw=1.4, ls="--", label=f"formula, {name}"
            )
        axes.set_xscale("log", base=4)
        axes.set_xticks(mean.index, [f"{epochs:g}" for epochs in mean.index])
        axes.set(xlabel="epochs", ylim=(0, 1), title=measure)
    grid[0].set_ylabel("best ratio")
    grid[0].legend(fontsize=7)
    return figure


def _draw_ranges(ranges: pd.DataFrame) -> "Figure":
    """Draw the error of random ratios over that of p_eff by set, and over that of 0.50 against the formula's."""
    figure, (left, right) = panels(2, width=4.2, height=3.8)
    own = ranges[(ranges["measure"] == MEASURES[1]) & (ranges["scheme"] == BATCH)]
    sets = list(dict.fromkeys(own["set"]))
    for number, rule in enumerate(RULES):
        group = own[(own["rule"] == rule) & (own["against"] == SAME)]
        ends = [group["quotient"] - group["quotient_low"], group["quotient_high"] - group["quotient"]]
        places = np.arange(len(group)) + 0.22 * (number - 1)
        left.errorbar(100 * group["quotient"], places, xerr=100 * np.array(ends), fmt="o", ms=3.5, label=rule)
        group = own[(own["rule"] == rule) & (own["against"] == "0.50")]
        right.scatter(100 * group["formula"], 100 * group["quotient"], s=16, label=rule)
    left.axvspan(-100 * MARGIN, 100 * MARGIN, color="#eeeeee", zorder=0)
    left.set_yticks(range(len(sets)), sets)
    left.invert_yaxis()
    left.set_xlabel(f"error of {BATCH} over that of {SAME}, %", fontsize=9)
    left.legend(fontsize=7, title="hidden entries", title_fontsize=7)
    lowest = 100 * float(min(own["formula"].min(), own["quotient"].min())) - 3
    right.plot([lowest, 5], [lowest, 5], color="#333333", lw=0.8, zorder=0)
    right.set_title(f"error of {BATCH} over that of 0.50, %", fontsize=9)
    right.set_xlabel("by the formula, K = ∞", fontsize=9)
    right.set_ylabel("of networks", fontsize=9)
    return figure


STUDIES = [Study(ENTRIES["many-masks"], plot, tables, parts=parts)]
