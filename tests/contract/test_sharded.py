"""Every model can be trained in shards, with the numbers that it has without."""

import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from contract.conftest import by_two_processes, cases, made
from r2mae.environment import has_fast_bf16
from r2mae.masking.schemes import scheme_kind
from training.conftest import NEEDS_BF16

pytestmark = pytest.mark.slow
SCHEME = {"scheme": "r2mae-cl", "cl_warmup": 0}
assert "cl_warmup" in scheme_kind("r2mae-cl").options
HALF = ("text", "roberta")  # the model whose runs are made with products in bf16, too


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """Train every case as a whole and in shards; with the same two processes, since they take long to start."""
    folder, runs = tmp_path_factory.mktemp("sharded"), []
    for name, model in cases():
        here = folder / f"{name} {model}"
        here.mkdir()
        with made(name, model, here) as one:
            # Without Adam, which enlarges rounding where a gradient is zero, as that of the bias of keys.
            options = {"optimizer": "sgd", "lr": 0.1, "mask_input": one.config().model.takes_mask}
            config = one.config(**SCHEME, **options, steps=10, clip=1.0, devices=2)
            ways = {"ddp": {}, "fsdp": {"strategy": "fsdp"}}
        if (name, model) == HALF and has_fast_bf16(torch.device("cpu")):
            ways |= {f"{way} bf16": {**options, "precision": "bf16"} for way, options in ways.items()}
        for way, options in ways.items():
            run = {
                "domain": name,
                "cache": str(here / "cache"),
                "out": str(here / way),
                "config": config.replace(**options).to_dict(),
            }
            runs.append(run)
    return folder, by_two_processes(folder, runs, timeout=400)


@pytest.mark.parametrize("name", [" ".join(one) for one in cases()])
def test_shards_make_the_weights_of_the_whole_model(
    name: str, pairs: tuple[Path, "subprocess.CompletedProcess[str]"]
) -> None:
    folder, done = pairs
    here = folder / name
    assert (here / "fsdp" / "model.json").exists(), done.stderr[-3000:]
    ddp, fsdp = (load_file(here / way / "model.safetensors") for way in ("ddp", "fsdp"))
    assert ddp.keys() == fsdp.keys()
    for weight, value in ddp.items():
        torch.testing.assert_close(fsdp[weight], value, rtol=1e-5, atol=1e-5)


@NEEDS_BF16
def test_shards_round_products_as_the_whole_model_does(
    pairs: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    folder, done = pairs
    here = folder / " ".join(HALF)
    assert (here / "fsdp bf16" / "model.json").exists(), done.stderr[-3000:]
    whole, sharded, single = (load_file(here / way / "model.safetensors") for way in ("ddp bf16", "fsdp bf16", "fsdp"))
    for name, value in whole.items():
        assert value.dtype == sharded[name].dtype == torch.float32, "weights stay in 32 bits"
        torch.testing.assert_close(sharded[name], value, rtol=1e-3, atol=1e-4)
    assert any(not torch.equal(value, single[name]) for name, value in sharded.items()), "bf16 was used"
