"""Writes likelihood.csv: how much better each row predicts hidden counts than the best fixed ratio, in %.

    python paper/results/cells/likelihood.py

It reads the runs of Tables 4 and 6 and of the mean cell. A gain is the logarithm of the best fixed ratio's
`masked_loss` minus that of the row, paired over seeds; the best fixed ratio of a seed is chosen on the others.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from r2mae.evaluation import best_fixed, mean_interval, paired_difference

HERE = Path(__file__).parent
SETS = ("csle", "covid-tcells", "pig-airway", "onek1k", "perez-tcells", "combat")


def main() -> None:
    """Write the table next to this file."""
    files = ("table4/table4-runs.csv", "table6/table6-runs.csv", "hidden-genes-baselines.csv")
    runs = pd.concat([pd.read_csv(HERE / file) for file in files])
    runs = runs[runs["masked_loss"].notna()]
    rows: list[dict[str, object]] = []
    gains: dict[str, list[float]] = {}
    for name in SETS:
        losses = runs[runs["set"] == name].pivot_table(index="label", columns="seed", values="masked_loss").dropna()
        scores = -np.log(losses)
        fixed = best_fixed(scores[scores.index.str.startswith("fixed ")].to_numpy().T)
        for label in scores.index[~scores.index.str.startswith("fixed ")]:
            values = scores.loc[label].to_numpy()
            found = paired_difference(values, fixed.partner(values))
            gains.setdefault(label, []).append(found.mean)
            rows.append({"set": name, "label": label, **_columns(found), "is": found.verdict})
    for label, values in gains.items():
        if len(values) == len(SETS):
            found = mean_interval(values)
            verdict = "better" if found.low > 0 else "worse" if found.high < 0 else "undecided"
            rows.append({"set": "all six alike", "label": label, **_columns(found), "is": verdict})
    pd.DataFrame(rows).to_csv(HERE / "likelihood.csv", index=False)


def _columns(found: object) -> dict[str, float]:
    columns = {"gain_percent": "mean", "low": "low", "high": "high"}
    return {name: round(100 * getattr(found, key), 3) for name, key in columns.items()}


if __name__ == "__main__":
    main()
