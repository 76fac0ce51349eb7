"""Where something was computed: the machine, the libraries, and the commit of the code."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

CONTINUED = "continued"
_LIBRARIES = ("r2mae", "torch", "lightning", "numpy", "scipy", "scikit-learn", "pandas", "safetensors")
_AFFECTS_NUMBERS = ("processor", "instructions", "bf16_instructions", "torch_threads", "device", "cuda", "commit")
_COMPUTING_LIBRARIES = ("r2mae", "torch", "lightning", "numpy")
_CPUINFO = Path("/proc/cpuinfo")


def environment() -> dict[str, Any]:
    """Describe the machine and the libraries of a run; of torch only where it is in use.

    Returns
    -------
    dict
        `python`, `platform`, `processor` (its name), `cpu_count`, `commit` (:func:`commit`), `versions` of libraries;
        and of torch `instructions` (such as "AVX512"), `bf16_instructions` (whether torch uses some),
        `torch_threads`, and `cuda`, the name of the device or None.
    """
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpu_count": os.cpu_count(),
        **_torch_environment(),
        "commit": commit(),
        "versions": versions,
    }


def recorded_changes(recorded: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a run's record says of the places where it went on; nothing where that is malformed."""
    said = recorded.get(CONTINUED)
    changes = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
    return [one for one in changes if isinstance(one.get("step"), int)]


def add_change(recorded: Mapping[str, Any], now: Mapping[str, Any], step: int) -> tuple[dict[str, Any], list[str]]:
    """Add to the record of a run what has changed where it goes on.

    Parameters
    ----------
    recorded : mapping
        Where the run began (:func:`environment`), and under :data:`CONTINUED` what has changed since.
    now : mapping
        Where it goes on.
    step : int
        From which step. What was recorded from there on is dropped, since nothing of it was kept.

    Returns
    -------
    dict
        The record; where something has changed, :data:`CONTINUED` has one more mapping, of the step and what is new.
    list of str
        Names of the changes that may alter numbers.
    """
    record = {key: value for key, value in recorded.items() if key != CONTINUED}
    changes = [one for one in recorded_changes(recorded) if one["step"] < step]
    last = {key: value for one in (record, *changes) for key, value in one.items()}
    changed = {key: value for key, value in now.items() if last.get(key) != value}
    changes += [{"step": step, **changed}] if changed else []
    altering = [key for key in changed if key in _AFFECTS_NUMBERS and key in last]
    return record | ({CONTINUED: changes} if changes else {}), altering + _changed_libraries(last, now)


def _changed_libraries(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return names of computing libraries of which there was another version."""
    there, here = before.get("versions"), now.get("versions", {})
    known = there if isinstance(there, dict) else {}
    return [name for name in _COMPUTING_LIBRARIES if name in known and known[name] != here.get(name)]


def processor() -> str:
    """Return the processor's name; its family where the system does not tell more."""
    try:
        lines = _CPUINFO.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, named), platform.processor() or platform.machine())


@cache
def commit() -> str | None:
    """Return the commit of the checkout that this package is imported from.

    With "+" where the package's files were changed since, and "?" where git does not say.

    None for an installed package, also one that is installed within a checkout of something else.
    """
    package = Path(__file__).parents[1]
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    found, changed = _git(package, "rev-parse", "HEAD"), _git(package, "status", "--porcelain", "--", ".")
    return None if found is None else found + ("?" if changed is None else "+" if changed else "")


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says of a folder; None if there is no git, or it refuses."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _torch_environment() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    from r2mae.training.devices import has_fast_bf16  # it needs torch

    return {
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "bf16_instructions": has_fast_bf16(torch.device("cpu")),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
