"""``r2mae pictures RUN…``: draw test images, masked images and the reconstructions of several runs side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from r2mae.cli.early import loading
from r2mae.compare.reconstruct import runs_with_pictures
from r2mae.domains.checks import check_output, check_source
from r2mae.training.fields import Range, argument, check_fields, option


@dataclass(frozen=True)
class Options:
    """Draw test images, the masked images, and their reconstructions by finished runs, a column for each run.

    All runs have the same masks. They are of a domain whose models reconstruct pictures, such as images.

    Parameters
    ----------
    runs : list of str
        Run folders of one domain, on the same data.
    ratio : float, optional
        The mask ratio; by default the default ratio of the first run's model.
    output : str, optional
        File to write, .svg, .png or .pdf; by default pictures.png in the first RUN.

    Examples
    --------
    r2mae pictures runs/a runs/b -o pictures.png
    r2mae pictures runs/compare-digits/runs/*/seed-0 --ratio 0.9
    """

    runs: tuple[str, ...] = argument(metavar="RUN")
    ratio: Annotated[float, Range(above=0, below=1)] | None = None
    output: str | None = option(None, short="-o", metavar="OUT")


def run(options: Options) -> int:
    """Run the command."""
    check_fields(options, "--{}".format)
    domain, runs = runs_with_pictures(list(map(Path, options.runs)))
    output = Path(options.output or runs[0][0] / "pictures.png")

    from r2mae.compare.style import check_suffix, write_figure

    check_suffix(output, "-o")
    for _, config in runs:
        check_source(domain, config, config.data.source)
        if options.output is not None:
            check_output(domain, output, config.data.source)

    with loading():
        from r2mae.compare.pictures import draw_pictures
        from r2mae.compare.reconstruct import reconstructions_of

    made = reconstructions_of(domain, runs, options.ratio)
    write_figure(draw_pictures(made, along="columns"), output)
    one = next(iter(made.values()))
    print(f"{len(one.original)} test images, {one.ratio:.0%} hidden, completed by {len(runs)} model(s): {output}")
    return 0
