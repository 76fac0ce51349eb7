"""Read and check the store, species, tracks and regions that a configuration names. No torch."""

from collections.abc import Sequence
from pathlib import Path

from r2mae.errors import UserError, unknown
from r2mae.fingerprint import fingerprint
from r2mae.genome.config import NO_SPECIES, GenomeConfig
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import read_regions
from r2mae.training.memory import check_transformer_step


def open_store(data: str) -> AlignmentStore:
    """Open a store; for a file, such as an alignment, the error says how to build one."""
    path = Path(data).expanduser()
    if path.is_file():
        raise UserError(
            f"{data} is a file, and runs read an alignment store: build one first with "
            f"r2mae data alignment build {data} -o {path.name.split('.')[0] or 'store'}"
        )
    return AlignmentStore(path)


def check(config: GenomeConfig) -> None:
    """Refuse a missing store, species, tracks and regions that it does not have, and a step that exceeds the memory."""
    store = open_store(config.data.source)
    chosen_species(store.species, config.data.species)
    read_regions(_regions(config), store.layout)
    for track in _tracks(config):
        store.track(track)
    if config.init is not None and not Path(config.init).is_dir():
        raise UserError(f"{config.init} (init): there is no such folder: name a run, or a folder of GPN-MSA's weights")
    model = config.model
    inner = 4 * model.width if model.inner is None else model.inner
    check_transformer_step(config, rows="windows", length="window", width=model.width, inner=inner)


def fingerprint_of(config: GenomeConfig) -> str:
    """Return a short text that differs for another store, track of weights or BED file.

    A track that the store lacks is omitted: a store that is only used for evaluation needs none.
    """
    store = open_store(config.data.source)
    parts = [store.fingerprint, *filter(None, map(store.track_digest, _tracks(config)))]
    files = [path for path in (Path(name).expanduser() for name in _regions(config)) if path.is_file()]
    return "-".join([*parts, fingerprint(*files)] if files else parts)


def chosen_species(known: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the aligned species that a model receives, of `known`, the species of the store, the reference first.

    A `wanted` name that the store does not have, or that of the reference, is refused.
    """
    if not wanted:
        return tuple(known[1:])
    if tuple(wanted) == (NO_SPECIES,):
        return ()
    for name in wanted:
        if name == known[0]:
            raise UserError(f"species names {name!r}, the reference, which is always used: omit it")
        if name not in known:
            raise unknown("species", name, known[1:])
    return tuple(wanted)


def _tracks(config: GenomeConfig) -> tuple[str, ...]:
    """Return the tracks that weigh positions."""
    return (*config.task.conservation, *([] if config.task.weight_track is None else [config.task.weight_track]))


def _regions(config: GenomeConfig) -> tuple[str, ...]:
    data = config.data
    return (*data.validation_regions, *data.test_regions, *data.include, *data.exclude)
