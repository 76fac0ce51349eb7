"""Scores of single test items: what an evaluation takes down of them, and the file of a run folder that keeps it.

A score of a run is a mean over test items. With the scores of single items, two rows of a comparison can be paired by
items as well as by seeds (:mod:`r2mae.evaluation.pairing`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from r2mae.files import atomic_write, confined_file, jsonable
from r2mae.masking.keys import Key

MOST = 10_000
"""So many items are kept at most: 40 kB a metric."""
_NOTE = "r2mae"  # of the file's metadata
_LARGEST = 1 << 26  # bytes of a file of ours, which may come from a stranger


@dataclass(frozen=True, eq=False)
class ItemScores:
    """Scores of single test items of a run.

    Parameters
    ----------
    fingerprint : str
        Of the items, their order and their labels: scores of other items are never paired with these.
    of : int
        How many items the run's scores are means over; of more than :data:`MOST` some are kept, evenly spread.
    scores : mapping of str to float32 ndarray, shape (kept,)
        By metric. Their mean is the run's score where all items are kept.
    """

    fingerprint: str
    of: int
    scores: Mapping[str, Float32[np.ndarray, " kept"]]

    @property
    def kept(self) -> int:
        """How many items have scores here."""
        return min(self.of, MOST)

    def write(self, path: Path, measured: Mapping[str, Any]) -> None:
        """Write them as safetensors, atomically, with how the run was measured (as ``results.json`` says it)."""
        from safetensors.numpy import save

        # One entry: safetensors writes several in any order, and the same run should give the same bytes.
        said = {_NOTE: _written({"items": self.fingerprint, "of": self.of, "measured": measured})}
        with atomic_write(path, "wb") as file:
            file.write(save(dict(self.scores), metadata=said))

    @classmethod
    def read(cls, path: Path, measured: Mapping[str, Any]) -> "ItemScores | None":
        """Read them; None if there are none, the file is damaged, or it belongs to another way of measuring."""
        from safetensors import SafetensorError, safe_open

        try:
            if path.stat().st_size > _LARGEST:
                return None
            with safe_open(confined_file(path), framework="numpy") as file:
                said = json.loads((file.metadata() or {})[_NOTE])
                found = cls(str(said["items"]), int(said["of"]), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        return found if said.get("measured") == jsonable(measured) and found._sound() else None

    def _sound(self) -> bool:
        """Whether all scores are as :meth:`write` left them."""
        sound = (one.shape == (self.kept,) and one.dtype == np.float32 for one in self.scores.values())
        return self.of > 0 and all(sound) and all(np.isfinite(one).all() for one in self.scores.values())


@runtime_checkable
class Reads(Protocol):
    """Samples that are read batch by batch, such as :class:`r2mae.training.task.Batches`."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Any:
        """Return the batch of these samples, a tensor or a mapping of tensors."""


class ItemRecorder:
    """Takes down the scores of single test items while an evaluation measures them, without a pass of its own.

    Parameters
    ----------
    prefix : str
        Put before the names of metrics.
    root : ItemRecorder, optional
        The recorder that everything is handed on to.
    """

    def __init__(self, prefix: str = "", root: "ItemRecorder | None" = None) -> None:
        self._prefix, self._root = prefix, root or self
        self._scores: dict[str, Float32[np.ndarray, " kept"]] = {}
        self._of = 0
        self._digests: dict[str, str] = {}  # of what identifies the items

    def prefixed(self, prefix: str) -> "ItemRecorder":
        """Return a recorder that writes into this one, with a prefix before the names of metrics."""
        return ItemRecorder(prefix, self._root)

    def reading(self, batches: Reads) -> "ReadItems":
        """Return the same samples; the batches that are read of them identify the items."""
        return ReadItems(batches, self)

    def identify(self, name: str, values: Any) -> None:
        """Add what identifies the items, such as a batch of them or their labels; of one name the first counts.

        Parameters
        ----------
        name : str
            What it is, such as the rows of a batch.
        values : tensor, ndarray, or mapping of names to these
            Its content.
        """
        known = self._root._digests
        if name not in known:
            known[name] = _digest(values)

    def add(self, metric: str, scores: Float[np.ndarray, " items"]) -> None:
        """Take down a score of every item, in the order of the items; nothing where a score is not finite.

        Raises
        ------
        ValueError
            If there were another number of items before.
        """
        root = self._root
        if root._of not in (0, len(scores)):
            raise ValueError(f"{metric} has {len(scores)} items, and other metrics have {root._of}")
        if len(scores) and np.isfinite(scores).all():
            root._of = len(scores)
            root._scores[self._prefix + metric] = np.asarray(scores[kept_items(len(scores))], dtype=np.float32)

    def taken(self) -> ItemScores | None:
        """Return what was taken down; None if that is nothing."""
        if not self._scores:
            return None
        said = json.dumps([self._of, sorted(self._digests.items())])
        return ItemScores(hashlib.blake2b(said.encode(), digest_size=16).hexdigest(), self._of, dict(self._scores))


class ReadItems:
    """Samples that tell a recorder what is read of them.

    Parameters
    ----------
    batches : Reads
        The samples.
    items : ItemRecorder
        Hears of every batch; one that is read again changes nothing.
    """

    def __init__(self, batches: Reads, items: ItemRecorder) -> None:
        self._batches, self._items = batches, items

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._batches)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Any:
        """Return the batch of these samples."""
        made = self._batches.batch(indices, key)
        self._items.identify(f"{int(indices[0]):012d} and {len(indices) - 1} others", made)
        return made


def kept_items(count: int) -> Int64[np.ndarray, " kept"]:
    """Return which of so many items are kept: all up to :data:`MOST`, of more as many, evenly spread.

    Not the first ones: a folder of images is sorted by class.
    """
    return np.linspace(0, count - 1, min(count, MOST)).round().astype(np.int64)


def shares(
    sums: Float64[np.ndarray, "ratios items"], means: Sequence[float] | Float64[np.ndarray, " ratios"]
) -> Float64[np.ndarray, " items"]:
    """Return the share of each item in a mean over mask ratios: the mean of all shares is the mean of `means`.

    At each ratio a score is Σ losses / Σ hidden entries, over all items together. An item's share of it is its own sum
    of losses, over the hidden entries of an average item.

    Parameters
    ----------
    sums : ndarray, shape (ratios, items)
        Losses of each item at each ratio, summed over its hidden entries.
    means : sequence of float, one per ratio
        The scores.
    """
    average = sums.mean(axis=1)
    factors = np.divide(np.asarray(means, dtype=np.float64), average, out=np.zeros_like(average), where=average != 0)
    return np.asarray((sums * factors[:, None]).mean(axis=0))


def _digest(values: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(values.items()) if isinstance(values, Mapping) else [("", values)]:
        array = np.ascontiguousarray(value.cpu() if hasattr(value, "cpu") else value)
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _written(measured: Mapping[str, Any]) -> str:
    return json.dumps(jsonable(measured), sort_keys=True)
