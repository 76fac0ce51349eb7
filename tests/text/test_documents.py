"""Documents come back from every format as they were written, and bad files are named with the line."""

import bz2
import gzip
import json
import lzma
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.text import documents as module
from r2mae.text.documents import corpus_of, cut, read_documents

DOCUMENTS = ["Title\nA paragraph.", "Zweites Dokument: Größe, 数据, 🙂", "  indented\n\tlines  ", "last"]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: arrow(data, "zstd"),
    ".lz4": lambda data: arrow(data, "lz4"),
}


def arrow(data: bytes, kind: str) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, kind) as file:
        file.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](data))
    return path


def parquet(path: Path, **columns: list[object]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def refused(source: str | Path, *parts: str, column: str = "text") -> None:
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
def test_lines_of_old_macs(tmp_path: Path, packed: str) -> None:
    """Line ends of carriage returns alone, also beyond what one read of a stream gives, and mixed with others."""
    texts = DOCUMENTS * 2000
    path = write(tmp_path / f"a.txt{packed}", "\r\r".join(text.replace("\n", "\r") for text in texts) + "\r")
    assert list(read_documents(path)) == texts
    rows = "\r".join(json.dumps({"text": text}) for text in texts)
    assert list(read_documents(write(tmp_path / f"a.jsonl{packed}", rows))) == texts
    mixed = "a\rb\r\r" + "-" * 20_000 + "\r\r" + "c\r\nd\r\n" * 20_000
    read = list(read_documents(write(tmp_path / f"b.txt{packed}", mixed)))
    assert read == ["a\nb", "-" * 20_000, ("c\nd\n" * 20_000).strip()]


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


def test_parquet_with_text_that_is_not_utf8(tmp_path: Path) -> None:
    """As a flipped bit leaves it; pyarrow checks no bytes, and Python finds them when it makes a string."""
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": DOCUMENTS}), path, compression="none")
    whole = path.read_bytes()
    path.write_bytes(whole.replace("数".encode(), b"\xff\xff\xff"))
    assert path.read_bytes() != whole
    refused(path, "a.parquet cannot be read (", "can't decode byte 0xff", "write it again")


def test_folders_and_patterns_are_read_in_order(tmp_path: Path) -> None:
    inner = tmp_path / "in"
    inner.mkdir()
    write(tmp_path / "a.txt", DOCUMENTS[0])
    write(tmp_path / "b.jsonl.gz", json.dumps({"text": DOCUMENTS[1]}))
    parquet(inner / "c.parquet", text=[DOCUMENTS[2]])
    write(inner / "d.txt.xz", DOCUMENTS[3])
    (tmp_path / "notes.md").write_text("not text of the corpus")
    (tmp_path / ".hidden.txt").write_text("hidden")
    assert list(read_documents(tmp_path)) == DOCUMENTS
    assert list(read_documents(str(tmp_path / "**" / "[abcd].*"))) == DOCUMENTS


def test_data_sets_of_hugging_face(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"body": [*DOCUMENTS, "", None]})
    rows.save_to_disk(tmp_path / "saved")
    assert list(read_documents(tmp_path / "saved", column="body")) == DOCUMENTS
    refused(tmp_path / "saved", "row 1", "unknown column 'text': choose from: body (--text-column body)")
    refused(f"hf:{tmp_path / 'saved'}", "cannot be read", "load_from_disk")


def test_the_splits_of_a_saved_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train, test = (datasets.Dataset.from_dict({"text": DOCUMENTS[part]}) for part in (slice(2), slice(2, 4)))
    both, one = tmp_path / "both", tmp_path / "one"
    datasets.DatasetDict(train=train, test=test).save_to_disk(both)
    datasets.DatasetDict(test=test).save_to_disk(one)
    assert list(read_documents(both)) == DOCUMENTS[:2]
    assert f"{both}: the split train of test, train is read" in caplog.text
    assert list(read_documents(both, split="test")) == list(read_documents(one / "test")) == DOCUMENTS[2:]
    refused(one, "has no split 'train': give another, --split test")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "dataset_dict.json").write_text("{}")
    refused(tmp_path / "none", "has no split 'train'")


