"""Lazy imports: a package's public names import their modules, and libraries such as torch, only on first use."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from r2mae.errors import install


def lazy_exports(package: str, public: Sequence[str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    The imports that are for type checkers alone say where its names are defined; they are read from its source, as the
    library lazy_loader reads a stub.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    public : sequence of str
        The package's ``__all__``.
    """

    @cache
    def homes() -> dict[str, str]:
        import ast
        import inspect

        nodes = ast.walk(ast.parse(inspect.getsource(import_module(package))))
        return {one.name: node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names}

    def find(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes()[name]), name)
        except ModuleNotFoundError as error:
            if not error.name or error.name.startswith("r2mae"):
                raise
            need = f"{package}.{name} needs {error.name!r}, which is not installed: {install(error.name)}"
            raise ModuleNotFoundError(need, name=error.name) from None

    return find, lambda: sorted(public)
