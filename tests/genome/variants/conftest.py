"""Stores without gaps or unknown bases, and a predictor that is fast and looks at the whole window."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from genome.alignments import maf_of
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.store.tokens import MASK

WINDOW = 12
SIZES = {"chr1": 90, "chr2": 40, "tiny": 7}
_generator = torch.Generator().manual_seed(0)
_FIRST = torch.randn(WINDOW, 8, 3, 4, generator=_generator)


def letters(contig: str) -> str:
    """The reference of the store; the first ten positions of chr1 are soft-masked."""
    rng = np.random.default_rng(sorted(SIZES).index(contig))
    text = "".join(rng.choice(list("ACGT"), SIZES[contig]))
    return text[:10].lower() + text[10:] if contig == "chr1" else text


def build(folder: Path, rows: dict[str, list[str]], name: str = "store") -> AlignmentStore:
    """Build a store of aligned rows of each contig."""
    named = {contig: {f"s{number}": text for number, text in enumerate(texts)} for contig, texts in rows.items()}
    (folder / "a.maf").write_text(maf_of(named))
    return build_store(folder / "a.maf", folder / name)


def alignment(contig: str) -> list[str]:
    """The rows of a contig: the reference, and two others with gaps."""
    rng = np.random.default_rng(7 + sorted(SIZES).index(contig))
    return [letters(contig), *("".join(rng.choice(list("ACGT-"), SIZES[contig])) for _ in range(2))]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> AlignmentStore:
    """Three contigs, of which one is shorter than a window; no test writes into it."""
    return build(tmp_path_factory.mktemp("small"), {contig: alignment(contig) for contig in SIZES})


class Sum(AlignmentTransformer):
    """A sum over all columns of the window, of numbers that column, species and token choose."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.species, self.scale = ("s1", "s2"), nn.Parameter(torch.tensor(0.2))

    def forward(self, target: Tensor, aligned: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        assert (target.gather(1, columns) == MASK).all()
        states = self.encode(target, aligned)
        return self.head(states), states

    def encode(self, target: Tensor, aligned: Tensor, *, columns: Tensor | None = None) -> Tensor:
        assert target.shape[1] == WINDOW
        tokens = torch.cat([target[:, :, None], aligned.long()], 2)
        assert tokens.shape[2] == 3
        column, row = torch.arange(WINDOW)[:, None], torch.arange(3)
        return _FIRST[column, tokens, row].sum((1, 2))[:, None]

    def head(self, states: Tensor) -> Tensor:
        return states * self.scale


PREDICT = Sum()
