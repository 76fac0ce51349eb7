import random
from pathlib import Path

import pytest

from .kill import VARIANTS, same_after_kills


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_kill_9_at_any_moment_changes_nothing(tmp_path: Path, name: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    assert same_after_kills(tmp_path, name, kills=3, rng=random.Random(seed)) == 3
