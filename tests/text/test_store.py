"""A store holds every document between <s> and </s>, is made once, and is whole or not there."""

import json
import pickle
import signal
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from r2mae.cache import cache_folder
from r2mae.errors import UserError
from r2mae.text import batches as module
from r2mae.text.batches import META, OFFSETS, TOKENS, TokenStore, corpus_tokenizer, encoded, open_store, unknown_note
from r2mae.text.tokenizer import TextTokenizer, train_bpe

TEXTS = [f"document {number}: the cat sat on the mat\nand <mask> on the </s> log" for number in range(40)]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_bpe(TEXTS, 300)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(TEXTS), encoding="utf-8")
    return path


def decoded(store: TokenStore, tokenizer: TextTokenizer) -> list[str]:
    """The documents of a store, once their frame is checked."""
    tokens, offsets, documents = store.tokens, store.offsets, []
    for first, last in pairwise(offsets):
        ids = tokens[first:last]
        assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
        assert not set(ids[1:-1].tolist()) & set(tokenizer.special_ids)
        documents.append(tokenizer.backend.decode(ids[1:-1].tolist(), skip_special_tokens=False))
    return documents


def test_documents_come_back_in_order(corpus: Path, tokenizer: TextTokenizer) -> None:
    store = open_store(corpus, tokenizer)
    assert len(store) == len(TEXTS)
    assert store.tokens.dtype == np.uint16
    assert decoded(store, tokenizer) == TEXTS
    assert store.vocab_size == tokenizer.vocab_size