def test_data_sets_by_name_are_streamed(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", "\n".join(json.dumps({"text": text}) for text in DOCUMENTS))
    assert list(read_documents(f"hf:{tmp_path}")) == DOCUMENTS
    assert list(read_documents(f"hf:{tmp_path}:default:train")) == DOCUMENTS
    refused(f"hf:{tmp_path}:default:nope", "Bad split")
    refused(f"hf:{tmp_path}", "row 1", "unknown column 'body'", column="body")


def test_names_of_the_hub_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def load(
        path: str, config: str | None, *, split: str, revision: str | None, streaming: bool
    ) -> list[dict[str, str]]:
        asked.append((path, config, split, revision, streaming))
        return [{"text": "a"}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    for name in ("fineweb", "hf:a/b@v1:c:test", "hf:~/corpus"):
        assert list(read_documents(name)) == ["a"]
    assert asked == [
        ("HuggingFaceFW/fineweb", "sample-10BT", "train", None, True),
        ("a/b", "c", "test", "v1", True),
        (str(Path.home() / "corpus"), None, "train", None, True),
    ]
    names = ("hf:a/b@v1:c:test", "hf:a/b@v2:c:test", "hf:a/b@v1:c", "hf:a/b:c:test")
    assert len({corpus_of(name).fingerprint() for name in names}) == 4
    refused("hf:", "hf:NAME")
    refused("hf:a:b:c:d", "hf:NAME")


def test_the_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    refused("hf:no/such-set", "hf:no/such-set", "cannot be read")


def test_a_network_that_breaks_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Iterator[dict[str, str]]:
        yield {"text": "a"}
        raise ConnectionResetError("connection reset by peer")

    monkeypatch.setattr(datasets, "load_dataset", broken)
    refused("hf:a/b", "hf:a/b cannot be read (connection reset by peer)")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30), max_size=8))
@settings(max_examples=60)
def test_whatever_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """In JSON lines all; in plain text whatever has no blank line of its own, nor NUL, the sign of binary files."""
    folder = tmp_path_factory.mktemp("any")
    kept = [text.strip("\n") for text in texts if text.strip("\n") and not text.strip("\n").isspace()]
    if not kept:
        return
    path = write(folder / "a.jsonl", "\n".join(json.dumps({"text": text}) for text in texts))
    assert list(read_documents(path)) == kept
    solid = ["\n".join(line for line in text.split("\n") if line and not line.isspace()) for text in kept]
    if "\0" not in "".join(solid):
        assert list(read_documents(write(folder / "a.txt", "\n\n".join(solid)))) == solid


@given(st.text(string.ascii_letters + "é🙂\n ", min_size=1, max_size=300), st.integers(4, 40))
def test_long_documents_come_in_pieces(tmp_path_factory: pytest.TempPathFactory, text: str, limit: int) -> None:
    """No piece exceeds the limit, and nothing but line ends, and pieces of nothing but space, is lost."""
    path = write(tmp_path_factory.mktemp("long") / "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST", limit)
        pieces = list(cut([text]))
        read = list(read_documents(path)) if text.strip() else []
    for found in (pieces, read):
        assert all(0 < len(piece) <= limit for piece in found)
        assert "".join("".join(found).split()) == "".join(text.split())


