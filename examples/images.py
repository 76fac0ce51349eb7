"""Pretrain a masked autoencoder on your own images with random mask ratios, then turn images into vectors.

    python examples/images.py --images photos/ --preset vit-mae-tiny --epochs 100 --out runs/photos

The images may be a folder (with a folder for each class, if there are classes), an .npz or .npy file, a .tar, or a
named set; the default is the digits of scikit-learn. Without classes there is no accuracy. Which scheme is better on
your images is what `r2mae compare images` answers.
"""

import argparse
from pathlib import Path

import numpy as np

from r2mae.images import DOMAIN, ImagesConfig
from r2mae.training import pretrain
from r2mae.training.saving import load_model

SCORES = {"probe_accuracy": "accuracy of a linear probe", "knn_accuracy": "accuracy of the nearest neighbours"}


def main() -> None:
    """Train, measure and embed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", default="digits", help="your images")
    parser.add_argument("--out", type=Path, default=Path("runs/images"))
    parser.add_argument("--preset", help="a model with its sizes, such as unet-8 or vit-mae-tiny; without one an MLP")
    parser.add_argument("--low", type=float, default=0.5, help="lowest mask ratio")
    parser.add_argument("--high", type=float, default=0.9, help="highest mask ratio")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128, help="images in a step")
    given = parser.parse_args()

    config = ImagesConfig.make(
        data=given.images,
        preset=given.preset,
        scheme="r2mae",  # a ratio for every step, drawn from U(low, high)
        low=given.low,
        high=given.high,
        epochs=given.epochs,
        batch_size=given.batch,
    )
    _, results = pretrain(config, DOMAIN, given.out)  # run again, it resumes, or reads what is finished
    for name, title in SCORES.items():
        if name in results["scores"]:
            print(f"{title}: {results['scores'][name]:.1%}")
    for ratio in ("0.1", "0.5", "0.9"):
        print(f"{ratio} of the pixels hidden: mean squared error {results['scores'][f'masked_mse_{ratio}']:.4f}")

    vectors = DOMAIN.embed(*load_model(given.out, DOMAIN), given.images)["embedding"]
    np.save(given.out / "vectors.npy", vectors)
    print(f"{len(vectors):,} images as vectors of {vectors.shape[1]} numbers are in {given.out / 'vectors.npy'}")


if __name__ == "__main__":
    main()
