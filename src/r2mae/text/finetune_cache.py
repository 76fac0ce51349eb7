"""Saved scores of finished fine-tuning runs, so that an interrupted evaluation can be resumed."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from transformers import PreTrainedConfig

from r2mae.files import read_confined, write_json
from r2mae.text.sentences import Encoded

_FORM = 1  # version of the recipe's code, increased by changes that alter scores


class FinetuneCache:
    """Scores by seed of one encoder, task and recipe, in a file that is shared with others.

    Two runs are the same if the encoder's weights and settings, the examples, and the values of `recipe` are equal.

    Parameters
    ----------
    file : path
        JSON file; an unreadable file counts as empty.
    encoder : nn.Module
        A model of transformers or ours.
    parts : sequence of Encoded
        The training examples and the test examples.
    recipe : sequence
        Plain values: task, recipe and device.
    """

    def __init__(self, file: str | Path, encoder: nn.Module, parts: Sequence[Encoded], recipe: Sequence[Any]) -> None:
        self.file = Path(file)
        settings = encoder.config.to_dict() if isinstance(encoder.config, PreTrainedConfig) else {}
        values = json.dumps([_FORM, *recipe, settings], sort_keys=True, default=str)
        digest = hashlib.blake2b(values.encode(), digest_size=16)
        for name, tensor in sorted(encoder.state_dict().items()):
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(np.ascontiguousarray(tensor.detach().float().cpu().numpy()).tobytes())
        for part in parts:
            digest.update(part.labels.numpy().tobytes())
            for ids in part.ids:
                digest.update(np.int64(len(ids)).tobytes() + ids.tobytes())
        self.name = digest.hexdigest()

    def scores(self, seed: int) -> dict[str, float] | None:
        """Return the scores of a finished run, or None."""
        try:
            return {str(name): float(value) for name, value in self._read()[f"{self.name}-{seed}"]["scores"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # not there, or damaged
            return None

    def keep(self, seed: int, task: str, scores: Mapping[str, float]) -> None:
        """Save the scores of a run."""
        write_json(self.file, {**self._read(), f"{self.name}-{seed}": {"task": task, "seed": seed, "scores": scores}})

    def _read(self) -> dict[str, Any]:
        try:
            runs = json.loads(read_confined(self.file))
        except (OSError, ValueError, RecursionError):
            return {}
        return runs if isinstance(runs, dict) else {}
