"""Running a target in its smallest size."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from r2mae_paper.runner import Reproduced, run_artefact


@pytest.fixture
def smoke(tmp_path: Path) -> Callable[[Any], Reproduced]:
    """Run an artefact's module into `tmp_path`; its runs are short, and do not say much to a console."""
    return lambda module: run_artefact(module, tmp_path, scale="smoke", console=Console(file=StringIO()))
