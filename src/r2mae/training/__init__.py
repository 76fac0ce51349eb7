"""The one loop, run folders, resume. ``fit`` trains; ``load_model`` reads what it made."""

from typing import TYPE_CHECKING, Any

from r2mae.training.config import RunConfig, scheme_of

if TYPE_CHECKING:
    from r2mae.training.folder import RunFolder
    from r2mae.training.loop import Fitted, fit
    from r2mae.training.saving import load_model

__all__ = ["Fitted", "RunConfig", "RunFolder", "fit", "load_model", "scheme_of"]

_LAZY = {"Fitted": "loop", "fit": "loop", "RunFolder": "folder", "load_model": "saving"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
