"""Opens zarr folders, in which metadata name the code that unpacks the data: only known codecs are run."""

import json
from pathlib import Path
from typing import Any

from zarr import Group, open_group
from zarr.storage import LocalStore

from r2mae.errors import UserError

# Of numcodecs and of zarr; none of them runs what it reads, as numcodecs' `pickle` does.
# fmt: off
CODECS = frozenset((
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset",
    "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits", "quantize", "sharding_indexed", "shuffle",
    "transpose", "vlen-array", "vlen-bytes", "vlen-utf8", "zlib", "zstd",
))
# fmt: on
_FIELDS = {"compressor": "id", "filters": "id", "codecs": "name", "index_codecs": "name"}  # of zarr 2, and of zarr 3
_PARSED = (".zarray", ".zgroup", "zarr.json")
_MAX_METADATA = 1 << 26  # largest size of metadata, in bytes


def open_zarr(path: Path) -> Group:
    """Open a group for reading. Consolidated metadata are left aside: each array's own say how it is unpacked.

    What is read of it later is checked, too: it raises a :class:`UserError` where metadata name another codec, or are
    too large. The library raises errors of many kinds for what is no group.
    """
    return open_group(_CheckedStore(path, read_only=True), mode="r", use_consolidated=False)


class _CheckedStore(LocalStore):
    """A folder whose metadata are checked as the library gets them, however they are written and wherever they lie."""

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        self._check_size(key)
        return self._check_metadata(key, await super().get(key, *args, **options))

    def get_sync(self, key: str, **options: Any) -> Any:
        self._check_size(key)
        return self._check_metadata(key, super().get_sync(key, **options))

    def _check_size(self, key: str) -> None:
        path = self.root / key
        if path.name in (*_PARSED, ".zattrs", ".zmetadata") and path.is_file() and path.stat().st_size > _MAX_METADATA:
            raise UserError(f"{path} is too large for a description of data: export or fetch it again")

    def _check_metadata(self, key: str, found: Any) -> Any:
        path = self.root / key
        if found is not None and path.name in _PARSED:
            _check_codecs(path, json.loads(found.to_bytes()))  # as the library does
        return found


def _check_codecs(path: Path, metadata: Any) -> None:
    """Look through metadata of an array or a group, and through those that a codec or a group holds in turn."""
    if not isinstance(metadata, dict):
        return
    for field, key in _FIELDS.items():
        value = metadata.get(field)
        for codec in value if isinstance(value, list) else [] if value is None else [value]:
            name = codec.get(key) if isinstance(codec, dict) else codec
            if not isinstance(name, str) or name.removeprefix("numcodecs.") not in CODECS:
                raise UserError(
                    f"{path} names the codec {str(name)[:40]!r}, which may run any code: write the data with another, "
                    "such as zarr's own"
                )
            if isinstance(codec, dict):
                _check_codecs(path, codec.get("configuration"))
    held = metadata.get("consolidated_metadata")
    held = held.get("metadata") if isinstance(held, dict) else None
    for one in held.values() if isinstance(held, dict) else ():
        _check_codecs(path, one)
