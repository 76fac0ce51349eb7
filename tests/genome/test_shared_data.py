"""The real alignments, from file to windows."""

import gzip
from pathlib import Path

import numpy as np

from r2mae.genome import GenomeConfig, build_store
from r2mae.genome.batches import divide
from r2mae.genome.store.intervals import POSITION, SHIFT, window_starts
from r2mae.genome.store.tokens import letters


def test_sarbecovirus(data_root: Path, tmp_path: Path) -> None:
    genome = data_root / "genome"
    source = genome / "sarbecovirus_61.aligned.fa.gz"
    store = build_store(source, tmp_path / "store", reference=genome / "MN908947.fa.gz")
    assert (store.contigs, store.layout.lengths, len(store.species)) == (("MN908947",), (29_903,), 61)
    rows = gzip.decompress(source.read_bytes()).decode().split(">")[1:]
    for place, row in enumerate(rows):
        name, *lines = row.split("\n")
        assert store.species[place] == name.split()[0]
        row_letters = "".join(lines).upper().translate(str.maketrans("RYSWKMBDHV", "N" * 10))
        assert letters(np.ascontiguousarray(store.tokens(0)[:, place] & 0x7F)).tobytes().decode() == row_letters
    regions = {"validation_regions": ("MN908947:1-3,000",), "test_regions": ("MN908947:20,001-23,000",)}
    parts = divide(store, GenomeConfig.make(data="x", **regions))
    starts, _ = window_starts(store, parts.train, 128, 64)
    contigs, first = starts >> SHIFT, starts & POSITION
    assert store.windows(contigs, first, 128).shape == (len(starts), 128, 61)
    assert not ((first + 128 + 128 > 20_000) & (first < 23_000 + 128)).any()


def test_mtdna(data_root: Path, tmp_path: Path) -> None:
    genome = data_root / "genome"
    source, fasta = genome / "chrM_multiz30way.maf.gz", genome / "rCRS_NC_012920.1.fa.gz"
    store = build_store(source, tmp_path / "store", reference=fasta)
    alone = build_store(source, tmp_path / "alone")
    assert (store.contigs, store.layout.lengths, store.species[0]) == (("chrM",), (16_569,), "hg38")
    assert len(store.species) == 26
    assert store.layout.counts["unknown_reference_positions"] == 1  # rCRS has an N at 3,107
    # The reference's FASTA says nothing that the MAF does not say.
    assert (store.tokens(0) == alone.tokens(0)).all()
    own = "".join(gzip.decompress(fasta.read_bytes()).decode().split("\n")[1:])
    assert letters(store.reference & 0x7F).tobytes().decode() == own.upper()
    # A row of the first block, letter by letter.
    human, monkey = "hg38", "chlSab2"
    shown = "GATCACGGGTCTGTCACCCTATTAACCAGTCACTGGAGCT-TCCATGCATTTGGTA"
    window = store.windows(np.array([0]), np.array([0]), len(shown))[0]
    assert letters(np.ascontiguousarray(window[:, store.species.index(monkey)])).tobytes().decode() == shown
    assert letters(np.ascontiguousarray(window[:, store.species.index(human)])).tobytes().decode() == own[:56]
