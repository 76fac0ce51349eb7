"""``r2mae score-variants RUN VARIANTS -o OUT``: score variants by a model's log likelihood ratio.

The score of a substitution is log p(alt) − log p(ref) at its position, which is hidden, averaged over both strands.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError
from r2mae.files import check_output_is_not_source, exclusive, read_json, write_json
from r2mae.genome.config import GenomeConfig
from r2mae.genome.heatmap import check_figure, draw_scores
from r2mae.genome.source import read_source
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.meta import allocate
from r2mae.genome.task import WindowModel
from r2mae.genome.variants.alleles import REASONS, Block, substitutions, tally
from r2mae.genome.variants.files import (
    RegionVariants,
    Scored,
    Variants,
    check_column,
    check_output,
    kind_of,
    open_variants,
)
from r2mae.genome.variants.sites import ROWS, SiteLogs, model_scorer, scores_of
from r2mae.training.fingerprint import fingerprint
from r2mae.training.progress import counting_bar
from r2mae.training.validation import evaluating

BLOCK = 4096
"""Rows that are scored and saved at a time."""

COLUMN = "score"
Scores = tuple[Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]
"""Scores and reasons of variants."""

_PLAN = "plan.json"
_UNDONE = 255  # reason of a variant that has not been scored yet


@dataclass(frozen=True)
class OpenRun:
    """A finished run with the store that its model is applied to.

    Parameters
    ----------
    config : GenomeConfig
    model : WindowModel
    store : AlignmentStore
    model_fingerprint : str
        Fingerprint of the model's weights and description.
    """

    config: GenomeConfig
    model: WindowModel
    store: AlignmentStore
    model_fingerprint: str

    def scorer(self, rows: int = ROWS) -> SiteLogs:
        """Return the scorer of the model on the store."""
        return model_scorer(self.store, self.model, self.config.data.window, rows=rows)


def open_run(run: str | Path, data: str | None = None, device: str = "auto") -> OpenRun:
    """Open a finished run, and its own store or another.

    Raises
    ------
    UserError
        If `run` is not a finished run of this domain, or the store is missing or lacks species of the model.
    """
    from r2mae.genome.domain import DOMAIN
    from r2mae.training.folder import RunFolder
    from r2mae.training.saving import load_model

    folder = RunFolder(run)
    found = folder.read_config()
    if found.get("domain") != DOMAIN.name:
        raise UserError(
            f"{run} is a run of the domain {found.get('domain')}, and variants are scored by the domain {DOMAIN.name}"
        )
    source = data or str(found["data"].get("source"))
    read_source(source)
    config, _, model = load_model(folder.path, DOMAIN, device=device, unmasked=True)
    if data is None:
        folder.check_data(config.data.source, DOMAIN.fingerprint(config))
    return OpenRun(config, model, AlignmentStore(source), fingerprint(folder.weights, folder.model_file))


def command(run: str, variants: str, output: str | None = None, **options: Any) -> None:
    """Run ``r2mae score-variants``; options are those of :func:`score_variants`."""
    if output is None:
        raise UserError("r2mae score-variants needs a file to write: -o OUT")
    with counting_bar("scoring") as progress:
        counts = score_variants(run, variants, output, progress=progress, **options)
    total = sum(counts.values())
    print(f"{counts['']:,} of {total:,} variants have a score in {output}")
    for reason, count in counts.items():
        if reason and count:
            print(f"{count:,} {reason}: {REASONS[reason]}")


def score_variants(
    run: str | Path,
    variants: str,
    output: str | Path,
    *,
    data: str | None = None,
    column: str = COLUMN,
    batch_size: int = ROWS,
    device: str = "auto",
    figure: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Score a file of variants, or all substitutions of a region, in memory that does not grow with their number.

    The file is read once before any prediction, so that wrong rows cost no time. Finished scores are saved in a hidden
    folder next to `output`: the same call resumes an interrupted scoring, and writes the same bytes.

    Parameters
    ----------
    run : path
        A finished run.
    variants : str
        A file (VCF, .tsv, .csv, Parquet), or a region such as ``chr1:101-200`` or a BED file.
    output : path
        The same rows in the same order, with two more columns.
    data : str, optional
        Another store than the run's.
    column : str
        Name of the scores; that of the reasons ends in ``_reason``.
    batch_size : int
        Windows per forward pass; there are two for each position.
    device : str
    figure : path, optional
        For a region: a picture of the scores.
    progress : callable, optional
        Called with the number of rows done and the total.

    Returns
    -------
    dict
        Number of variants for each of :data:`r2mae.genome.variants.alleles.REASONS`; those of "" have a score.

    Raises
    ------
    UserError
        For mistakes in run, store or variants; the message names file and line.
    """
    if batch_size < 2:
        raise UserError(f"batch_size must be 2 or more (a position has two strands), not {batch_size}")
    output, path = Path(output).expanduser(), Path(variants).expanduser()
    source: Variants | None = None
    if is_region(variants):
        check_output(output, "tsv")
    else:
        if figure is not None:
            raise UserError(f"--figure draws a region, such as chr1:101-200, and {variants} is a file: omit it")
        source = open_variants(path)
        check_output(output, source.kind)
        check_output_is_not_source(output, path)
    opened = open_run(run, data, device)
    if source is None:
        regions = RegionVariants(opened.store, [variants])
        if figure is not None:
            check_figure(Path(figure), regions.intervals.positions)
        source = regions
    check_column(source, column)
    sizes = [(len(block.rows), len(block)) for block in source.blocks(BLOCK)]
    total = sum(rows for rows, _ in sizes)
    plan = {
        "alternatives": sum(alternatives for _, alternatives in sizes),
        "variants": fingerprint(path) if path.is_file() else variants,
        "model": opened.model_fingerprint,
        "store": opened.store.fingerprint,
        "block": BLOCK,
        "batch_size": batch_size,
        "device": next(opened.model.parameters()).device.type,
    }
    counts = np.zeros(len(REASONS), np.int64)
    with _saved_scores(output, plan) as saved, evaluating(opened.model):
        logs = opened.scorer(batch_size)

        def scored() -> Iterator[Scored]:
            counts[:], done, first = 0, 0, 0
            for block in source.blocks(BLOCK):
                scores, reasons = (values[first : first + len(block)] for values in saved)
                first += len(block)
                if (reasons == _UNDONE).any() or np.isnan(scores[reasons == 0]).any():
                    scores[:], reasons[:] = _score_block(block, opened.store, logs)
                yield block, scores, reasons
                counts[:] += tally(reasons)
                done += len(block.rows)
                if progress is not None:
                    progress(done, total)

        source.write(output, column, scored())
        if figure is not None:
            draw_scores(Path(figure).expanduser(), scored())
    return dict(zip(REASONS, counts.tolist(), strict=True))


