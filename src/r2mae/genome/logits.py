"""``r2mae logits RUN REGION … -o OUT``: write a model's log probabilities at each position of some regions."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from r2mae.errors import UserError
from r2mae.files import check_output_is_not_source
from r2mae.genome.score import open_run
from r2mae.genome.store.intervals import read_regions
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.variants.files import check_output, text_file
from r2mae.genome.variants.sites import ROWS
from r2mae.training.progress import counting_bar
from r2mae.training.validation import evaluating

_SITES = 4096  # positions at a time


def command(
    run: str,
    regions: Sequence[str],
    output: str | None = None,
    data: str | None = None,
    batch_size: int = ROWS,
    device: str = "auto",
) -> None:
    """Run ``r2mae logits``."""
    if output is None:
        raise UserError("r2mae logits needs a file to write: -o OUT")
    with counting_bar("predicting") as progress:
        count = write_logits(run, regions, output, data=data, batch_size=batch_size, device=device, progress=progress)
    print(f"log probabilities at {count:,} positions are in {output}")


def write_logits(
    run: str | Path,
    regions: Sequence[str],
    output: str | Path,
    *,
    data: str | None = None,
    batch_size: int = ROWS,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write a table with log p of A, C, G and T at each position, which is hidden; values are means of both strands.

    Differences of two columns are the scores of variants. Since logarithms are averaged, the probabilities need not
    add up to one.

    Parameters
    ----------
    run : path
        A finished run.
    regions : sequence of str
        Contigs, intervals such as chr1:1,001-2,000 (counted from 1), or BED files.
    output : path
        ``.tsv`` or ``.tsv.gz``.
    data, batch_size, device, progress
        As :func:`r2mae.genome.score.score_variants`.

    Returns
    -------
    int
        Number of positions.

    Raises
    ------
    UserError
        For mistakes in run, store or regions.
    """
    if batch_size < 2:
        raise UserError(f"batch_size must be 2 or more (a position has two strands), not {batch_size}")
    output = Path(output).expanduser()
    check_output(output, "tsv")
    for region in regions:
        check_output_is_not_source(output, Path(region).expanduser())
    opened = open_run(run, data, device)
    intervals = read_regions(regions, opened.store.layout)
    logs, store, done = opened.scorer(batch_size), opened.store, 0
    with evaluating(opened.model), text_file(output) as write:
        write("\t".join(["chrom", "pos", "ref", *LETTERS[:GAP]]).encode() + b"\n")
        for contig, start, end in intervals.rows():
            name = store.contigs[contig]
            for first in range(start, end, _SITES):
                positions = np.arange(first, min(first + _SITES, end))
                contigs = np.full(len(positions), contig)
                tokens = store.reference_windows(contigs, positions, 1)[:, 0].tolist()
                rows = zip(positions.tolist(), tokens, logs(contigs, positions).tolist(), strict=True)
                text = "".join(
                    "\t".join([name, str(place + 1), LETTERS[token], *(f"{value:.6g}" for value in values)]) + "\n"
                    for place, token, values in rows
                )
                write(text.encode("utf-8", "surrogateescape"))
                done += len(positions)
                if progress is not None:
                    progress(done, intervals.positions)
    return done
