"""The windows of a run: its parts, and batches with the target separate from the aligned species, on either strand."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from r2mae.errors import UserError
from r2mae.genome.config import GenomeConfig
from r2mae.genome.store.alignment import AlignmentStore, Numbers
from r2mae.genome.store.intervals import POSITION, SHIFT, Intervals, read_regions, window_starts
from r2mae.genome.store.tokens import reverse_complement
from r2mae.masking.keys import Key, permutation, uniforms
from r2mae.training.task import Batches, Data

VALIDATION_WINDOWS = 4096
"""Most windows of the validation loss, evenly spaced over the part."""
_SMALL = 1_000_000  # genomes with fewer positions have a window at every position
_BLOCKS = 32  # most blocks that a fraction of the genome is held out in
_BLOCK = 4  # fewest windows of a block
_REACH = 3  # positions on each side over which GPN-MSA takes the maximum of phastCons
_NEUTRAL = float(np.float16(0.1))  # tracks may be float16: a value of 0.1 is conserved, as in GPN-MSA


class WindowBatch(TypedDict):
    """A batch of windows.

    The keys: `target`, the tokens of the reference; `aligned`, those of the other species; `soft`, a mask of the
    soft-masked positions of the reference; `weights`, the weight of each position in the loss; `neutral`, a mask of the
    positions that are not conserved (of none without tracks of conservation).
    """

    target: UInt8[Tensor, "batch length"]
    aligned: UInt8[Tensor, "batch length others"]
    soft: Bool[Tensor, "batch length"]
    weights: Float32[Tensor, "batch length"]
    neutral: Bool[Tensor, "batch length"]


@dataclass(frozen=True, eq=False, repr=False)
class WindowBatches(Batches):
    """The windows of a part (:class:`r2mae.training.task.Batches`).

    Parameters
    ----------
    store : AlignmentStore
    starts : int64 ndarray, shape (windows,)
        Where windows begin: contig x 2^40 + position.
    length : int
        Positions of a window.
    reverse : float
        Share of windows that are replaced by their reverse complement, drawn for each row with the batch's key.
    weights : str, optional
        Name of a track with the weights of positions, 0 where it has none; without it all weights are 1.
    conservation : (phyloP, phastCons), optional
        Names of tracks that weigh positions as in GPN-MSA, instead of `weights`:
        max(phyloP, 1) x (0.1 + the maximum of phastCons over 7 positions). Missing values are 0.
    columns : list of int or slice
        The store's aligned species to keep, in this order; by default all.
    stride, omitted : int
        Positions between starts; number of windows that are omitted, as too much of the reference is unknown there.
    """

    store: AlignmentStore
    starts: Int64[np.ndarray, " windows"]
    length: int
    _: KW_ONLY
    reverse: float = 0.5
    weights: str | None = None
    conservation: Sequence[str] = ()
    columns: list[int] | slice = field(default_factory=lambda: slice(None))
    stride: int = 1
    omitted: int = 0

    def __repr__(self) -> str:
        return f"WindowBatches({len(self):,} windows of {self.length} x {len(self.store.species)} species)"

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    def spread(self, most: int) -> "WindowBatches":
        """Return at most `most` of the windows, evenly spaced."""
        if len(self) <= most:
            return self
        places = np.linspace(0, len(self) - 1, most).round().astype(np.int64)
        return replace(self, starts=self.starts[places])

    def at(self, indices: Sequence[int] | np.ndarray) -> tuple[Numbers, Numbers]:
        """Return contigs and first positions of some windows."""
        chosen = self.starts[np.asarray(indices, np.int64)]
        return chosen >> SHIFT, chosen & POSITION

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> WindowBatch:
        """Return these windows; the key draws which are on the other strand.

        ``key.row`` is the row of the first window in the global batch.
        """
        (contigs, first), length = self.at(indices), self.length
        tokens, soft = self.store.soft_windows(contigs, first, length)
        weights, neutral = np.ones(soft.shape, np.float32), np.zeros(soft.shape, bool)
        if self.weights is not None:
            weights = self.store.track_windows(self.weights, contigs, first, length)
        if self.conservation:
            phylop, phastcons = self.conservation
            wide = self.store.track_windows(phastcons, contigs, first - _REACH, length + 2 * _REACH)
            largest = sliding_window_view(wide, 2 * _REACH + 1, axis=1).max(-1)
            neutral = largest < _NEUTRAL
            weights = np.maximum(self.store.track_windows(phylop, contigs, first, length), 1) * (0.1 + largest)
            weights = weights.astype(np.float32)
        if self.reverse:
            turned = uniforms(key.fold("strand"), len(tokens)) < self.reverse
            tokens[turned] = reverse_complement(tokens[turned])
            for values in (soft, weights, neutral):
                values[turned] = values[turned, ::-1]
        aligned = torch.from_numpy(np.ascontiguousarray(tokens[:, :, 1:]))
        return {
            "target": torch.from_numpy(np.ascontiguousarray(tokens[:, :, 0])),
            "aligned": aligned[:, :, self.columns],
            "soft": torch.from_numpy(soft),
            "weights": torch.from_numpy(weights),
            "neutral": torch.from_numpy(neutral),
        }


@dataclass(frozen=True)
class GenomeData(Data):
    """The data of a run.

    Training windows are on either strand; those of `validation` and `test` are adjacent, on the strand of the
    reference. `architecture` has the values that the model is built from. `held_out` are the positions of `test`, or
    without it of `validation`: variants there are also measured separately. `notes` are sentences on the windows.
    """

    store: AlignmentStore
    train: WindowBatches
    validation: WindowBatches | None
    test: WindowBatches | None
    architecture: dict[str, Any]
    held_out: Intervals | None = None
    notes: tuple[str, ...] = ()

    @property
    def measured(self) -> WindowBatches | None:
        """The windows that a finished model is measured on."""
        return self.validation if self.test is None else self.test


def load_data(config: GenomeConfig) -> GenomeData:
    """Open a store and split it into training, validation and test windows."""
    store = AlignmentStore(config.data.source)
    names = config.data.aligned_species(store.species)
    parts = divide(store, config)
    stride = config.data.stride
    if stride is None:
        stride = 1 if store.layout.positions < _SMALL else max(config.data.window // 2, 1)
    train = windows_of(store, config, parts.train, names, stride=stride, reverse=config.data.reverse)
    validation, test = (
        windows_of(store, config, part, names) if len(part) else None for part in (parts.validation, parts.test)
    )
    validation = None if validation is None else validation.spread(VALIDATION_WINDOWS)
    architecture = {
        **config.model.architecture(),
        "window": config.data.window,
        "reference": store.species[0],
        "species": list(names),
        "corruption": config.task.corruption,
        "exact": config.task.exact,
        "repeat_weight": config.task.repeat_weight,
        "flip": config.task.flip if config.task.conservation else 0.0,
    }
    held_out = next((part for part in (parts.test, parts.validation) if len(part)), None)
    made = GenomeData(store, train, validation, test, architecture, held_out)
    return replace(made, notes=_notes(made, config))


def unweighted(config: GenomeConfig) -> GenomeConfig:
    """Return the configuration without the tracks of weights, which another store may lack."""
    return config.replace(weight_track=None, conservation=())


def windows_of(
    store: AlignmentStore,
    config: GenomeConfig,
    part: Intervals,
    names: Sequence[str],
    *,
    stride: int | None = None,
    reverse: float = 0.0,
) -> WindowBatches:
    """Return the windows of a part; by default adjacent without overlap, on the strand of the reference."""
    length = config.data.window
    stride = stride or length
    starts, omitted = window_starts(store, part, length, stride)
    return WindowBatches(
        store,
        starts,
        length,
        stride=stride,
        omitted=omitted,
        reverse=reverse,
        weights=config.task.weight_track,
        conservation=config.task.conservation,
        columns=store.columns(names),
    )


class Parts(NamedTuple):
    """Positions to learn from, to choose by, and to test on."""

    train: Intervals
    validation: Intervals
    test: Intervals


def divide(store: AlignmentStore, config: GenomeConfig) -> Parts:
    """Divide a store: test keeps its positions; validation keeps a window away from test, and training from both.

    A UserError is raised for regions that the store does not have, and for a part that is asked for and left with
    nothing.
    """
    data, layout = config.data, store.layout
    allowed = read_regions(data.include, layout) if data.include else Intervals.everywhere(layout)
    allowed = allowed.without(read_regions(data.exclude, layout))
    test = read_regions(data.test_regions, layout)
    apart = test.widened(data.window, layout)
    free = allowed.without(apart)
    regions = data.validation_regions
    validation = read_regions(regions, layout).without(apart) if regions else _validation_blocks(config, free)
    parts = Parts(
        free.without(validation.widened(data.window, layout)), validation.within(allowed), test.within(allowed)
    )
    for name, part, asked in zip(Parts._fields, parts, (True, regions, data.test_regions), strict=True):
        if asked and not len(part):
            raise UserError(
                f"nothing is left for {name}: other parts, a window's gap around them, or filters take it all"
            )
    return parts


def _validation_blocks(config: GenomeConfig, free: Intervals) -> Intervals:
    """Return blocks of free positions that amount to the fraction `validation`."""
    if not config.data.validation or not len(free):
        return Intervals.of([])
    wanted = config.data.validation * free.positions
    block = max(_BLOCK * config.data.window, round(wanted / _BLOCKS))
    places = [(contig, first) for contig, start, end in free.rows() for first in range(start, end - block + 1, block)]
    if len(places) < 2:
        raise UserError(
            f"{config.data.source}: no block of {block:,} positions can be held out for the validation loss: name "
            "regions with --validation-regions, give a smaller --window, or give --validation 0"
        )
    count = min(max(round(wanted / block), 1), len(places) - 1)
    order = permutation(Key.root(config.seed).fold("validation"), len(places))[:count]
    return Intervals.of((contig, first, first + block) for contig, first in (places[n] for n in order.tolist()))


def _notes(data: GenomeData, config: GenomeConfig) -> tuple[str, ...]:
    held_out = [
        f"{len(part):,} adjacent ones are held out for {what}"
        for part, what in ((data.validation, "the validation loss"), (data.test, "the test"))
        if part is not None
    ]
    train, others = data.train, len(data.architecture["species"])
    omitted = f" ({train.omitted:,} with too many unknown bases are omitted)" if train.omitted else ""
    note = (
        f"{len(train):,} windows of {train.length} positions, a start every {train.stride}{omitted}, with {others} "
        f"aligned species; {', and '.join(held_out) or 'none are held out, and no loss is measured'}"
    )
    if config.optimizer.batch_size <= len(train):
        return (note,)
    more = f"a step takes {config.optimizer.batch_size:,} windows and there are {len(train):,}"
    return (note, f"{more}: each is seen several times in a step (--batch-size)")