@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40)
        | st.lists(st.sampled_from(["<s>", "</s>", "<mask>", " ", "a", "<pad>", "<unk>"])).map("".join),
        min_size=1,
        max_size=12,
    ),
    block=st.integers(1, 60),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_in_any_blocks(tokenizer: TextTokenizer, texts: list[str], block: int) -> None:
    """Order and content are kept however the work is divided; text never becomes a special token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        parts = list(encoded(iter(texts), tokenizer, np.dtype(np.uint16)))
    tokens = np.concatenate([part for part, _ in parts])
    ends = np.cumsum(np.concatenate([lengths for _, lengths in parts]))
    for text, first, last in zip(texts, [0, *ends[:-1]], ends, strict=True):
        inner = tokens[first + 1 : last - 1].tolist()
        assert (tokens[first], tokens[last - 1]) == (0, 2)
        assert not set(inner) & set(tokenizer.special_ids)
        assert tokenizer.backend.decode(inner, skip_special_tokens=False) == text


def test_large_vocabularies_take_four_bytes(corpus: Path) -> None:
    words = {"<s>": 0, "</s>": 1, "<pad>": 2, "<mask>": 3, "<unk>": 4, "cat": 70_000}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    store = open_store(corpus, TextTokenizer.of(backend, {}, "test"))
    assert store.tokens.dtype == np.uint32
    assert (store.tokens == 70_000).sum() == len(TEXTS)


def words_alone(*words: str) -> TextTokenizer:
    """A tokenizer that knows these words alone."""
    numbers = {word: number for number, word in enumerate(("<s>", "<pad>", "</s>", "<unk>", "<mask>", *words))}
    backend = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return TextTokenizer.of(backend, {}, "test")


@pytest.mark.parametrize(("text", "share"), [("cat " * 99, 0.0), ("cat " * 96 + "x " * 4, 0.04), ("cat x " * 9, 0.5)])
def test_unknown_tokens_are_counted_and_told_from_5_per_cent_on(tmp_path: Path, text: str, share: float) -> None:
    (tmp_path / "a.txt").write_text(text)
    store = open_store(tmp_path / "a.txt", words_alone("cat"))
    assert store.unknown == pytest.approx(share * (len(store.tokens) - 2))
    note = unknown_note("a.txt", store.unknown, len(store.tokens), len(store))
    assert note == (
        f"a.txt: {share:.0%} of the tokens are unknown to the tokenizer, which hardly fits this text"
        if share > 0.05
        else None
    )


def test_a_corpus_of_unknown_tokens_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x y z")
    store = open_store(tmp_path / "a.txt", words_alone("cat"))
    with pytest.raises(UserError, match=r"a.txt: every token is unknown .* give another --tokenizer"):
        unknown_note("a.txt", store.unknown, len(store.tokens), len(store))


def test_a_corpus_is_tokenised_once(corpus: Path, tokenizer: TextTokenizer, tmp_path: Path) -> None:
    stages: list[tuple[int, int | None]] = []

    def told(done: int, total: int | None) -> None:
        stages.append((done, total))

    first = open_store(corpus, tokenizer, progress=told)
    assert stages[-1][1] == corpus.stat().st_size and 0.9 < stages[-1][0] / corpus.stat().st_size <= 1
    stages.clear()
    moved = tmp_path / "moved.txt"
    corpus.rename(moved)
    assert open_store(moved, tokenizer, progress=told).folder == first.folder
    assert not stages
    moved.write_text("other text")
    assert open_store(moved, tokenizer, progress=told).folder != first.folder
    assert stages


def test_the_cache_is_where_the_user_wants_it(
    corpus: Path, tokenizer: TextTokenizer, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_store(corpus, tokenizer).folder.parent == own_cache / "tokens"
    monkeypatch.setenv("R2MAE_CACHE", "")
    assert cache_folder() == Path.home() / ".cache" / "r2mae"


def test_the_tokenizer_of_a_corpus_is_trained_once(corpus: Path, own_cache: Path) -> None:
    first = corpus_tokenizer(corpus, 300)
    assert first.fingerprint == train_bpe(TEXTS, 300).fingerprint
    (file,) = (own_cache / "tokenizers").glob("*/tokenizer.json")
    before = file.stat().st_mtime_ns
    assert corpus_tokenizer(corpus, 300).fingerprint == first.fingerprint
    assert file.stat().st_mtime_ns == before
    assert corpus_tokenizer(corpus, 290).vocab_size == 290
    limited = corpus_tokenizer(corpus, 300, limit=sum(map(len, TEXTS[:5])))
    assert limited.fingerprint == train_bpe(TEXTS[:5], 300).fingerprint


def test_a_store_travels_to_other_processes_as_a_path(corpus: Path, tokenizer: TextTokenizer) -> None:
    store = open_store(corpus, tokenizer)
    state = pickle.dumps(store)
    assert len(state) < 1000
    assert np.array_equal(pickle.loads(state).tokens, store.tokens)


def test_processes_that_are_forked_later_print_no_warning(corpus: Path, tokenizer: TextTokenizer) -> None:
    """Of threads of the library that they lack."""
    tokenizer_file = corpus.with_name("tokenizer.json")
    tokenizer_file.write_text(tokenizer.to_json(), encoding="utf-8")
    code = f"""
        import os
        from r2mae.text.batches import open_store
        from r2mae.text.tokenizer import load_tokenizer
        open_store({str(corpus)!r}, load_tokenizer({str(tokenizer_file)!r}))
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def refused(folder: Path, *parts: str) -> None:
    with pytest.raises(UserError) as caught:
        TokenStore(folder)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(folder), *parts):
        assert part in message


