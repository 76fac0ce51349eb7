"""The named corpora. Needs no other library."""

from typing import Any

from r2mae.catalogue import PublicFile, PublicSet

_SMALL = "a small copy of public data, without an address to fetch it from"

HUB: dict[str, str] = {"fineweb": "hf:HuggingFaceFW/fineweb:sample-10BT"}
"""Sets that are streamed from the Hugging Face Hub, and their names for :func:`r2mae.text.documents.corpus_of`."""

HEADINGS: dict[str, str] = {"wikitext2": r" = [^=\s].*[^=\s] = "}
"""Sets whose documents are not separated by blank lines, and the pattern of the first line of each document."""


def _small(name: str, title: str, file: str, size: int, sha256: str) -> PublicSet:
    return PublicSet(
        name=name,
        domain="text",
        title=title,
        origin=_SMALL,
        licence="CC BY-SA 3.0",
        files=(PublicFile(file, "", sha256, size),),
    )


SETS: dict[str, PublicSet] = {
    entry.name: entry
    for entry in (
        _small(
            "wiki",
            "English Wikipedia: 25,022 articles, 55 MB of text",
            "wiki/wiki_en_25k_docs.txt.xz",
            14_691_624,
            "8e4672177f66e8c342544d37c1f5ac2861b326213ca0e88b480d6c665e3f17a6",
        ),
        _small(
            "wikitext2",
            "WikiText-2, validation text: 60 articles, 1.1 MB",
            "wikitext2/valid.txt.gz",
            373_158,
            "3ac34ae2b6509075d52302c50a04a8a1970739ffe1a904f2cd374fefbea3cbf2",
        ),
        PublicSet(
            name="fineweb",
            domain="text",
            title="FineWeb sample-10BT, 10 billion tokens of web text (the paper's), streamed from Hugging Face",
            origin="https://huggingface.co/datasets/HuggingFaceFW/fineweb",
            licence="ODC-By 1.0",
            packaged="Hugging Face datasets, which streams it",
        ),
    )
}

# The paper's vocabulary of 50,265 is that of RoBERTa. WikiText-2's validation text is small.
SET_DEFAULTS: dict[str, dict[str, Any]] = {
    "wikitext2": {"validation": 0.1},
    "fineweb": {"tokenizer": "FacebookAI/roberta-base"},
}
