"""What a wing gives to the loop: data, a task, and a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike
from r2mae.masking.schemes import Curriculum
from r2mae.training.config import RunConfig


@dataclass(frozen=True)
class Corrupted:
    """A mini-batch with entries hidden.

    Parameters
    ----------
    inputs : Any
        What the model sees.
    hidden : Bool tensor
        True where the loss looks.
    targets : tensor
        The clean values.
    entries : int
        How many entries could have been hidden.
    weights : tensor, optional
        The task's own weights of the hidden entries, in the shape of the losses or broadcast to it.
    """

    inputs: Any
    hidden: Bool[Tensor, "..."]
    targets: Tensor
    entries: int
    weights: Float[Tensor, "..."] | None = None

    @property
    def count(self) -> Tensor | int:
        """How many entries are hidden; a wing that knows it beforehand need not count."""
        return self.hidden.sum()


@dataclass(frozen=True)
class Output:
    """What a model makes of a corrupted mini-batch: its prediction, and the representation behind it."""

    prediction: Tensor
    representation: Tensor


@runtime_checkable
class Batches(Protocol):
    """Training or evaluation data: a length, and a whole batch for a list of indices and a key."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Any:
        """Return the batch of these samples, as a tensor or a mapping of tensors; see :func:`rows_of`.

        Parameters
        ----------
        indices : sequence of int
            Which samples, in this order.
        key : Key
            The one source of random numbers for whatever is drawn here (augmentation, packing). In training it is
            that of the optimiser step, and ``key.row`` is the row of the first sample in the global batch: drawn with
            :func:`r2mae.masking.keys.words` or folded from it, a sample looks the same whichever process or worker
            makes it, and in a resumed run. Evaluation gives keys that are the same in every call.
        """


@runtime_checkable
class MovableBatches(Batches, Protocol):
    """Samples that can live on the device as a whole, so that no batch has to travel."""

    def on_device(self, device: torch.device) -> Batches:
        """Return the same batches, made on the device where they fit there, and else themselves."""


def rows_of(batch: Any) -> int:
    """Return the number of samples in a batch: the rows of its tensors, or of the sparse matrix with an `indptr`."""
    if not isinstance(batch, Mapping):
        return len(batch)
    return len(batch["indptr"]) - 1 if "indptr" in batch else len(next(iter(batch.values())))


@runtime_checkable
class Task(Protocol):
    """How a wing hides, predicts and scores; stateless, so that it is the same in training and evaluation."""

    def corrupt(self, batch: Any, ratio: RatioLike, key: Key) -> Corrupted:
        """Hide entries of a batch that lies on the device."""

    def forward(self, model: nn.Module, corrupted: Corrupted) -> Output:
        """Run the model."""

    def losses(self, output: Output, corrupted: Corrupted) -> Float[Tensor, "..."]:
        """Return the loss of each hidden entry: zero elsewhere, or hidden entries alone."""

    def embed(self, model: nn.Module, batch: Any) -> Float[Tensor, "batch width"]:
        """Return the representation that probes use: unmasked and deterministic (the model is in eval mode)."""

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a new network that learns loss weights."""

    def learned_weights(self, network: nn.Module, corrupted: Corrupted, output: Output) -> Float[Tensor, "units l"]:
        """Return the weight matrix; its columns broadcast against the losses."""


@runtime_checkable
class Data(Protocol):
    """What a wing loads for a configuration."""

    @property
    def train(self) -> Batches:
        """Samples that the model learns from."""

    @property
    def validation(self) -> Batches | None:
        """Samples held out of them for the validation loss."""

    @property
    def architecture(self) -> dict[str, Any]:
        """Plain values from which :meth:`Trainable.build` makes the model, without any data."""


@runtime_checkable
class Trainable(Protocol):
    """What the loop needs of a wing."""

    @property
    def name(self) -> str:
        """The wing's name."""

    @property
    def config(self) -> type[RunConfig]:
        """The wing's own configuration."""

    @property
    def ratios(self) -> RatioDefaults:
        """The wing's numbers for the schemes."""

    def fingerprint(self, config: Any) -> str:
        """Return what tells the data of a run from others, quickly."""

    def load(self, config: Any) -> Data:
        """Read the data of a run."""

    def build(self, architecture: Mapping[str, Any]) -> tuple[Task, nn.Module]:
        """Make the task and a freshly initialised model."""
