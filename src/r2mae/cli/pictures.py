"""``r2mae pictures RUN…``: draw test images, masked images and the reconstructions of several runs side by side."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from r2mae.cli.parsing import loading
from r2mae.domains.lookup import all_domains, check_output, check_source, open_run
from r2mae.errors import UserError
from r2mae.fields import Range, argument, check_fields, option
from r2mae.training.config import RunConfig

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.evaluation.examples import Examples

Runs = list[tuple[Path, RunConfig]]
"""Run folders with their configurations."""


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
    domain, runs = _runs_with_pictures(list(map(Path, options.runs)))
    output = Path(options.output or runs[0][0] / "pictures.png")

    from r2mae.compare.style import check_suffix, write_figure

    check_suffix(output)
    for _, config in runs:
        check_source(domain, config, config.data.source)
        if options.output is not None:
            check_output(domain, output, config.data.source)

    made = _reconstructions_of(domain, runs, options.ratio)

    from r2mae.compare.pictures import draw_pictures

    write_figure(draw_pictures(made), output)
    one = next(iter(made.values()))
    print(f"{len(one.original)} test images, {one.ratio:.0%} hidden, completed by {len(runs)} model(s): {output}")
    return 0


def _runs_with_pictures(paths: Sequence[Path]) -> "tuple[Domain, Runs]":
    """Return the domain of all runs, which must have pictures, and the runs with their configurations."""
    found = [(path, *open_run(path)) for path in paths]
    first = found[0][1]
    for path, domain, _ in found:
        if not domain.has_examples:
            known = ", ".join(one.name for one in all_domains() if one.has_examples)
            raise UserError(
                f"{path} is a run of the domain {domain.name}, which has no pictures; domains with pictures: {known}"
            )
        if domain.name != first.name:
            raise UserError(
                f"{path} is a run of the domain {domain.name}, and {paths[0]} of {first.name}: draw runs of one domain"
            )
    return first, [(path, config) for path, _, config in found]


def _reconstructions_of(domain: "Domain", runs: Runs, ratio: float | None) -> "dict[str, Examples]":
    """Let finished runs complete the same masked test images; by default at the default ratio of the first run's model.

    Raises a :class:`UserError` if the data of a run have changed, or its examples are not pictures.
    """
    with loading():
        from r2mae.compare.gather import examples_of
        from r2mae.compare.runs import SweepRun, variant_of
        from r2mae.training.folder import RunFolder

    variants = [variant_of(config) for _, config in runs]
    names = _row_names([variant.label for variant in variants], [path for path, _ in runs])
    for path, config in runs:
        RunFolder(path).check_data(config.data.source, domain.fingerprint(config))
    finished = [
        SweepRun(replace(variant, label=name), config.seed, config, path)
        for variant, name, (path, config) in zip(variants, names, runs, strict=True)
    ]
    examples = examples_of(finished, domain, ratio=ratio)
    if examples is None:
        raise UserError(f"{runs[0][0]}: the examples of this model are not pictures: see `r2mae evaluate`")
    return examples


def _row_names(labels: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the names of the rows: the labels if all differ, else the folders."""
    if len(set(labels)) == len(labels):
        return list(labels)
    twice = [str(path) for path, times in Counter(paths).items() if times > 1]
    if twice:
        raise UserError(f"{twice[0]} is named twice: name each run once")
    return [str(path) for path in paths]
