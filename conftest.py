"""Shapes and types are checked at every call while the tests run."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
from jaxtyping import install_import_hook

import typecheck  # noqa: F401 — it takes the place of `jaxtyping.jaxtyped`
from no_training import GUARD

# Before anything of r2mae is imported: annotations become checks, by beartype, in every function.
install_import_hook(["r2mae", "r2mae_paper"], "typecheck.check")

os.environ.setdefault("MPLBACKEND", "Agg")
os.fsync = lambda fd: None  # no test cuts the power: none waits for the disk

# No test is timed, the machine may be busy; in CI the same cases are tried every time.
hypothesis.settings.register_profile("r2mae", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("r2mae")
# `make test-fast`: fewer cases of every property; `make test` tries them all.
hypothesis.settings.register_profile("fast", hypothesis.settings.get_profile("r2mae"), max_examples=20)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that is slow as a whole is not even imported by `make test-fast`; most of its time is imports."""
    if config.getoption("markexpr") != "not slow" or collection_path.suffix != ".py":
        return None
    whole = r"^pytestmark = (\[\s*)?pytest\.mark\.slow\b"
    return re.search(whole, collection_path.read_text(encoding="utf-8"), re.MULTILINE) is not None or None


# Files of few, long tests: they begin first, so that no process waits for the other in the end.
FIRST = [
    f"test_{name}.py"
    for name in ["frozen", "contract", "randomness", "kill", "nodes", "tutorials", "dask_runner", "ddp", "cell_tables"]
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest files to the front; within a file the order stays."""
    items.sort(key=lambda item: item.path.name not in FIRST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests without the mark `slow` do not train, nor do the fixtures that they ask for."""
    GUARD.begin(slow=item.get_closest_marker("slow") is not None)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Switch the type checks off, to see what a user without them is told."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def no_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the trackers that this machine may have: whoever looks for them finds none."""
    for name in ("wandb", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data: $R2MAE_DATA, else ../shared/data by the repository; skips without, but not in CI."""
    default = Path(__file__).resolve().parents[1] / "shared" / "data"
    root = Path(os.environ.get("R2MAE_DATA") or default).expanduser()
    missing = [name for name in ("cells", "mnist", "wikitext2") if not (root / name).is_dir()]
    if missing:
        reason = f"no real data: {root / missing[0]} is not a folder (set R2MAE_DATA)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return root


@pytest.fixture
def shared_data(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, where the package looks for data, too."""
    monkeypatch.setenv("R2MAE_DATA", str(data_root))
    return data_root


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job in the background of a shell begins with Ctrl-C ignored, and so would all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
