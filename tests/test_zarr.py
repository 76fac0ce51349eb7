"""A stranger's zarr folder runs no code, however its metadata name the codec that would."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae.genome import build_store

pytest.importorskip("zarr")
pickles = pytest.importorskip("numcodecs.pickles")

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


def zarr_3(folder: Path) -> None:
    (folder.parent / ".zgroup").unlink()
    (folder.parent / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    array = {
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "string", "fill_value": "",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "v2"}, "codecs": [{"name": "vlen-utf8"}, {"name": "numcodecs.pickle"}],
    }  # fmt: skip
    (folder / "zarr.json").write_text(json.dumps(array))


@pytest.fixture(params=[plain, escaped, utf16, linked, consolidated, zarr_3])
def evil(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Such a folder: numcodecs unpickles only if its user asks for it, from version 0.16.6 on."""
    path = tmp_path / "evil.zarr"
    (path / "obs").mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    (path / "obs" / "0").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    request.param(path / "obs")
    return path


def test_it_is_refused_in_one_line(evil: Path) -> None:
    with pytest.raises(UserError) as caught:
        build_store(evil, evil.with_name("store"))
    assert "\n" not in str(caught.value)
    assert not (evil.parent / "ran").exists()


def test_the_library_refuses_to_unpickle(tmp_path: Path) -> None:
    with pytest.raises(pickles.UnsafeDecodeError):
        pickles.Pickle().decode(pickle.dumps(Evil(tmp_path / "ran")))
    assert not (tmp_path / "ran").exists()
