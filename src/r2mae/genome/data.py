"""The windows of a run: training, validation and test windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from r2mae.errors import UserError
from r2mae.genome.batches import WindowBatches
from r2mae.genome.config import GenomeConfig
from r2mae.genome.source import chosen_species, open_store
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import Intervals, read_regions, window_starts
from r2mae.masking.keys import Key, permutation
from r2mae.training.task import Data

VALIDATION_WINDOWS = 4096
"""Most windows of the validation loss, evenly spaced over the part."""
_SMALL = 1_000_000  # genomes with fewer positions have a window at every position
_BLOCKS = 32  # most blocks that a fraction of the genome is held out in
_BLOCK = 4  # fewest windows of a block


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
    store = open_store(config.data.source)
    names = chosen_species(store.species, config.data.species)
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


def other_data(config: GenomeConfig, built: Mapping[str, Any]) -> GenomeData:
    """Open a store that is not the run's, with all of its windows as test data; the run's species are found by name."""
    store = open_store(config.data.source)
    windows = windows_of(store, unweighted(config), Intervals.everywhere(store.layout), tuple(built["species"]))
    return GenomeData(store, windows, None, windows, dict(built))


def unweighted(config: GenomeConfig) -> GenomeConfig:
    """Return the configuration without the tracks of weights, which another store may lack."""
    return config.replace(weight_track=None, conservation=())


def species_columns(store: AlignmentStore, names: Sequence[str]) -> list[int] | None:
    """Return the numbers of the store's aligned species with these names; None if these are all, in order."""
    if tuple(names) == store.species[1:]:
        return None
    numbers = {name: place for place, name in enumerate(store.species[1:])}
    missing = [name for name in names if name not in numbers]
    if missing:
        listed = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise UserError(
            f"{store.folder} lacks {len(missing)} of the {len(names)} aligned species of the model ({listed}): build a "
            "store with them (r2mae data alignment build --species)"
        )
    return [numbers[name] for name in names]


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
    return WindowBatches(
        store,
        window_starts(store, part, length, stride or length, most_unknown=config.data.most_unknown),
        reverse=reverse,
        weights=config.task.weight_track,
        conservation=config.task.conservation,
        columns=species_columns(store, names),
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
    starts, others = data.train.starts, len(data.architecture["species"])
    omitted = f" ({starts.omitted:,} with too many unknown bases are omitted)" if starts.omitted else ""
    note = (
        f"{len(starts):,} windows of {starts.length} positions, a start every {starts.stride}{omitted}, with {others} "
        f"aligned species; {', and '.join(held_out) or 'none are held out, and no loss is measured'}"
    )
    if config.optimizer.batch_size <= len(starts):
        return (note,)
    more = f"a step takes {config.optimizer.batch_size:,} windows and there are {len(starts):,}"
    return (note, f"{more}: each is seen several times in a step (--batch-size)")
