"""``r2mae embed RUN DATA``: embed data with a pretrained model, and draw the embedding."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import listed, options_by_domain, run_in, taken
from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser
from r2mae.domains.checks import check_output, check_source, open_run
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError
from r2mae.training.fields import argument, docstring_part, option, options_of

if TYPE_CHECKING:
    import pandas as pd

    from r2mae.domains.base import Domain


@dataclass(frozen=True)
class Options:
    """Embed data, without masks, with a pretrained model of any domain.

    The output contains `embedding`, a row for each sample, and in addition:

    Parameters
    ----------
    run : str
        A run folder.
    data : str
        A named set or a path.
    output : str, optional
        File to write, of cells .h5ad or .npz, of others .npz; by default in RUN.
    device : str
        Device: auto, cpu, cuda or cuda:N.
    figure : str, optional
        Also draw a UMAP: .svg, .png or .pdf.
    color : list of str
        Columns to colour the figure by: any columns of the annotations (obs), if the data have such a table; by default
        the run's labels and numbers.
    max_points : int, optional
        Draw this many points, chosen at random; by default 20,000.
    """

    run: str = argument()
    data: str = argument()
    output: str | None = option(None, short="-o", metavar="OUT")
    device: str = option("auto", words=("auto", "cpu", "cuda"))
    figure: str | None = option(None, metavar="FILE")
    color: tuple[str, ...] = option((), metavar="COLUMN")
    max_points: int | None = None


def parser(words: Sequence[str]) -> Parser:
    """Return the parser for the domain of a run; without a run, its help names the options of every domain."""
    path = run_in(words)
    domains = all_domains() if path is None else [open_run(path)[0]]
    about = f"{docstring_part(Options)}\n\n" + listed((one.name, one.command_line.embedding.help) for one in domains)
    examples = [f"r2mae embed {example}" for one in domains for example in one.command_line.embedding.examples]
    if path is None:
        about += "\n\n" + options_by_domain("embed", [(one.name, _kinds(one)) for one in domains])
        made = Parser("r2mae embed", about, *examples)
        made.add(options_of(Options))
        return made
    made = Parser("r2mae embed", about, *examples, run=partial(run, path, domains[0]))
    made.lacks = f"{path} is a run of the domain {domains[0].name}, which has no"
    made.add(options_of(Options))
    for kind in _kinds(domains[0]):
        made.add(options_of(kind, domains[0].name))
    return made


def _kinds(domain: "Domain") -> tuple[type, ...]:
    declared = domain.command_line
    return declared.reading, declared.embedding.options, declared.embedding.loading


def run(path: Path, domain: "Domain", given: dict[str, Any]) -> int:
    """Run the command."""
    _, written = open_run(path)
    values = Options(**taken(given, Options))
    exporters = {one.suffix: one for one in domain.exporters}
    default = next(iter(exporters))
    output = Path(values.output or path / f"embedding-{Path(values.data).stem}{default}")
    if output.suffix not in exporters:
        raise UserError(
            f"embeddings are written as {' or '.join(exporters)}, not "
            f"{output.suffix or 'without a suffix'!r}: -o {output.stem}{default}"
        )
    check_source(domain, written, values.data)
    if values.output is not None and exporters[output.suffix].replaces:
        check_output(domain, output, values.data)
    table = _check_figure(domain, values)

    with loading():
        from r2mae.training.saving import load_model

    reading, own, loaded = (taken(given, kind) for kind in _kinds(domain))
    config, task, model = load_model(path, domain, device=values.device, unmasked=True, **loaded)
    arrays = domain.embed(config, task, model, values.data, **reading, **own)
    exporters[output.suffix].write(output, arrays, values.data)
    rows, width = arrays["embedding"].shape
    print(f"{rows} embeddings of {width} numbers are in {output}")
    if values.figure is not None:
        from r2mae.report.embedding_figure import draw_embedding

        colours = draw_embedding(
            values.figure, arrays, table, values.color, domain.figure_columns(config),
            data=values.data, scheme=config.scheme.name, max_points=values.max_points,
        )  # fmt: skip
        print(f"its UMAP, coloured by {colours}, is in {values.figure}")
    return 0


def _check_figure(domain: "Domain", values: Options) -> "pd.DataFrame | None":
    """Check the figure's options before anything is embedded; return the table of the --color columns, if any."""
    if values.figure is None:
        for name, given in (("--color", values.color), ("--max-points", values.max_points)):
            if given not in (None, ()):
                raise UserError(f"{name} is for a figure: name its file, --figure umap.svg")
        return None
    from r2mae.report.embedding_figure import FEWEST, check_columns, import_umap
    from r2mae.report.style import check_suffix

    if values.max_points is not None and values.max_points < FEWEST:
        raise UserError(f"--max-points must be {FEWEST} or more, not {values.max_points}")
    table = domain.annotations(values.data) if values.color else None
    if table is not None:
        check_columns(values.color, [str(name) for name in table.columns], values.data)
    check_suffix(values.figure, example="umap")
    import_umap()
    check_output(domain, values.figure, values.data)
    return table
