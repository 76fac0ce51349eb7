"""``r2mae embed RUN DATA``: embed data with a pretrained model, and draw the embedding."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.early import check_source, open_run
from r2mae.cli.parsing import Parser, add_reading
from r2mae.errors import UserError, nearest

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from r2mae.wings.contract import Wing

_OPTIONS = ("resize", "resize_mode", "transform_batch", "layer", "representation")

_DESCRIPTION = """Embed data, without masks, with a pretrained model of any wing.

The output holds `embedding`, a row for each sample, and beside it:

  images  `split` (0 training, 1 test: the run's own division for the run's data, else an official one), `labels`, and
          the names of their `classes`, where the data have them
  cells   `cells` and columns of the run; as .h5ad the file itself, with the embedding in .obsm["X_r2mae"]
  text    `documents` (their first 80 characters) and `tokens` (how many each has)"""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = _parser()
    values = parser.read(words)
    path = Path(values["run"])

    wing, written = open_run(path)
    usual = wing.embedding_files[0]
    output = Path(values["output"] or path / f"embedding-{Path(values['data']).stem}{usual}")
    if output.suffix not in wing.embedding_files:
        raise UserError(
            f"embeddings are written as {' or '.join(wing.embedding_files)}, not "
            f"{output.suffix or 'without a suffix'!r}: -o {output.stem}{usual}"
        )
    options = {name: values[name] for name in _OPTIONS if values[name] is not None}
    for name in options:
        if name not in wing.embedding_options:
            dashed = name.replace("_", "-")
            raise UserError(f"{path} is a run of the wing {wing.name}, which has no --{dashed}: leave it out")
    check_source(wing, written, values["data"])
    table = _check_figure(wing, values)
    wanted = None if values["recalibrate"] is None else values["recalibrate"] == "yes"
    if wanted is not None and "recalibrate" not in wing.config.measured_with:
        raise UserError(f"{path} is a run of the wing {wing.name}, which has no --recalibrate: leave it out")

    from r2mae.training.saving import load_model

    config, task, model = load_model(path, wing, device=values["device"], whole=True, recalibrate=wanted)
    arrays = wing.embed(config, task, model, values["data"], **options)
    wing.write_embedding(output, arrays, values["data"])
    rows, width = arrays["embedding"].shape
    print(f"{rows} embeddings of {width} numbers are in {output}")
    if values["figure"] is not None:
        _draw(config, arrays, table, values)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "r2mae embed",
        _DESCRIPTION,
        "r2mae embed runs/digits digits -o digits.npz --figure umap.svg",
        "r2mae embed runs/cells new.h5ad -o new-embedded.h5ad --layer counts",
        "r2mae embed runs/text notes.txt -o notes.npz",
    )
    parser.add_argument("run", metavar="RUN", type=str, help="A run folder.")
    parser.add_argument("data", metavar="DATA", type=str, help="A named set or a path.")
    parser.add_argument(
        "-o", "--output", type=str, help="File to write (.npz; for cells also .h5ad); by default in RUN."
    )
    add_reading(parser)
    parser.add_argument(
        "--representation",
        choices=["latent", "hidden"],
        help="For cells: the latent layer, or the last hidden layer before it; by default as in the run.",
    )
    parser.add_argument(
        "--recalibrate",
        choices=["yes", "no"],
        help="For models with batch normalisation: take the statistics that the run re-estimated on whole inputs "
        "(yes), or those of training (no); by default as in the run.",
    )
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N.")
    parser.add_argument("--figure", type=str, help="Also draw a UMAP: .svg, .png or .pdf.")
    parser.add_argument(
        "--color",
        type=tuple[str, ...],
        default=(),
        help="Columns to colour the figure by, for cells any of obs; by default the run's labels and numbers.",
    )
    parser.add_argument("--max_points", type=int, default=20_000, help="Draw this many points, chosen at random.")
    return parser


def _check_figure(wing: "Wing", values: Mapping[str, Any]) -> "pd.DataFrame | None":
    """Find mistakes before anything is embedded; return the table that --color may choose from, if there is one."""
    if values["figure"] is None:
        if values["color"]:
            raise UserError("--color is for a figure: name its file, --figure umap.svg")
        return None
    from r2mae.report.embedding_figure import check_figure, check_points
    from r2mae.wings.contract import HasAnnotations

    check_points(values["max_points"])
    table = None
    if values["color"] and isinstance(wing, HasAnnotations):
        table = wing.annotations(values["data"])
        _known(values["color"], [str(name) for name in table.columns], values["data"])
    check_figure(values["figure"])
    return table


def _draw(
    config: Any, arrays: "dict[str, np.ndarray]", table: "pd.DataFrame | None", values: Mapping[str, Any]
) -> None:
    from r2mae.report.embedding_figure import columns_of, embedding_figure, values_of, write_figure

    names, numbers = values["color"], getattr(config, "regress", ())
    if table is not None:
        columns = {name: values_of(table[name]) for name in names}
    else:
        columns = columns_of(arrays, numbers=numbers)
        if names:
            _known(names, list(columns), values["data"])
        # A figure of every donor, or of names, tells nothing unless it is asked for.
        hidden = ("cells", "documents", "split", getattr(config, "donor_key", None))
        columns = {name: columns[name] for name in names or columns if names or name not in hidden}
    title = f"{Path(values['data']).stem}: UMAP of the embedding by {config.scheme}"
    figure = embedding_figure(arrays["embedding"], columns, title=title, max_points=values["max_points"])
    write_figure(figure, values["figure"])
    print(f"its UMAP, coloured by {', '.join(columns) or 'nothing (--color COLUMN)'}, is in {values['figure']}")


def _known(names: Sequence[str], known: Sequence[str], data: str) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{data} has no column {name!r} (--color): {nearest(name, known)}")
