"""Lazy imports: a package's public names import their modules, and libraries such as torch, only on first use."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, Sequence[str]], public: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    homes : mapping of module to names
        The modules that define the lazy names. A module without a dot belongs to this package.
    public : sequence of str
        The package's ``__all__``.
    """
    modules = {
        name: module if "." in module else f"{package}.{module}" for module, names in homes.items() for name in names
    }

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find, lambda: sorted(public)
