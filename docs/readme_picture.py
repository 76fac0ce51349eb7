"""The picture of the README: digits as networks fill them in, trained at one mask ratio or at random ones.

    python docs/readme_picture.py docs/assets/ratio.png

It trains three small networks on MNIST, a few minutes on two cores, and prints their errors by hidden share.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import r2mae

ROWS = {
    "fixed 0.1": {"scheme": "fixed", "ratio": 0.1},
    "fixed 0.9": {"scheme": "fixed", "ratio": 0.9},
    "r2mae": {"scheme": "r2mae", "low": 0.1, "high": 0.9},
}
COLOURS = {"fixed 0.1": "#0072b2", "fixed 0.9": "#d55e00", "r2mae": "#009e73"}
SHARES, SHOWN, DIGITS = (0.1, 0.3, 0.5, 0.7, 0.9), (0.3, 0.8), (1, 4, 7)


def main(picture: str = "ratio.png", folder: str = "runs/readme", steps: str = "4000") -> None:
    """Train, print the errors, and draw."""
    runs = {
        name: r2mae.pretrain(
            "mnist", **scheme, fill="mean", norm="layer", steps=int(steps), lr=1e-3, schedule="cosine",
            out=Path(folder) / name.replace(" ", "-"),
        )
        for name, scheme in ROWS.items()
    }  # fmt: skip
    errors = {name: [run.scores[f"masked_mse_{share:g}"] for share in SHARES] for name, run in runs.items()}
    for name, row in errors.items():
        print(f"{name:10}", *(f"{error:.4f}" for error in row), f"mean {runs[name].scores['masked_mse']:.4f}")

    first = runs["r2mae"]
    data = first.domain.load(first.config)
    made = {
        (name, share): run.domain.examples(run.config, run.task, run.model, data, ratio=share)
        for name, run in runs.items()
        for share in SHOWN
    }
    figure = plt.figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.55, 1))
    panels = left.subplots(5, len(SHOWN) * len(DIGITS))
    for column, (share, digit) in enumerate((share, digit) for share in SHOWN for digit in DIGITS):
        known = made["r2mae", share]
        shown = [known.original, known.masked, *(made[name, share].prediction for name in ROWS)]
        for axes, images in zip(panels[:, column], shown, strict=True):
            axes.imshow(images[digit].squeeze(), cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        if digit == DIGITS[len(DIGITS) // 2]:
            panels[0, column].set_title(f"{100 * share:.0f} % hidden", fontsize=10)
    for axes, name in zip(panels[:, 0], ("digit", "what is seen", *ROWS), strict=True):
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, color=COLOURS.get(name, "black"))
    axes = right.subplots()
    for name, row in errors.items():
        axes.plot(SHARES, row, "o-", color=COLOURS[name], label=name, markersize=4)
    axes.set(xlabel="hidden share", ylabel="squared error of hidden pixels", xticks=SHARES, yscale="log")
    axes.legend(title="trained at", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    Path(picture).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
