"""Writes context-free.csv: the masked loss that a prediction without context reaches on held-out text of `wiki`.

    python paper/results/text/context_free.py

`frequencies` predicts every hidden token by the frequencies of tokens in training (plus one). `without_context` also
knows the rule of replacement: of the chosen tokens 80 % are masked, 10 % replaced by a random token and 10 % kept, and
what stands at a place that is not masked is the more likely kept, the more frequent it is.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from r2mae.masking.keys import Key
from r2mae.text.batches import load_data
from r2mae.text.config import TextConfig
from r2mae.text.evaluate import _evenly_spaced

MASKED, RANDOM, KEPT = 0.8, 0.1, 0.1
SPECIAL = 5  # tokens of the vocabulary, the first ones
WINDOWS = 2000  # of held-out text that are measured


def losses(vocabulary: int, length: int, seed: int) -> tuple[float, float]:
    """Return both losses in nats for one split of the documents."""
    base = TextConfig()
    data = replace(base.data, source="wiki", vocab_size=vocabulary, sequence_length=length)
    loaded = load_data(replace(base, data=data, seed=seed))
    assert loaded.validation is not None
    held_out = loaded.validation.batch(_evenly_spaced(len(loaded.validation), WINDOWS), Key.root(0)).numpy().ravel()
    held_out = held_out[held_out >= SPECIAL]
    counts = np.bincount(
        loaded.train.batch(np.arange(len(loaded.train)), Key.root(0)).numpy().ravel(), minlength=vocabulary
    )
    shares = counts + 1.0
    shares[:SPECIAL] = 0
    shares /= shares.sum()
    frequencies = -np.log(shares[held_out]).mean()
    kept = shares / (shares + 1 / (vocabulary - SPECIAL))  # probability that a visible chosen token is the true one
    of_kept = -np.log(kept[held_out] + (1 - kept[held_out]) * shares[held_out]).mean()
    of_random = -np.log(1 - kept[SPECIAL:]).mean() + frequencies
    return frequencies, MASKED * frequencies + RANDOM * of_random + KEPT * of_kept


def main() -> None:
    """Write the table next to this file."""
    rows = []
    for vocabulary, length, seeds in ((2000, 32, 5), (8000, 128, 3)):
        for seed in range(seeds):
            plain, informed = losses(vocabulary, length, seed)
            row = {"vocabulary": vocabulary, "sequence_length": length, "seed": seed}
            rows.append({**row, "frequencies": round(plain, 3), "without_context": round(informed, 3)})
    pd.DataFrame(rows).to_csv(Path(__file__).with_name("context-free.csv"), index=False)


if __name__ == "__main__":
    main()
