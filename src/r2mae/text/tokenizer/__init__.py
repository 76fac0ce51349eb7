"""Tokenizers: a byte-level BPE of one's own, the files of GPT-2 and RoBERTa, or any of Hugging Face."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.text.tokenizer.load import load_tokenizer
    from r2mae.text.tokenizer.text_tokenizer import SPECIALS, TextTokenizer, tokenizer_of
    from r2mae.text.tokenizer.train import train_bpe

__all__ = ["SPECIALS", "TextTokenizer", "load_tokenizer", "tokenizer_of", "train_bpe"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "load": ("load_tokenizer",),
        "text_tokenizer": ("SPECIALS", "TextTokenizer", "tokenizer_of"),
        "train": ("train_bpe",),
    },
    __all__,
)
