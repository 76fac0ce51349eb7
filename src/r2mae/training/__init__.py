"""The one loop, run folders, resume. ``fit`` trains; ``load_model`` reads what it made."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazily
from r2mae.training.config import RunConfig
from r2mae.training.scheme_options import scheme_of

if TYPE_CHECKING:
    from r2mae.training.folder import RunFolder
    from r2mae.training.loop import Fitted, fit
    from r2mae.training.saving import LoadedRun, load, load_model

__all__ = ["Fitted", "LoadedRun", "RunConfig", "RunFolder", "fit", "load", "load_model", "scheme_of"]

__getattr__, __dir__ = lazily(
    __name__,
    {"loop": ("Fitted", "fit"), "folder": ("RunFolder",), "saving": ("LoadedRun", "load", "load_model")},
    __all__,
)
