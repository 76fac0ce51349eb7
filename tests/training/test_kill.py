import random
from pathlib import Path

import pytest

from .kill import same_after_kills

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "kills"), [("two workers, accumulation", 3), ("two processes", 2)])
def test_kill_9_at_any_moment_changes_nothing(
    tmp_path: Path, name: str, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    assert same_after_kills(tmp_path, name, kills=kills, rng=random.Random(seed)) == kills
