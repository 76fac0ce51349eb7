"""Products in bf16: torch's own, and those of a processor without instructions, made in 32 bits and rounded.

A processor that has the instructions trains with torch's own (:mod:`r2mae.training.rounded_products`). Results are
compared first: two differ by at most a unit in the last place of bf16, 2⁻⁷, of themselves or of the largest number.
"""

import argparse
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear

from benchmarks.timing import alternate, ratio_of
from r2mae.training.devices import has_fast_bf16
from r2mae.training.rounded_products import RoundedProducts

CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "layer, 2048 x 512 by 512 x 2048": (linear, (2048, 512), (2048, 512)),
    "vocabulary, 560 x 512 by 512 x 8192": (linear, (560, 512), (8192, 512)),
    "attention, 64 heads of 128 x 64": (lambda a, b: a @ b.mT, (64, 128, 64), (64, 128, 64)),
    "convolution, 8 x 32 x 32 x 32, 3 x 3": (lambda a, b: conv2d(a, b, padding=1), (8, 32, 32, 32), (32, 32, 3, 3)),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure each product with its gradients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    has = "has" if has_fast_bf16(torch.device("cpu")) else "has no"
    print(f"this processor {has} bf16 instructions; each product with both gradients, {options.threads} thread(s)")
    for name in CASES:
        case(name, options.rounds)


def case(name: str, rounds: int) -> None:
    """Time one product in 32 bits, in torch's bf16, and rounded."""
    product, left, right = CASES[name]
    torch.manual_seed(0)
    exact = [torch.randn(shape) for shape in (left, right)]
    half = [operand.bfloat16() for operand in exact]
    with RoundedProducts():
        found = _derived(product, half)
    for one, other in zip(found, _derived(product, half), strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=2**-7, atol=2**-7 * float(other.abs().max()))

    def rounded() -> None:
        with RoundedProducts():
            _derived(product, half)

    timings = alternate(
        {
            "32 bits": lambda: _discard(_derived(product, exact)),
            "torch's bf16": lambda: _discard(_derived(product, half)),
            "rounded": rounded,
        },
        rounds,
    )
    told = [f"{name:38} 32 bits {timings['32 bits'].median * 1e3:7.2f} ms"]
    for way in ("rounded", "torch's bf16"):
        ratio, spread = ratio_of(timings[way], timings["32 bits"])
        told.append(f"{way} {ratio:.2f} ± {spread:.2f} times that")
    print("   ".join(told), flush=True)


def _derived(product: Callable[[Tensor, Tensor], Tensor], operands: Sequence[Tensor]) -> list[Tensor]:
    """Return a product, and its gradients as a dense upper gradient gives them."""
    leaves = [operand.detach().requires_grad_() for operand in operands]
    made = product(*leaves)
    return [made.detach(), *torch.autograd.grad(made, leaves, torch.ones_like(made))]


def _discard(made: Sequence[Tensor]) -> None:
    """Keep nothing: what is timed returns no number of its own."""
    del made


if __name__ == "__main__":
    main()
