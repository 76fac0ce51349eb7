"""Training a byte-level BPE on a corpus."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from r2mae.errors import UserError
from r2mae.text.tokenizer.merge_progress import heard
from r2mae.text.tokenizer.text_tokenizer import SPECIALS, TextTokenizer, special_token

LONGEST_WORD = 256
"""Characters of a word (a run of letters, digits, other signs or spaces) after which training goes on as with another.

Training looks through every word once for each pair that it merges there, so that its time grows with the square of a
word's length. In 30 MB of Wikipedia no word is half as long, and what has none longer is trained on as it is.
"""
_SIGNS = "\x1c\x1d\x1e\x1f"  # spaces to Python, and not to the tokenizer


def train_bpe(
    documents: Iterable[str], vocab_size: int, *, merging: Callable[[int, int], None] | None = None
) -> TextTokenizer:
    """Train a byte-level BPE, as GPT-2 and RoBERTa have it, on documents.

    Every text can be encoded and comes back exactly, as the 256 bytes are part of the vocabulary. A word of more than
    :data:`LONGEST_WORD` characters is trained on in pieces.

    Parameters
    ----------
    documents : iterable of str
    vocab_size : int
        With the 5 special tokens and the 256 bytes; a small corpus may give fewer.
    merging : callable, optional
        Called, in another thread, with merges done and merges in all, after the documents have been read. What is
        written to standard error meanwhile passes through.

    Returns
    -------
    TextTokenizer
        With <s>, <pad>, </s>, <unk> and <mask> as 0 to 4; a pure function of documents and size.

    Raises
    ------
    UserError
        If the vocabulary is too small.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(SPECIALS) + len(alphabet)
    if vocab_size < least:
        raise UserError(f"vocab_size {vocab_size}: expected at least {least} (256 bytes and {len(SPECIALS)} specials)")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # Older versions of the library cannot tell how far they are.
    tells = merging is not None and hasattr(trainers.BpeTrainer, "progress_format")
    form: dict[str, Any] = {"progress_format": "json"} if tells else {}
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[special_token(name, AddedToken) for name in SPECIALS],
        initial_alphabet=alphabet,
        show_progress=tells,
        **form,
    )
    words = cut_words(documents)
    with heard(merging if tells else None) as hearing:
        backend.train_from_iterator(hearing.after(words) if hearing else words, trainer)
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", SPECIALS.index("</s>")), ("<s>", SPECIALS.index("<s>")), trim_offsets=True, add_prefix_space=False
    )
    return TextTokenizer.of(backend, {}, "of this corpus")


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
