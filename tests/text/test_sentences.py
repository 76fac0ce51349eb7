"""Sentences become the tokens that transformers makes of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from r2mae.text.finetune import encode, padded
from r2mae.text.tokenizer import TextTokenizer, train_bpe

TEXT = ["the cat sat on the mat", "a dog ran over the hill", "where is the cat", "the dog is on the hill"]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_bpe(TEXT * 3, 300)


words = st.lists(st.sampled_from(" ".join(TEXT).split()), max_size=30).map(" ".join)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=4), st.integers(8, 40), st.booleans())
def test_roberta_pairs_are_those_of_transformers(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: TextTokenizer,
    pairs: list[tuple[str, str]],
    length: int,
    alone: bool,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "bpe"
    if not folder.is_dir():
        tokenizer.save(folder)
    columns = [tuple(pair[place] for pair in pairs) for place in range(1 if alone else 2)]
    theirs = AutoTokenizer.from_pretrained(str(folder))
    made = [ids.tolist() for ids in encode(tokenizer, tuple(columns), length)]
    assert made == theirs(*map(list, columns), truncation=True, max_length=length)["input_ids"]


def test_special_tokens_in_sentences_are_text(tokenizer: TextTokenizer) -> None:
    ids = encode(tokenizer, (("the <mask> </s>", "cat"),), 64)[0]
    assert tokenizer.mask_id not in ids
    assert (ids == tokenizer.eos_id).sum() == 1
    assert tokenizer.backend.decode(ids[1:-1].tolist()) == "the <mask> </s>"


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_batches_are_padded_where_the_mask_says(lengths: list[int]) -> None:
    batch = padded([torch.arange(1, n + 1) for n in lengths], 0, torch.device("cpu"))
    ids = batch["input_ids"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    assert ids.shape[1] == max(lengths)
    assert mask.sum(1).tolist() == lengths
    assert ((ids != 0) == mask.bool()).all()
    assert ("attention_mask" in batch) == (len(set(lengths)) > 1)
