"""Long words are trained on in pieces; ordinary text gives the tokenizer that it always gave."""

import random
import string

import pytest

from r2mae.text.tokenizer import LONGEST_WORD, train_bpe


@pytest.mark.parametrize("long", ["a", "1", " ", "\n", "!", "数", "!\x1c"])
def test_no_token_is_longer_than_a_piece(long: str) -> None:
    made = train_bpe([long * 5000] * 2, 400)
    assert max(map(len, made.backend.get_vocab())) <= LONGEST_WORD
    text = f"it's {long * 600} and"
    ids = made.backend.encode(text, add_special_tokens=False).ids
    assert made.backend.decode(ids) == text


def test_a_tokenizer_of_ordinary_text_is_what_it_was() -> None:
    """Its fingerprint, from before words were cut."""
    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 9))) for _ in range(200)]
    texts = [" ".join(rng.choices(words, k=50)) for _ in range(40)]
    assert train_bpe(texts, 600).fingerprint == "c3f5082661a65daf8bcd709cbdac5756"


@pytest.mark.slow
def test_a_word_of_megabytes_is_learned_from_in_pieces() -> None:
    """Whole, this word took minutes; what it is encoded to is one document still."""
    word = "".join(random.Random(0).choices(string.ascii_lowercase, k=1 << 20))
    made = train_bpe([word, "and some words"], 400)
    assert made.vocab_size == 400
    ids = made.backend.encode(word, add_special_tokens=False).ids
    assert made.backend.decode(ids) == word
