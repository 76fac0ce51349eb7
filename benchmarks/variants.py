"""Scoring variants: all alternatives of a site from one hidden base, against a variant a pass with logits everywhere.

The peer is what a plain script does: each variant has a window on each strand, and the network gives logits at all of
its positions. Network, windows and batches are the same, and so are the scores (1e-5), which is checked first.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64

from benchmarks.timing import alternate, ratio_of
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.score import scores_of, site_scorer
from r2mae.genome.store.tokens import MASK
from r2mae.genome.variants.files import Substitutions, substitutions

SPECIES, LENGTH, ROWS = 61, 128, 128
SIZES = {"mini": (256, 4, 8), "tiny": (128, 2, 4)}


def main(words: Sequence[str] | None = None) -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        store = _store(Path(name))
        for size in options.sizes:
            scoring(store, size, options.sites, options.rounds)


def scoring(store: AlignmentStore, size: str, sites: int, rounds: int) -> None:
    """All three alternatives of every site, on both strands."""
    width, layers, heads = SIZES[size]
    torch.manual_seed(0)
    model = AlignmentTransformer(
        others=SPECIES - 1, length=LENGTH, width=width, layers=layers, heads=heads, inner=4 * width
    ).eval()
    model.species = store.species[1:]
    with torch.no_grad():
        model.decoder.weight.mul_(20)  # scores of a trained network's size
    found = _every(store, sites)
    shared = site_scorer(store, model, LENGTH, rows=ROWS)
    plain = _Plain(store, model)
    difference = float(np.abs(scores_of(found, shared) - plain(found)).max())
    assert difference < 1e-5, difference
    deviation = float(np.std(plain(found)))
    timings = alternate(
        {"shared": lambda: _done(scores_of(found, shared)), "plain": lambda: _done(plain(found))}, rounds
    )
    count = len(found.reasons)
    for name, timing in timings.items():
        print(f"scoring, {size}, {name}: {count / timing.median:,.0f} variants a second on both strands")
    ratio, spread = ratio_of(timings["plain"], timings["shared"])
    print(
        f"scoring, {size}: {ratio:.1f} ± {spread:.1f} times as fast as a variant a pass with logits everywhere; "
        f"scores (standard deviation {deviation:.2f}) differ by {difference:.0e} at most"
    )


class _Everywhere(torch.nn.Module):
    """A model that computes logits at all positions."""

    def __init__(self, model: AlignmentTransformer) -> None:
        super().__init__()
        self.model, self.species = model, model.species

    def forward(
        self, target: torch.Tensor, aligned: torch.Tensor, places: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert (target == MASK).any(1).all()
        logits, states = self.model(target, aligned, torch.arange(LENGTH).expand(len(target), -1))
        return logits.gather(1, places[:, :, None].expand(-1, -1, 4)), states


class _Plain:
    """A variant a pass, with logits at all positions."""

    def __init__(self, store: AlignmentStore, model: AlignmentTransformer) -> None:
        self._scorer = site_scorer(store, _Everywhere(model), LENGTH, rows=ROWS)  # type: ignore[arg-type]

    def __call__(self, found: Substitutions) -> Float32[np.ndarray, " n"]:
        """Return the scores, one site after the other as often as it has variants."""
        table = self._scorer(found.contigs, found.positions)
        rows: Int64[np.ndarray, " n"] = np.arange(len(table))
        scores: Float32[np.ndarray, " n"] = table[rows, found.alts] - table[rows, found.refs]
        return scores


def _every(store: AlignmentStore, sites: int) -> Substitutions:
    alleles = []
    for position in np.linspace(0, store.layout.positions - 1, sites).astype(int).tolist():
        ref = "ACGT"[int(store.reference[position])]
        alleles += [("chr1", position + 1, ref, alt) for alt in "ACGT".replace(ref, "")]
    return substitutions(alleles, store)


def _store(folder: Path) -> AlignmentStore:
    rng = np.random.default_rng(0)
    rows = ["".join(rng.choice(list("ACGT" if number == 0 else "ACGT-"), 2000)) for number in range(SPECIES)]
    (folder / "a.fa").write_text("".join(f">s{number}\n{row}\n" for number, row in enumerate(rows)))
    return build_store(folder / "a.fa", folder / "store", contig="chr1")


def _done(values: object) -> None:
    """Discard values, so that the call is timed."""


if __name__ == "__main__":
    main()
