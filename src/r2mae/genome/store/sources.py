"""Reads lines of the user's files, plain or gzip, with their numbers for errors; and what an alignment is read by."""

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError, unknown

Kind = Literal["maf", "fasta", "zarr"]
Progress = Callable[[str, float], None]
"""Called with a stage ("reading", "checking") and the fraction of it that is done."""

PIECE = 1 << 20
LONGEST_LINE = 1 << 30
"""Bytes of a line, such as a chromosome in a FASTA."""

DIGITS = 15
"""Most digits of a position or length; no genome has more."""

_SPREAD = 1_000  # most positions of all contigs for each byte that the files hold
_LAST = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")  # the end of a file of bgzip
_BLOCK = re.compile(rb"(?:^|\n)a(?=[ \t\r\n])")


@dataclass(frozen=True)
class Build:
    """What a store is built of; see :func:`r2mae.genome.store.build.build_store`.

    Parameters
    ----------
    files : sequence of Path
    species : sequence of str, optional
        Species to keep; by default all, in order of appearance.
    contig : str, optional
        Name of the contig of a FASTA alignment.
    reference : Path, optional
        The reference's own FASTA.
    folder : Path
        The folder of the unfinished store, also for temporary files.
    progress : callable
    """

    files: Sequence[Path]
    species: Sequence[str] | None
    contig: str | None
    reference: Path | None
    folder: Path
    progress: Progress


class Placed(NamedTuple):
    """A part of an alignment: positions of the reference × species. Of several at a position, the first counts.

    Parameters
    ----------
    contig, start : int
        Number of the contig, and first position.
    tokens : uint8 ndarray, shape (positions, species)
    where : str
        The file, and the line of the reference's row if there is one, for errors.
    """

    contig: int
    start: int
    tokens: UInt8[np.ndarray, "positions species"]
    where: str


def choose_species(names: Sequence[str], listed: Sequence[str] | None) -> tuple[str, ...]:
    """Return the species to keep: the reference, and those listed (or raise a UserError if one is unknown) or all."""
    for name in listed or ():
        if name not in names:
            raise unknown("species", name, names)
    return tuple(dict.fromkeys([names[0], *(names if listed is None else listed)]))


def read_pieces(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of about 1 MiB of complete lines, each with the number of its first line; gzip is recognised.

    `progress` is called with the fraction of the file that has been read.

    Raises
    ------
    UserError
        A file that cannot be read, is truncated or damaged, or has a line without end.
    """
    line = 1
    try:
        with path.open("rb") as raw:
            magic, size = raw.peek(18), max(path.stat().st_size, 1)
            is_packed = magic.startswith(b"\x1f\x8b")
            if is_packed and magic[12:14] == b"BC":
                raw.seek(-min(len(_LAST), size), 2)
                if raw.read() != _LAST:
                    raise UserError(
                        f"{path}: the file is truncated (the last block of bgzip is missing): fetch it again"
                    )
                raw.seek(0)
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_packed else raw
            while piece := file.read(PIECE):
                rest = file.readline(LONGEST_LINE)
                if len(rest) == LONGEST_LINE:
                    number = line + piece.count(b"\n")
                    raise UserError(f"{path}, line {number:,}: is longer than {LONGEST_LINE:,} bytes")
                yield line, piece + rest
                line += piece.count(b"\n") + rest.count(b"\n")
                if progress is not None:
                    progress(min(raw.tell() / size, 1.0))
    except EOFError:
        raise UserError(f"{path}: after line {line - 1:,}, the file is truncated: fetch it again") from None
    except (OSError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: after line {line - 1:,}, cannot be read ({reason}): fetch it again") from None


def read_lines(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line, with its end; see :func:`read_pieces`."""
    for first, piece in read_pieces(path, progress):
        yield from enumerate(BytesIO(piece), first)


def table_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line that is not blank, a comment or about a browser's tracks.

    Raises
    ------
    UserError
        As :func:`read_lines`; or for a binary file.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    for number, line in read_lines(path):
        if b"\0" in line:
            raise UserError(f"{path}, line {number:,}: holds a NUL byte: a binary file is no table")
        bare = line.strip()
        if bare and not bare.startswith(b"#") and bare.split(None, 1)[0] not in (b"track", b"browser"):
            yield number, bare


def name_of(raw: bytes) -> str:
    """Return a name of a file as text, UTF-8 or not, without loss."""
    return raw.decode("utf-8", "surrogateescape")


def shown(text: bytes) -> str:
    """Return the beginning of some bytes, as an error repeats it."""
    return repr(text[:20].decode("ascii", "backslashreplace"))


def integer(field: bytes) -> int | None:
    """Return a whole number of a file, or None if it is none or has more than :data:`DIGITS` digits."""
    return int(field) if field.isdigit() and len(field) <= DIGITS else None


def check_lengths(lengths: Mapping[str, int], held: int, where: Callable[[str], str]) -> None:
    """Refuse contigs whose declared lengths are far more than the contents of the files could fill.

    The files (unpacked, and the reference's own FASTA) hold so many bytes. `where` returns the file, and the line if
    there is one, that declares the length of a contig.
    """
    if sum(lengths.values()) > _SPREAD * held:
        name = max(lengths, key=lengths.__getitem__)
        raise UserError(
            f"{where(name)}: says that {name} has {lengths[name]:,} positions, and almost none of them is here: mend "
            "the length, or give the reference's own FASTA (--reference)"
        )


def kind_of(path: Path) -> Kind:
    """Tell MAF, FASTA and zarr apart, by content; raise a UserError for other and empty files."""
    if path.is_dir():
        if any((path / name).is_file() for name in (".zgroup", "zarr.json")):
            return "zarr"
        raise UserError(f"{path}: is a folder: name the MAF or FASTA files in it, or a zarr group")
    _, beginning = next(read_pieces(path), (1, b""))
    text = beginning.lstrip()
    if not text:
        raise UserError(f"{path}: is empty")
    if text.startswith(b">"):
        return "fasta"
    if b"\0" not in beginning and (text.startswith((b"##maf", b"track ")) or _BLOCK.search(beginning)):
        return "maf"
    raise UserError(
        f"{path}, line 1: is neither MAF (beginning with ##maf) nor FASTA (beginning with >), plain, gzip or bgzip: "
        "give one of them"
    )


def allocate(path: Path, dtype: Any, *shape: int) -> np.ndarray:
    """Make a .npy file with room on the disk, so that a full disk is an error and no crash."""
    found = np.asarray(np.lib.format.open_memmap(path, "w+", dtype, shape))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return found
