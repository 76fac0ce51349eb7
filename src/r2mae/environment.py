"""The environment of a computation: machine, libraries, and commit of the code."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CONTINUED = "continued"
_LIBRARIES = ("r2mae", "torch", "numpy", "scipy", "scikit-learn", "pandas", "safetensors")
_CPUINFO = Path("/proc/cpuinfo")
_LOCK = Lock()
_OPEN: list[ExitStack] = []  # one entry for each open session, in all threads


def environment() -> dict[str, Any]:
    """Describe the machine and the libraries of a run; torch's fields only if torch is imported.

    Returns
    -------
    dict
        `python`, `platform`, `processor` (its name), `cpu_count`, `commit` (:func:`commit`), `versions` of libraries;
        torch's `instructions` (such as "AVX512"), `bf16_instructions` (whether torch uses them), `torch_threads`, and
        `cuda`, the name of the device or None.
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpu_count": os.cpu_count(),
        **_torch_environment(),
        "commit": commit(),
        "versions": {name: _version_of(name) for name in _LIBRARIES},
    }


@cache
def _version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """Return the processor's name, or its family if the system does not name it."""
    try:
        lines = _CPUINFO.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, named), platform.processor() or platform.machine())


@cache
def commit() -> str | None:
    """Return the commit of the checkout that this package is imported from, None for an installed package.

    The suffix is "+" if files of the package have changed since, and "?" if git cannot tell.
    """
    package = Path(__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    found, changed = _git(package, "rev-parse", "HEAD"), _git(package, "status", "--porcelain", "--", ".")
    return None if found is None else found + ("?" if changed is None else "+" if changed else "")


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _torch_environment() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "bf16_instructions": has_fast_bf16(torch.device("cpu")),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def has_fast_bf16(device: "torch.device") -> bool:
    """Return whether bf16 products are faster than 32 bits on a device; on a CPU, by oneDNN and instructions."""
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    try:
        known = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # torch without oneDNN
        return False
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return known
    # On x86, oneDNN also takes bf16 if it has to compute in 32 bits.
    checks = (getattr(torch.cpu, name, bool) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return known and any(check() for check in checks)


@contextmanager
def standard_session() -> Iterator[None]:
    """Within the block, or a function that it decorates, torch and NumPy compute as in a session that has set nothing.

    Numbers then depend on the configuration alone. What the caller has set is restored: default type and device,
    gradients, inference mode, autocast, deterministic algorithms, precision of products, NumPy's errors.
    """
    torch: Any = sys.modules.get("torch")  # otherwise nothing is set
    with ExitStack() as stack:
        if "numpy" in sys.modules:
            stack.enter_context(
                sys.modules["numpy"].errstate(divide="warn", over="warn", under="ignore", invalid="warn")
            )
        if torch is not None:
            stack.enter_context(_standard_defaults(torch))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            if torch.get_default_device().type != "cpu":
                stack.enter_context(torch.device("cpu"))
            for kind in ("cpu", "cuda", "mps"):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def _standard_defaults(torch: Any) -> Iterator[None]:
    """Set what all threads share; the first of overlapping sessions sets it, and the last one restores it."""
    with _LOCK:
        _OPEN.append(_OPEN[-1] if _OPEN else _set_defaults(torch))
    try:
        yield
    finally:
        with _LOCK:
            before = _OPEN.pop()
            if not _OPEN:
                before.close()


def _set_defaults(torch: Any) -> ExitStack:
    before = ExitStack()
    before.callback(torch.set_default_dtype, torch.get_default_dtype())
    torch.set_default_dtype(torch.float32)
    # torch refuses to read its older setting of precision after certain uses of the newer ones.
    for place in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        before.callback(setattr, place, "fp32_precision", place.fp32_precision)
    with suppress(RuntimeError):
        before.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision("highest")
    if torch.are_deterministic_algorithms_enabled():  # to set it imports torch's compiler
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        before.callback(torch.use_deterministic_algorithms, True, warn_only=warns)
        torch.use_deterministic_algorithms(False)
    return before


def sum_dtype(device: "torch.device | str") -> "torch.dtype":
    """Return the type of sums over a data set: 64-bit floats, or 32-bit ones on Apple's GPU, which has no others."""
    import torch

    return torch.float32 if torch.device(device).type == "mps" else torch.float64
