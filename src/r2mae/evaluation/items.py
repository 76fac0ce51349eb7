"""Scores of single test items: their recorder during an evaluation, and their file in a run folder.

A score of a run is a mean over test items. The scores of single items allow a comparison to pair two variants by items
as well as by seeds (:mod:`r2mae.evaluation.pairing`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

from r2mae.files import atomic_write, confined_file, jsonable

_METADATA_KEY = "r2mae"  # the key of our entry in the file's metadata
_MAX_FILE_BYTES = 1 << 28  # 67 million scores; larger files are not read


@dataclass(frozen=True, eq=False)
class ItemScores:
    """Scores of single test items of a run, by metric; their mean is the run's score.

    Only scores with equal fingerprints, of the items, their order and their labels, are paired.
    """

    fingerprint: str
    count: int
    scores: Mapping[str, Float32[np.ndarray, " items"]]

    def write(self, path: Path, measured: Mapping[str, Any]) -> None:
        """Write the scores as safetensors, atomically, with the settings of the measurement as in ``results.json``."""
        from safetensors.numpy import save

        # One entry: safetensors writes several in arbitrary order, but equal runs should give equal bytes.
        entry = {"items": self.fingerprint, "of": self.count, "measured": measured}
        metadata = {_METADATA_KEY: json.dumps(jsonable(entry), sort_keys=True)}
        with atomic_write(path, "wb") as file:
            file.write(save(dict(self.scores), metadata=metadata))

    @classmethod
    def read(cls, path: Path, measured: Mapping[str, Any]) -> "ItemScores | None":
        """Read the scores; None if the file is missing or damaged, or its measurement has other settings."""
        from safetensors import SafetensorError, safe_open

        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                return None
            with safe_open(confined_file(path), framework="numpy") as file:
                entry = json.loads((file.metadata() or {})[_METADATA_KEY])
                scores = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                found = cls(str(entry["items"]), int(entry["of"]), scores)
        except (OSError, SafetensorError, KeyError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        return found if entry.get("measured") == jsonable(measured) and found._is_valid() else None

    def _is_valid(self) -> bool:
        """Return whether all scores have the shape, type and finite values that :meth:`write` stores."""
        valid = (one.shape == (self.count,) and one.dtype == np.float32 for one in self.scores.values())
        return self.count > 0 and all(valid) and all(np.isfinite(one).all() for one in self.scores.values())


class ItemRecorder:
    """Records the scores of single test items during an evaluation, without a separate pass over the data."""

    def __init__(self) -> None:
        self.prefix = ""  # of the names of metrics
        self._scores: dict[str, Float32[np.ndarray, " items"]] = {}
        self._of = 0
        self._digests: dict[str, str] = {}  # by name of what identifies the items

    def identify(self, name: str, values: Any) -> None:
        """Add values that identify the items to their fingerprint; a second call with a name is ignored.

        They are a tensor, an ndarray, or a mapping of names to these, such as a batch or the labels.
        """
        if name not in self._digests:
            self._digests[name] = _digest(values)

    def add(self, metric: str, scores: Float[np.ndarray, " items"]) -> None:
        """Record one score per item, in the order of the items; if any is not finite, record nothing."""
        if self._of not in (0, len(scores)):
            raise ValueError(f"{metric} has {len(scores)} items, but other metrics have {self._of}")
        if len(scores) and np.isfinite(scores).all():
            self._of = len(scores)
            self._scores[self.prefix + metric] = np.asarray(scores, dtype=np.float32)

    def item_scores(self) -> ItemScores | None:
        """Return the recorded scores; None if there are none."""
        if not self._scores:
            return None
        identity = json.dumps([self._of, sorted(self._digests.items())]).encode()
        return ItemScores(hashlib.blake2b(identity, digest_size=16).hexdigest(), self._of, dict(self._scores))


def item_shares(
    sums: Float64[np.ndarray, "ratios items"], means: Sequence[float] | Float64[np.ndarray, " ratios"]
) -> Float64[np.ndarray, " items"]:
    """Return the share of each item in a mean over mask ratios; the mean of the shares is the mean of `means`.

    At each ratio, a score is Σ losses / Σ hidden entries over all items. The share of an item is the sum of its losses,
    which `sums` has, divided by the hidden entries of an average item.
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
