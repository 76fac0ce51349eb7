import subprocess
import sys

import pytest

import r2mae.evaluation
from r2mae.evaluation import Metric


def test_the_metric_costs_neither_scikit_learn_nor_torch():
    code = (
        "import sys; from r2mae.evaluation.metrics import Metric; "
        "print([name for name in ('sklearn', 'torch', 'numpy', 'pandas') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", r2mae.evaluation.__all__)
def test_every_exported_name_can_be_imported(name):
    assert getattr(r2mae.evaluation, name).__name__ == name


def test_other_names_raise():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = r2mae.evaluation.nothing


def test_metrics_are_values():
    assert Metric("mse", "MSE", higher_is_better=False) == Metric("mse", "MSE", False) != Metric("mse", "MSE")
