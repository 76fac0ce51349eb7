"""Packages whose names bring their modules, and the libraries behind them, only when they are first used."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, Sequence[str]], public: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of module to names
        Where the lazy names live; a module without a dot is one of the package's own.
    public : sequence of str
        Its ``__all__``.
    """
    modules = {
        name: module if "." in module else f"{package}.{module}" for module, names in homes.items() for name in names
    }

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find, lambda: sorted(public)