def test_the_size_is_known_of_plain_files(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.txt", "one\n\ntwo")
    assert corpus_of(plain).size == 8
    write(tmp_path / "b.txt.gz", "three")
    assert corpus_of(tmp_path).size is None


def test_fingerprints_know_the_content_and_not_the_name(tmp_path: Path) -> None:
    one, same = write(tmp_path / "one.txt", "a\n\nb"), write(tmp_path / "same.txt", "a\n\nb")
    other, joined = write(tmp_path / "other.txt", "a\n\nc"), write(tmp_path / "joined.txt", "a\n\nba\n\nc")
    assert corpus_of(one).fingerprint() == corpus_of(same, column="body").fingerprint()
    assert len({corpus_of(source).fingerprint() for source in (one, other, joined, tmp_path)}) == 4
    lines = write(tmp_path / "a.jsonl", '{"text": "a", "body": "b"}')
    assert corpus_of(lines).fingerprint() != corpus_of(lines, column="body").fingerprint()


def test_named_sets(shared_data: Path) -> None:
    documents = list(read_documents("wikitext2"))
    assert len(documents) == 60
    assert documents[0].startswith(" = Homarus gammarus = \n Homarus gammarus , known as the European lobster")
    assert all(document.startswith(" = ") for document in documents)
    corpus = corpus_of("wiki")
    first = next(iter(corpus.documents()))
    assert first.startswith("Jarred Shaw\nJarred Shaw (born September 28, 1990)")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    latin = write(tmp_path / "latin.txt.gz", "first\n\nfa\u00e7ade".encode("latin-1"))
    refused(latin, str(latin), "line 3", "not UTF-8", "iconv")
    cut_off = write(tmp_path / "cut_off.txt", "first\n\n€".encode()[:-1])
    refused(cut_off, "line 3", "not UTF-8")
    for name, data in (("a.txt.gz", gzip.compress(b"abc " * 99)), ("a.txt.xz", lzma.compress(b"abc " * 99))):
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        refused(tmp_path / name, name, "cannot be read (", "fetch or write it again")
        (tmp_path / name).write_bytes(b"no archive")
        refused(tmp_path / name, name, "cannot be read (")
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    refused(tmp_path / "a.parquet", "a.parquet", "cannot be read (")


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_other_encodings_and_binary_files_are_refused(tmp_path: Path, name: str, packed: str) -> None:
    path, text = tmp_path / f"{name}{packed}", "\ufeff" + "text " * 5000
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        refused(write(path, text.encode(encoding)), str(path), "is binary or UTF-16, expected text in UTF-8")
    for data in (bytes(50_000), b"some text\0" + b"text" * 9000, bytes(range(256))):
        refused(write(path, data), str(path), "is binary or UTF-16")


def test_nul_bytes_further_on_are_text(tmp_path: Path) -> None:
    text = "text " * 50_000 + "\0"
    assert list(read_documents(write(tmp_path / "a.txt", text))) == [text]


def test_empty_corpora(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.txt", "")
    refused(empty, str(empty), "holds no text: give other files or another split")
    refused(write(tmp_path / "blank.txt", "\n \n\t\n"), "holds no text: give other files")
    column = ("holds no text", "name another column of text, --text-column NAME")
    refused(write(tmp_path / "nulls.jsonl", '{"text": null}\n{"text": " "}\n'), *column)
    refused(parquet(tmp_path / "nulls.parquet", text=["", None]), *column)
    folder = tmp_path / "folder"
    folder.mkdir()
    refused(folder, str(folder), "expected files named")


def test_bad_rows_are_named(tmp_path: Path) -> None:
    good = '{"text": "a"}\n\n'
    refused(write(tmp_path / "a.jsonl", good + '{"text": '), "a.jsonl, line 3", "expected a JSON object a line")
    refused(write(tmp_path / "b.jsonl", good + "[1, 2]"), "b.jsonl, line 3", "expected an object", "list")
    refused(write(tmp_path / "c.jsonl", good + '{"txt": "a"}'), "c.jsonl, line 3", "did you mean 'txt'?")
    refused(write(tmp_path / "d.jsonl", good + '{"text": 3}'), "d.jsonl, line 3", "'text' holds int, expected text")
    refused(write(tmp_path / "e.jsonl", good + "[" * 100_000), "e.jsonl, line 3 cannot be read")
    refused(parquet(tmp_path / "b.parquet", text=[1, 2]), "b.parquet, row 1", "holds int", "--text-column")
    refused(write(tmp_path / "f.jsonl", '{\n  "text": "a"\n}'), "f.jsonl, line 1 cannot be read")


@pytest.mark.parametrize("indent", [None, 2])
def test_json_arrays_are_no_json_lines(tmp_path: Path, indent: int | None) -> None:
    array = json.dumps([{"text": text} for text in DOCUMENTS], indent=indent)
    refused(write(tmp_path / "a.jsonl.gz", array), "a.jsonl.gz, line 1", "expected a")
    path = write(tmp_path / "a.txt", array)
    assert list(read_documents(path)) == [array]


def test_the_column_with_the_text_is_named(tmp_path: Path) -> None:
    said = "unknown column 'text': choose from: "
    refused(parquet(tmp_path / "a.parquet", title=["a"], body=["b"]), f"{said}title, body (--text-column NAME)")
    refused(write(tmp_path / "a.jsonl", '{"n": 1, "content": null}'), f"{said}n, content (--text-column NAME)")
    refused(write(tmp_path / "b.jsonl", "{}"), "b.jsonl, line 1", "unknown column 'text'")


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    refused("wikki", "unknown corpus 'wikki'", "did you mean 'wiki'")
    refused(tmp_path / "no.txt", str(tmp_path / "no.txt"), "does not exist")
    refused(str(tmp_path / "*.txt"), "no file has such a name")
    refused(write(tmp_path / "a.md", "text"), "a.md", "no known kind")


@pytest.mark.parametrize(
    ("names", "held_out"),
    [
        ("train-00000-of-00002 train-00001-of-00002 validation-00000-of-00001 test-00000-of-00001", {2: "v", 3: "t"}),
        ("train/a train/b test/a valid/a", {2: "t", 3: "v"}),
        ("wiki.train wiki.test wiki.valid", {1: "t", 2: "v"}),
        ("c4-train.00000-of-00010 c4-validation.00000-of-00002", {1: "v"}),
        ("Training/a Testing/a", {1: "t"}),
        ("a b test dev2", {2: "t", 3: "v"}),
        ("trainSet evalSet", {1: "t"}),
        ("test-1 test-2", {}),
        ("how-to-test training-day testament valid-reasons devil", {}),
        ("en/train en/dev de/train de/dev", {1: "v", 3: "v"}),
    ],
)
@pytest.mark.parametrize("as_pattern", [False, True])
def test_parts_are_told_by_name_and_test_files_are_not_read(
    tmp_path: Path, names: str, held_out: dict[int, str], as_pattern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the folder above them is called."""
    corpus = tmp_path / "dev" / "corpus"
    for name in names.split():
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        write(corpus / f"{name}.txt.gz", f"{name} text")
    source = f"{corpus}/**/*.gz" if as_pattern else corpus
    texts = {number: f"{name} text" for number, name in enumerate(names.split())}
    assert sorted(read_documents(source)) == sorted(texts[n] for n in texts if n not in held_out)
    assert sorted(read_documents(source, split="all")) == sorted(texts.values())
    assert ("--split all" in caplog.text) == bool(held_out)
    for part in ("validation", "test"):
        expected = [texts[number] for number, letter in held_out.items() if letter == part[0]]
        if expected:
            assert sorted(read_documents(source, split=part)) == sorted(expected)
        else:
            with pytest.raises(UserError, match=f"no file is named after the part {part}"):
                list(read_documents(source, split=part))


def test_every_compression_is_read_and_other_files_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was left out of a folder without a line: .jsonl.zst, .json and .csv next to .jsonl."""
    names = ("a.jsonl.zst", "b.jsonl", "c.txt.bz2", "d.JSONL.LZ4", "e.TXT.gz")
    for name in names:
        text = json.dumps({"text": name}) if "jsonl" in name.lower() else name
        (tmp_path / name).write_bytes(PACK[Path(name).suffix.lower() if name != "b.jsonl" else ""](text.encode()))
    for name in ("f.json", "g.csv", "h.csv", "README", "i.parquet.gz", ".hidden", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    assert list(read_documents(tmp_path)) == list(names)
    assert "files that are not read as text: 2 .csv, 1 without an ending, 1 .json, 1 .gz" in caplog.text


@pytest.mark.parametrize("packed", [packed for packed in PACK if packed])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_compressed_file_without_its_end_is_refused(tmp_path: Path, packed: str, name: str) -> None:
    rows = "\n".join(json.dumps({"text": f"{number}"}) for number in range(20_000))
    path = write(tmp_path / f"{name}{packed}", rows)
    path.write_bytes(path.read_bytes()[:-9])
    refused(path, f"{name}{packed} cannot be read (", "fetch or write it again")


def test_parquet_with_a_flipped_bit(tmp_path: Path) -> None:
    """Whatever a damaged file makes of pyarrow is one line."""
    whole = parquet(tmp_path / "whole.parquet", text=[*DOCUMENTS] * 50).read_bytes()
    for place in range(4, len(whole), 23):
        path = tmp_path / "flipped.parquet"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            list(read_documents(path))
        except UserError as error:
            assert "\n" not in str(error)
