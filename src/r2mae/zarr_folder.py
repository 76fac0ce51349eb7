"""Opens zarr folders. Their metadata name the codecs that decode the data: only known codecs are run."""

import json
from pathlib import Path
from typing import Any

from zarr import Group, open_group
from zarr.storage import LocalStore

from r2mae.errors import UserError

# Codecs of numcodecs and zarr that do not execute data, unlike numcodecs' `pickle`.
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
    """Open a group for reading. Consolidated metadata are ignored, and each array's own metadata are used.

    Later reads are checked too: metadata that name another codec, or are too large, raise a :class:`UserError`. The
    library raises errors of many types if the path is no group.
    """
    return open_group(_CheckedStore(path, read_only=True), mode="r", use_consolidated=False)


class _CheckedStore(LocalStore):
    """A folder whose metadata are checked when the library reads them, in every format and at every level."""

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
    """Check the codecs in metadata of an array or a group, including nested metadata of codecs and groups."""
    if not isinstance(metadata, dict):
        return
    for field, key in _FIELDS.items():
        value = metadata.get(field)
        for codec in value if isinstance(value, list) else [] if value is None else [value]:
            name = codec.get(key) if isinstance(codec, dict) else codec
            if not isinstance(name, str) or name.removeprefix("numcodecs.") not in CODECS:
                raise UserError(
                    f"{path} names the codec {str(name)[:40]!r}, which is not on the list of codecs that are read: "
                    "write the data with another, such as zarr's own"
                )
            if isinstance(codec, dict):
                _check_codecs(path, codec.get("configuration"))
    nested = metadata.get("consolidated_metadata")
    nested = nested.get("metadata") if isinstance(nested, dict) else None
    for entry in nested.values() if isinstance(nested, dict) else ():
        _check_codecs(path, entry)
