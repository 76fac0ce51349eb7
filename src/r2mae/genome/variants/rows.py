"""What all readers of variants offer, and writing text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError
from r2mae.files import atomic_path
from r2mae.genome.variants.alleles import Block

Kind = Literal["vcf", "tsv", "csv", "parquet"]
Scored = tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]
"""A block with scores and reasons."""


class Variants(ABC):
    """Rows of variants that can be scored."""

    kind: Kind
    """The format of the output."""
    names: tuple[str, ...]
    """Columns, and for a VCF also keys of INFO."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of about so many rows, always the same ones."""

    @abstractmethod
    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column as text, one for each alternative, empty where there is none."""

    @abstractmethod
    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with their scores and reasons, atomically."""


@contextmanager
def text_file(path: Path) -> Iterator[Callable[[bytes], Any]]:
    """Yield a function that writes text to a file, as bgzip if its name ends in .gz; it appears when all is written."""
    with atomic_path(path) as place:
        if path.suffix.lower() not in (".gz", ".bgz"):
            with place.open("wb") as file:
                yield file.write
            return
        try:
            from pysam import BGZFile
        except ImportError:
            raise UserError(f"{path}: bgzip needs pysam: pip install 'r2mae[genome]', or omit .gz") from None
        place.touch()  # the library crashes if it cannot make the file
        with BGZFile(str(place), "wb", index=None) as packed:
            yield packed.write
