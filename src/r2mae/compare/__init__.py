"""Schemes × seeds: variants, finished runs, and the outcome. The package can be called: :func:`r2mae.front.compare`.

``r2mae.compare(data, domain=None, out=None, progress=True, **options)`` pretrains under several schemes and seeds, and
says which wins; `options` are those of the command, with underscores. In a script, put the call below
``if __name__ == "__main__":``.
"""

import sys
from types import ModuleType
from typing import Any

from r2mae.lazy import lazy_exports


class _Callable(ModuleType):
    def __call__(
        self, data: Any = None, *, domain: str | None = None, out: Any = None, progress: bool = True, **options: Any
    ) -> Any:
        """Compare schemes on data: :func:`r2mae.front.compare`."""
        return lazy_exports("r2mae", ())[0]("compare")(data, domain=domain, out=out, progress=progress, **options)


sys.modules[__name__].__class__ = _Callable
