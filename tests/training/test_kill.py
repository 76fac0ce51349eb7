import random
from pathlib import Path

import pytest

from .kill import VARIANTS, same_after_kills


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_kill_9_at_any_moment_changes_nothing(tmp_path: Path, name: str) -> None:
    assert same_after_kills(tmp_path, name, kills=3, rng=random.Random()) == 3
