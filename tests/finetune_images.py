"""A few images of some classes for the tests of fine-tuning, and how short runs are computed."""

from pathlib import Path

import numpy as np

SIDE = 8
VIT = {"patch": 4, "width": 12, "layers": 2, "heads": 2, "decoder_width": 8, "decoder_layers": 1, "decoder_heads": 1}
MACHINE = {"threads": 1, "device": "cpu", "precision": "32"}


def write_images(path: Path, classes: int = 3, count: int = 60) -> str:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % classes
    images = rng.integers(0, 128, (count, SIDE, SIDE, 3)) + (120 // classes) * labels[:, None, None, None]
    np.savez(path, images=images.astype(np.uint8), labels=labels)
    return str(path)
