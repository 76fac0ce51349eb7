"""Documents come back from every format as they were written, and bad files are named with the line."""

import gzip
import json
import lzma
import string
import tracemalloc
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
def test_lines_of_old_macs(tmp_path: Path, packed: str) -> None:
    """Line ends of carriage returns alone, also beyond what one read of a stream gives, and mixed with others."""
    texts = DOCUMENTS * 2000
    path = write(tmp_path / f"a.txt{packed}", "\r\r".join(text.replace("\n", "\r") for text in texts) + "\r")
    assert list(read_documents(path)) == texts
    rows = "\r".join(json.dumps({"text": text}) for text in texts)
    assert list(read_documents(write(tmp_path / f"a.jsonl{packed}", rows))) == texts
    for shift in range(3):
        mixed = "a\rb\r\r" + "-" * 20_000 + "\r\r" + "." * shift + "c\r\nd\r\n" * 20_000
        read = list(read_documents(write(tmp_path / f"b.txt{packed}", mixed)))
        assert read == ["a\nb", "-" * 20_000, "." * shift + ("c\nd\n" * 20_000).strip()]


def test_carriage_returns_inside_lines_are_kept(tmp_path: Path) -> None:
    text = "one\rtwo\n" + "x\r" * 10_000
    assert list(read_documents(write(tmp_path / "a.txt", text))) == [text.rstrip("\r")]
    windows = ["x" * size for size in range(8180, 8200)] + ["x" * 4095, "x" * 65_535]
    for line in windows:
        assert list(read_documents(write(tmp_path / "b.txt", f"{line}\r\n.\r\n\r\nend"))) == [f"{line}\n.", "end"]


@pytest.mark.parametrize("packed", PACK)
def test_a_line_of_json_without_end_is_refused(tmp_path: Path, packed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind the bound is never unpacked."""
    monkeypatch.setattr(formats, "LONGEST_LINE", 1 << 20)
    row = json.dumps({"text": "x" * ((1 << 20) - 20)})
    assert [len(text) for text in read_documents(write(tmp_path / f"a.jsonl{packed}", row + "\n" + row))] == [
        (1 << 20) - 20
    ] * 2
    refused(
        write(tmp_path / f"b.jsonl{packed}", '{"text": "ok"}\n{"text": "' + "x" * (1 << 22)),
        f"b.jsonl{packed}, line 2: is longer than 1 MiB: cut the document up, or fetch the file again",
    )
    refused(write(tmp_path / f"c.jsonl{packed}", " " * (1 << 22)), "line 1: is longer than 1 MiB")


@pytest.mark.slow
def test_only_the_bound_of_a_line_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few kilobytes that unpacks to 200 MB: the line is refused within memory for its bound."""
    monkeypatch.setattr(formats, "LONGEST_LINE", 1 << 20)
    block, packer = b"x" * (1 << 20), lzma.LZMACompressor()
    packed = packer.compress(b'{"text": "') + b"".join(packer.compress(block) for _ in range(200)) + packer.flush()
    path = tmp_path / "a.jsonl.xz"
    path.write_bytes(packed)
    tracemalloc.start()
    try:
        refused(path, "line 1: is longer than 1 MiB")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_memory_that_runs_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Greedy(lzma.LZMAFile):
        def peek(self, size: int = -1) -> bytes:
            raise MemoryError

    monkeypatch.setattr(formats.lzma, "LZMAFile", Greedy)
    refused(write(tmp_path / "a.txt.xz", "text"), "a.txt.xz, line 1: needs more memory than there is")


def test_long_texts_of_parquet_are_refused_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LONGEST_LINE", 1000)
    path = parquet(tmp_path / "a.parquet", text=["ok", None, "x" * 1000])
    assert [len(text) for text in read_documents(path)] == [2, 1000]
    refused(parquet(tmp_path / "b.parquet", text=["ok", None, "\u00fc" * 501]), "b.parquet, row 3: is longer than")


@pytest.mark.slow
def test_a_text_that_many_rows_share_is_in_memory_once(tmp_path: Path) -> None:
    """Two thousand rows of one text of a megabyte are 2 GB, if each is unpacked by itself."""
    rows = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2000, pyarrow.int32()), ["x" * (1 << 20)])
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), tmp_path / "a.parquet", store_schema=False)
    before, highest = pyarrow.total_allocated_bytes(), 0
    for number, text in enumerate(read_documents(tmp_path / "a.parquet")):
        assert len(text) == 1 << 20
        highest = max(highest, pyarrow.total_allocated_bytes() - before)
        if number == 300:
            break
    assert 0 < highest < 100 << 20


