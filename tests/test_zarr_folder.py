"""A stranger's zarr folder runs no code, however its metadata name the codec that would."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2mae.cells.table import read_adata, read_obs
from r2mae.errors import UserError
from r2mae.genome import build_store

zarr = pytest.importorskip("zarr")
pickles = pytest.importorskip("numcodecs.pickles")

from r2mae.zarr_folder import open_zarr  # noqa: E402

V2 = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|O", "compressor": None, "fill_value": "", "order": "C"}
PICKLE = {**V2, "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]}


class Evil:
    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.ran),)


def plain(folder: Path) -> None:
    (folder / ".zarray").write_text(json.dumps(PICKLE))


def escaped(folder: Path) -> None:
    (folder / ".zarray").write_text(json.dumps(PICKLE).replace('"pickle"', '"\\u0070ickle"'))


def utf16(folder: Path) -> None:
    (folder / ".zarray").write_bytes(json.dumps(PICKLE).encode("utf-16"))


def linked(folder: Path) -> None:
    plain(folder)
    elsewhere = folder.parent.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


def consolidated(folder: Path) -> None:
    """Where the array's own metadata are harmless."""
    (folder / ".zarray").write_text(json.dumps({**V2, "filters": [{"id": "vlen-utf8"}]}))
    held = {"kind": "inline", "must_understand": False, "metadata": {"obs": {**PICKLE, "attributes": {}}}}
    (folder.parent / ".zgroup").write_text(json.dumps({"zarr_format": 2, "consolidated_metadata": held}))


@pytest.fixture(params=[plain, escaped, utf16, linked, consolidated])
def evil(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Such a folder, with a numcodecs that unpickles, as versions before 0.16.6 do."""
    monkeypatch.setattr(pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)
    path = tmp_path / "evil.zarr"
    (path / "obs").mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    (path / "obs" / "0").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    request.param(path / "obs")
    return path


def test_the_library_alone_would_run_it(evil: Path) -> None:
    with pytest.raises(TypeError):
        zarr.open_group(evil, mode="r")["obs"][:]
    assert (evil.parent / "ran").is_dir()


@pytest.mark.parametrize("read", [read_obs, read_adata, lambda path: build_store(path, path.with_name("store"))])
def test_it_is_refused_in_one_line(evil: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(UserError, match=r"\.z(array|group) names the codec 'pickle', which is not on the list"):
        read(evil)
    assert not (evil.parent / "ran").exists()


def v3(codecs: object) -> dict[str, Any]:
    return {
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs,
    }  # fmt: skip


def shards(inner: object, index: object) -> list[object]:
    sides = {"chunk_shape": [2], "codecs": inner, "index_codecs": index, "index_location": "end"}
    return [{"name": "sharding_indexed", "configuration": sides}]


@pytest.mark.parametrize(
    "codecs",
    [
        ["bytes", "mine"], ["bytes", {"name": "numcodecs.pickle"}], ["bytes", {"name": ["bytes"]}], ["bytes", 5],
        {"mine": 1}, "mine", [{"id": "bytes"}], shards(["mine"], ["bytes"]), shards(["bytes"], ["bytes", "mine"]),
        shards(shards(["mine"], ["bytes"]), ["bytes"]),
    ],
)  # fmt: skip
def test_other_codecs_of_zarr_3(tmp_path: Path, codecs: object) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    (tmp_path / "x" / "zarr.json").write_text(json.dumps(v3(codecs)))
    with pytest.raises(UserError, match="names the codec"):
        open_zarr(tmp_path)["x"]


@pytest.mark.parametrize("version", [2, 3])
def test_what_libraries_write_is_read(tmp_path: Path, version: Any) -> None:
    from numcodecs import BZ2, LZ4, Blosc, Delta, GZip, Shuffle, Zlib, Zstd
    from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

    group, values = zarr.open_group(tmp_path, mode="w", zarr_format=version), np.arange(12, dtype="int32").reshape(3, 4)
    twos = [{"compressors": one} for one in (None, Blosc(), Zlib(), GZip(), BZ2(), LZ4(), Zstd())]
    twos += [{"filters": [Delta("int32"), Shuffle(4)]}]
    threes: list[dict[str, Any]] = [{"compressors": one} for one in (BloscCodec(), GzipCodec(), ZstdCodec())]
    threes += [{"compressors": [ZstdCodec(), Crc32cCodec()], "filters": [TransposeCodec(order=(1, 0))]}]
    threes += [{"shards": (4, 4), "chunks": (2, 4)}]
    for number, options in enumerate(twos if version == 2 else threes):
        group.create_array(str(number), data=values, **options)
    group.create_array("words", data=np.array(["a", "bc"], dtype=np.dtypes.StringDType()))
    group.attrs["filters"] = ["mine"]  # no codec
    found = open_zarr(tmp_path)
    assert found["words"][:].tolist() == ["a", "bc"]
    for number in range(len(twos if version == 2 else threes)):
        np.testing.assert_array_equal(found[str(number)][:], values)


@pytest.mark.parametrize("name", [".zattrs", ".zgroup", ".zmetadata"])
def test_metadata_without_end(tmp_path: Path, name: str) -> None:
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 27)
    with pytest.raises(UserError, match="is too large for a description of data"):
        open_zarr(tmp_path)
