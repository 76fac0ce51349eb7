"""Masks on a real accelerator: the bits of the host, and never a wait for the device."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from r2mae.masking.keys import Key
from r2mae.masking.masks import column_mask, corrupt_tokens, element_mask, patch_mask, token_mask

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
KEY = Key.root(0).fold("mask", 5).rows(96)


def special(device: str) -> Tensor:
    flags = torch.zeros(16, 128, dtype=torch.bool)
    flags[:, 0] = flags[:, -1] = True
    return flags.to(device)


UNITS: dict[str, Callable[[str], Tensor]] = {
    "Bernoulli elements": lambda device: element_mask((32, 784), 0.3, KEY, device=device),
    "exact elements": lambda device: element_mask((32, 784), 0.3, KEY, exact=True, device=device),
    "columns": lambda device: column_mask(5000, 0.25, KEY, device=device),
    "kept patches": lambda device: patch_mask(32, 196, 0.75, KEY, device=device)[0],
    "hidden patches": lambda device: patch_mask(32, 196, 0.75, KEY, device=device)[1],
}


@pytest.mark.parametrize("name", UNITS)
def test_bits_of_the_host_without_a_wait(name: str) -> None:
    make = UNITS[name]
    torch.cuda.set_sync_debug_mode("error")
    try:
        device = make("cuda")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(device.cpu(), make("cpu"))


@pytest.mark.parametrize("exact", [True, False])
def test_tokens_and_their_corruption(exact: bool) -> None:
    flags, ids = special("cuda"), torch.arange(16 * 128).view(16, 128)
    on_device = ids.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        hidden = token_mask(flags, 0.3, KEY, exact=exact)
        out = corrupt_tokens(on_device, hidden, KEY.fold("replace"), mask_id=4, vocabulary=5000)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    host = token_mask(special("cpu"), 0.3, KEY, exact=exact)
    assert torch.equal(hidden.cpu(), host)
    assert torch.equal(out.cpu(), corrupt_tokens(ids, host, KEY.fold("replace"), mask_id=4, vocabulary=5000))
