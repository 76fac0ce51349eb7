"""Long words are trained on in pieces; all other text as it is, and every text is encoded as before."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from r2mae.text.tokenizer import train, train_bpe
from r2mae.text.tokenizer.train import LONGEST_WORD, cut_words

WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)


def longest(document: str) -> int:
    return max((last - first for _, (first, last) in WORDS.pre_tokenize_str(document)), default=0)


@pytest.mark.parametrize(
    "long",
    [
        *("a" * 5000, "1" * 5000, "\u0301" * 5000, " " * 5000, "\n" * 5000, "!" * 5000, "数" * 5000),
        *("!\x1c" * 2500, " \t" * 2500),
    ],
)
@pytest.mark.parametrize("around", ["{}", "before {} after", "it's\n{}\nthe end", " {} and {}"])
def test_no_word_stays_long(long: str, around: str) -> None:
    document = around.replace("{}", long)
    pieces = list(cut_words([document]))
    assert "".join(pieces) == document
    assert max(map(longest, pieces)) <= LONGEST_WORD
    assert longest(document) > LONGEST_WORD


@given(st.text(st.sampled_from("ab1!\u0301 \n\t\x1c\u00a0数'"), max_size=200), st.integers(1, 12))
def test_what_has_no_long_word_is_left_alone(document: str, limit: int) -> None:
    before, train.LONGEST_WORD = train.LONGEST_WORD, limit
    try:
        pieces = list(cut_words([document]))
    finally:
        train.LONGEST_WORD = before
    assert "".join(pieces) == document
    if longest(document) <= limit:
        assert pieces == [document]
    else:
        assert len(pieces) > 1


def test_words_up_to_the_bound_and_long_lines_of_short_words_are_no_long_words() -> None:
    kept = ["a" * LONGEST_WORD, "x1" * 5000, "one " * 1000, ("word" + " " * 200) * 9, ""]
    assert list(cut_words(kept)) == kept


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
    assert made.to_json() == train_bpe(cut_words([word, "and some words"]), 400).to_json()
    ids = made.backend.encode(word, add_special_tokens=False).ids
    assert made.backend.decode(ids) == word
