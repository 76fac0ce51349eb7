"""Silence Lightning's messages, since this package prints its own."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def quiet_lightning(messages: Sequence[str]) -> Iterator[None]:
    """Silence Lightning's loggers, and warnings whose message matches one of these patterns (``""``: all)."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for message in messages:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
