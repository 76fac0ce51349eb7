"""Sentences become the tokens that transformers makes of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from r2mae.text.finetune import Encoded, encode
from r2mae.text.glue import GlueExamples
from r2mae.text.tokenizer import TextTokenizer, train_bpe

TEXT = ["the cat sat on the mat", "a dog ran over the hill", "where is the cat", "the dog is on the hill"]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_bpe(TEXT * 3, 300)


def examples(*columns: list[str]) -> GlueExamples:
    rows = len(columns[0])
    return GlueExamples(Path("x.tsv"), tuple(map(tuple, columns)), np.arange(rows) % 2)


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
    columns = [[pair[place] for pair in pairs] for place in range(1 if alone else 2)]
    theirs = AutoTokenizer.from_pretrained(str(folder))
    ours = encode(tokenizer, examples(*columns), length)
    made = [ids.tolist() for ids in ours.ids]
    assert made == theirs(*columns, truncation=True, max_length=length)["input_ids"]


def test_special_tokens_in_sentences_are_text(tokenizer: TextTokenizer) -> None:
    ids = encode(tokenizer, examples(["the <mask> </s>", "cat"]), 64).ids[0]
    assert tokenizer.mask_id not in ids
    assert (ids == tokenizer.eos_id).sum() == 1
    assert tokenizer.backend.decode(ids[1:-1].tolist()) == "the <mask> </s>"


def ragged(lengths: list[int]) -> Encoded:
    return Encoded([torch.arange(1, n + 1) for n in lengths], torch.arange(len(lengths)), 0)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.data())
def test_batches_are_padded_where_the_mask_says(lengths: list[int], data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=8)))
    batch = ragged(lengths).batch(rows, torch.device("cpu"))
    ids = batch["input_ids"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    assert ids.shape[1] == max(lengths[row] for row in rows)
    assert mask.sum(1).tolist() == [lengths[row] for row in rows]
    assert ((ids != 0) == mask.bool()).all()
    assert ("attention_mask" in batch) == (len({lengths[row] for row in rows}) > 1)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_rows_in_order_of_length(lengths: list[int]) -> None:
    rows = ragged(lengths).by_length(np.arange(len(lengths))[::-1].copy())
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths)
