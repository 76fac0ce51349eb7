"""``r2mae pictures RUN…``: draw test images, masked images and the reconstructions of several runs side by side."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from r2mae.cli.parsing import loading
from r2mae.domains.lookup import check_output, open_run
from r2mae.errors import UserError
from r2mae.fields import Range, argument, check_fields, option


@dataclass(frozen=True)
class Options:
    """Draw test images, the masked images, and their reconstructions by finished runs, a column for each run.

    Numbers below are the images' places in the data, from 0. All runs have the same masks. They are of a domain whose
    models reconstruct pictures, such as images.

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
    paths = list(dict.fromkeys(map(Path, options.runs)))
    found = [open_run(path) for path in paths]
    domain, runs = found[0][0], [config for _, config in found]
    output = Path(options.output or paths[0] / "pictures.png")

    from r2mae.compare.style import check_suffix, write_figure

    check_suffix(output)
    for path, (own, config) in zip(paths, found, strict=True):
        if not own.has_examples or own.name != domain.name:
            kind = own.name if own.has_examples else f"{own.name} without pictures"
            raise UserError(f"{path} is a run of {kind}: name pretraining runs of one domain, such as images")
        domain.check_source(config)
        if options.output is not None:
            check_output(domain, output, config.data.source)
    with loading():
        from r2mae.compare.gather import examples_of
        from r2mae.compare.pictures import draw_pictures
        from r2mae.compare.runs import SweepRun, variant_of
        from r2mae.training.folder import RunFolder

    variants = [variant_of(config) for config in runs]
    if len({variant.label for variant in variants}) < len(variants):  # then their folders name the runs
        variants = [replace(variant, label=str(path)) for variant, path in zip(variants, paths, strict=True)]
    for path, config in zip(paths, runs, strict=True):
        RunFolder(path).check_data(config.data.source, domain.fingerprint(config))
    finished = [SweepRun(*one) for one in zip(variants, [config.seed for config in runs], runs, paths, strict=True)]
    made = examples_of(finished, domain, ratio=options.ratio)
    if made is None:
        raise UserError(f"{paths[0]}: the examples of this model are not pictures: see `r2mae evaluate`")
    write_figure(draw_pictures(made), output)
    one = next(iter(made.values()))
    print(f"{len(one.original)} test images, {one.ratio:.0%} hidden, completed by {len(runs)} model(s): {output}")
    if which := one.files or one.index:
        print(f"images of the data, left to right{'' if one.files else ', from 0'}: {', '.join(map(str, which))}")
    return 0
