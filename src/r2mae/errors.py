"""Errors for users: one line that says what is wrong and how to mend it.

Every package may raise :class:`UserError`. Only the command line catches it (one line on stderr, exit code 2).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from functools import cache

_LISTED = 20  # at most this many names are listed in an error line
_ALIKE = 0.65  # share of equal letters from which a name is suggested, by difflib
_MEANT = 3  # at most this many names are suggested in "did you mean …?"
_OBJECT = re.compile(r"<class '([^<>']+)'>|<[^<>]*?([\w.]+) at 0x[0-9a-fA-F]+>")  # <cyfunction get at 0x7f…>
_BEGINNING = 3  # at least this many letters are needed to suggest names that begin with them

_EXTRAS = {  # the extra of this package that brings a library; pyproject.toml has all of them
    "cli": "argcomplete pandas pooch requests rich",
    "compare": "jinja2 markupsafe matplotlib",
    "images": "PIL",
    "text": "accelerate datasets huggingface_hub tokenizers transformers",
    "cells": "anndata h5py igraph numcodecs scanpy",
    "scvi": "scvi",
    "genome": "pyarrow pysam zarr",
    "bigwig": "pyBigWig",
    "lightning": "lightning",
    "cluster": "dask distributed",
    "slurm": "dask_jobqueue",
    "kubernetes": "dask_kubernetes",
}

_SYNONYMS = {  # our names of options, and those of other libraries
    "lr": "learning_rate max_lr peak_lr",
    "ratio": "mask_ratio masking_ratio mlm_probability mask_prob",
    "epochs": "num_epochs max_epochs n_epochs num_train_epochs",
    "steps": "max_steps num_steps n_steps train_steps iterations total_steps",
    "batch_size": "bs batch train_batch_size per_device_train_batch_size",
    "weight_decay": "wd decay",
    "clip": "max_grad_norm grad_clip gradient_clip_val",
    "accumulate": "gradient_accumulation_steps accumulate_grad_batches",
    "workers": "num_workers n_workers",
    "seed": "random_state random_seed",
    "optimizer": "optim opt",
    "schedule": "scheduler lr_scheduler lr_schedule lr_scheduler_type",
    "warmup": "warmup_ratio warmup_steps warmup_epochs",
    "patience": "early_stopping",
    "data": "dataset dataset_name data_path",
    "out": "output output_dir output_path",
}


class UserError(ValueError):
    """A user's mistake or a broken input; the message is one line and says what to do.

    It is a ValueError, as those of :mod:`r2mae.masking` and :mod:`r2mae.theory` are: a caller catches one kind.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known names that are most like a misspelt one, or list all names.

    Parameters
    ----------
    name : str
        The name that was given.
    known : iterable of str
        The names that exist.

    Returns
    -------
    str
        ``"did you mean 'x'?"`` or ``"choose from: a, b, c"``. A known name is suggested if other libraries call it so,
        if it is spelt alike (:mod:`difflib`), or if one name begins with the other. Case does not count.
    """
    names = list(known)
    plain = name.lower().lstrip("-").replace("-", "_")
    own = next((ours for ours, theirs in _SYNONYMS.items() if plain in theirs.split()), "")
    meant = [other for other in names if own and other.lstrip("-").replace("-", "_") == own]
    meant = meant or _similar(name.lower(), names)
    if meant:
        return f"did you mean {' or '.join(map(repr, meant))}?"
    return f"choose from: {listed(names, _LISTED)}"


def listed(names: Sequence[object], most: int = 5) -> str:
    """Return the first of some names for a message, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def _similar(name: str, names: Sequence[str]) -> list[str]:
    """Return at most three names that are spelt alike, or of which one begins with the other; none if more fit."""
    lowered = {other.lower(): other for other in reversed(names)}
    ratios = {other: SequenceMatcher(None, name, other).ratio() for other in reversed(lowered)}
    best = max(ratios.values(), default=0.0)
    if best >= _ALIKE:
        found = [lowered[other] for other, ratio in ratios.items() if ratio >= best - 1e-9]
    else:
        pairs = {other: sorted((name, other), key=len) for other in ratios}
        found = [
            lowered[other] for other, (one, two) in pairs.items() if len(one) >= _BEGINNING and two.startswith(one)
        ]
    return found if len(found) <= _MEANT else []


def install(library: str | None, words: Sequence[str] = ()) -> str:
    """Return the command that installs a missing library, by the name under which it is imported.

    The extras are those that the words of a command name (``compare cells``), and the library's own.
    """
    top = (library or "").partition(".")[0]
    extra = next((extra for extra, libraries in _EXTRAS.items() if top in libraries.split()), None)
    if extra is None:
        return f"pip install {top}"
    named = [word for word in words if word in _EXTRAS]
    if not named or extra not in ("cli", *named):
        named.append(extra)
    return f"pip install 'r2mae[{','.join(named)}]'"


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that does not exist."""
    return UserError(f"unknown {kind} {name!r}: {nearest(name, known)}")


@cache
def warn_once(line: str) -> None:
    """Log a warning, the first time that it is given."""
    import logging

    logging.getLogger("r2mae").warning("%s", line)


@contextmanager
def reading(source: object, hint: str) -> Iterator[None]:
    """Turn the errors of libraries that read a file or data set into one line: what, why, what to do."""
    try:
        yield
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(f"{source} needs the library {error.name}: {install(error.name)}") from None
    except BaseException as error:  # of many kinds: of the system, the network, the libraries
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of libraries in Rust
            raise
        raise UserError(f"{source} cannot be read ({brief(error)}): {hint}") from error


def brief(error: BaseException) -> str:
    """Return a library's message on one line, with the file that is missing; of the Hub, that it is not reachable."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "LocalEntryNotFoundError":  # of huggingface_hub, for what was not fetched before
            return "no folder of that name, and the Hub is not reachable"
        cause = cause.__cause__
    said = getattr(error, "strerror", None) or error
    if isinstance(error, FileNotFoundError) and error.filename:
        said = f"{said}: {error.filename}"
    return _OBJECT.sub(r"\1\2", " ".join(str(said).split())[:400])[:160] or type(error).__name__
