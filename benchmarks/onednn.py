"""Products of 32 bits by oneDNN in place of MKL, whose products torch uses: whole steps of cells and of text, in turns.

On a processor of AMD oneDNN's products may be the quicker ones. torch offers them in 32 bits through an operator of its
own compiler alone, so the question is whether a step gains enough to depend on that. Weight gradients stay MKL's, which
are as quick.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import cells, text
from benchmarks.timing import alternate, ratio_of
from r2mae.cells.config import CellsConfig

_ATEN = torch.ops.aten
_LEAST = 65_536  # numbers in the left matrix; the products of small ones are not worth the detour


class Replaced(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, large products of 32-bit matrices are oneDNN's where the left one is not transposed."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operation of torch, or oneDNN's product in its place."""
        if func is _ATEN.addmm.default and not kwargs and args[0].dim() == 1:
            bias, left, right = args
        elif func is _ATEN.mm.default:
            bias, (left, right) = None, args
        else:
            return func(*args, **(kwargs or {}))
        if left.dtype == torch.float32 and left.is_contiguous() and left.numel() >= _LEAST:
            return torch.ops.mkldnn._linear_pointwise.default(left, right.t(), bias, "none", [], "")
        return func(*args, **(kwargs or {}))


def replaced(run: Callable[[], float]) -> float:
    """Return what it returns, with the products replaced."""
    with Replaced():  # type: ignore[no-untyped-call]
        return run()


def runs(steps: int, threads: int) -> dict[str, Callable[[], float]]:
    """Return runs at the sizes of the other benchmarks; each returns seconds per step."""
    counts = cells.synthetic(4000, 5000, 0.1)
    config = CellsConfig(data="synthetic", steps=5 * steps, scheme="r2mae", save_every=10**6, precision="32")
    sizes = {"preset": "roberta-medium", "vocab_size": 50265, "length": 128, "rows": 16, "dropout": 0.1}
    options = argparse.Namespace(**sizes, steps=steps, threads=threads, compile=False)
    return {"cells": lambda: cells.ours(config, counts), "roberta-medium": lambda: text.ours(options)}


def main(argv: Sequence[str] | None = None) -> int:
    """Print seconds per step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="of text; of cells five times as many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    for name, run in runs(options.steps, options.threads).items():
        times = alternate({"MKL": run, "oneDNN": lambda run=run: replaced(run)}, options.rounds)
        ratio, spread = ratio_of(times["oneDNN"], times["MKL"])
        said = ", ".join(
            f"{1e3 * timing.median:.1f} ms a step by {by} (± {1e3 * timing.spread:.1f})" for by, timing in times.items()
        )
        print(f"{name}: {said}; oneDNN takes {ratio:.2f} ± {spread:.2f} times as long")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
