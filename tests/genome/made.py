"""Batches of windows, and small models, made for tests."""

from typing import Any

import numpy as np
import torch

from r2mae.genome.batches import WindowBatch
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.task import AlignmentTask


def windows(rows: int = 5, length: int = 24, others: int = 3, *, seed: int = 0, plain: bool = False) -> WindowBatch:
    """Random windows; `plain` ones have bases alone, no repeats, and weights of one."""
    rng = np.random.default_rng(seed)
    most = 4 if plain else 6
    soft = rng.random((rows, length)) < (0 if plain else 0.3)
    weights = np.ones((rows, length)) if plain else rng.random((rows, length))
    return {
        "target": torch.from_numpy(rng.integers(0, most, (rows, length), dtype=np.uint8)),
        "aligned": torch.from_numpy(rng.integers(0, 6, (rows, length, others), dtype=np.uint8)),
        "soft": torch.from_numpy(soft),
        "weights": torch.from_numpy(weights.astype(np.float32)),
        "neutral": torch.from_numpy(rng.random((rows, length)) < 0.5),
    }


def network(others: int = 3, **sizes: Any) -> AlignmentTransformer:
    """A small model with weights far enough from 0 for differences to show."""
    torch.manual_seed(0)
    given = {"length": 24, "width": 16, "layers": 2, "heads": 2, "inner": 40, "dropout": 0.0, **sizes}
    model = AlignmentTransformer(others=others, **given)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def task(**fields: Any) -> AlignmentTask:
    """The task of such models, which by default hides with the mask token alone."""
    return AlignmentTask(16, **{"corruption": "mask", **fields})
