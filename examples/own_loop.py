"""Random mask ratios in a training loop of your own: a model of torch learns to fill in hidden pixels of digits.

    python examples/own_loop.py --low 0.5 --high 0.9

The lines marked with <- are all that the idea needs. Afterwards the error of hidden pixels is measured at several
ratios, next to a prediction by the mean of each pixel. Data: the digits of scikit-learn.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from r2mae import MaskRatio  # <-


def error(predicted: Tensor, images: Tensor, hidden: Tensor) -> Tensor:
    """Return the mean squared error of hidden pixels."""
    return ((predicted - images) ** 2)[hidden].mean()


def main() -> None:
    """Train and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--low", type=float, default=0.5, help="lowest mask ratio")
    parser.add_argument("--high", type=float, default=0.9, help="highest mask ratio; equal to --low for a fixed ratio")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=128, help="images in a step")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    images = torch.from_numpy(load_digits().data / 16).float()
    train, test = images[:1400], images[1400:]
    mean = train.mean(0)

    torch.manual_seed(given.seed)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ratio = MaskRatio("r2mae", low=given.low, high=given.high, seed=given.seed)  # <-

    for step in range(given.steps):
        batch = train[torch.randint(len(train), (given.batch,))]
        hidden = ratio.mask(batch.shape, step)  # <- True = hidden; a function of seed, step and row
        loss = error(model((batch - mean) * ~hidden) + mean, batch, hidden)  # hidden pixels have their mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        hidden = MaskRatio(share, seed=1).mask(test.shape, step=0)  # the same in every run
        with torch.no_grad():
            found = error(model((test - mean) * ~hidden) + mean, test, hidden)
        trivial = error(mean.expand_as(test), test, hidden)
        print(f"{share:.0%} hidden: mean squared error {found:.4f} (by the mean: {trivial:.4f})")


if __name__ == "__main__":
    main()
