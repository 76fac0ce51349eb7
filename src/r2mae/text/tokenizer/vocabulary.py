"""The vocabulary of the paper's presets: RoBERTa's where it is at hand, else one trained at its size. No torch."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.text.config import PAPER_PRESETS, PAPER_VOCABULARY, ROBERTA, TextConfig

_BPE = ("encoder.json", "vocab.bpe", "dict.txt")
_CACHED = ("models--FacebookAI--roberta-base", "models--roberta-base")
_HUB_NAMES = ("FacebookAI/roberta-base", "roberta-base")
_SIZES = ("hidden_size", "layers", "heads", "intermediate_size")

PLAIN_PRESETS: dict[str, dict[str, Any]] = {
    "roberta-medium": {"hidden_size": 512, "layers": 8, "heads": 8, "intermediate_size": 2048, "lr": 7e-4},
    "roberta-base": {"hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3072, "lr": 3e-4},
    "mini": {"hidden_size": 256, "layers": 4, "heads": 4, "intermediate_size": 1024, "batch_size": 256},
    "tiny": {"hidden_size": 128, "layers": 2, "heads": 2, "intermediate_size": 512, "batch_size": 64},
}
"""What presets fix besides the vocabulary."""


def roberta_files() -> Path | None:
    """Return where RoBERTa's byte-level BPE lies on this machine; None where it does not. Nothing is fetched.

    Looked for are ``bpe/`` in the data folder, with fairseq's encoder.json, vocab.bpe and dict.txt (each may end in
    .gz), and then what Hugging Face's libraries have fetched before.
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
    """Return where RoBERTa's BPE lies.

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


class Presets(Mapping[str, Mapping[str, Any]]):
    """Presets by name; those of the paper say which vocabulary they bring only when they are asked for.

    Parameters
    ----------
    plain : mapping
        What each of them fixes besides.
    """

    def __init__(self, plain: Mapping[str, Mapping[str, Any]]) -> None:
        self._plain = plain

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        fields = self._plain[name]
        if name not in PAPER_PRESETS:
            return fields
        # Where RoBERTa's is not at hand, a tokenizer that the set of data names (fineweb's) stays.
        own = {"tokenizer": ROBERTA} if roberta_files() else {}
        return {**fields, "vocab_size": PAPER_VOCABULARY, **own}

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)


def weights(architecture: Mapping[str, Any]) -> int:
    """Return the number of weights of the model that an architecture describes; tied ones count once."""
    words, width, inner = (architecture[name] for name in ("vocab_size", "hidden_size", "intermediate_size"))
    positions = architecture["pad_id"] + 1 + max(architecture["length"], 512)
    embeddings = (words + positions + 1) * width + 2 * width
    layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    head = width * width + width + 2 * width + words
    total: int = embeddings + architecture["layers"] * layer + head
    return total


def vocabulary_note(config: TextConfig, architecture: Mapping[str, Any], *, store: bool = False) -> str | None:
    """Say in a line which vocabulary a preset of the paper got, and whether the model is the paper's.

    Parameters
    ----------
    config : TextConfig
    architecture : mapping
        What the model is built from.
    store : bool
        Whether the data are a token store, which has a tokenizer of its own.

    Returns
    -------
    str or None
        None for other presets.
    """
    if config.preset not in PAPER_PRESETS:
        return None
    words, known = architecture["vocab_size"], PLAIN_PRESETS[config.preset]
    other = [name for name in _SIZES if config[name] != known[name]]
    paper = weights({**architecture, **known, "vocab_size": PAPER_VOCABULARY, "pad_id": 1, "length": 512})
    if other:
        options = ", ".join(f"--{name.replace('_', '-')} {config[name]}" for name in other)
        verdict = f"with {options} not the paper's model"
    elif words != PAPER_VOCABULARY:
        verdict = f"not the paper's model, which has {PAPER_VOCABULARY:,} tokens and {paper / 1e6:.1f} M weights"
    elif config.data.tokenizer in (ROBERTA, *_HUB_NAMES):
        verdict = "the paper's model"
    else:
        verdict = "of the paper's size, with another vocabulary than the paper's"
    return (
        f"{config.preset} with {_told(config, words, store)}: {words:,} tokens, "
        f"{weights(architecture) / 1e6:.1f} M weights; {verdict}"
    )


def _told(config: TextConfig, words: int, store: bool) -> str:
    if config.data.tokenizer == ROBERTA:
        return "RoBERTa's own BPE"
    if config.data.tokenizer is not None:
        return f"the tokenizer {config.data.tokenizer}"
    if store:
        return "the token store's own tokenizer"
    if config.data.vocab_size != PAPER_VOCABULARY:
        return f"--vocab-size {config.data.vocab_size}, a BPE trained on the corpus"
    why = "RoBERTa's is not on this machine (--tokenizer FacebookAI/roberta-base fetches it)"
    few = f", too small for {PAPER_VOCABULARY:,}" if words < PAPER_VOCABULARY else ""
    return f"a BPE trained on the corpus{few}, since {why}"
