"""A cache of one's own for every test, and where the real texts are."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Token stores of tests do not go into the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("R2MAE_CACHE", str(folder))
    return folder


@pytest.fixture
def shared_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data: $R2MAE_DATA, else ../shared/data beside the repository; skips without, but not in CI."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    root = Path(os.environ.get("R2MAE_DATA") or beside).expanduser()
    if not (root / "wikitext2").is_dir():
        reason = f"no real texts: {root / 'wikitext2'} is not a folder (set R2MAE_DATA)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    monkeypatch.setenv("R2MAE_DATA", str(root))
    return root
