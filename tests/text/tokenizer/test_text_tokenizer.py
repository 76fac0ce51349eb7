"""Tokenizers agree with transformers, keep text whole, and are the same from whatever files they come."""

import gzip
import json
from pathlib import Path

import huggingface_hub
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, BertTokenizerFast, RobertaTokenizer

from r2mae.errors import UserError
from r2mae.text.tokenizer import SPECIALS, TextTokenizer, load_tokenizer, tokenizer_of, train_bpe

pytestmark = pytest.mark.slow

WORDS = ["the cat sat on the mat", "a dog sat on a log", "the dog and the cat", "über den Wolken"] * 3


@pytest.fixture(scope="module")
def trained() -> TextTokenizer:
    return train_bpe(WORDS, 300)


@pytest.fixture
def roberta(shared_data: Path) -> TextTokenizer:
    return load_tokenizer(shared_data / "bpe")


def refused(source: str | Path, *parts: str) -> None:
    with pytest.raises(UserError) as caught:
        load_tokenizer(source)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_a_trained_bpe_has_the_numbers_of_roberta(trained: TextTokenizer) -> None:
    assert [trained.backend.token_to_id(name) for name in SPECIALS] == [0, 1, 2, 3, 4]
    assert (trained.bos_id, trained.pad_id, trained.eos_id, trained.unk_id, trained.mask_id) == (0, 1, 2, 3, 4)
    assert trained.special_ids == (0, 1, 2, 3, 4)
    assert 261 < trained.vocab_size <= 300
    assert trained.backend.encode("the cat", "a dog").tokens == [
        "<s>",
        "the",
        "Ġcat",
        "</s>",
        "</s>",
        "a",
        "Ġdog",
        "</s>",
    ]


def test_training_is_a_function_of_text_and_size(trained: TextTokenizer) -> None:
    assert train_bpe(iter(WORDS), 300).to_json() == trained.to_json()
    assert train_bpe(WORDS[1:], 300).fingerprint != trained.fingerprint
    with pytest.raises(UserError, match="at least 261"):
        train_bpe(WORDS, 260)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_every_text_comes_back(text: str) -> None:
    tokenizer = load_small()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def load_small(kept: list[Tokenizer] = []) -> Tokenizer:  # noqa: B006 - made once
    if not kept:
        kept.append(Tokenizer.from_str(train_bpe(WORDS, 300).to_json()))
        kept[0].encode_special_tokens = True
    return kept[0]


def test_roberta_from_the_files_of_fairseq(roberta: TextTokenizer) -> None:
    """Known encodings of roberta-base, as in the documentation of transformers."""
    assert roberta.vocab_size == 50265
    assert roberta.special_ids == (0, 1, 2, 3, 50264)
    assert roberta.backend.encode("Hello world").ids == [0, 31414, 232, 2]
    assert roberta.backend.encode(" Hello world").ids == [0, 20920, 232, 2]
    assert roberta.backend.encode("The capital of France is <mask>.").ids == [0, 133, 812, 9, 1470, 16, 50264, 4, 2]


def test_files_plain_or_packed_are_the_same(roberta: TextTokenizer, shared_data: Path, tmp_path: Path) -> None:
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        (tmp_path / name).write_bytes(gzip.decompress((shared_data / "bpe" / f"{name}.gz").read_bytes()))
    assert load_tokenizer(tmp_path).fingerprint == roberta.fingerprint


def test_saved_files_open_in_transformers(roberta: TextTokenizer, trained: TextTokenizer, tmp_path: Path) -> None:
    texts = ["Hello world", " the cat <mask> on the mat", "naïve 🙂\n\nfacts", "</s> inside", ""]
    for number, tokenizer in enumerate((roberta, trained)):
        folder = tmp_path / str(number)
        tokenizer.save(folder, max_length=512)
        for stock in (AutoTokenizer.from_pretrained(folder), RobertaTokenizer.from_pretrained(folder)):
            assert stock.model_max_length == 512
            assert len(stock) == tokenizer.vocab_size
            assert tuple(sorted(stock.all_special_ids)) == tokenizer.special_ids
            assert stock(texts)["input_ids"] == [entry.ids for entry in tokenizer.backend.encode_batch(texts)]
            assert stock("a", "b")["input_ids"] == tokenizer.backend.encode("a", "b").ids
        assert load_tokenizer(folder).fingerprint == tokenizer.fingerprint
        assert load_tokenizer(folder / "tokenizer.json").fingerprint == tokenizer.fingerprint


def bert(folder: Path) -> Path:
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    return folder


