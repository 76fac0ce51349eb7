"""Sentences of the abstract, the introduction and the conclusions that sum up others."""

from r2mae.reproduce.claims.claim import Claim

CLAIMS = (
    Claim(
        "characterised", "Abstract, Sec. 1", "The test risk of the linear model describes how masked pretraining behaves as the ratio varies.",
        "its parts", parts=("non-monotonic", "bert-curves", "first-plateau", "best-plateau", "mae-curve", "mlp-sufficient",
                            "mlp-insufficient", "unet-intermediate"),
    ),
    Claim(
        "size-decides", "Sec. 1, 3.5", "Masking helps only overparametrised models, and the best ratio depends on their size.", "its parts",
        parts=("mlp-sufficient", "only-overparametrised", "unet-grows", "roberta-size"),
    ),
    Claim("task-decides", "Sec. 1, 3.5", "The best ratio depends on the task.", "its parts", parts=("task-mlp", "task-unet", "roberta-size")),
    Claim(
        "disparity-everywhere", "Sec. 1, 3.5", "Masking enforces a disparity of feature magnitudes, in linear models and networks.", "its parts",
        parts=("disparity", "ones-disparity", "rank-falls", "rank-of-16"),
    ),
    Claim(
        "linear-best", "Abstract, Sec. 1", "In the linear model R²MAE can beat the best fixed ratio.", "its parts",
        parts=("table5-best", "table9-best", "ranges"),
    ),
    Claim(
        "consistently", "Abstract, Sec. 1, 5", "R²MAE consistently improves vision, language, DNA and single-cell models over other schemes.",
        "its parts", parts=("vit-default", "vit-dynamic", "glue", "rank-medium", "rank-base", "dna-auprc", "sea-ad-schemes", "hlca-schemes",
                            "every-domain"),
    ),
)  # fmt: skip
