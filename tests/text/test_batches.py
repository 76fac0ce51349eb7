"""Rows are the stream of the chosen documents, without padding; documents held out are in no other row."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.text.batches import TOKENS, TextData, TokenBatches, TokenStore, load_data, open_store, split_data
from r2mae.text.config import TextConfig
from r2mae.text.tokenizer import TextTokenizer, load_tokenizer, tokenizer_of, train_bpe
from r2mae.training.order import BatchOrder, make_loader
from r2mae.training.task import Batches, Data

pytestmark = pytest.mark.slow

KEY = Key.root(0)  # rows are packed as they are, whatever it is
TEXTS = [f"{number}: " + " ".join(f"word{number * step % 7}" for step in range(number % 23)) for number in range(60)]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_bpe(TEXTS, 300)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n\n".join(TEXTS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def store(corpus: Path, tokenizer: TextTokenizer) -> TokenStore:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MAE_CACHE", str(corpus.parent / "cache"))
        return open_store(corpus, tokenizer)


def stream(store: TokenStore, documents: list[int]) -> np.ndarray:
    offsets = store.offsets
    return np.concatenate([store.tokens[offsets[n] : offsets[n + 1]] for n in documents])


@given(
    chosen=st.sets(st.integers(0, len(TEXTS) - 1), min_size=1).map(sorted),
    length=st.integers(1, 90),
    data=st.data(),
)
def test_rows_are_the_packed_stream(store: TokenStore, chosen: list[int], length: int, data: st.DataObject) -> None:
    batches = TokenBatches(store, length, np.array(chosen))
    whole = stream(store, chosen)
    assert batches.tokens == len(whole) == len(batches) * length + batches.tokens % length
    rows = whole[: len(batches) * length].reshape(-1, length)
    every = batches.batch(np.arange(len(batches)), KEY)
    assert every.dtype == torch.int64
    assert np.array_equal(every.numpy(), rows)
    if len(batches):
        picked = data.draw(st.lists(st.integers(0, len(batches) - 1), max_size=8))
        assert np.array_equal(batches.batch(picked, KEY).numpy(), rows[picked])


def test_all_documents_by_default(store: TokenStore) -> None:
    batches = TokenBatches(store, 16)
    assert batches.documents == len(TEXTS)
    every = batches.batch(range(len(batches)), KEY)
    assert np.array_equal(every.numpy().ravel(), store.tokens[: every.numel()])
    assert isinstance(batches, Batches)
    for row in (-1, len(batches)):
        with pytest.raises(IndexError):
            batches.batch([row], KEY)


def test_loaders_of_any_number_of_processes_agree(store: TokenStore) -> None:
    batches = TokenBatches(store, 8, np.arange(0, len(TEXTS), 2))
    order = BatchOrder(len(batches), 4, 6, Key.root(0))
    loaded = [list(make_loader(batches, order, KEY, workers=workers)) for workers in (0, 2)]
    assert len(loaded[0]) == 6
    assert all(torch.equal(one, other) for one, other in zip(*loaded, strict=True))
    state = pickle.dumps(TokenBatches(store, 8))
    assert len(state) < 3000  # no tokens travel with it
    assert torch.equal(pickle.loads(state).batch([3], KEY), TokenBatches(store, 8).batch([3], KEY))


def test_a_token_outside_the_vocabulary_is_refused(store: TokenStore, tmp_path: Path) -> None:
    copy = TokenStore(shutil.copytree(store.folder, tmp_path / "store"))
    batches, path = TokenBatches(copy, 16), copy.folder / TOKENS
    path.write_bytes(path.read_bytes()[:-64] + b"\xff" * 64)
    with pytest.raises(UserError, match=r"cannot be read \(token 65,535 is not in"):
        batches.batch([len(batches) - 1], KEY)


def config(corpus: Path, **changes: object) -> TextConfig:
    return TextConfig.make(data=str(corpus), **{"vocab_size": 300, "sequence_length": 16, "validation": 0.1, **changes})


def documents_of(batches: TokenBatches, store: TokenStore) -> set[int]:
    """Which documents of the store the stream of these batches is made of."""
    offsets, found = store.offsets, set()
    begins = np.concatenate([[0], batches._ends[:-1]])
    for first, last in zip(batches._shift + begins, batches._shift + batches._ends, strict=True):
        found |= set(np.flatnonzero((offsets[:-1] >= first) & (offsets[1:] <= last)).tolist())
    assert len(found) == batches.documents
    return found


def held_out(data: TextData) -> set[int]:
    """The documents of the validation rows, once it is sure that training has all others."""
    assert data.validation is not None
    found, others = documents_of(data.validation, data.store), documents_of(data.train, data.store)
    assert not found & others
    assert found | others == set(range(len(data.store)))
    return found


def test_documents_are_held_out_by_the_seed(corpus: Path) -> None:
    data = load_data(config(corpus))
    assert isinstance(data, Data)
    chosen = held_out(data)
    assert len(chosen) == 6
    assert held_out(load_data(config(corpus))) == chosen
    assert held_out(load_data(config(corpus, seed=1))) != chosen
    assert held_out(load_data(config(corpus, sequence_length=8))) == chosen
    whole = load_data(config(corpus, validation=0.0))
    assert whole.validation is None
    assert whole.train.documents == len(TEXTS)


def test_at_least_one_row_is_held_out(corpus: Path) -> None:
    """A hundredth of these documents would fill no row."""
    data = load_data(config(corpus, validation=0.01, sequence_length=128))
    assert data.validation is not None
    assert len(data.validation) == 1
    assert held_out(data)


def test_the_architecture_holds_the_tokenizer(corpus: Path) -> None:
    data = load_data(config(corpus, hidden_size=64, layers=2, heads=2, corruption="mask"))
    built = data.architecture
    assert built["model"] == "roberta"
    assert (built["vocab_size"], built["mask_id"], built["pad_id"]) == (data.tokenizer.vocab_size, 4, 1)
    assert (built["bos_id"], built["eos_id"], built["special_ids"]) == (0, 2, [0, 1, 2, 3, 4])
    assert (built["hidden_size"], built["layers"], built["heads"], built["length"]) == (64, 2, 2, 16)
    assert (built["dropout"], built["corruption"], built["intermediate_size"]) == (0.1, "mask", 2048)
    assert tokenizer_of(built).fingerprint == data.tokenizer.fingerprint
    assert built["exact"] is True
    assert load_data(config(corpus, exact=False)).architecture["exact"] is False


def test_a_tokenizer_from_a_file(corpus: Path, tokenizer: TextTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    data = load_data(config(corpus, tokenizer=str(tmp_path)))
    assert data.tokenizer.fingerprint == tokenizer.fingerprint


def test_too_little_text(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    path = tmp_path / "small.txt"
    path.write_text("one document of a few words")
    store = open_store(path, tokenizer)
    with pytest.raises(UserError, match=r"tokens, less than one sequence of 128"):
        split_data(store, tokenizer, config(path, sequence_length=128))
    with pytest.raises(UserError, match="too few documents to hold some out"):
        split_data(store, tokenizer, config(path, sequence_length=4))
    assert len(split_data(store, tokenizer, config(path, sequence_length=4, validation=0.0)).train) > 0


@pytest.mark.parametrize("fields", [{"keep": "best"}, {"patience": 3}, {"validate_every": 2}])
def test_other_data_are_not_divided_whatever_the_run_validated(
    corpus: Path, tokenizer: TextTokenizer, fields: dict[str, Any]
) -> None:
    data = load_data(config(corpus, **fields), tokenizer=tokenizer, hold_out=False)
    assert data.validation is data.train
    assert data.train.documents == len(TEXTS)


def test_too_little_other_text_has_one_remedy(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    """The length of sequences is that of the run."""
    path = tmp_path / "small.txt"
    path.write_text("a few words")
    with pytest.raises(UserError, match="less than one sequence of 128: give more text"):
        load_data(config(path, sequence_length=128), tokenizer=tokenizer, hold_out=False)


def test_real_text(shared_data: Path) -> None:
    """WikiText-2 with RoBERTa's vocabulary: nothing is lost on the way to the rows."""
    data = load_data(TextConfig.make(data="wikitext2", tokenizer=str(shared_data / "bpe"), validation=0.1))
    assert data.validation is not None
    assert len(data.store) == 60
    assert data.validation.documents == 6
    rows = data.train.batch(np.arange(len(data.train)), KEY)
    assert rows.shape == (len(data.train), 128)
    assert (rows == 0).sum() == data.train.documents  # no document begins in the few tokens that are dropped
    assert not torch.isin(rows, torch.tensor([1, 3, 50264])).any()
    backend = load_tokenizer(shared_data / "bpe").backend
    assert "the European lobster" in backend.decode(data.store.tokens[:60].tolist())


def test_notes_say_what_is_held_out_and_what_is_odd(store: TokenStore, tokenizer: TextTokenizer) -> None:
    def notes(**options: Any) -> tuple[str, ...]:
        given: dict[str, Any] = {"data": "x", "sequence_length": 8, "batch_size": 4, "validation": 0.1, **options}
        return split_data(store, tokenizer, TextConfig.make(**given)).notes

    (plain,) = notes()
    held = len(
        split_data(store, tokenizer, TextConfig.make(data="x", sequence_length=8, validation=0.1)).validation or ()
    )
    assert plain.endswith(f"; {held:,} are held out")
    assert notes(validation=0.0)[0].endswith("none are held out, and no loss is measured")
    assert "each is seen several times" in notes(batch_size=10_000)[1]
    assert "these are few and long" in notes(validation=1e-6, sequence_length=128)[1]
