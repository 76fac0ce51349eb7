import multiprocessing
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from r2mae.domains.masked_tokens import word_edges, word_starts
from r2mae.errors import UserError
from r2mae.integrations.transformers import FixedMasks, MaskCollator
from r2mae.masking import Fixed, Grid, LinearDecay, Uniform, UniformAbove
from r2mae.text.tokenizer import train_bpe

WORDS = 300
SPECIAL = {0, 1, 2, 3, 4}
TOKENIZER = PreTrainedTokenizerFast(
    tokenizer_object=train_bpe(["one two three four five six"] * 3, WORDS).backend,
    bos_token="<s>",
    eos_token="</s>",
    cls_token="<s>",
    sep_token="</s>",
    pad_token="<pad>",
    unk_token="<unk>",
    mask_token="<mask>",
)


def rows(count: int = 8, length: int = 24, seed: int = 0) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, len(TOKENIZER), (count, length), generator=generator)
    return [{"input_ids": [0, *one, 2]} for one in ids.tolist()]


tokens = st.lists(st.integers(0, len(TOKENIZER) - 1), min_size=1, max_size=30)


@given(
    st.lists(tokens, min_size=1, max_size=6),
    st.floats(0.01, 0.99),
    st.sampled_from(["80-10-10", "mask"]),
    st.integers(0, 2**32),
)
def test_special_tokens_and_padding_are_never_hidden_nor_put_in(
    batch: list[list[int]], ratio: float, corruption: Any, seed: int
) -> None:
    collator = MaskCollator(TOKENIZER, ratio, seed=seed, corruption=corruption)
    made = collator([{"input_ids": row} for row in batch])
    length = max(map(len, batch))
    clean = torch.tensor([row + [1] * (length - len(row)) for row in batch])
    assert made["input_ids"].shape == made["labels"].shape == made["attention_mask"].shape == clean.shape
    hidden = made["labels"] != -100
    special = torch.isin(clean, torch.tensor(sorted(SPECIAL)))
    assert not (hidden & special).any()
    assert torch.equal(made["labels"][hidden], clean[hidden])
    assert torch.equal(made["input_ids"][~hidden], clean[~hidden])
    put_in = made["input_ids"][hidden]
    assert not torch.isin(put_in, torch.tensor(sorted(SPECIAL - {4}))).any()
    if corruption == "mask":
        assert (put_in == 4).all()
    # A row with two or more ordinary tokens has at least one hidden and one kept.
    ordinary = (~special).sum(1)
    assert (hidden.sum(1)[ordinary > 1] >= 1).all()
    assert (hidden.sum(1) < ordinary.clamp(min=2)).all()
    wanted = (ordinary * ratio + 0.5 + 1e-9).floor()
    assert (hidden.sum(1) == wanted.clamp(min=1).minimum((ordinary - 1).clamp(min=1)).minimum(ordinary)).all()


