"""Reading the files of a tokenizer: bounded, and with errors of one line."""

import gzip
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from r2mae.errors import UserError

EXPECTED = "a tokenizer.json, a folder with a tokenizer's files, or a Hugging Face name"
_LARGEST = 1 << 28  # bytes of a tokenizer's file; those in use have up to 40 MB
# And what configurations call these roles; BERT's [CLS] and [SEP] open and close a sequence.
ROLES = {
    "bos": ("cls_token", "bos_token"),
    "eos": ("sep_token", "eos_token"),
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}


def read_roles(folder: Path) -> dict[str, str]:
    """Special tokens by role, as the configuration files beside a tokenizer.json name them."""
    values: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            found = read_object(folder / name)
            values |= {key: value for key, value in found.items() if value is not None}
    roles = {}
    for role, names in ROLES.items():
        token = next((values[name] for name in names if name in values), None)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            roles[role] = token
    return roles


def pair_of(folder: Path, encoder: str, merges: str) -> tuple[Path, Path] | None:
    """Find a byte-level BPE's two files in a folder, if both are there."""
    found = plain_or_packed(folder, encoder), plain_or_packed(folder, merges)
    return (found[0], found[1]) if found[0] and found[1] else None


def plain_or_packed(folder: Path, name: str) -> Path | None:
    """A file or its .gz."""
    return next((folder / entry for entry in (name, f"{name}.gz") if (folder / entry).is_file()), None)


def read_words(path: Path) -> str:
    """Read a file of text, plain or .gz, of bounded length."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"longer than {_LARGEST >> 20} MiB")
        return data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"tokenizer {path}: cannot be read ({reason_of(error)}): fetch it again") from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(read_words(path)), dict):
            return found
    raise UserError(f"tokenizer {path}: expected a JSON object: fetch it again")


def reason_of(error: BaseException) -> str:
    """Write a library's error in a line."""
    return " ".join(str(error).split(os.linesep)[0].split())[:160] or type(error).__name__
