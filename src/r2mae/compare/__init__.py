"""Schemes × seeds: variants, finished runs, and the outcome. The package can be called: :func:`r2mae.front.compare`."""

import sys
from types import ModuleType
from typing import Any

from r2mae.lazy import lazy_exports


class _Callable(ModuleType):
    def __call__(self, data: Any = None, **options: Any) -> Any:
        """Compare schemes on data: :func:`r2mae.front.compare`."""
        return lazy_exports("r2mae", ())[0]("compare")(data, **options)


sys.modules[__name__].__class__ = _Callable
