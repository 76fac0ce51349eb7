"""What the paper says of schemes of vision and language models (Tables 1 and 2), of DNA (Table 3), and of all domains."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from r2mae.evaluation.statistics import AVERAGE_RANK, rank_table
from r2mae.reproduce.claims.cells import by_set
from r2mae.reproduce.claims.claim import Claim, Found
from r2mae.reproduce.claims.judging import of_difference
from r2mae.reproduce.claims.results import Results, Unavailable
from r2mae.reproduce.claims.runs import (
    Differences,
    between,
    each_in_words,
    fixed_ratios,
    over_best,
    over_seeds,
    over_sets,
    scores_of,
)
from r2mae.reproduce.state import state_of

if TYPE_CHECKING:
    import pandas as pd

_OURS = "r2mae"
_GLUE = ("mnli_accuracy", "qqp_accuracy", "sst2_accuracy", "qnli_accuracy")


def _runs(results: Results, target: str) -> tuple["pd.DataFrame", bool]:
    runs = results.table(target, "seed", name=f"{target}-runs")
    return runs, state_of(results.folder(target)).scale == "full"


def _table1(results: Results, other: str, paper: float | None, score: str = "finetune_top1", sign: int = 1) -> Found:
    runs, same = _runs(results, "table1")
    gaps = between(runs, _OURS, other, score, higher=sign > 0)
    where = "ImageNet" if same else "A small ViT on ten classes of Tiny-ImageNet"
    return of_difference(over_seeds(gaps), f"{where}, {len(gaps)} seeds; the paper has one.", paper=paper, same=same)


def _fluctuates(results: Results) -> Found:
    runs, same = _runs(results, "table1")
    gaps = between(runs, _OURS, "fixed 0.75", "loss_sd")
    left = over_seeds(between(runs, _OURS, "fixed 0.75", "loss_sd_beside_ratio"))[0]
    reason = f"Standard deviation of the loss about its trend. Of what the ratio does not explain the difference is {left:.4f}."
    return of_difference(over_seeds(gaps), reason.replace("-", "−"), same=same)


def _glue_of(runs: "pd.DataFrame") -> list[str]:
    known = [score for score in _GLUE if score in runs and runs[score].notna().any()]
    if not known:
        raise Unavailable("no model was fine-tuned on GLUE: at the small scale they are at chance")
    return known


def _with_glue(runs: "pd.DataFrame") -> "pd.DataFrame":
    return runs.assign(glue_mean=runs[_glue_of(runs)].mean(axis=1))


def _texts(results: Results) -> tuple[dict[str, "pd.DataFrame"], bool]:
    """Return the runs of each model that was fine-tuned on GLUE; without those of Table 2 a comparison of texts."""
    try:
        runs, same = _runs(results, "table2")
        return {str(model): _with_glue(group) for model, group in runs.groupby("model", sort=False)}, same
    except Unavailable as error:
        for folder in results.comparisons:
            table = results.read(folder / "results.csv", "seed")
            if "glue" in table and "loss" in table:
                return {f"a small model on {folder.name}": _with_glue(table)}, False
        raise error from None


def _glue(results: Results) -> Found:
    models, same = _texts(results)
    gaps = {name: over_best(runs, _OURS, fixed_ratios(runs), "glue_mean") for name, runs in models.items()}
    tasks = len(_glue_of(next(iter(models.values()))))
    reason = f"Mean accuracy over {tasks} of 4 tasks after fine-tuning: {each_in_words(gaps)}."
    return of_difference(over_sets(gaps), reason, paper=0.0033, same=same)


def _rank(results: Results, model: str, paper: float) -> Found:
    """Judge that R²MAE has the best rank over GLUE, by the rank of the next best minus its own under each seed."""
    runs, same = _runs(results, "table2")
    own = runs[runs["model"] == model]
    if not len(own):
        raise Unavailable(f"table2 has no runs of {model}")
    gaps: Differences = {}
    for seed, group in own.dropna(subset=_glue_of(own)).groupby("seed"):
        scores = group.set_index("label")[_glue_of(own)]
        ranks = rank_table(scores, dict.fromkeys(scores, True))[AVERAGE_RANK]
        gaps[int(seed)] = float(ranks.drop(_OURS).min() - ranks[_OURS]) if _OURS in ranks else float("nan")
    return of_difference(over_seeds(gaps), "Ranks of each seed's models.", paper=paper, same=same)


def _hidden_bases(results: Results) -> Differences:
    runs, _ = _runs(results, "table3")
    return over_best(runs, _OURS, fixed_ratios(runs), "spearman")


def _human(results: Results) -> Found:
    """Say that no human variants are here, and what stands in for them."""
    reason = "The paper's alignment of the human genome with 89 species and its variants (ClinVar, OMIM) are not here."
    try:
        mean, low, high = over_seeds(_hidden_bases(results))
    except Unavailable:
        return Found("not testable here", reason)
    said = f"{mean:+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")
    return Found(
        "not testable here",
        f"{reason} On sarbecoviruses R²MAE ranks variants by {said} better than the best fixed ratio.",
    )


def _domains(results: Results) -> dict[str, tuple[Differences, str]]:
    """Return R²MAE minus the best fixed ratio in each domain that has results, and what is measured."""
    found: dict[str, tuple[Differences, str]] = {}
    try:
        runs, _ = _runs(results, "table1")
        found["images"] = (
            over_best(runs, _OURS, ["fixed 0.50", "fixed 0.75", "fixed 0.90"], "finetune_top1"),
            "top-1, fine-tuned",
        )
    except Unavailable:
        pass
    try:
        models, _ = _texts(results)
        name, runs = next(iter(models.items()))
        found["text"] = over_best(runs, _OURS, fixed_ratios(runs), "glue_mean"), "GLUE"
    except Unavailable:
        pass
    try:
        found["DNA"] = _hidden_bases(results), "Spearman's r of variants"
    except Unavailable:
        pass
    try:
        for name, cells in by_set(results).items():
            found[name] = over_best(cells, _OURS, ["fixed 0.10", "fixed 0.25", "fixed 0.50"], "score"), "average score"
    except Unavailable:
        pass
    return found


def _every_domain(results: Results) -> Found:
    """Judge that R²MAE beats the best fixed ratio wherever both were run; the domain that shows it least decides."""
    found = _domains(results)
    if not found:
        raise Unavailable("no comparison of R²MAE with fixed ratios has run")
    intervals = {name: over_seeds(gaps) for name, (gaps, _) in found.items()}
    better = sum(low > 0 for _, low, _ in intervals.values())
    worse = sum(high < 0 for _, _, high in intervals.values())
    said = ", ".join(f"{name} {mean:+.3f}" for name, (mean, _, _) in intervals.items()).replace("-0.", "−0.")
    reason = f"Better on {better}, worse on {worse}, undecided on {len(found) - better - worse} of {len(found)} sets of data: {said}. "
    worst = min(intervals.values(), key=lambda one: (one[2] >= 0, one[1]))
    return of_difference(worst, f"{reason}Shown is the weakest.", same=False)


_IMAGENET = (("default", "fixed 0.75", 0.0003, "the default MAE, of fixed ratio 0.75"), ("dynamic", "dynamic", 0.0003, "a ratio that falls"),
             ("high", "fixed 0.90", 0.0080, "the high fixed ratio, 0.9"), ("low", "fixed 0.50", 0.0020, "the low fixed ratio, 0.5"),
             ("mdlm", "mdlm", 0.0098, "MDLM, U(0, 1)"))  # fmt: skip

VISION = (
    *(
        Claim(
            f"vit-{name}", "Sec. 4.1, Table 1", f"Fine-tuned on ImageNet, a ViT of R²MAE is better than one of {words}.",
            "top-1 accuracy, difference", "table1", partial(_table1, other=other, paper=paper), paper, 4,
        )
        for name, other, paper, words in _IMAGENET
    ),
    Claim(
        "vit-smallest", "Sec. 4.1", "The gain of ViT-MAE is the smallest of all experiments.", "gains over all domains",
        why="The gains are accuracies, correlations and ranks, which have no common unit; each is judged in its own row.",
    ),
    Claim(
        "vit-fluctuates", "Sec. 4.1", "The pretraining loss of R²MAE fluctuates.",
        "standard deviation of the loss, R²MAE minus fixed 0.75", "table1", _fluctuates, decimals=4,
    ),
)  # fmt: skip

LANGUAGE = (
    Claim(
        "glue", "Sec. 4.1, Table 2", "Fine-tuned on GLUE, RoBERTas of R²MAE are better than those of the best fixed ratio.",
        "mean accuracy, R²MAE minus the best fixed ratio", "table2", _glue, 0.0033, 4,
    ),
    *(
        Claim(
            f"rank-{model}", "Sec. 4.1, Table 2", f"With RoBERTa-{model} R²MAE has the best rank over GLUE, followed by dynamic ratios.",
            "average rank, next best minus R²MAE", "table2", partial(_rank, model=f"roberta-{model}", paper=paper), paper, 2,
        )
        for model, paper in (("medium", 0.25), ("base", 0.75))
    ),
    Claim(
        "roberta-level", "Sec. 4.1, App. C", "The accuracies on GLUE are comparable to those of Wettig et al. (2022).",
        "accuracy on GLUE", why="Their accuracies are not here, and 10 billion tokens of pretraining are out of reach.",
    ),
)  # fmt: skip

DNA = tuple(
    Claim(f"dna-{name}", place, says, measure, "table3", _human, paper, 3)
    for name, place, says, measure, paper in (
        ("auprc", "Sec. 4.2, Table 3", "R²MAE is best at regulatory variants (OMIM), AUPRC.", "AUPRC, R²MAE minus the best fixed ratio", 0.014),
        ("pauroc", "Sec. 4.2, Table 3", "R²MAE is best at regulatory variants (OMIM), partial AUROC.", "partial AUROC, R²MAE minus the best fixed ratio", 0.002),
        ("missense", "Sec. 4.2, Table 3", "At missense variants all good models are alike.", "AUROC, R²MAE minus the best fixed ratio", -0.001),
        ("curricula", "Sec. 4.2, Table 3", "With a curriculum R²MAE is better at hard classes (3'UTR, ncRNA) and not at 5'UTR.",
         "AUPRC of 3'UTR, + CL minus R²MAE", 0.008),
        ("combined", "Sec. 4.2, Table 3", "Together with dynamic ratios or a curriculum R²MAE is worse than alone.", "AUPRC, R²MAE minus + Dynamic", 0.010),
        ("others", "Sec. 4.2, Table 3", "Masked models of the alignment beat conservation scores and CADD.", "AUPRC, GPN-MSA minus CADD", 0.079),
        ("stopping", "App. C", "Of all models R²MAE with dynamic ratios alone stops early, at a lower end of 0.10.", "step of early stopping", None),
    )
)  # fmt: skip

DOMAINS = (
    Claim(
        "every-domain", "Sec. 4.2", "In every domain R²MAE beats the best of the default, the lowest and the highest fixed ratio.",
        "R²MAE minus the best fixed ratio, score of each domain", "", _every_domain,
    ),
)  # fmt: skip
