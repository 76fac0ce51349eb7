"""Documents come back from every format as they were written, and bad files are named with the line."""

import gzip
import json
import lzma
import string
from collections.abc import Callable
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.text import formats
from r2mae.text.documents import Files, HubRows, corpus_of, read_documents
from r2mae.text.formats import Position, cut

DOCUMENTS = ["Title\nA paragraph.", "Zweites Dokument: Größe, 数据, 🙂", "  indented\n\tlines  ", "last"]
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](data))
    return path


def parquet(path: Path, **columns: list[object]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def refused(source: object, *parts: str, column: str = "text") -> None:
    with pytest.raises(UserError) as caught:
        list(read_documents(source, column=column))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("packed", PACK)
def test_plain_text_is_divided_at_blank_lines(tmp_path: Path, packed: str) -> None:
    path = write(tmp_path / f"a.txt{packed}", "\n\n" + "\n \t\n".join(DOCUMENTS) + "\n\n\n")
    assert list(read_documents(path)) == DOCUMENTS


def test_line_ends_of_windows_and_byte_order_marks_are_left_out(tmp_path: Path) -> None:
    text = "\ufeff" + "\n\n".join(DOCUMENTS).replace("\n", "\r\n")
    assert list(read_documents(write(tmp_path / "a.txt", text))) == DOCUMENTS


@pytest.mark.parametrize("packed", PACK)
def test_json_lines(tmp_path: Path, packed: str) -> None:
    rows = "\n".join(json.dumps({"id": n, "body": text}) for n, text in enumerate([*DOCUMENTS, "", None]))
    path = write(tmp_path / f"a.jsonl{packed}", rows + "\n\n")
    assert list(read_documents(path, column="body")) == DOCUMENTS


def test_half_a_surrogate_pair_in_json_can_be_encoded(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", r'{"text": "a\ud83d b"}' + "\n" + r'{"text": "\ud83d\ude42"}')
    assert list(read_documents(path)) == ["a\ufffd b", "🙂"]


def test_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", id=[*range(6)], text=[*DOCUMENTS, "", None])
    assert list(read_documents(path)) == DOCUMENTS


def test_folders_patterns_and_lists_are_read_in_order(tmp_path: Path) -> None:
    inner = tmp_path / "in"
    inner.mkdir()
    paths = [
        write(tmp_path / "a.txt", DOCUMENTS[0]),
        write(tmp_path / "b.jsonl.gz", json.dumps({"text": DOCUMENTS[1]})),
        parquet(inner / "c.parquet", text=[DOCUMENTS[2]]),
        write(inner / "d.txt.xz", DOCUMENTS[3]),
    ]
    (tmp_path / "notes.md").write_text("not text of the corpus")
    (tmp_path / ".hidden.txt").write_text("hidden")
    assert list(read_documents(tmp_path)) == DOCUMENTS
    assert list(read_documents(str(tmp_path / "**" / "[abcd].*"))) == DOCUMENTS
    assert list(read_documents(paths[::-1])) == DOCUMENTS[::-1]


def test_data_sets_of_hugging_face(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"body": [*DOCUMENTS, "", None]})
    assert list(read_documents(rows, column="body")) == DOCUMENTS
    assert list(read_documents(rows.to_iterable_dataset(), column="body")) == DOCUMENTS
    rows.save_to_disk(tmp_path / "saved")
    assert list(read_documents(tmp_path / "saved", column="body")) == DOCUMENTS
    refused(rows, "row 1", "unknown column 'text'", "body")
    datasets.DatasetDict(train=rows).save_to_disk(tmp_path / "splits")
    refused(tmp_path / "splits", "several splits")


def test_splits_are_no_data_set(unchecked: None) -> None:
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS})
    refused(datasets.DatasetDict(train=rows), "several splits", "train")


def test_data_sets_by_name_are_streamed(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", "\n".join(json.dumps({"text": text}) for text in DOCUMENTS))
    assert list(read_documents(f"hf:{tmp_path}")) == DOCUMENTS
    assert list(read_documents(f"hf:{tmp_path}:default:train")) == DOCUMENTS
    refused(f"hf:{tmp_path}:default:nope", "Bad split")
    refused(f"hf:{tmp_path}", "row 1", "unknown column 'body'", column="body")


def test_names_of_the_hub_are_taken_apart() -> None:
    fineweb = corpus_of("fineweb")
    assert fineweb == HubRows(
        "hf:HuggingFaceFW/fineweb:sample-10BT", "HuggingFaceFW/fineweb", None, "sample-10BT", "train", "text"
    )
    fixed = HubRows.of("hf:a/b@v1:c:test", "body")
    assert (fixed.path, fixed.revision, fixed.config, fixed.split) == ("a/b", "v1", "c", "test")
    assert fixed.fingerprint() != HubRows.of("hf:a/b@v2:c:test", "body").fingerprint()
    refused("hf:", "hf:NAME")
    refused("hf:a:b:c:d", "hf:NAME")


def test_the_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    refused("hf:no/such-set", "hf:no/such-set", "cannot open it")


def test_a_network_that_breaks_off_is_told(tmp_path: Path) -> None:
    class Broken:
        def __iter__(self):
            yield {"text": "a"}
            raise ConnectionResetError("connection reset by peer")

    refused(Broken(), "Broken", "beyond row 1", "connection reset")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30), max_size=8))
@settings(max_examples=60)
def test_whatever_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """In JSON lines all; in plain text whatever has no blank line of its own."""
    folder = tmp_path_factory.mktemp("any")
    kept = [text.strip("\n") for text in texts if text.strip("\n") and not text.strip("\n").isspace()]
    if not kept:
        return
    path = write(folder / "a.jsonl", "\n".join(json.dumps({"text": text}) for text in texts))
    assert list(read_documents(path)) == kept
    solid = ["\n".join(line for line in text.split("\n") if line and not line.isspace()) for text in kept]
    assert list(read_documents(write(folder / "a.txt", "\n\n".join(solid)))) == solid


