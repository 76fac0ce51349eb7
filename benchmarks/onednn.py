"""Products of 32 bits by oneDNN in place of MKL, whose products torch uses: whole steps of cells and of text, in turns.

On a processor of AMD oneDNN's products may be the quicker ones. torch offers them in 32 bits through an operator of its
own compiler alone, so the question is whether a step gains enough to depend on that. Weight gradients stay MKL's. Only
the contender with oneDNN passes every operation through Python, which is at most about 1 % of these steps.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import cells, text
from benchmarks.timing import alternate, ratio_of

_ATEN = torch.ops.aten
_LEAST = 65_536  # numbers in the left matrix; the products of small ones are not worth the detour


class Replaced(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, products of 32-bit matrices are oneDNN's, and counted, if the left one is contiguous and large."""

    count = 0

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
            Replaced.count += 1
            return by_onednn(left, right, bias)
        return func(*args, **(kwargs or {}))


def by_onednn(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``left @ right + bias``."""
    return torch.ops.mkldnn._linear_pointwise.default(left, right.t(), bias, "none", [], "")  # type: ignore[no-any-return]


def replaced(run: Callable[[], float]) -> float:
    """Return what `run` returns, with its products replaced."""
    with Replaced():  # type: ignore[no-untyped-call]
        return run()


def largest_difference() -> float:
    """Return the largest relative difference of a product by oneDNN from torch's own."""
    left, right, bias = torch.randn(400, 2000), torch.randn(2000, 500), torch.randn(500)
    own = torch.addmm(bias, left, right)
    return float((by_onednn(left, right, bias) - own).abs().max() / own.abs().max())


def runs(steps: int, threads: int) -> dict[str, Callable[[], float]]:
    """Return runs at the sizes of the benchmarks of cells and text; each returns seconds per step."""
    counts = cells.synthetic(4000, 5000, 0.1)
    config = cells.paper_config(5 * steps)
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
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()):
        print("this build of torch lacks oneDNN or MKL: there is nothing to compare")
        return 0
    print(f"a product by oneDNN differs from MKL's by {largest_difference():.0e} of the largest number at most")
    for name, run in runs(options.steps, options.threads).items():
        times = alternate({"MKL": run, "oneDNN": lambda run=run: replaced(run)}, options.rounds)
        ratio, spread = ratio_of(times["oneDNN"], times["MKL"])
        said = ", ".join(
            f"{1e3 * timing.median:.1f} ms a step by {by} (± {1e3 * timing.spread:.1f})" for by, timing in times.items()
        )
        print(
            f"{name}: {said}; oneDNN takes {ratio:.2f} ± {spread:.2f} times as long; {Replaced.count} products replaced"
        )
        Replaced.count = 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
