"""Training a byte-level BPE on a corpus."""

import sys
from collections.abc import Iterable

from r2mae.errors import UserError
from r2mae.text.tokenizer.text_tokenizer import SPECIALS, TextTokenizer, special_token

LONGEST_WORD = 256
"""Bytes of a word (a run of letters, digits, other signs or spaces) after which training takes it for two words.

The time of training grows with the square of a word's length. In 30 MB of Wikipedia no word is half as long.
"""


def train_bpe(documents: Iterable[str], vocab_size: int) -> TextTokenizer:
    """Train a byte-level BPE, as that of GPT-2 and RoBERTa, on documents; on a terminal the library shows progress.

    Every text can be encoded and decoded exactly, as the 256 bytes are part of the vocabulary. A word of more than
    :data:`LONGEST_WORD` bytes is trained on in pieces.

    Parameters
    ----------
    documents : iterable of str
        The texts.
    vocab_size : int
        Size, with the 5 special tokens and the 256 bytes; a small corpus may give fewer.

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
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.FixedLength(LONGEST_WORD)])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[special_token(name, AddedToken) for name in SPECIALS],
        initial_alphabet=alphabet,
        show_progress=sys.stderr.isatty(),
    )
    backend.train_from_iterator(documents, trainer)
    backend.pre_tokenizer = words  # pieces matter for training alone
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", SPECIALS.index("</s>")), ("<s>", SPECIALS.index("<s>")), trim_offsets=True, add_prefix_space=False
    )
    return TextTokenizer.of(backend, {}, "of this corpus")
