"""External cells for the evaluation of a run: with its genes and batches, and the probes that are possible."""

from collections.abc import Collection
from dataclasses import replace

from r2mae.cells.batches import CellBatches, CellData, architecture_of, columns_of
from r2mae.cells.config import CellsConfig
from r2mae.cells.covariate import align_batches
from r2mae.cells.donors import check_probes, lack_of_classes, lack_of_donors, lack_of_numbers, split_donors
from r2mae.cells.rules import rule_columns
from r2mae.cells.sources import column_notes, read_obs
from r2mae.cells.table import CellTable, check_columns, load_cells
from r2mae.errors import UserError

Notes = tuple[str, ...]


def other_data(
    config: CellsConfig, genes: tuple[str, ...], batches: tuple[str, ...], transform_batch: str | None
) -> tuple[CellsConfig, CellData]:
    """Read external cells, mapped onto the genes and batches of a run. All of them are validation cells.

    Returns
    -------
    config : CellsConfig
        Without the probes that are impossible for these cells; see :func:`possible_probes`.
    data : CellData

    Raises
    ------
    UserError
        As :func:`r2mae.cells.table.load_cells` and :func:`r2mae.cells.covariate.align_batches`.
    """
    batch = align_batches(
        config.data.source, read_obs(config.data.source), config.data.batch_key, batches, transform_batch
    )
    table = replace(load_cells(config.data.source, layer=config.data.layer, genes=genes), batch=batch, batches=batches)
    config, notes = possible_probes(table, config)
    columns = columns_of(config)
    notes += check_columns(table, None, config.data.donor_key, columns)
    covariate = config.data.batch_key if len(batches) > 1 else None
    notes += column_notes(config.data.source, (covariate, config.data.donor_key, *columns))
    table = replace(table, notes=table.notes + notes + check_probes(table, config))
    cells = CellBatches(table)
    return config, CellData(table, cells, cells, architecture_of(genes, batches, config))


def possible_probes(table: CellTable, config: CellsConfig) -> tuple[CellsConfig, Notes]:
    """Omit the probes that are impossible for these cells, so that everything else can be measured.

    These are probes of columns that obs lacks, or that have fewer than two values. If the donor column or a column of a
    rule is missing, there is one donor, or rules leave no cell, all probes are omitted: probes that share donors, or
    use other cells, would not be comparable with those of the run.

    Returns
    -------
    config : CellsConfig
    notes : tuple of str
        Which probes were omitted, and why.
    """
    lacks = {column: "obs has no such column" for column in _probed_columns(config) if column not in table.obs}
    config = _without_probes(table, config, lacks)
    if _probed_columns(config) and (reason := _lack_of_probes(table, config)):
        lacks |= dict.fromkeys(_probed_columns(config), reason)
    elif _probed_columns(config):
        split = split_donors(table, config)
        for columns, lack_of in ((config.data.labels, lack_of_classes), (config.data.regress, lack_of_numbers)):
            for column in columns:
                try:
                    lack = lack_of(table, split, column)
                except UserError as error:  # its own rules leave no cell
                    lacks[column] = str(error)
                else:
                    lacks |= {column: f"it has {lack}"} if lack else {}
    return _without_probes(table, config, lacks), tuple(
        f"{column}: no probe, as {lack}" for column, lack in lacks.items()
    )


def _probed_columns(config: CellsConfig) -> tuple[str, ...]:
    return (*config.data.labels, *config.data.regress)


def _lack_of_probes(table: CellTable, config: CellsConfig) -> str:
    """Return in words why no probe of these cells is possible; empty if one is."""
    for name in (config.data.donor_key, *rule_columns(config)):
        if name is not None and name not in table.obs:
            return f"obs has no column {name!r} ({'donor_key' if name == config.data.donor_key else 'exclude or only'})"
    try:
        return lack_of_donors(split_donors(table, config))
    except UserError as error:  # no cell meets a rule
        return str(error)


def _without_probes(table: CellTable, config: CellsConfig, columns: Collection[str]) -> CellsConfig:
    """Return the configuration without the probes of some columns; without any probe, also without donors and rules."""

    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in columns)

    def others(entries: tuple[str, ...]) -> tuple[str, ...]:
        own = tuple(f"{column}:" for column in columns)
        names = {entry: entry.partition("=")[0] for entry in entries}
        return tuple(entry for entry in entries if names[entry] in table.obs or not names[entry].startswith(own))

    config = config.replace(
        labels=kept(config.data.labels),
        regress=kept(config.data.regress),
        auroc_labels=kept(config.data.auroc_labels),
        max_cells=tuple(entry for entry in config.data.max_cells if entry.partition("=")[0] not in columns),
        exclude=others(config.data.exclude),
        only=others(config.data.only),
    )
    return config if _probed_columns(config) else config.replace(donor_key=None, exclude=(), only=())
