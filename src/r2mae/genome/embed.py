"""Embeddings of windows: the mean of the last hidden states over the target's bases, without a mask."""

import logging
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from r2mae.genome.batches import WindowBatches
from r2mae.genome.config import GenomeConfig
from r2mae.genome.data import adjacent_windows, unweighted
from r2mae.genome.source import read_source
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import Intervals, read_regions
from r2mae.genome.task import AlignmentTask, WindowModel
from r2mae.training.validation import EVALUATION_KEY, evaluating, to_device

_ROWS = 64


def embed_windows(
    config: GenomeConfig,
    task: AlignmentTask,
    model: WindowModel,
    source: str,
    *,
    regions: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """Embed the adjacent windows of a store; the model's species are found by name.

    The number of positions that are in no window is logged on the logger ``r2mae``: those at the end of each region
    that do not fill a window, and those of windows with too many unknown bases.

    Parameters
    ----------
    config, task, model
        Those of the run.
    source : str
        A store.
    regions : sequence of str
        Contigs, intervals such as chr1:1,001-2,000, or BED files; by default the complete store. A window is within one
        region.

    Returns
    -------
    dict
        ``embedding``, shape (windows, width); ``contigs``; ``starts``, the first position of each, counted from 1;
        ``repeats``, the fraction that is soft-masked.

    Raises
    ------
    UserError
        If `source` is not a store, lacks species of the model, or has no window in the regions.
    """
    read_source(source)
    store = AlignmentStore(source)
    part = read_regions(regions, store.layout) if regions else Intervals.everywhere(store.layout)
    windows = adjacent_windows(store, unweighted(config), part, model.species)
    _log_windows(part, windows)
    device = next(model.parameters()).device
    parts, repeats = [], []
    with evaluating(model):
        for first in range(0, len(windows), _ROWS):
            rows = np.arange(first, min(first + _ROWS, len(windows)))
            batch = windows.batch(rows, EVALUATION_KEY.rows(first))
            parts.append(task.embed(model, to_device(batch, device)).float().cpu().numpy())
            repeats.append(batch["soft"].float().mean(1).numpy())
    contigs, starts = windows.starts.at(np.arange(len(windows)))
    embedding: Float32[np.ndarray, "windows width"] = np.concatenate(parts)
    return {
        "embedding": embedding,
        "contigs": np.array(store.contigs)[contigs],
        "starts": starts + 1,
        "repeats": np.concatenate(repeats),
    }


def _log_windows(part: Intervals, windows: WindowBatches) -> None:
    """Log how many positions have no embedding, if any."""
    starts = windows.starts
    left = part.positions - len(starts) * starts.length
    if not left:
        return
    unknown = starts.omitted * starts.length
    why = [
        f"{count:,} {where}"
        for count, where in (
            (left - unknown, f"at the ends of regions, which fill no window of {starts.length}"),
            (unknown, "in windows with too many unknown bases"),
        )
        if count
    ]
    logging.getLogger("r2mae").warning(
        "%s", f"{left:,} of {part.positions:,} positions are omitted: {' and '.join(why)}"
    )
