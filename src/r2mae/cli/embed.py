"""``r2mae embed RUN DATA``: embed data with a pretrained model, and draw the embedding."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import Offer, run_parser, taken
from r2mae.cli.parsing import loading
from r2mae.domains.lookup import check_output, check_source, open_run
from r2mae.errors import UserError
from r2mae.fields import argument, option

if TYPE_CHECKING:
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


def _offer(domain: "Domain") -> Offer:
    declared = domain.command_line.embedding
    return Offer([(domain.name, declared.help)], declared.examples, [(kind, domain.name) for kind in _kinds(domain)])


def _kinds(domain: "Domain") -> tuple[type, ...]:
    declared = domain.command_line
    return declared.reading, declared.embedding.options


def run(path: Path, domain: "Domain", options: Options, given: dict[str, Any]) -> int:
    """Run the command."""
    _, written = open_run(path)
    exporters = {one.suffix: one for one in domain.exporters}
    default = next(iter(exporters))
    output = Path(options.output or path / f"embedding-{Path(options.data).stem}{default}")
    if output.suffix not in exporters:
        raise UserError(
            f"embeddings are written as {' or '.join(exporters)}, not "
            f"{output.suffix or 'without a suffix'!r}: -o {output.stem}{default}"
        )
    check_source(domain, written, options.data)
    if options.output is not None and exporters[output.suffix].replaces:
        check_output(domain, output, options.data)
    for name, value in (("--color", options.color), ("--max-points", options.max_points)):
        if options.figure is None and value not in (None, ()):
            raise UserError(f"{name} is for a figure: name its file, --figure umap.svg")
    table = None
    if options.figure is not None:
        from r2mae.compare.embedding_figure import check_figure, draw_embedding

        check_output(domain, options.figure, options.data)
        table = check_figure(domain, options.figure, options.data, options.color, options.max_points)

    with loading():
        from r2mae.training.saving import load_model

    reading, own = (taken(given, kind) for kind in _kinds(domain))
    config, task, model = load_model(path, domain, device=options.device, unmasked=True)
    arrays = domain.embed(config, task, model, options.data, **reading, **own)
    exporters[output.suffix].write(output, arrays, options.data)
    rows, width = arrays["embedding"].shape
    print(f"{rows} embeddings of {width} numbers are in {output}")
    if config.has_batch_norm:
        used = "re-estimated on unmasked inputs" if config.re_estimates_statistics else "those of training"
        print(f"batch statistics, as the run was last measured: {used}")
    if options.figure is not None:
        colours = draw_embedding(
            options.figure, arrays, table, options.color, domain.figure_columns(config),
            data=options.data, scheme=config.scheme.name, max_points=options.max_points,
        )  # fmt: skip
        print(f"its UMAP, coloured by {colours}, is in {options.figure}")
    return 0


parser = partial(run_parser, "embed", Options, _offer, run)