def test_tokenizers_of_other_kinds(tmp_path: Path) -> None:
    folder = bert(tmp_path / "bert")
    direct = load_tokenizer(folder)
    (folder / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    through_transformers = load_tokenizer(folder)
    alone = load_tokenizer(tmp_path / "tokenizer.json")
    for found in (direct, through_transformers, alone):
        assert (found.bos_id, found.eos_id, found.pad_id, found.mask_id, found.unk_id) == (2, 3, 0, 4, 1)
        assert found.special_ids == (0, 1, 2, 3, 4)
        assert found.backend.encode("the cats").ids == [2, 5, 6, 7, 3]
    direct.save(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again(["the cats sat", "dog"])["input_ids"] == [[2, 5, 6, 7, 8, 3], [2, 1, 3]]
    assert again.mask_token == "[MASK]"
    assert load_tokenizer(tmp_path / "again").fingerprint == direct.fingerprint


def test_special_tokens_with_names_of_their_own(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({"open": 0, "close": 1, "fill": 2, "hide": 3, "cat": 4}, unk_token="fill"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(tmp_path / "tokenizer.json"))
    refused(tmp_path, "no mask token")
    roles = {"bos_token": "open", "eos_token": {"content": "close"}, "pad_token": "fill", "mask_token": "hide"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(roles))
    found = load_tokenizer(tmp_path)
    assert (found.bos_id, found.eos_id, found.pad_id, found.mask_id, found.unk_id) == (0, 1, 2, 3, None)
    assert found.special_ids == (0, 1, 2, 3)
    architecture = {"tokenizer": found.to_json(), "roles": found.roles}
    assert tokenizer_of(architecture).fingerprint == found.fingerprint


def test_truncation_and_padding_are_switched_off(trained: TextTokenizer) -> None:
    backend = Tokenizer.from_str(trained.to_json())
    backend.enable_truncation(4)
    backend.enable_padding(length=6)
    made = TextTokenizer.of(backend, {}, "test")
    assert made.fingerprint == trained.fingerprint
    assert len(backend.encode("a").ids) == 6  # the user's own stays as it is


def test_a_tokenizer_without_a_mask_token(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<pad>": 2}, unk_token="<pad>"))
    backend.save(str(tmp_path / "tokenizer.json"))
    refused(tmp_path / "tokenizer.json", str(tmp_path), "has no mask token (<mask> or [MASK])", "RoBERTa")


@pytest.mark.parametrize("number", [4 * 10**9, 2**32 - 1, 2**40, 2**70, -1])
def test_a_number_beyond_any_vocabulary(number: int, tmp_path: Path) -> None:
    words = {"<s>": 0, "</s>": 1, "<pad>": 2, "<unk>": 3, "<mask>": 4, "zebra": 5}
    Tokenizer(models.WordLevel(words, unk_token="<unk>")).save(str(tmp_path / "tokenizer.json"))
    text = (tmp_path / "tokenizer.json").read_text()
    assert '"zebra": 5' in text
    (tmp_path / "tokenizer.json").write_text(text.replace('"zebra": 5', f'"zebra": {number}'))
    refused(tmp_path, "numbers a token 4," if 2**31 < number < 2**32 else "cannot be read")


def test_tokenizers_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(tmp_path / "tokenizer.json", "does not exist", "Hugging Face name")
    refused(tmp_path, "the folder has no tokenizer: put tokenizer.json or vocab.txt there")
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_text('{"model_type": "bert"}')
        refused(tmp_path, f"{tmp_path}: the checkpoint has no tokenizer: put tokenizer.json or vocab.txt there")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nzebra\n")
    assert load_tokenizer(tmp_path).vocab_size == 6
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    told = "tokenizer no-such/tokenizer cannot be read (no folder of that name, and the Hub is not reachable)"
    refused("no-such/tokenizer", told)


def test_damaged_files(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    refused(tmp_path / "tokenizer.json", "cannot be read")
    (tmp_path / "tokenizer.json").write_bytes(b"\xff")
    refused(tmp_path, "tokenizer.json", "cannot be read")
    (tmp_path / "tokenizer.json").unlink()
    whole = {"encoder.json": '{"a": 0, "b": 1, "ab": 2}', "vocab.bpe": "#version: 0.2\na b\n", "dict.txt": "1\n0\n2\n"}
    for name, text in whole.items():
        (tmp_path / name).write_text(text)
    assert load_tokenizer(tmp_path).backend.token_to_id("ab") == 6
    for name, text, *told in (
        ("vocab.bpe", "#version: 0.2\na b\na b c\n", "cannot be read", "fetch encoder.json, vocab.bpe, dict.txt again"),
        ("vocab.bpe", "#version: 0.2\na c\n", "cannot be read"),
        ("dict.txt", "0 5\n1 5\n", "cannot be read"),
        ("dict.txt", "0 5\n2 5\n9 5\n", "cannot be read"),
        ("encoder.json", "[]", "encoder.json", "expected a JSON object"),
    ):
        (tmp_path / name).write_text(text)
        refused(tmp_path, *told)
        (tmp_path / name).write_text(whole[name])
    packed = (shared_data / "bpe" / "encoder.json.gz").read_bytes()
    (tmp_path / "encoder.json").unlink()
    (tmp_path / "encoder.json.gz").write_bytes(packed[:1000])
    refused(tmp_path, "encoder.json.gz", "cannot be read")
