"""Nothing changes the numbers of runs unnoticed: see references.py."""

import subprocess
import sys
from pathlib import Path

from frozen.references import differences

HERE = Path(__file__).parent


def test_runs_end_with_the_frozen_numbers() -> None:
    """In a process without checks of shapes, which would take most of the time; 1e-4 holds on any processor."""
    command = [sys.executable, "-m", "frozen.references", "--compare"]
    done = subprocess.run(command, cwd=HERE.parent, check=False, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_a_difference_is_found_and_named() -> None:
    expected = {"run": {"loss": [1.0, 2.0], "norms": {"weight": 3.0}}}
    assert list(differences(expected, expected)) == []
    assert list(differences(expected, {"run": {"loss": [1.0, 2.00005], "norms": {"weight": 3.0}}})) == []
    assert list(differences(expected, {"run": {"loss": [1.0, 2.001], "norms": {"weight": 3.0}}})) == [
        " / run / loss[1]: 2.0 expected, 2.001 found"
    ]
    assert list(differences(expected, {"run": {"loss": [1.0, 2.0], "norms": {}}})) == [
        " / run / norms / weight: only expected"
    ]
    assert list(differences(expected, {"run": {"loss": [1.0], "norms": {"weight": 3.0}}})) != []