def test_groups_of_rows_that_do_not_fit_into_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path / "a.parquet", text=[f"{n} {'x' * 100}" for n in range(100)], other=["y" * 9000] * 100)
    monkeypatch.setattr(formats, "available_memory", lambda: 100_000)
    assert len(list(read_documents(path))) == 100
    monkeypatch.setattr(formats, "available_memory", lambda: 10_000)
    refused(path, "row group 1", "write it with smaller row groups")
    monkeypatch.setattr(formats, "available_memory", lambda: None)
    assert len(list(read_documents(path))) == 100


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
    refused(path, "a.parquet: is damaged after row 2 (", "can't decode byte 0xff", "write it again")


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
    refused(rows, "row 1", "unknown column 'text'", "--text-column body")
    refused(f"hf:{tmp_path / 'saved'}", f"give {tmp_path / 'saved'}")


def test_the_splits_of_a_saved_folder_are_listed(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS})
    both, one = tmp_path / "both", tmp_path / "one"
    datasets.DatasetDict(train=rows, test=rows).save_to_disk(both)
    datasets.DatasetDict(train=rows).save_to_disk(one)
    refused(both, f"give one of them: {both / 'test'}, {both / 'train'}")
    refused(one, f"give one of them: {one / 'train'}")
    refused(f"hf:{both}", f"give {both}")
    assert list(read_documents(one / "train")) == DOCUMENTS
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "dataset_dict.json").write_text("{}")
    refused(tmp_path / "none", "without its splits")


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
    home = HubRows.of("hf:~/corpus", "text")
    assert home.path == str(Path.home() / "corpus")
    refused("hf:", "hf:NAME")
    refused("hf:a:b:c:d", "hf:NAME")


def test_paths_that_are_not_there_are_not_sought_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*args: object, **options: object) -> None:
        raise ConnectionError("the Hub was asked")

    monkeypatch.setattr(datasets, "load_dataset", ask)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "HuggingFaceFW").mkdir()
    write(tmp_path / "in" / "a.jsonl", '{"text": "a"}')
    for name in ("./set", "../set", "in/a/b", "~/no-such-set", "b.jsonl", "other/b.parquet", str(tmp_path / "set")):
        refused(f"hf:{name}", str(Path(name).expanduser()).removeprefix("./"), "on this machine", "check the path")
    refused("hf:in/set:default:train", "the folder in holds no set", "hf:in/set@main")
    refused("hf:in/a.jsonl", "give in/a.jsonl")
    for name in ("hf:in/set@main", "hf:owner/set", "hf:set", "fineweb", "hf:in"):
        refused(name, "the Hub was asked")


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
        refused(tmp_path / name, name, "is damaged at line 1", "fetch or write it again")
        (tmp_path / name).write_bytes(b"no archive")
        refused(tmp_path / name, name, "is damaged at line 1")
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    refused(tmp_path / "a.parquet", "a.parquet", "is damaged")


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_other_encodings_and_binary_files_are_recognised(tmp_path: Path, name: str, packed: str) -> None:
    path, text = tmp_path / f"{name}{packed}", "\ufeff" + "text " * 5000
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        known = encoding[:6].upper()
        refused(write(path, text.encode(encoding)), str(path), f"is {known}, not UTF-8", f"iconv -f {known} -t UTF-8")
    for data in (bytes(50_000), b"some text\0" + b"text" * 9000, bytes(range(256))):
        refused(write(path, data), str(path), "looks binary", ".txt", ".jsonl", ".parquet", "tr -d")
    without_nul = bytes(n % 255 + 1 for n in range(7, 7 * 300, 7))
    refused(write(path, without_nul), "looks binary")


