"""How well does a Gaussian predict the normalised patches that Table 1's models predict? No network, no labels.

    python paper/results/images/table1/gaussian.py OUT.csv

An image is its patches twice: their pixels, and the pixels normalised by each patch's own mean and deviation. A
Gaussian of both is fitted to the training images and their mirror images. It predicts the normalised pixels of hidden
patches from all numbers of the kept ones, on the masks that the models are evaluated on. The covariance has a few axes
and one variance for the rest; their number is chosen for each ratio on every twentieth training image, which is then
left out of the fit.
"""

import csv
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

from r2mae.evaluation import gaussian
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.images.batches import ImageBatches
from r2mae.images.domain import ImagesDomain
from r2mae.images.evaluate import RATIOS
from r2mae.images.models.vit_mae.model import HiddenPatches, PatchTask
from r2mae.images.patches import normalised, patchify, standardised
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike
from r2mae.training.task import Output
from r2mae.training.validation import masked_losses
from r2mae_paper.scheme_tables import runs_of_vits
from r2mae_paper.studies import ENTRIES

AXES = (2, 4, 8, 16, 32, 64, 128, 256)


class Gaussian(nn.Module):
    """The conditional mean of normalised patches, in place of a transformer's prediction."""

    def __init__(self, task: PatchTask, train: Tensor) -> None:
        super().__init__()
        self.patch = task.patch
        self.gaussian = GaussianConditionalMean.fit(self.numbers(torch.cat([train, train.flip(2)])))

    def numbers(self, images: Tensor) -> np.ndarray:
        """Return pixels and normalised pixels, shape (images, 2 · patches · numbers of a patch)."""
        patches = patchify(standardised(images), self.patch)
        return torch.stack([patches, normalised(patches)], 1).flatten(1).numpy()

    def forward(self, images: Tensor, hidden: Tensor) -> Tensor:
        """Return the normalised pixels of hidden patches, shape (hidden, numbers)."""
        count = self.patch**2 * images.shape[-1]
        mask = hidden[:, None, :, None].expand(-1, 2, -1, count).flatten(1).numpy()
        filled = torch.from_numpy(self.gaussian.fill(self.numbers(images), mask)).float()
        return filled.view(len(images), 2, -1, count)[:, 1][hidden]


@dataclass(frozen=True)
class WholeImages(PatchTask):
    """The same masks and targets, for a model that takes whole images and a mask, and reads kept patches alone."""

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> HiddenPatches:
        """Hide patches; the input is the images, and the targets have the order of the patches."""
        corrupted = super().corrupt(batch, ratio, key)
        targets = normalised(patchify(standardised(batch), self.patch))[corrupted.hidden]
        return replace(corrupted, inputs=batch, targets=targets)

    def forward(self, model: nn.Module, corrupted: HiddenPatches) -> Output:
        """Predict hidden patches."""
        return Output(model(corrupted.inputs, corrupted.hidden), corrupted.inputs)


def main(out: str) -> None:
    """Write the error at each ratio, and their mean."""
    with TemporaryDirectory() as folder:
        run = runs_of_vits(ENTRIES["table1"].size("small"), Path(folder))[0]
        data = ImagesDomain().load(run.config)
    task = WholeImages(data.splits.train.shape, run.config.model.patch)
    train, test = (ImageBatches(part.images) for part in (data.splits.train, data.splits.test))
    every = np.arange(len(train))
    held_out = ImageBatches(data.splits.train.images[every % 20 == 0])
    fitted = train.batch(every[every % 20 > 0], run.config.key)
    models, errors = [], []
    for axes in AXES:
        gaussian.RANK = axes
        models.append(Gaussian(task, fitted))
        errors.append(masked_losses(task, models[-1], held_out, RATIOS))
        print(axes, *(f"{error:.3f}" for error in errors[-1]), flush=True)
    chosen = np.argmin(errors, axis=0)
    scores = [masked_losses(task, models[place], test, RATIOS)[number] for number, place in enumerate(chosen)]
    with Path(out).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["ratio", "axes", "error"])
        writer.writerows(
            [ratio, AXES[place], f"{score:.5g}"] for ratio, place, score in zip(RATIOS, chosen, scores, strict=True)
        )
        writer.writerow(["mean", "", f"{np.mean(scores):.5g}"])


if __name__ == "__main__":
    main(*sys.argv[1:])
