"""A small domain for the loop's tests: no batch statistics, no files, seconds to train."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from r2mae.domains.base import Domain
from r2mae.environment import has_fast_bf16
from r2mae.evaluation.metrics import Metric
from r2mae.images.batches import ImageBatches
from r2mae.images.task import PixelTask
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.keys import Key, uniforms
from r2mae.training.config import DataConfig, MachineConfig, OptimizerConfig, RunConfig
from r2mae.training.task import Batches, Data

NEEDS_BF16 = pytest.mark.skipif(
    not has_fast_bf16(torch.device("cpu")), reason="this processor has no bf16 instructions, so the run is refused"
)


@dataclass(frozen=True, kw_only=True)
class ToyConfig(RunConfig):
    """A run of the toy domain."""

    domain: ClassVar[str] = "toy"
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(ratio=0.5, low=0.2, high=0.8)

    samples: int = 100
    dropout: float = 0.0
    dimmed: bool = False
    norm: bool = False
    data: DataConfig = DataConfig(source="noise")
    optimizer: OptimizerConfig = OptimizerConfig(lr=1e-2, batch_size=20)
    machine: MachineConfig = MachineConfig(save_every=7)


class DimmedBatches(ImageBatches):
    """Images, each made darker by a number of its own that is drawn with the key."""

    def batch(self, indices: Any, key: Key) -> Tensor:
        light = torch.from_numpy(uniforms(key, len(indices)))[:, None, None, None]
        return (super().batch(indices, key) * light).to(torch.uint8)


class ToyModel(nn.Module):
    def __init__(self, pixels: int, dropout: float, norm: bool = False) -> None:
        super().__init__()
        normed = [nn.BatchNorm1d(8)] if norm else []
        self.encoder = nn.Sequential(nn.Linear(pixels, 8), *normed, nn.ReLU(), nn.Dropout(dropout))
        self.decoder = nn.Linear(8, pixels)

    def forward(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        latent = self.encoder(flat)
        return self.decoder(latent), latent


@dataclass
class ToyData(Data):
    train: Batches
    validation: Batches | None
    architecture: dict[str, Any]


class ToyDomain(Domain):
    name = "toy"
    content = "as it was"
    title = "Toy"
    config = ToyConfig

    def metrics_of(self, config: ToyConfig) -> tuple[Metric, ...]:
        return (Metric("score", "score"),)

    def fingerprint(self, config: ToyConfig) -> str:
        return f"{config.data.source} {self.content}"

    def load(self, config: ToyConfig) -> Any:
        images = np.random.default_rng(0).integers(0, 256, (config.samples, 3, 4, 1), dtype=np.uint8)
        held_out = round(config.data.validation * config.samples)
        rows, batches = np.arange(config.samples), DimmedBatches if config.dimmed else ImageBatches
        return ToyData(
            train=batches(images, rows[held_out:]),
            validation=batches(images, rows[:held_out]) if held_out else None,
            architecture={"pixels": 12, "dropout": config.dropout} | ({"norm": True} if config.norm else {}),
        )

    def evaluate(self, config: ToyConfig, task: PixelTask, model: nn.Module, data: Any) -> dict[str, float]:
        return {"score": 0.0}

    def embed(self, config: ToyConfig, task: PixelTask, model: nn.Module, source: str) -> dict[str, np.ndarray]:
        return {}

    def build(self, architecture: Mapping[str, Any]) -> tuple[PixelTask, nn.Module]:
        pixels, norm = architecture["pixels"], architecture.get("norm", False)
        return PixelTask(pixels), ToyModel(pixels, architecture["dropout"], norm)


@pytest.fixture
def domain() -> ToyDomain:
    return ToyDomain()


class Interrupted(Exception):
    """Stands for whatever cuts a run off."""


class InterruptAt:
    """A reporter that cuts the run off at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def start(self, step: int, total: int) -> None:
        return

    def update(self, pace: Any) -> None:
        if pace.step >= self.step:
            raise Interrupted

    def stop(self) -> None:
        return


@pytest.fixture
def weights_of() -> Callable[[Path], dict[str, Tensor]]:
    from safetensors.torch import load_file

    return lambda path: load_file(path / "model.safetensors")


def equal_bytes(a: Path, b: Path) -> bool:
    """Whether two runs have the same weights and metrics, byte for byte."""
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in ("model.safetensors", "metrics.csv"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
