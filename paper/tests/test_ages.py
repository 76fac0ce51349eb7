from pathlib import Path

import anndata
import numpy as np
import pandas as pd

from r2mae_paper.ages import write_ages


def test_ages_become_a_column_of_numbers(tmp_path: Path) -> None:
    stages = ["68-year-old stage", "90 year-old human stage", "80 year-old and over stage", "adult stage", None]
    obs = pd.DataFrame({"development_stage": pd.Categorical(stages)}, index=list("abcde"))
    anndata.AnnData(np.ones((5, 2), np.float32), obs=obs).write_h5ad(tmp_path / "a.h5ad")
    for _ in range(2):
        write_ages(str(tmp_path / "a.h5ad"))
        found = anndata.read_h5ad(tmp_path / "a.h5ad").obs
        assert list(found.columns) == ["development_stage", "age"]
        np.testing.assert_array_equal(found["age"], [68, 90, np.nan, np.nan, np.nan])