def test_damaged_stores(corpus: Path, tokenizer: TextTokenizer) -> None:
    folder = open_store(corpus, tokenizer).folder
    whole = {name: (folder / name).read_bytes() for name in (TOKENS, OFFSETS, META)}

    def with_file(name: str, data: bytes | None) -> None:
        for other, kept in whole.items():
            (folder / other).write_bytes(kept)
        (folder / name).unlink() if data is None else (folder / name).write_bytes(data)

    meta = json.loads(whole[META])
    for cut in (1, 2):
        with_file(TOKENS, whole[TOKENS][:-cut])
        refused(folder, "delete the folder")
    with_file(TOKENS, None)
    refused(folder, "cannot be read", "delete the folder")
    with_file(OFFSETS, whole[OFFSETS][:-4])
    refused(folder, "cannot be read")
    with_file(OFFSETS, whole[OFFSETS][:-8] + bytes(8))
    refused(folder, "does not fit")
    longer = whole[OFFSETS].replace(b"(41,), }" + b" " * 11, b"(41" + b"0" * 11 + b",), }")
    assert len(longer) == len(whole[OFFSETS]) and longer != whole[OFFSETS]
    with_file(OFFSETS, longer)
    refused(folder, "cannot be read")
    with_file(META, None)
    refused(folder, "cannot be read")
    for text in ("{", "[]", "{}", json.dumps(meta | {"format": 99}), "[" * 100_000):
        with_file(META, text.encode())
        refused(folder, "cannot be read")
    for change in ({"vocab_size": "many"}, {"vocab_size": 10**19}, {"unknown": None}):
        with_file(META, json.dumps(meta | change).encode())
        refused(folder, "cannot be read")
    with_file(META, whole[META])
    TokenStore(folder)


def test_bad_text_leaves_nothing_behind(tmp_path: Path, tokenizer: TextTokenizer, own_cache: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\n" * 100 + b"\xff\n")
    with pytest.raises(UserError, match="line 201: is not UTF-8"):
        open_store(bad, tokenizer)
    assert not [entry for entry in (own_cache / "tokens").iterdir() if not entry.name.endswith(".lock")]
    bad.write_bytes(b"\n\n")
    with pytest.raises(UserError, match="holds no text"):
        open_store(bad, tokenizer)


def test_a_place_that_cannot_be_written(
    corpus: Path, tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be written .*: point R2MAE_CACHE at a folder with room"):
        open_store(corpus, tokenizer)


def test_an_error_of_the_disk_is_told(corpus: Path, tokenizer: TextTokenizer, own_cache: Path) -> None:
    def full(done: int, total: int | None) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        open_store(corpus, tokenizer, progress=full)
    assert not [entry for entry in (own_cache / "tokens").iterdir() if not entry.name.endswith(".lock")]


SLOW = """
    import sys, time
    from r2mae.text import batches as module
    from r2mae.text.batches import open_store
    from r2mae.text.tokenizer import load_tokenizer
    module._BLOCK = 200
    blocks = 0
    def slow(done, total):
        global blocks
        blocks += 1
        print("block", flush=True)
        time.sleep(float(sys.argv[3]))
    store = open_store(sys.argv[1], load_tokenizer(sys.argv[2]), progress=slow)
    print("done", blocks, store.folder)
"""


def start(corpus: Path, tokenizer: TextTokenizer, pause: float) -> "subprocess.Popen[str]":
    file = corpus.with_name("tokenizer.json")
    if not file.exists():
        file.write_text(tokenizer.to_json(), encoding="utf-8")
    command = [sys.executable, "-c", textwrap.dedent(SLOW), str(corpus), str(file), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_no_half_store(corpus: Path, tokenizer: TextTokenizer, own_cache: Path) -> None:
    process = start(corpus, tokenizer, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "block\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert [entry.suffix for entry in (own_cache / "tokens").glob(".*") if entry.is_dir()] == [".tmp"]
    store = open_store(corpus, tokenizer)
    assert decoded(store, tokenizer) == TEXTS
    assert not [entry for entry in store.folder.parent.glob(".*") if entry.is_dir()]


def test_a_second_process_waits_for_the_first(corpus: Path, tokenizer: TextTokenizer) -> None:
    first = start(corpus, tokenizer, 0.1)
    assert first.stdout is not None
    assert first.stdout.readline() == "block\n"
    second = start(corpus, tokenizer, 0)
    ends = [process.communicate()[0].splitlines()[-1].split() for process in (first, second)]
    assert [end[0] for end in ends] == ["done", "done"]
    assert int(ends[0][1]) > 1
    assert int(ends[1][1]) == 0
    assert ends[0][2] == ends[1][2]
