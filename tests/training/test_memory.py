"""Memory that stays with the process while it trains."""

import platform
import resource
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROBE = """
import contextlib, resource, sys
import torch
from r2mae.cores import freed_memory_kept

torch.set_num_threads(1)
layer = torch.nn.Linear(2000, 6000)
optimizer = torch.optim.Adam(layer.parameters(), fused=True)

def faults(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        optimizer.zero_grad()
        layer(torch.ones(8, 2000)).square().mean().backward()  # a gradient of 48 MB
        optimizer.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with freed_memory_kept() if sys.argv[1] == "kept" else contextlib.nullcontext():
    faults(6)
    print(faults(6))
    optimizer.zero_grad()
with open("/proc/self/statm") as file:
    print(int(file.read().split()[1]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc alone")
def test_large_blocks_are_mapped_once_and_returned_at_the_end() -> None:
    found = {}
    for way in ("kept", "default"):
        done = subprocess.run([sys.executable, "-c", PROBE, way], capture_output=True, text=True, check=True)
        found[way] = [int(line) for line in done.stdout.split()]
    pages = 48_000_000 // resource.getpagesize()
    assert found["kept"][0] < found["default"][0] / 5  # faults; huge pages make fewer than one a page
    assert found["kept"][1] < found["default"][1] + pages / 2  # resident pages
