"""Products in bf16 where the processor has no instructions: what the instructions would give, made in 32 bits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from r2mae.training import number_format
from r2mae.training.loop import fit
from r2mae.training.rounded_products import RoundedProducts

from .conftest import ToyConfig, ToyDomain

PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(5, 300), (300, 7)]),
    "bmm": (torch.bmm, [(2, 5, 300), (2, 300, 7)]),
    "mv": (torch.mv, [(5, 300), (300,)]),
    "linear": (linear, [(4, 5, 300), (7, 300), (7,)]),
    "addmm": (torch.addmm, [(5, 7), (5, 300), (300, 7)]),
    "baddbmm": (torch.baddbmm, [(2, 5, 7), (2, 5, 300), (2, 300, 7)]),
    "addmv": (torch.addmv, [(5,), (5, 300), (300,)]),
    "addbmm": (torch.addbmm, [(5, 7), (2, 5, 300), (2, 300, 7)]),
    "convolution": (conv2d, [(2, 8, 9, 9), (6, 8, 3, 3), (6,)]),
}
HALF_UNIT = 2.0**-8  # what rounding once to bf16 changes at most, relative to a number


class Seen(TorchDispatchMode):
    """Notes the operations below, with the types of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.types: dict[str, set[torch.dtype]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = self.types.setdefault(func.overloadpacket.__name__, set())
        found.update(part.dtype for part in args if isinstance(part, Tensor))
        return func(*args, **(kwargs or {}))


def derived(product: Callable[..., Tensor], operands: list[Tensor]) -> list[Tensor]:
    """Return the product and the gradients of the operands, for upper gradients of 1 and −1."""
    leaves = [operand.detach().requires_grad_() for operand in operands]
    made = product(*leaves)
    signs = torch.ones(made.shape, dtype=made.dtype)
    signs.view(-1)[::2] = -1
    return [made.detach(), *torch.autograd.grad(made, leaves, signs)]


def drawn(shapes: list[tuple[int, ...]]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_gradients_are_the_exact_ones_rounded_once(name: str) -> None:
    product, shapes = PRODUCTS[name]
    operands = drawn(shapes)
    with RoundedProducts():
        rounded = derived(product, operands)
    exact = derived(product, [operand.double() for operand in operands])
    for one, other in zip(rounded, exact, strict=True):
        assert one.dtype == torch.bfloat16
        size = float(other.abs().max())
        torch.testing.assert_close(one.double(), other, rtol=HALF_UNIT, atol=1e-5 * size, msg=name)


@pytest.mark.parametrize("name", PRODUCTS)
def test_no_product_is_left_to_torchs_bf16(name: str) -> None:
    product, shapes = PRODUCTS[name]
    with Seen() as seen, RoundedProducts():
        derived(product, drawn(shapes))
    kinds = {kind for operation, kinds in seen.types.items() if _multiplies(operation) for kind in kinds}
    assert kinds == {torch.float32}


def test_numbers_of_32_bits_are_left_alone() -> None:
    left, right = (operand.float() for operand in drawn([(5, 300), (300, 7)]))
    expected = left @ right
    with RoundedProducts():
        found = left @ right
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_types_that_torch_refuses_to_mix_are_refused() -> None:
    left, right = drawn([(5, 300), (300, 7)])
    with RoundedProducts(), pytest.raises(RuntimeError, match="dtype"):
        torch.mm(left, right.float())


@pytest.mark.parametrize("masked", [False, True])
def test_attention_in_one_piece(masked: bool) -> None:
    parts = drawn([(2, 3, 6, 16)] * 3)
    mask = drawn([(6, 6)])[0] if masked else None

    def attend(*parts: Tensor) -> Tensor:
        own = None if mask is None else mask.to(parts[0].dtype)
        return scaled_dot_product_attention(*parts, attn_mask=own)

    with Seen() as seen, RoundedProducts():
        rounded = derived(attend, parts)
    exact = derived(attend, [part.double() for part in parts])
    for one, other in zip(rounded, exact, strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one.double(), other, rtol=2 * HALF_UNIT, atol=0.02)
    fused = [kinds for name, kinds in seen.types.items() if "flash_attention" in name]
    assert all(kinds == {torch.float32} for kinds in fused)
    assert len(fused) == 2


def test_a_missing_gradient_stays_missing() -> None:
    image, kernel = drawn([(2, 8, 9, 9), (6, 8, 3, 3)])
    kernel.requires_grad_()
    with RoundedProducts():
        (gradient,) = torch.autograd.grad(conv2d(image, kernel).sum(), [kernel])
    assert gradient.dtype == torch.bfloat16
    assert gradient.shape == kernel.shape


def _multiplies(operation: str) -> bool:
    return operation in {"mm", "bmm", "mv", "addmm", "baddbmm", "addbmm", "addmv"} or "convolution" in operation


def losses_of(
    precision: Literal["32", "bf16"], quick: bool, domain: ToyDomain, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], set[torch.dtype]]:
    """Train as on a processor with or without bf16 instructions; return losses, and the types that met in products."""
    monkeypatch.setattr(number_format, "has_fast_bf16", lambda device: quick)
    monkeypatch.setattr(number_format, "onednn_takes_bf16", lambda: quick)
    with Seen() as seen:
        run = fit(ToyConfig(precision=precision, steps=12, device="cpu"), domain, folder).folder
    kinds = {kind for operation, kinds in seen.types.items() if _multiplies(operation) for kind in kinds}
    return pd.read_csv(run.metrics_file)["loss"].tolist(), kinds


@pytest.mark.slow
def test_runs_without_instructions_are_those_with_them_up_to_rounding(
    domain: ToyDomain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded, own = losses_of("bf16", False, domain, tmp_path / "rounded", monkeypatch)
    native, others = losses_of("bf16", True, domain, tmp_path / "native", monkeypatch)
    exact, _ = losses_of("32", False, domain, tmp_path / "exact", monkeypatch)
    assert torch.bfloat16 in others
    assert own == {torch.float32}
    assert rounded == pytest.approx(native, rel=1e-2)
    assert rounded != exact, "operands are rounded"


@pytest.mark.slow
def test_runs_in_32_bits_are_not_rounded(domain: ToyDomain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, _ = losses_of("32", True, domain, tmp_path / "there", monkeypatch)
    here, _ = losses_of("32", False, domain, tmp_path / "here", monkeypatch)
    assert there == here