def is_region(variants: str) -> bool:
    """Return whether this is a region or a BED file, rather than a file of variants."""
    name, path = variants.lower(), Path(variants).expanduser()
    if name.endswith((".bed", ".bed.gz")):
        return True
    return kind_of(path) is None and not path.exists() and not name.endswith(".bcf")


@contextmanager
def _saved_scores(output: Path, plan: dict[str, Any]) -> Iterator[Scores]:
    """Yield scores and reasons of all variants, in files next to the output that are deleted if no error occurs.

    Files of another plan (other variants, another model) are begun again.

    Raises
    ------
    UserError
        If another process writes this output.
    """
    folder = output.with_name(f".{output.name}.scores")
    with exclusive(output):
        saved = _open_saved(folder, plan)
        if saved is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            allocate(folder / "scores.npy", np.float32, plan["alternatives"])[:] = np.nan
            allocate(folder / "reasons.npy", np.uint8, plan["alternatives"])[:] = _UNDONE
            write_json(folder / _PLAN, plan)
            saved = _open_saved(folder, plan)
        assert saved is not None
        yield saved
        shutil.rmtree(folder, ignore_errors=True)


def _open_saved(folder: Path, plan: dict[str, Any]) -> Scores | None:
    """Map the scores and reasons of this plan; None if there are none, or they are damaged."""
    if read_json(folder / _PLAN) != plan:
        return None
    try:
        scores, reasons = (np.load(folder / f"{name}.npy", mmap_mode="r+") for name in ("scores", "reasons"))
    except (OSError, ValueError):
        return None
    is_whole = scores.shape == reasons.shape == (plan["alternatives"],)
    return (scores, reasons) if is_whole and (scores.dtype, reasons.dtype) == (np.float32, np.uint8) else None


def _score_block(block: Block, store: AlignmentStore, logs: SiteLogs) -> Scores:
    found = substitutions(block, store)
    return scores_of(found, logs), found.reasons
