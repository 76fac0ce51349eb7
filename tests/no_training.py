"""Tests that are not marked slow do not train: whatever tries is stopped, and told to carry the mark."""

import sys
from collections.abc import Callable
from typing import Any

STEPS = 200  # in one test: optimisers are tested by a few steps of a few weights
HINT = "mark the test slow (`@pytest.mark.slow`), so that `make test-fast` leaves it out"


class Trains(AssertionError):
    """A test trains, and is not marked slow."""


class Guard:
    """What the test that runs now may do.

    It watches the training loop and the steps of all optimisers of torch, so that other loops count, too. Training with
    fewer steps than that by another loop is let through, and so is whatever another process does.
    """

    def __init__(self) -> None:
        self._slow, self._steps = True, 0
        self._watched: set[str] = set()

    def begin(self, *, slow: bool) -> None:
        """Begin a test. Libraries are watched from the first test on that finds them: the theory needs no torch."""
        self._slow, self._steps = slow, 0
        for name, watch in (("torch.optim.optimizer", self._watch_torch), ("r2mae.training.loop", self._watch_loop)):
            if name in sys.modules and name not in self._watched:
                self._watched.add(name)
                watch(sys.modules[name])

    def _watch_torch(self, optimizers: Any) -> None:
        def step(*_: Any) -> None:
            self._steps += 1
            if not self._slow and self._steps > STEPS:
                raise Trains(f"more than {STEPS} optimiser steps: {HINT}")

        optimizers.register_optimizer_step_pre_hook(step)

    def _watch_loop(self, loop: Any) -> None:
        take_steps: Callable[..., Any] = loop.take_steps

        def refused(*args: Any) -> Any:
            if not self._slow:
                raise Trains(f"the training loop: {HINT}")
            return take_steps(*args)

        loop.take_steps = refused


GUARD = Guard()
