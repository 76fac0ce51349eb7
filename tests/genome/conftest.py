"""A small store, and small chunks."""

from pathlib import Path

import pytest

from genome.alignments import random_alignment, shrink
from r2mae.genome import AlignmentStore, build_store


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16 positions, so that small alignments have many."""
    shrink(monkeypatch.setattr)


@pytest.fixture
def store(tmp_path: Path) -> AlignmentStore:
    """A store of random blocks on two contigs."""
    path = tmp_path / "random.maf"
    path.write_text(random_alignment(3, blocks=30).maf())
    return build_store(path, tmp_path / "store")
