"""``r2mae score-variants``: apply a finished run to a file of variants.

The score of a substitution is log p(alt) − log p(ref) at its position, which is hidden, averaged over both strands.
Every alternative of a site shares one prediction.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from r2mae.domains.lookup import get_domain
from r2mae.environment import standard_session
from r2mae.files import check_output_is_not_source, exclusive, read_json, write_json
from r2mae.fingerprint import fingerprint
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.contigs import RENAME, Contigs, read_renamed
from r2mae.genome.store.tokens import MASK, reverse_complement
from r2mae.genome.variants.files import (
    REASONS,
    Logs,
    Numbers,
    Scored,
    SiteLogs,
    check_output,
    open_variants,
    scores_of,
    substitutions,
)
from r2mae.progress import counting_bar
from r2mae.training.folder import RunFolder
from r2mae.training.saving import load_model

BLOCK = 4096
"""Rows that are scored and saved at a time."""
ROWS = 128
"""Windows of a forward pass."""


def site_scorer(
    store: AlignmentStore,
    model: AlignmentTransformer,
    window: int,
    *,
    rows: int = ROWS,
    progress: Callable[[int, int], None] | None = None,
) -> SiteLogs:
    """Return what predicts the hidden base of sites, as a mean of both strands, `rows` windows at a time.

    On each strand the window has the site at column ``window // 2``. At an end of the contig it is moved inwards, and
    the site has another column. Of a contig that is shorter than the window it holds all, and is unknown behind it. The
    strands' windows mirror each other: a genome and its reverse complement have the same scores. Species of the model
    that the store lacks raise a UserError. `progress` is called with the number of sites done and the total.
    """
    step, device = max(rows // 2, 1), next(model.parameters()).device
    columns = store.columns(model.species)

    def score(contigs: Numbers, positions: Numbers) -> Logs:
        found = np.empty((len(contigs), 4), np.float32)
        for first in range(0, len(contigs), step):
            part = slice(first, first + step)
            found[part] = score_some(contigs[part], positions[part])
            if progress is not None:
                progress(min(part.stop, len(contigs)), len(contigs))
        return found

    @torch.no_grad()
    def score_some(contigs: Numbers, positions: Numbers) -> Logs:
        sizes = store.lengths[contigs]
        mirrored = sizes - 1 - positions
        starts, others = window_start(positions, sizes, window), window_start(mirrored, sizes, window)
        forward = store.windows(contigs, starts, window)
        backward = reverse_complement(store.windows(contigs, sizes - others - window, window))
        tokens = torch.from_numpy(np.concatenate([forward, backward]))
        places = torch.from_numpy(np.concatenate([positions - starts, mirrored - others]))[:, None]
        target, aligned = tokens[:, :, 0].long().scatter(1, places, MASK), tokens[:, :, 1:][:, :, columns]
        logits, _ = model(target.to(device), aligned.contiguous().to(device), places.to(device))
        plus, minus = logits[:, 0].float().log_softmax(-1).cpu().chunk(2)
        return np.asarray((plus + minus.flip(1)) / 2)

    return score


def window_start(positions: Numbers, sizes: Numbers, length: int) -> Numbers:
    """Return where windows begin: half a window before the position, moved into the contig if it can."""
    return np.asarray(np.clip(positions - length // 2, 0, np.maximum(sizes - length, 0)))


def _open_run(run: str | Path, data: str | None, device: str) -> tuple[AlignmentStore, SiteLogs, dict[str, Any]]:
    """Return a finished run's store or another, predictions there, and what they depend on."""
    folder, domain = RunFolder(run), get_domain("genome")
    config, _, model = load_model(folder.path, domain, device=device, unmasked=True)
    store = AlignmentStore(data or config.data.source)
    if data is None:
        folder.check_data(config.data.source, domain.fingerprint(config))
    logs = site_scorer(store, model, config.data.window)
    of_model, where = fingerprint(folder.weights, folder.model_file), next(model.parameters()).device.type
    return store, logs, {"model": of_model, "store": store.fingerprint, "device": where}


def score_command(run: str, variants: str, output: str, **options: Any) -> None:
    """Run ``r2mae score-variants``; options are those of :func:`score_variants`."""
    with counting_bar("scoring") as progress:
        counts = score_variants(run, variants, output, progress=progress, **options)
    print(f"{counts['']:,} of {sum(counts.values()):,} variants have a score in {output}")
    for reason, count in counts.items():
        if reason and count:
            print(f"{count:,} {reason}: {REASONS[reason]}")


@standard_session()
def score_variants(
    run: str | Path,
    variants: str,
    output: str | Path,
    *,
    data: str | None = None,
    column: str = "score",
    rename: Sequence[str] = (),
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Score a file of variants; memory does not grow with it, but for Parquet.

    The file is read once before any prediction, so that wrong rows cost no time. Finished scores are saved in
    a hidden folder next to `output`: the same call resumes an interrupted scoring, and writes the same bytes. If
    another process writes this output, a UserError is raised.

    For parameters see :class:`r2mae.genome.domain.ScoreVariants`; `progress` is called with the number of rows done and
    the total. Returns the number of variants for each of :data:`r2mae.genome.variants.files.REASONS`; those of "" have
    a score.
    """
    output, path = Path(output).expanduser(), Path(variants).expanduser()
    source = open_variants(path)
    check_output(output, source.kind)
    check_output_is_not_source(output, path)
    source.check_column(column)
    renamed = read_renamed(rename)
    store, logs, plan = _open_run(run, data, device)
    contigs, total = Contigs(store.layout, renamed), 0
    for block in source.blocks(BLOCK):
        source.check_rows(block, column)
        for contig in {contig for contig, *_ in block.alleles}:
            contigs.number(contig)
        total += len(block.rows)
    contigs.report(path, hint=RENAME)
    plan |= {"variants": fingerprint(path), "block": BLOCK, "renamed": renamed}
    counts = np.zeros(len(REASONS), np.int64)

    def scored(saved: IO[bytes]) -> Iterator[Scored]:
        rows = 0
        for block in source.blocks(BLOCK):
            found, place, size = substitutions(block.alleles, store, contigs), saved.tell(), 4 * len(block.alleles)
            finished = saved.read(size)
            if len(finished) < size:
                finished = scores_of(found, logs).tobytes()
                saved.truncate(place)
                saved.write(finished)
                os.fsync(saved.fileno())
            yield block, np.frombuffer(finished, np.float32), found.reasons
            counts[:] += np.bincount(found.reasons, minlength=len(REASONS))
            rows += len(block.rows)
            if progress is not None:
                progress(rows, total)

    folder = output.with_name(f".{output.name}.scores")
    with exclusive(output):
        if read_json(folder / "plan.json") != plan:  # of other variants, or another model
            shutil.rmtree(folder, ignore_errors=True)
            write_json(folder / "plan.json", plan)
        with (folder / "scores").open("a+b", buffering=0) as saved:
            saved.seek(0)
            source.write(output, column, scored(saved))
        shutil.rmtree(folder)
    return dict(zip(REASONS, counts.tolist(), strict=True))