def test_shares_of_the_corruption() -> None:
    collator = MaskCollator(TOKENIZER, 0.5)
    made = collator(rows(200, 100))
    hidden = made["labels"] != -100
    put_in, clean = made["input_ids"][hidden], made["labels"][hidden]
    assert (put_in == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (put_in == clean).float().mean().item() == pytest.approx(0.1, abs=0.02)


def test_the_ratio_is_drawn_for_each_batch() -> None:
    collator = MaskCollator(TOKENIZER, Uniform(0.1, 0.6))
    shares = [(collator(rows(4, 100, seed))["labels"] != -100).sum().item() / 400 for seed in range(60)]
    assert 0.09 < min(shares) < 0.16
    assert 0.54 < max(shares) < 0.61


def test_one_ratio_for_every_sample() -> None:
    made = MaskCollator(TOKENIZER, Uniform(0.1, 0.9, per="sample"))(rows(20, 100))
    assert len(set((made["labels"] != -100).sum(1).tolist())) > 10


def test_ratios_by_number_pair_and_grid() -> None:
    assert MaskCollator(TOKENIZER, 0.15).ratio == Fixed(0.15)
    assert MaskCollator(TOKENIZER, (0.15, 0.4)).ratio == Uniform(0.15, 0.4)
    made = MaskCollator(TOKENIZER, Grid((0.2, 0.5)))(rows(2, 100))
    assert (made["labels"] != -100).sum(1).tolist() in ([20, 20], [50, 50])


def test_masks_depend_on_seed_epoch_and_tokens_alone() -> None:
    collator = MaskCollator(TOKENIZER, Uniform(0.15, 0.4), seed=3)
    first = collator(rows())
    collator(rows(seed=1))
    again = MaskCollator(TOKENIZER, Uniform(0.15, 0.4), seed=3)(rows())
    assert all(torch.equal(first[name], again[name]) for name in first)
    collator.set_epoch(1)
    assert collator.epoch == 1
    later = collator(rows())
    assert not torch.equal(later["labels"], first["labels"])
    collator.set_epoch(0)
    assert torch.equal(collator(rows())["labels"], first["labels"])
    assert not torch.equal(MaskCollator(TOKENIZER, (0.15, 0.4), seed=4)(rows())["labels"], first["labels"])


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        return rows(1, 12, index)[0]


def epochs(collator: MaskCollator, workers: int, **options: Any) -> Iterator[list[torch.Tensor]]:
    loader = DataLoader(Rows(), batch_size=4, collate_fn=collator, num_workers=workers, **options)
    for epoch in range(3):
        collator.set_epoch(epoch)
        yield [batch["labels"].clone() for batch in loader]


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_the_same_masks_for_any_number_of_workers(context: str) -> None:
    if context not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {context} here")
    alone = list(epochs(MaskCollator(TOKENIZER, Uniform(0.15, 0.4)), 0))
    collator = MaskCollator(TOKENIZER, Uniform(0.15, 0.4))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        # Persistent workers were started before the epochs changed.
        many = list(epochs(collator, 2, persistent_workers=True, multiprocessing_context=context))
    for one, two in zip(alone, many, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(alone[0][0], alone[1][0])


def test_repeated_masks_are_warned_of_once() -> None:
    collator = MaskCollator(TOKENIZER, 0.15)
    for _ in range(2):
        if _ == 0:
            collator(rows())
            collator(rows(seed=1))
        else:
            with pytest.warns(UserWarning, match="MaskCallback"):
                collator(rows())
    collator(rows())  # once is enough, and warnings are errors here
    told = MaskCollator(TOKENIZER, 0.15)
    told.set_epoch(0)
    told(rows())
    told(rows())


def test_rows_of_ids_other_columns_and_labels() -> None:
    collator = MaskCollator(TOKENIZER, 0.3, pad_to_multiple_of=8)
    made = collator([[0, 7, 8, 9, 2], torch.tensor([0, 7, 8, 9, 10, 11, 2])])
    assert made["input_ids"].shape == (2, 8)
    given = [
        {"input_ids": [0, 7, 8, 9, 10, 2], "labels": [1, 2], "token_type_ids": [0] * 6, "attention_mask": [1] * 6},
        {"input_ids": [0, 7, 8, 2], "labels": [5], "token_type_ids": [0] * 4, "attention_mask": [1] * 4},
    ]
    made = collator(given)
    assert set(made) == {"input_ids", "labels", "token_type_ids", "attention_mask"}
    assert given[0]["labels"] == [1, 2], "the examples stay as they were"


def test_a_mask_of_special_tokens_is_heeded() -> None:
    examples = [{"input_ids": [7, 8, 9, 10], "special_tokens_mask": [1, 1, 0, 0]}]
    for seed in range(20):
        made = MaskCollator(TOKENIZER, 0.9, seed=seed)(examples)
        assert (made["labels"][0, :2] == -100).all()
        assert "special_tokens_mask" not in made


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_with_fixed_masks_are_padded_and_stay(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOKENIZER, "padding_side", side)
    given = [rows(1, length, length)[0] for length in (9, 4, 12)]
    fixed = FixedMasks(given, TOKENIZER, 0.5)
    assert len(fixed) == 3 and [fixed[i] for i in range(3)] == [fixed[i] for i in range(3)]
    collator = MaskCollator(TOKENIZER, Uniform(0.1, 0.9))
    made = [collator([fixed[i] for i in chosen]) for chosen in ([0, 1, 2], [1])]
    assert torch.equal(made[0]["labels"][1][made[0]["attention_mask"][1] == 1], made[1]["labels"][0])
    assert (made[0]["labels"] >= 0).sum(1).tolist() == [5, 2, 6]
    assert (made[0]["labels"][made[0]["attention_mask"] == 0] == -100).all()
    clean = torch.where(made[1]["labels"] >= 0, made[1]["labels"], made[1]["input_ids"])
    assert clean.tolist() == [given[1]["input_ids"]]


def test_only_labels_of_fixed_masks_stay() -> None:
    ids = [0, 7, 8, 9, 10, 2]
    usual = {"input_ids": [*ids, 1, 1], "attention_mask": [1] * 6 + [0] * 2, "labels": [*ids, -100, -100]}
    number, prompt = ({"input_ids": ids, "attention_mask": [1] * 6, "labels": one} for one in (3, [-100] * 3 + ids[3:]))
    fixed = FixedMasks([{"input_ids": ids}], TOKENIZER, 0.25)[0]
    made = MaskCollator(TOKENIZER, 0.5)([usual, fixed, number, prompt])
    assert (made["labels"] >= 0).sum(1).tolist() == [2, 1, 2, 2]
    assert made["labels"][1, :6].tolist() == fixed["labels"]
    assert made["input_ids"][1, :6].tolist() == fixed["input_ids"]
    clean = torch.where(made["labels"] >= 0, made["labels"], made["input_ids"])
    assert clean.tolist() == [[*ids, 1, 1]] * 4


def test_mistakes_are_one_line() -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=TOKENIZER.backend_tokenizer)
    with pytest.raises(UserError, match="has no mask token: add one"):
        MaskCollator(bare, 0.15)
    bare.mask_token = "<mask>"
    with pytest.raises(UserError, match=r"has no pad token: add one with .*, and make room for it: model\.resize_"):
        MaskCollator(bare, 0.15)
    for ratio in (LinearDecay(0.4, 0.15), UniformAbove(0.4, 0.15), Uniform(0.1, 0.2, "stratified")):
        with pytest.raises(UserError, match="depends on the step"):
            MaskCollator(TOKENIZER, ratio)
    with pytest.raises(UserError, match=r"equal weight for each row, .*--scheme r2mae-per-sample"):
        MaskCollator(TOKENIZER, Uniform(0.1, 0.2, "stratified", "sample"))
    with pytest.raises(UserError, match="between 0 and 1"):
        MaskCollator(TOKENIZER, 15.0)
    with pytest.raises(UserError, match="two numbers"):
        MaskCollator(TOKENIZER, (0.1, 0.2, 0.3))
    with pytest.raises(UserError, match="no input_ids but text"):
        MaskCollator(TOKENIZER, 0.15)([{"text": "one"}])


def test_an_unknown_corruption_is_named(unchecked: None) -> None:
    with pytest.raises(UserError, match="unknown corruption 'masc': did you mean 'mask'"):
        MaskCollator(TOKENIZER, 0.15, corruption="masc")  # type: ignore[arg-type]


def test_whole_words_are_hidden_whole() -> None:
    sentence = TOKENIZER("one two, three four (five) six two one four")["input_ids"]
    collator = MaskCollator(TOKENIZER, (0.3, 0.6), mask="whole-word", corruption="mask")
    edges = [token.startswith("Ġ") or token in ",()" for token in TOKENIZER.convert_ids_to_tokens(sentence)]
    for epoch in range(5):
        collator.set_epoch(epoch)
        hidden = collator([{"input_ids": sentence}])["labels"][0] != -100
        assert hidden.any()
        for at in range(2, len(sentence) - 1):
            after_bracket = TOKENIZER.convert_ids_to_tokens(sentence[at - 1]).endswith("(")
            if not edges[at] and not after_bracket:
                assert hidden[at] == hidden[at - 1]


@pytest.mark.parametrize("mask", ["whole-word", "span"])
def test_every_kind_of_mask_takes_any_ratio(mask: Any) -> None:
    made = MaskCollator(TOKENIZER, 0.4, mask=mask)(rows())
    counts = (made["labels"] != -100).sum(1)
    assert (counts == 10).all() if mask == "span" else ((counts > 0) & (counts <= 10)).all()


@pytest.mark.parametrize(
    ("vocabulary", "text", "starts"),
    [
        (["play", "##ing", "the", ",", "don", "'", "t"], [0, 1, 3, 2], [1, 0, 1, 1]),
        (["▁play", "ing", "▁the", ",", "x"], [0, 1, 3, 2, 1], [1, 0, 1, 1, 0]),
        (["Ġplay", "ing", "(", "Ċ", "##"], [0, 2, 1, 3, 1], [1, 1, 1, 1, 0]),
        (["M", "K", "L"], [0, 1, 2], [1, 1, 1]),
    ],
)
def test_words_are_told_by_the_spelling_of_tokens(vocabulary: list[str], text: list[int], starts: list[int]) -> None:
    ids = torch.tensor([text])
    found = word_starts(ids, torch.zeros_like(ids, dtype=torch.bool), word_edges(tuple(vocabulary)))
    assert found[0].int().tolist() == starts
