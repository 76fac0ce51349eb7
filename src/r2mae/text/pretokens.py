"""Long words, cut before a byte-level BPE is trained on them. Encoding takes them whole, a second a megabyte."""

from collections.abc import Iterable, Iterator

LONGEST_WORD = 256
"""Characters of a word (a run of letters, digits, other signs or spaces) after which training goes on as with another.

Training looks through every word once for each pair that it merges there, so that its time grows with the square of a
word's length. In 30 MB of Wikipedia no word is half as long, and what has none longer is trained on as it is.
"""
_SIGNS = "\x1c\x1d\x1e\x1f"  # spaces to Python, and not to the tokenizer


def cut_words(documents: Iterable[str]) -> Iterator[str]:
    """Cut documents inside words of more than :data:`LONGEST_WORD` characters; all others pass as they are.

    Parameters
    ----------
    documents : iterable of str

    Yields
    ------
    str
        Documents and pieces of them; joined, they are the documents.
    """
    from tokenizers import pre_tokenizers

    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for document in documents:
        if not _may_be_long(document):
            yield document
            continue
        begun = 0
        for _, (first, last) in words.pre_tokenize_str(document):
            for end in range(first + LONGEST_WORD, last, LONGEST_WORD):
                yield document[begun:end]
                begun = end
        yield document[begun:]


def _may_be_long(document: str) -> bool:
    """Tell quickly whether a word could be long; one may begin with a space, and spaces are words of their own."""
    lengths = list(map(len, document.split()))
    spaces = len(document) - sum(lengths)
    return (
        max(lengths, default=0) >= LONGEST_WORD
        or spaces - len(lengths) >= LONGEST_WORD - 1
        or any(sign in document for sign in _SIGNS)
    )
