"""``r2mae pictures RUN…``: draw test images, masked images and the reconstructions of several runs side by side."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.cli.early import check_output, check_source, loading, open_run
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError
from r2mae.training.fields import argument, option

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.training.config import RunConfig


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
    ratio: float | None = None
    output: str | None = option(None, short="-o", metavar="OUT")


def run(options: Options) -> int:
    """Run the command."""
    ratio = options.ratio
    if ratio is not None and not 0 < ratio < 1:
        raise UserError(f"--ratio must be above 0 and below 1, not {ratio:g}: with --ratio 0.7, 70 % are hidden")
    domain, runs = _open_runs(list(map(Path, options.runs)))
    output = Path(options.output or runs[0][0] / "pictures.png")

    from r2mae.report.style import check_suffix, write_figure

    check_suffix(output, "-o")
    for _, config in runs:
        check_source(domain, config, config.data.source)
        if options.output is not None:
            check_output(domain, output, config.data.source)

    with loading():
        from r2mae.compare.variants import variant_of
        from r2mae.report.pictures import draw_pictures, to_reconstructions
        from r2mae.sweep.examples import examples_of
        from r2mae.sweep.runs import SweepRun
        from r2mae.training.folder import RunFolder

    variants = [variant_of(config) for _, config in runs]
    names = _column_names([variant.label for variant in variants], [path for path, _ in runs])
    for path, config in runs:
        RunFolder(path).check_data(config.data.source, domain.fingerprint(config))
    finished = [
        SweepRun(replace(variant, label=name), config.seed, config, path)
        for variant, name, (path, config) in zip(variants, names, runs, strict=True)
    ]
    examples = examples_of(finished, domain, ratio=ratio)
    if examples is None:
        raise UserError(f"{runs[0][0]}: the examples of this model are not pictures: see `r2mae evaluate`")
    made = to_reconstructions(examples)
    write_figure(draw_pictures(made, along="columns"), output)
    models = "1 model completes them" if len(names) == 1 else f"{len(names)} models complete them"
    print(f"{len(made.original)} test images with {made.ratio:.0%} hidden, as {models}, are in {output}")
    return 0


def _domains_with_pictures() -> "list[Domain]":
    return [domain for domain in all_domains() if domain.has_examples]


def _open_runs(paths: Sequence[Path]) -> "tuple[Domain, list[tuple[Path, RunConfig]]]":
    """Return the domain of all runs, which must have pictures, and the runs with their configurations."""
    found = [(path, *open_run(path)) for path in paths]
    first = found[0][1]
    for path, domain, _ in found:
        if not domain.has_examples:
            known = ", ".join(one.name for one in _domains_with_pictures())
            raise UserError(
                f"{path} is a run of the domain {domain.name}, which has no pictures; domains with pictures: {known}"
            )
        if domain.name != first.name:
            raise UserError(
                f"{path} is a run of the domain {domain.name}, and {paths[0]} of {first.name}: draw runs of one domain"
            )
    return first, [(path, config) for path, _, config in found]


def _column_names(labels: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the names of the columns: the labels if all differ, else the folders."""
    if len(set(labels)) == len(labels):
        return list(labels)
    twice = [str(path) for path, times in Counter(paths).items() if times > 1]
    if twice:
        raise UserError(f"{twice[0]} is named twice: name each run once")
    return [str(path) for path in paths]
