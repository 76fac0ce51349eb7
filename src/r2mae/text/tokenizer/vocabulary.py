"""The vocabulary of the paper's presets: RoBERTa's where its files are, else one trained at its size. No torch."""

import os
from collections import UserDict
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.text.config import PAPER_PRESETS, PAPER_VOCABULARY, ROBERTA, TextConfig

_BPE = ("encoder.json", "vocab.bpe", "dict.txt")
_CACHED = ("models--FacebookAI--roberta-base", "models--roberta-base")
_HUB_NAMES = ("FacebookAI/roberta-base", "roberta-base")

PLAIN_PRESETS: dict[str, dict[str, Any]] = {
    "roberta-medium": {"hidden_size": 512, "layers": 8, "heads": 8, "intermediate_size": 2048, "lr": 7e-4},
    "roberta-base": {"hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3072, "lr": 3e-4},
    "mini": {"hidden_size": 256, "layers": 4, "heads": 4, "intermediate_size": 1024, "batch_size": 256},
    "tiny": {"hidden_size": 128, "layers": 2, "heads": 2, "intermediate_size": 512, "batch_size": 64},
}
"""The values of presets, without the vocabulary."""


def roberta_files() -> Path | None:
    """Return the path of RoBERTa's byte-level BPE on this machine; None without one. Nothing is fetched.

    It is searched in ``bpe/`` of the data folder, with fairseq's encoder.json, vocab.bpe and dict.txt (each may end in
    .gz), and then among the earlier downloads of Hugging Face's libraries.
    """
    from r2mae.catalogue import data_root

    folder = data_root() / "bpe"
    if all((folder / name).is_file() or (folder / f"{name}.gz").is_file() for name in _BPE):
        return folder
    home = os.environ.get("HF_HOME", "").strip() or "~/.cache/huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE", "").strip() or f"{home}/hub").expanduser()
    found = (entry for name in _CACHED for entry in sorted((hub / name / "snapshots").glob("*/tokenizer.json")))
    return next(found, None)


def roberta_here() -> Path:
    """Return the path of RoBERTa's BPE.

    Raises
    ------
    UserError
        If it is not on this machine.
    """
    found = roberta_files()
    if found is None:
        raise UserError(
            f"tokenizer {ROBERTA}: RoBERTa's BPE is not on this machine: put its encoder.json, vocab.bpe and dict.txt "
            "(each may end in .gz) into bpe/ of the data folder (R2MAE_DATA), or give --tokenizer "
            "FacebookAI/roberta-base, which fetches it"
        )
    return found


class Presets(UserDict[str, dict[str, Any]]):
    """Presets by name; those of the paper get their vocabulary on access, by the files on this machine."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        fields = super().__getitem__(name)
        if name not in PAPER_PRESETS:
            return fields
        # Without RoBERTa's files, the tokenizer of a set's defaults (fineweb's) stays.
        own = {"tokenizer": ROBERTA} if roberta_files() else {}
        return {**fields, "vocab_size": PAPER_VOCABULARY, **own}


def vocabulary_note(config: TextConfig, size: int) -> str | None:
    """Return a line on the vocabulary of a run with a preset of the paper, of `size` tokens; None for other presets."""
    if config.preset not in PAPER_PRESETS:
        return None
    if config.tokenizer in (ROBERTA, *_HUB_NAMES):
        which = "RoBERTa's own BPE, as in the paper"
    elif config.tokenizer is not None:
        which = f"the tokenizer {config.tokenizer}, not the paper's"
    elif config.vocab_size != PAPER_VOCABULARY:
        which = f"--vocab-size {config.vocab_size}, a BPE trained on the corpus, not the paper's"
    else:
        which = (
            "a BPE trained on the corpus, not the paper's: RoBERTa's is not on this machine (--tokenizer "
            "FacebookAI/roberta-base fetches it)"
        )
    return f"{config.preset} with a vocabulary of {size:,}: {which}"
