"""A cache of one's own for every test."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Token stores of tests do not go into the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("R2MAE_CACHE", str(folder))
    return folder
