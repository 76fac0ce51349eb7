"""Where the tests find real data."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data: $R2MAE_DATA, else ../shared/data beside the repository; skips without, but not in CI."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    root = Path(os.environ.get("R2MAE_DATA") or beside).expanduser()
    if not root.is_dir():
        reason = f"no real data: {root} is not a folder (set R2MAE_DATA)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return root
