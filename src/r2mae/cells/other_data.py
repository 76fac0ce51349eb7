"""External cells for the evaluation of a run: with its genes and batches, and the probes that are possible."""

from collections.abc import Collection
from dataclasses import replace

from r2mae.cells.batches import CellBatches, CellData, architecture_of, columns_of
from r2mae.cells.config import CellsConfig
from r2mae.cells.donors import check_probes
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
        As :func:`r2mae.cells.table.load_cells`.
    """
    own = config.data
    model = {"genes": genes, "batches": batches, "transform_batch": transform_batch}
    table = load_cells(own.source, layer=own.layer, batch_key=own.batch_key, **model)  # type: ignore[arg-type]
    config, notes = possible_probes(table, config)
    notes += check_columns(table, None, config.data.donor_key, columns_of(config))
    table = replace(table, notes=table.notes + notes + check_probes(table, config))
    cells = CellBatches(table)
    return config, CellData(table, cells, cells, architecture_of(genes, batches, config))


def possible_probes(table: CellTable, config: CellsConfig) -> tuple[CellsConfig, Notes]:
    """Omit the probes that are impossible for these cells, so that everything else can be measured; say which, and why.

    These are probes of columns that obs lacks, or that have fewer than two values. If the donor column or a column of a
    rule is missing, there is one donor, or rules leave no cell, all probes are omitted: probes that share donors, or
    use other cells, would not be comparable with those of the run.
    """
    columns, lacks = (*config.data.labels, *config.data.regress), {}
    for column in columns:
        try:
            check_probes(table, _without_probes(table, config, [other for other in columns if other != column]))
        except UserError as error:
            lacks[column] = str(error).removeprefix(f"{table.name}: ")
    return _without_probes(table, config, lacks), tuple(f"{name}: no probe, as {lack}" for name, lack in lacks.items())


def _without_probes(table: CellTable, config: CellsConfig, columns: Collection[str]) -> CellsConfig:
    """Return the configuration without the probes of some columns; without any probe, also without donors and rules."""

    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name.partition("=")[0] not in columns)

    def others(rules: tuple[str, ...]) -> tuple[str, ...]:
        own = tuple(f"{column}:" for column in columns)
        return tuple(rule for rule in rules if rule.partition("=")[0] in table.obs or not rule.startswith(own))

    config = config.replace(
        labels=kept(config.data.labels),
        regress=kept(config.data.regress),
        auroc_labels=kept(config.data.auroc_labels),
        max_cells=kept(config.data.max_cells),
        exclude=others(config.data.exclude),
        only=others(config.data.only),
    )
    return config if config.data.labels or config.data.regress else config.replace(donor_key=None, exclude=(), only=())
