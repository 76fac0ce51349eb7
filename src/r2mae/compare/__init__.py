"""Schemes × seeds: variants, finished runs, and the outcome. The package can be called: :func:`r2mae.front.compare`."""

import sys
from types import ModuleType
from typing import Any

import r2mae


class _Callable(ModuleType):
    def __call__(self, data: Any = None, **options: Any) -> Any:
        """Compare schemes on data: :func:`r2mae.front.compare`."""
        return r2mae.front.compare(data, **options)


sys.modules[__name__].__class__ = _Callable
