"""Making a study in its smallest size."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from r2mae_paper.runner import Reproduced, run_study
from r2mae_paper.study import get_study


@pytest.fixture
def smoke(tmp_path: Path) -> Callable[[str], Reproduced]:
    """Make a study in `tmp_path` by its name; its runs are short, and do not say much to a console."""
    return lambda name: run_study(get_study(name), tmp_path, scale="smoke", console=Console(file=StringIO()))
