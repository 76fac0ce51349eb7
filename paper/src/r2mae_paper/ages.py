"""Ages of the donors of SEA-AD, which its file has as text, as numbers: ``python -m r2mae_paper.ages sea_ad_mtg.h5ad``.

The column development_stage has `68-year-old stage`, and `80 year-old and over stage` for those whose age is not
published. The paper predicts exact ages alone.
"""

import sys

import h5py
import numpy as np
import pandas as pd
from anndata.io import read_elem, write_elem

_EXACT = r"^(\d+)[- ]year[- ]old(?: human)? stage$"


def exact_ages(stages: pd.Series) -> pd.Series:
    """Return the age of each cell's donor, NaN for a range."""
    return pd.to_numeric(stages.astype(str).str.extract(_EXACT, expand=False)).astype(np.float64)


def write_ages(path: str) -> None:
    """Write the column `age` next to development_stage, into the file itself."""
    with h5py.File(path, "r+") as file:
        obs = file["obs"]
        write_elem(obs, "age", exact_ages(read_elem(obs)["development_stage"]).to_numpy())
        columns = [name for name in obs.attrs["column-order"] if name != "age"]
        obs.attrs["column-order"] = np.array([*columns, "age"], dtype=object)


if __name__ == "__main__":
    write_ages(*sys.argv[1:])
