"""Log probabilities of the bases at a site, with the site hidden, on both strands; every alternative shares them."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float32, Int64

from r2mae.genome.data import species_columns
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import POSITION, SHIFT
from r2mae.genome.store.tokens import MASK, reverse_complement
from r2mae.genome.variants.alleles import Substitutions

ROWS = 128
"""Windows of a forward pass."""

SiteLogs = Callable[[Int64[np.ndarray, " sites"], Int64[np.ndarray, " sites"]], Float32[np.ndarray, "sites 4"]]
"""From contigs and positions (counted from 0) to log probabilities, or numbers whose differences are scores."""


def site_scorer(
    store: AlignmentStore,
    model: AlignmentTransformer,
    window: int,
    *,
    rows: int = ROWS,
    progress: Callable[[int, int], None] | None = None,
) -> SiteLogs:
    """Return what predicts the hidden base of sites, as a mean of both strands.

    On each strand the window has the site at column ``window // 2``. At an end of the contig it is moved inwards, and
    the site has another column. Of a contig that is shorter than the window it holds all, and is unknown behind it. The
    strands' windows mirror each other: a genome and its reverse complement have the same scores.

    `rows` windows are predicted in a forward pass; `progress` is called with the number of sites done and the total.
    Species of the model that the store lacks raise a UserError.
    """
    step, device = max(rows // 2, 1), next(model.parameters()).device
    columns = species_columns(store, model.species)

    def score(
        contigs: Int64[np.ndarray, " sites"], positions: Int64[np.ndarray, " sites"]
    ) -> Float32[np.ndarray, "sites 4"]:
        found = np.empty((len(contigs), 4), np.float32)
        for first in range(0, len(contigs), step):
            part = slice(first, first + step)
            found[part] = score_some(contigs[part], positions[part])
            if progress is not None:
                progress(min(part.stop, len(contigs)), len(contigs))
        return found

    @torch.no_grad()
    def score_some(
        contigs: Int64[np.ndarray, " sites"], positions: Int64[np.ndarray, " sites"]
    ) -> Float32[np.ndarray, "sites 4"]:
        sizes = store.lengths[contigs]
        mirrored = sizes - 1 - positions
        starts, others = window_start(positions, sizes, window), window_start(mirrored, sizes, window)
        forward = store.windows(contigs, starts, window)
        backward = reverse_complement(store.windows(contigs, sizes - others - window, window))
        tokens = torch.from_numpy(np.concatenate([forward, backward]))
        places = torch.from_numpy(np.concatenate([positions - starts, mirrored - others]))[:, None]
        target, aligned = tokens[:, :, 0].long().scatter(1, places, MASK), tokens[:, :, 1:]
        if columns is not None:
            aligned = aligned[:, :, columns]
        logits, _ = model(target.to(device), aligned.contiguous().to(device), places.to(device))
        plus, minus = logits[:, 0].float().log_softmax(-1).cpu().chunk(2)
        mean: Float32[np.ndarray, "sites 4"] = ((plus + minus.flip(1)) / 2).numpy()
        return mean

    return score


def window_start(
    positions: Int64[np.ndarray, " sites"], sizes: Int64[np.ndarray, " sites"], length: int
) -> Int64[np.ndarray, " sites"]:
    """Return where windows begin: half a window before the position, moved into the contig if it can."""
    found: Int64[np.ndarray, " sites"] = np.clip(positions - length // 2, 0, np.maximum(sizes - length, 0))
    return found


def scores_of(found: Substitutions, logs: SiteLogs) -> Float32[np.ndarray, " n"]:
    """Return log p(alt) − log p(ref) of substitutions, NaN where there is a reason; a site is predicted once."""
    scores = np.full(len(found.reasons), np.nan, np.float32)
    left = np.flatnonzero(found.reasons == 0)
    if len(left):
        sites, whose = np.unique(found.places[left], return_inverse=True)
        table = logs(sites >> SHIFT, sites & POSITION)
        scores[left] = table[whose, found.alts[left]] - table[whose, found.refs[left]]
    return scores