def test_nul_bytes_further_on_are_text(tmp_path: Path) -> None:
    text = "text " * 50_000 + "\0"
    assert list(read_documents(write(tmp_path / "a.txt", text))) == [text]


def test_control_characters_are_no_sign_where_they_are_rare(tmp_path: Path) -> None:
    text = "\f" * 50 + "\x01" + "fa\u00e7ade " * 50
    refused(write(tmp_path / "a.txt", text.encode("latin-1")), "line 1", "not UTF-8", "iconv -f LATIN1")


def test_empty_corpora(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.txt", "")
    refused(empty, str(empty), "holds no text", "is empty: write or fetch it again")
    refused(write(tmp_path / "blank.txt", "\n \n\t\n"), "holds no text", "blank lines: give files with text")
    column = ("holds no text", "the column 'text' is empty in every row", "--text-column")
    refused(write(tmp_path / "nulls.jsonl", '{"text": null}\n{"text": " "}\n'), *column)
    refused(parquet(tmp_path / "nulls.parquet", text=["", None]), *column)
    refused(datasets.Dataset.from_dict({"text": ["", None]}), *column, "another split")
    folder = tmp_path / "folder"
    folder.mkdir()
    refused(folder, str(folder), "expected files named")


def test_bad_rows_are_named(tmp_path: Path) -> None:
    good = '{"text": "a"}\n\n'
    refused(write(tmp_path / "a.jsonl", good + '{"text": '), "a.jsonl, line 3", "is not JSON")
    refused(write(tmp_path / "b.jsonl", good + "[1, 2]"), "b.jsonl, line 3", "expected an object", "list")
    refused(
        write(tmp_path / "c.jsonl", good + '{"txt": "a"}'), "c.jsonl, line 3", "did you mean 'txt'? (--text-column txt)"
    )
    refused(write(tmp_path / "d.jsonl", good + '{"text": 3}'), "d.jsonl, line 3", "'text' holds int, expected text")
    refused(write(tmp_path / "e.jsonl", good + "[" * 100_000), "e.jsonl, line 3", "is not JSON")
    refused(parquet(tmp_path / "b.parquet", text=[1, 2]), "b.parquet, row 1", "holds int", "--text-column")
    refused(write(tmp_path / "f.jsonl", '{\n  "text": "a"\n}'), "f.jsonl, line 1", "is not JSON", "jq -c .")


@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_arrays_are_told_from_json_lines(tmp_path: Path, indent: int | None, start: str) -> None:
    array = json.dumps([{"text": text} for text in DOCUMENTS], indent=indent)
    refused(write(tmp_path / "a.jsonl.gz", start + array), "a.jsonl.gz: begins with a JSON array", "jq -c '.[]'")
    path = write(tmp_path / "a.txt", array)
    assert list(read_documents(path)) == [array]


def test_the_column_with_the_text_is_named(tmp_path: Path) -> None:
    said = "unknown column 'text': choose from: "
    refused(parquet(tmp_path / "a.parquet", content=["a"]), "a.parquet", f"{said}content (--text-column content)")
    mixed: dict[str, list[object]] = {"n": [1], "my words": ["a"], "words": [["a"]]}
    refused(parquet(tmp_path / "b.parquet", **mixed), f"{said}my words (--text-column 'my words')")
    refused(parquet(tmp_path / "c.parquet", title=["a"], body=["b"]), f"{said}title, body (--text-column NAME)")
    refused(parquet(tmp_path / "d.parquet", ids=[[1]]), f"{said}ids")
    refused(write(tmp_path / "a.jsonl", '{"n": 1, "content": null}'), f"{said}content (--text-column content)")
    refused(write(tmp_path / "b.jsonl", "{}"), "b.jsonl, line 1", "unknown column 'text': there is none")


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    refused("wikki", "unknown corpus 'wikki'", "did you mean 'wiki'")
    refused(tmp_path / "no.txt", str(tmp_path / "no.txt"), "does not exist")
    refused(str(tmp_path / "*.txt"), "no file is named so")
    refused([], "a list of 0 files")
    refused(write(tmp_path / "a.md", "text"), "a.md", "no known kind")
    refused(iter([{"text": "a"}]), "only once")
