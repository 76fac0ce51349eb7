"""The batches of new cells, numbered as in the training of the model."""

import numpy as np
import pandas as pd
from jaxtyping import Int64

from r2mae.errors import UserError, unknown


def align_batches(
    name: str, obs: pd.DataFrame, batch_key: str | None, known: tuple[str, ...], transform_batch: str | None = None
) -> Int64[np.ndarray, " cells"]:
    """Number the batches of cells as in training, for the encoder.

    A cell keeps its own batch if the model knows it; all other cells get `transform_batch`.

    Parameters
    ----------
    name : str
        Name of the source, for messages.
    obs : DataFrame
        Annotations of the cells.
    batch_key : str, optional
        Column of `obs` with the batch.
    known : tuple of str
        Batches of the model.
    transform_batch : str, optional
        The training batch to use for cells whose batch is unknown or missing.

    Raises
    ------
    UserError
        If a batch is unknown to the model or missing, and no `transform_batch` is given; or if that is unknown itself.
    """
    if transform_batch is not None and transform_batch not in known:
        raise unknown("batch", transform_batch, known)
    if len(known) == 1:
        return np.zeros(len(obs), dtype=np.int64)
    instead = -1 if transform_batch is None else known.index(transform_batch)
    hint = f"name a training batch to take for them, such as transform_batch={known[0]!r} (--transform-batch)"
    if batch_key is None or batch_key not in obs:
        if transform_batch is None:
            lacks = "the run names no column of batches" if batch_key is None else f"obs has no column {batch_key!r}"
            raise UserError(f"{name}: batch_key: {lacks}, and the model tells batches apart: {hint}")
        return np.full(len(obs), instead, dtype=np.int64)
    names, missing = obs[batch_key].astype(str), obs[batch_key].isna().to_numpy()
    numbers = np.where(missing, -1, pd.Index(known).get_indexer(pd.Index(names)))
    new = sorted({str(one) for one in names[(numbers < 0) & ~missing]})
    if new and transform_batch is None:
        listed = ", ".join(new[:5]) + (", ..." if len(new) > 5 else "")
        raise UserError(f"{name}: the model has never seen the batch{'es' if len(new) > 1 else ''} {listed}: {hint}")
    if missing.any() and transform_batch is None:
        raise UserError(f"{name}: cells have no value in column {batch_key!r} of obs (batch_key): {hint}")
    return np.where(numbers < 0, instead, numbers).astype(np.int64)
