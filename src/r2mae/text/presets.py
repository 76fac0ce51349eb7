"""Presets: sizes of models, and for those of the paper its vocabulary. No torch."""

from collections import UserDict
from typing import Any

from r2mae.text.config import PAPER_PRESETS, PAPER_VOCABULARY, ROBERTA
from r2mae.text.tokenizer import roberta_files

_ON_A_GPU = {"accumulate": 8}  # 256 of the paper's 2,048 sequences at a time: all would take more than 80 GB

PLAIN_PRESETS: dict[str, dict[str, Any]] = {
    "roberta-medium": {**_ON_A_GPU, "hidden_size": 512, "layers": 8, "heads": 8, "intermediate_size": 2048, "lr": 7e-4},
    "roberta-base": {**_ON_A_GPU, "hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3072, "lr": 3e-4},
    "mini": {"hidden_size": 256, "layers": 4, "heads": 4, "intermediate_size": 1024, "batch_size": 256},
    "tiny": {"hidden_size": 128, "layers": 2, "heads": 2, "intermediate_size": 512, "batch_size": 64},
}
"""The values of presets, without the vocabulary."""


class Presets(UserDict[str, dict[str, Any]]):
    """Presets by name; those of the paper get their vocabulary on access, by the files on this machine."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        fields = super().__getitem__(name)
        if name not in PAPER_PRESETS:
            return fields
        # Without RoBERTa's files, the tokenizer of a set's defaults (fineweb's) stays.
        own = {"tokenizer": ROBERTA} if roberta_files() else {}
        return {**fields, "vocab_size": PAPER_VOCABULARY, **own}