@given(st.text(string.ascii_letters + "é🙂\n ", min_size=1, max_size=300), st.integers(4, 40))
def test_long_documents_come_in_pieces(tmp_path_factory: pytest.TempPathFactory, text: str, limit: int) -> None:
    """No piece exceeds the limit, and nothing but line ends, and pieces of nothing but space, is lost."""
    path = write(tmp_path_factory.mktemp("long") / "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "LONGEST", limit)
        pieces = list(cut([text]))
        read = list(read_documents(path)) if text.strip() else []
    for found in (pieces, read):
        assert all(0 < len(piece) <= limit for piece in found)
        assert "".join("".join(found).split()) == "".join(text.split())


def test_position_reaches_the_end(tmp_path: Path) -> None:
    for name in ("a.txt.gz", "b.txt"):
        write(tmp_path / name, "\n\n".join(f"document {number}" for number in range(1000)))
    parquet(tmp_path / "c.parquet", text=[f"document {number}" for number in range(1000)])
    position = Position()
    seen = [position.fraction or 0 for _ in corpus_of(tmp_path).documents(position)]
    assert seen == sorted(seen)
    assert position.fraction == pytest.approx(1)


def test_fingerprints_know_the_content_and_not_the_name(tmp_path: Path) -> None:
    one, same = write(tmp_path / "one.txt", "a\n\nb"), write(tmp_path / "same.txt", "a\n\nb")
    other, joined = write(tmp_path / "other.txt", "a\n\nc"), write(tmp_path / "joined.txt", "a\n\nba\n\nc")
    assert corpus_of(one).fingerprint() == corpus_of(same, column="body").fingerprint()
    prints = [corpus_of(source).fingerprint() for source in (one, other, [one, other], [other, one], joined)]
    assert len(set(prints)) == 5
    lines = write(tmp_path / "a.jsonl", '{"text": "a", "body": "b"}')
    assert corpus_of(lines).fingerprint() != corpus_of(lines, column="body").fingerprint()
    rows = datasets.Dataset.from_dict({"text": ["ab", "c"]})
    moved = datasets.Dataset.from_dict({"text": ["a", "bc"]})
    assert corpus_of(rows).fingerprint() == corpus_of(rows.to_iterable_dataset()).fingerprint()
    assert corpus_of(rows).fingerprint() != corpus_of(moved).fingerprint()


def test_named_sets(shared_data: Path) -> None:
    documents = list(read_documents("wikitext2"))
    assert len(documents) == 60
    assert documents[0].startswith(" = Homarus gammarus = \n Homarus gammarus , known as the European lobster")
    assert all(document.startswith(" = ") for document in documents)
    corpus = corpus_of("wiki")
    assert isinstance(corpus, Files)
    first = next(iter(corpus.documents()))
    assert first.startswith("Jarred Shaw\nJarred Shaw (born September 28, 1990)")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    latin = write(tmp_path / "latin.txt.gz", "first\n\nfa\u00e7ade".encode("latin-1"))
    refused(latin, str(latin), "line 3", "not UTF-8", "iconv")
    cut_off = write(tmp_path / "cut_off.txt", "first\n\n€".encode()[:-1])
    refused(cut_off, "line 3", "not UTF-8")
    for name, data in (("a.txt.gz", gzip.compress(b"abc " * 99)), ("a.txt.xz", lzma.compress(b"abc " * 99))):
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        refused(tmp_path / name, name, "is damaged at line 1", "fetch or write it anew")
        (tmp_path / name).write_bytes(b"no archive")
        refused(tmp_path / name, name, "is damaged at line 1")
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    refused(tmp_path / "a.parquet", "a.parquet", "is damaged")


def test_empty_corpora(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.txt", "")
    refused(empty, str(empty), "holds no text")
    refused(write(tmp_path / "blank.txt", "\n \n\t\n"), "holds no text")
    refused(datasets.Dataset.from_dict({"text": ["", None]}), "holds no text")
    folder = tmp_path / "folder"
    folder.mkdir()
    refused(folder, str(folder), "expected files named")


def test_bad_rows_are_named(tmp_path: Path) -> None:
    good = '{"text": "a"}\n\n'
    refused(write(tmp_path / "a.jsonl", good + '{"text": '), "a.jsonl, line 3", "is not JSON")
    refused(write(tmp_path / "b.jsonl", good + "[1, 2]"), "b.jsonl, line 3", "expected an object", "list")
    refused(write(tmp_path / "c.jsonl", good + '{"txt": "a"}'), "c.jsonl, line 3", "did you mean 'txt'?")
    refused(write(tmp_path / "d.jsonl", good + '{"text": 3}'), "d.jsonl, line 3", "'text' holds int, expected text")
    refused(write(tmp_path / "e.jsonl", "[" * 100_000), "e.jsonl, line 1", "is not JSON")
    refused(parquet(tmp_path / "a.parquet", body=["a"]), "a.parquet", "unknown column 'text'")
    refused(parquet(tmp_path / "b.parquet", text=[1, 2]), "b.parquet, row 1", "holds int")


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    refused("wikki", "unknown corpus 'wikki'", "did you mean 'wiki'")
    refused(tmp_path / "no.txt", str(tmp_path / "no.txt"), "does not exist")
    refused(str(tmp_path / "*.txt"), "no file is named so")
    refused([], "a list of 0 files")
    refused(write(tmp_path / "a.md", "text"), "a.md", "no known kind")
    refused(iter([{"text": "a"}]), "only once")
