"""``r2mae score-variants`` and ``r2mae logits``: apply a finished run to variants, and to each position of regions.

The score of a substitution is log p(alt) − log p(ref) at its position, which is hidden, averaged over both strands.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from r2mae.errors import UserError
from r2mae.files import check_output_is_not_source, exclusive, read_json, sync, write_json
from r2mae.fingerprint import fingerprint
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.source import open_store
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import read_regions
from r2mae.genome.store.sources import allocate
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.variants.alleles import REASONS, substitutions
from r2mae.genome.variants.files import Scored, check_output, open_variants, text_file
from r2mae.genome.variants.sites import ROWS, SiteLogs, scores_of, site_scorer
from r2mae.progress import counting_bar

BLOCK = 4096
"""Rows that are scored and saved, or positions that are written, at a time."""

_PLAN = "plan.json"


def _open_run(
    run: str | Path, data: str | None, device: str, batch_size: int
) -> tuple[AlignmentTransformer, AlignmentStore, SiteLogs, str]:
    """Return a finished run's model, its own store or another, predictions there, and the fingerprint of the model."""
    from r2mae.genome.domain import DOMAIN
    from r2mae.training.folder import RunFolder
    from r2mae.training.saving import load_model

    if batch_size < 2:
        raise UserError(f"batch_size must be 2 or more (a position has two strands), not {batch_size}")
    folder = RunFolder(run)
    if (found := folder.read_config().get("domain")) != DOMAIN.name:
        raise UserError(f"{run} is a run of the domain {found}, and variants are scored by the domain {DOMAIN.name}")
    config, _, model = load_model(folder.path, DOMAIN, device=device, unmasked=True)
    store = open_store(data or config.data.source)
    if data is None:
        folder.check_data(config.data.source, DOMAIN.fingerprint(config))
    logs = site_scorer(store, model, config.data.window, rows=batch_size)
    return model, store, logs, fingerprint(folder.weights, folder.model_file)


def score_command(run: str, variants: str, output: str, **options: Any) -> None:
    """Run ``r2mae score-variants``; options are those of :func:`score_variants`."""
    with counting_bar("scoring") as progress:
        counts = score_variants(run, variants, output, progress=progress, **options)
    print(f"{counts['']:,} of {sum(counts.values()):,} variants have a score in {output}")
    for reason, count in counts.items():
        if reason and count:
            print(f"{count:,} {reason}: {REASONS[reason]}")


def score_variants(
    run: str | Path,
    variants: str,
    output: str | Path,
    *,
    data: str | None = None,
    column: str = "score",
    batch_size: int = ROWS,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Score a file of variants; memory does not grow with it, but for Parquet.

    The file is read once before any prediction, so that wrong rows cost no time. Finished scores are saved in a hidden
    folder next to `output`: the same call resumes an interrupted scoring, and writes the same bytes.

    Parameters
    ----------
    run, variants, output, data, column, batch_size, device
        See :class:`r2mae.genome.options.ScoreVariants`.
    progress : callable, optional
        Called with the number of rows done and the total.

    Returns
    -------
    dict
        Number of variants for each of :data:`r2mae.genome.variants.alleles.REASONS`; those of "" have a score.
    """
    output, path = Path(output).expanduser(), Path(variants).expanduser()
    source = open_variants(path)
    check_output(output, source.kind)
    check_output_is_not_source(output, path)
    source.check_column(column)
    model, store, logs, model_fingerprint = _open_run(run, data, device, batch_size)
    total = alleles = 0
    for block in source.blocks(BLOCK):
        total, alleles = total + len(block.rows), alleles + len(block.alleles)
    plan = {
        "variants": fingerprint(path),
        "model": model_fingerprint,
        "store": store.fingerprint,
        "block": BLOCK,
        "batch_size": batch_size,
        "device": next(model.parameters()).device.type,
    }
    counts = np.zeros(len(REASONS), np.int64)

    def scored(saved: Float32[np.ndarray, " n"]) -> Iterator[Scored]:
        rows, done = 0, 0
        for block in source.blocks(BLOCK):
            found = substitutions(block.alleles, store)
            scores = saved[done : done + len(block.alleles)]
            if np.isinf(scores).any():
                scores[:] = scores_of(found, logs)
            yield block, scores, found.reasons
            counts[:] += np.bincount(found.reasons, minlength=len(REASONS))
            rows, done = rows + len(block.rows), done + len(block.alleles)
            if progress is not None:
                progress(rows, total)

    with _saved_scores(output, plan, alleles) as saved:
        source.write(output, column, scored(saved))
    return dict(zip(REASONS, counts.tolist(), strict=True))


@contextmanager
def _saved_scores(output: Path, plan: dict[str, Any], size: int) -> Iterator[Float32[np.ndarray, " n"]]:
    """Yield the scores of all alternatives, mapped from a file, infinite where one is missing.

    Its hidden folder next to `output` is deleted if no error occurs. Scores of another plan (other variants, another
    model) and damaged ones are deleted. If another process writes this output, a UserError is raised.
    """
    folder = output.with_name(f".{output.name}.scores")
    file = folder / "scores.npy"
    with exclusive(output):
        saved = _mapped(file, size) if read_json(folder / _PLAN) == plan else None
        if saved is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            allocate(file, np.float32, size)[:] = np.inf
            sync(file)  # before the plan says that they are there
            write_json(folder / _PLAN, plan)
            saved = np.load(file, mmap_mode="r+")
        yield saved
        shutil.rmtree(folder)


def _mapped(file: Path, size: int) -> Float32[np.ndarray, " n"] | None:
    """Map saved scores; None if the file is missing or damaged."""
    try:
        found: np.ndarray = np.load(file, mmap_mode="r+")
    except (OSError, ValueError):
        return None
    return found if found.shape == (size,) and found.dtype == np.float32 else None


def logits_command(run: str, regions: Sequence[str], output: str, **options: Any) -> None:
    """Run ``r2mae logits``; options are those of :func:`write_logits`."""
    with counting_bar("predicting") as progress:
        count = write_logits(run, regions, output, progress=progress, **options)
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
    add up to one. The number of positions is returned. For parameters see :class:`r2mae.genome.options.Logits`, and
    :func:`score_variants`.
    """
    output = Path(output).expanduser()
    check_output(output, "tsv")
    for region in regions:
        check_output_is_not_source(output, Path(region).expanduser())
    _, store, logs, _ = _open_run(run, data, device, batch_size)
    intervals, done = read_regions(regions, store.layout), 0
    with text_file(output) as write:
        write("\t".join(["chrom", "pos", "ref", *LETTERS[:GAP]]) + "\n")
        for contig, start, end in intervals.rows():
            for first in range(start, end, BLOCK):
                positions = np.arange(first, min(first + BLOCK, end))
                contigs = np.full(len(positions), contig)
                tokens = store.reference_windows(contigs, positions, 1)[:, 0].tolist()
                for place, token, values in zip(positions, tokens, logs(contigs, positions).tolist(), strict=True):
                    fields = [store.contigs[contig], f"{place + 1}", LETTERS[token], *(f"{one:.6g}" for one in values)]
                    write("\t".join(fields) + "\n")
                done += len(positions)
                if progress is not None:
                    progress(done, intervals.positions)
    return done
