"""``r2mae embed RUN DATA``: embed data with a pretrained model, and draw the embedding."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import add_options, files_in_words, given_options, listed, parameters_of
from r2mae.cli.early import check_output, check_source, loading, open_run
from r2mae.cli.parsing import Parser
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError, nearest

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from r2mae.domains.base import Domain
    from r2mae.domains.options import FigureColumns, Option

_DESCRIPTION = """Embed data, without masks, with a pretrained model of any domain.

The output contains `embedding`, a row for each sample, and in addition:

"""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    domains = all_domains()
    values = _parser(domains).read(words)
    path = Path(values["run"])

    domain, written = open_run(path)
    exporters = {one.suffix: one for one in domain.exporters}
    default = next(iter(exporters))
    output = Path(values["output"] or path / f"embedding-{Path(values['data']).stem}{default}")
    if output.suffix not in exporters:
        raise UserError(
            f"embeddings are written as {' or '.join(exporters)}, not "
            f"{output.suffix or 'without a suffix'!r}: -o {output.stem}{default}"
        )
    options = parameters_of(path, domain, _options_of(domain), given_options(values, _options(domains)))
    chosen = {one.sets: options.pop(one.sets) for one in domain.command_line.embedding.loading if one.sets in options}
    check_source(domain, written, values["data"])
    if values["output"] is not None and exporters[output.suffix].replaces:
        check_output(domain, output, values["data"])
    table = _check_figure(domain, values)

    with loading():
        from r2mae.training.saving import load_model

    config, task, model = load_model(path, domain, device=values["device"], unmasked=True, **chosen)
    arrays = domain.embed(config, task, model, values["data"], **options)
    exporters[output.suffix].write(output, arrays, values["data"])
    rows, width = arrays["embedding"].shape
    print(f"{rows} embeddings of {width} numbers are in {output}")
    if values["figure"] is not None:
        _draw(config, arrays, table, values, domain.figure_columns(config))
    return 0


def _parser(domains: "Sequence[Domain]") -> Parser:
    parser = Parser(
        "r2mae embed",
        _DESCRIPTION + listed((domain.name, domain.command_line.embedding.help) for domain in domains),
        *(f"r2mae embed {example}" for domain in domains for example in domain.command_line.embedding.examples),
    )
    parser.add_argument("run", metavar="RUN", type=str, help="A run folder.")
    parser.add_argument("data", metavar="DATA", type=str, help="A named set or a path.")
    parser.add_argument(
        "-o", "--output", type=str, help=f"File to write, {files_in_words(domains)}; by default in RUN."
    )
    add_options(parser, _options(domains))
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N.")
    parser.add_argument("--figure", type=str, help="Also draw a UMAP: .svg, .png or .pdf.")
    parser.add_argument(
        "--color",
        type=tuple[str, ...],
        default=(),
        help="Columns to colour the figure by: any columns of the annotations (obs), if the data have such a table; by "
        "default the run's labels and numbers.",
    )
    parser.add_argument(
        "--max_points", type=int | None, default=None, help="Draw this many points, chosen at random (default: 20,000)."
    )
    return parser


def _options(domains: "Sequence[Domain]") -> "Iterator[tuple[Domain, Option]]":
    return ((domain, option) for domain in domains for option in _options_of(domain))


def _options_of(domain: "Domain") -> "tuple[Option, ...]":
    declared = domain.command_line
    return (*declared.reading, *declared.embedding.options, *declared.embedding.loading)


def _check_figure(domain: "Domain", values: Mapping[str, Any]) -> "pd.DataFrame | None":
    """Check the figure's options before anything is embedded; return the table of the --color columns, if any."""
    if values["figure"] is None:
        for option in ("color", "max_points"):
            if values[option] not in (None, ()):
                flag = option.replace("_", "-")
                raise UserError(f"--{flag} is for a figure: name its file, --figure umap.svg")
        return None
    from r2mae.report.embedding_figure import FEWEST, import_umap
    from r2mae.report.style import check_suffix

    if values["max_points"] is not None and values["max_points"] < FEWEST:
        raise UserError(f"--max-points must be {FEWEST} or more, not {values['max_points']}")
    table = domain.annotations(values["data"]) if values["color"] else None
    if table is not None:
        _check_columns(values["color"], [str(name) for name in table.columns], values["data"])
    check_suffix(values["figure"], example="umap")
    import_umap()
    check_output(domain, values["figure"], values["data"])
    return table


def _draw(
    config: Any,
    arrays: "dict[str, np.ndarray]",
    table: "pd.DataFrame | None",
    values: Mapping[str, Any],
    default: "FigureColumns",
) -> None:
    from r2mae.report.embedding_figure import MOST, embedding_figure
    from r2mae.report.style import write_figure

    names = values["color"]
    if table is not None:
        columns = {name: _text_or_floats(table[name]) for name in names}
    else:
        columns = _columns(arrays, default.numbers)
        if names:
            _check_columns(names, list(columns), values["data"])
        columns = {name: columns[name] for name in names or columns if names or name not in default.omitted}
    title = f"{Path(values['data']).stem}: UMAP of the embedding by {config.scheme.name}"
    most = MOST if values["max_points"] is None else values["max_points"]
    figure = embedding_figure(arrays["embedding"], columns, title=title, max_points=most)
    write_figure(figure, values["figure"])
    print(f"its UMAP, coloured by {', '.join(columns) or 'nothing (--color COLUMN)'}, is in {values['figure']}")


def _columns(arrays: "dict[str, np.ndarray]", numbers: Sequence[str]) -> "dict[str, np.ndarray]":
    """Return the columns next to a domain's `embedding`; `numbers` are numbers though they are text."""
    import pandas as pd

    columns, rows = {}, arrays["embedding"].shape[:1]
    if "labels" in arrays and "classes" in arrays:
        arrays = {**arrays, "labels": arrays["classes"].astype(str)[arrays["labels"].astype(int)]}
    for name, values in arrays.items():
        if name in ("embedding", "classes") or values.shape != rows:
            continue
        number = name in numbers or values.dtype.kind == "f"
        column = pd.to_numeric(pd.Series(values), errors="coerce") if number else pd.Series(values.astype(str))
        columns[name] = _text_or_floats(column)
    return columns


def _text_or_floats(column: "pd.Series[Any]") -> "np.ndarray":
    """Return numbers as floats, and all else (categories, truth values) as text; missing values are NaN or ""."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype="float64", na_value=float("nan"))
    return column.astype(object).where(column.notna(), "").astype(str).to_numpy().astype(str)


def _check_columns(names: Sequence[str], known: Sequence[str], data: str) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{data} has no column {name!r} (--color): {nearest(name, known)}")
