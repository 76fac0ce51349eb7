"""What a domain gives to the training loop: data, a task, and a model.

A task is typed by its batches and its model, ``Task[Batch, Model]``; a domain by its configuration, its task and its
model, ``Trainable[Config, Task, Model]``. An omitted parameter is ``Any``: the loop takes a plain ``Task``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from typing_extensions import TypeVar

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike
from r2mae.masking.schemes import Curriculum
from r2mae.training.config import RunConfig

_Result = TypeVar("_Result")


class MaskedBatch:
    """What the loop needs of a masked mini-batch; usually a :class:`Corrupted`."""

    if TYPE_CHECKING:  # fields of the classes that inherit from this one

        @property
        def inputs(self) -> Any:
            """What the model sees."""

        @property
        def hidden(self) -> Bool[Tensor, "..."]:
            """True at hidden entries, where the loss is computed; sample by sample, equally many per sample."""

        @property
        def targets(self) -> Tensor:
            """The clean values."""

        @property
        def entries(self) -> int:
            """Number of entries that can be hidden."""

        @property
        def weights(self) -> Float[Tensor, "..."] | None:
            """The task's own weights of the hidden entries, in the shape of the losses or broadcast to it."""

    @property
    def count(self) -> Tensor | int:
        """Number of hidden entries that the loss is computed on; a domain that knows it may override this."""
        return self.hidden.sum()

    def loss_rows(self) -> Int64[Tensor, " losses"] | None:
        """Return the sample (its row) of each loss, in the order of the flattened losses.

        By default None: there is one loss per entry, or one row of losses per sample.
        """
        return None

    def ordered_by_sample(self, losses: Tensor, rows: int) -> bool:
        """Return whether losses are ordered by sample, equally many for each of so many samples."""
        return losses.numel() == self.hidden.numel() or (losses.ndim > 1 and len(losses) == rows)


@dataclass(frozen=True)
class Corrupted(MaskedBatch):
    """A masked mini-batch, of which all hidden entries are predicted; see :class:`MaskedBatch` for its fields."""

    inputs: Any
    hidden: Bool[Tensor, "..."]
    targets: Tensor
    entries: int
    weights: Float[Tensor, "..."] | None = None


@dataclass(frozen=True)
class Output:
    """The output of a model for a corrupted mini-batch: its prediction, and the representation behind it."""

    prediction: Tensor
    representation: Tensor


class Batches:
    """Training or evaluation data, which makes a batch of any list of indices, given a key."""

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Any:
        """Return the batch of these samples, in this order: a tensor or mapping of tensors (:func:`count_samples`).

        `key` is the only source of random numbers here (augmentation, packing). In training it is the key of the
        optimiser step, and ``key.row`` is the row of the first sample in the global batch. If numbers are drawn with
        :func:`r2mae.masking.keys.words`, or from keys folded from this one, a sample is the same in every process
        and worker, and in a resumed run. In evaluation, keys are the same in every call.
        """
        raise NotImplementedError

    def on_device(self, device: torch.device) -> "Batches":
        """Return batches that are made on the device, if all samples fit there; by default the object itself."""
        return self

    @property
    def unaugmented(self) -> "Batches":
        """The same samples without augmentation; by default there is none."""
        return self


def count_samples(batch: Any) -> int:
    """Return the number of samples in a batch: the rows of its tensors, or of the sparse matrix with an `indptr`."""
    if not isinstance(batch, Mapping):
        return len(batch)
    return len(batch["indptr"]) - 1 if "indptr" in batch else len(next(iter(batch.values())))


_Batch_contra = TypeVar("_Batch_contra", contravariant=True, default=Any)
_Model_contra = TypeVar("_Model_contra", contravariant=True, bound=nn.Module, default=Any)


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with the same learning rate (`scale` times the run's) and weight decay (the run's, or none)."""

    parameters: list[nn.Parameter]
    scale: float = 1.0
    decayed: bool = True


class Task(Generic[_Batch_contra, _Model_contra]):
    """How a domain hides entries, predicts them and scores the prediction.

    A task has no state, so it is the same in training and evaluation. The argument `corrupted` always comes from its
    own :meth:`corrupt`, and `output` from its own :meth:`forward`; it may annotate them with its own classes. The first
    four methods are required.
    """

    @property
    def statistics_samples(self) -> int | None:
        """Most training samples that batch statistics are re-estimated from, if each has many positions in them."""
        return None

    def corrupt(self, batch: _Batch_contra, ratio: RatioLike, key: Key) -> MaskedBatch:
        """Hide entries of a batch, which is on the model's device."""
        raise NotImplementedError

    def forward(self, model: _Model_contra, corrupted: Any) -> Output:
        """Run the model."""
        raise NotImplementedError

    def losses(self, output: Any, corrupted: Any) -> Float[Tensor, "..."]:
        """Return the loss of each entry, zero at visible entries; or only the losses of hidden entries."""
        raise NotImplementedError

    def embed(self, model: _Model_contra, batch: _Batch_contra) -> Float[Tensor, "batch width"]:
        """Return the representation of unmasked samples that probes use; deterministic, with the model in eval mode."""
        raise NotImplementedError

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a new network that learns the loss weights of a curriculum."""
        raise UserError("this model has no network for the loss weights of a curriculum: choose another scheme than cl")

    def learned_weights(self, network: nn.Module, corrupted: Any, output: Any) -> Float[Tensor, "units l"]:
        """Return the learned weights as a matrix whose columns broadcast against the losses."""
        raise NotImplementedError

    def reconstruct(self, model: _Model_contra, batch: Any) -> Tensor:
        """Return the output for an unmasked batch, in the order of its values and in any shape; optional."""
        raise NotImplementedError

    @property
    def reconstructs(self) -> bool:
        """Whether the task has a method :meth:`reconstruct`, so that its model runs on unmasked inputs."""
        return type(self).reconstruct is not Task.reconstruct

    @property
    def with_fixed_counts(self) -> "Task[_Batch_contra, _Model_contra]":
        """The variant that hides a fixed count in every sample (the ratio times its entries, rounded), perhaps itself.

        It is used for per-sample ratios.
        """
        return self

    def parameter_groups(self, model: _Model_contra, config: Any) -> list[ParameterGroup]:
        """Return which parameters are trained, and how, in the same order in every call; omitted ones stay frozen.

        By default all, with the run's learning rate and weight decay; AdamW does not decay biases and norms.
        """
        parameters = list(model.parameters())
        if config.optimizer.name != "adamw" or config.optimizer.weight_decay == 0:
            return [ParameterGroup(parameters)]
        matrices, vectors = ([one for one in parameters if (one.ndim < 2) is flat] for flat in (False, True))
        return [ParameterGroup(matrices), ParameterGroup(vectors, decayed=False)]


class Data:
    """The data that a domain loads for a configuration."""

    if TYPE_CHECKING:  # fields of the classes that inherit from this one

        @property
        def train(self) -> Batches:
            """Samples that the model learns from."""

        @property
        def validation(self) -> Batches | None:
            """Validation samples, which the model does not learn from; None if there are none."""

        @property
        def architecture(self) -> dict[str, Any]:
            """Plain values from which :meth:`Trainable.build` can build the model without the data."""

    def initialise(self, model: nn.Module) -> None:
        """Give a fresh model what it takes from the training data, such as means and covariances; by default nothing.

        Every process of a run calls this, and must get the same numbers. The numbers are buffers of the model, so they
        are saved with its weights.
        """


_Config = TypeVar("_Config", bound=RunConfig, default=Any)
_Task_co = TypeVar("_Task_co", bound=Task, covariant=True, default=Any)
_Model_co = TypeVar("_Model_co", bound=nn.Module, covariant=True, default=Any)


@runtime_checkable
class Trainable(Protocol[_Config, _Task_co, _Model_co]):
    """The part of a domain that is used here: a configuration class, data, a task, a model and its evaluation."""

    @property
    def name(self) -> str:
        """The domain's name."""

    @property
    def config(self) -> type[_Config]:
        """The class of the domain's configuration."""

    def fingerprint(self, config: _Config) -> str:
        """Return a short text that differs for other data; it must be fast, and read as little as possible."""

    def load(self, config: _Config) -> Data:
        """Read the data of a run."""

    def build(self, architecture: Mapping[str, Any]) -> tuple[_Task_co, _Model_co]:
        """Return the task and a model with fresh weights."""

    def load_initial_weights(self, config: _Config, model: nn.Module) -> Any:
        """Load the weights that the configuration names, and return the origin of a file of them; None without any."""

    def before_training(self, config: _Config) -> _Config | None:
        """Return the configuration with which initial weights are measured before training; None: they are not."""

    @property
    def evaluation_support(self) -> tuple[str, ...]:
        """The arguments among `items`, `kept` and `progress` that `evaluate` takes; see the base class of domains."""

    @property
    def evaluate(self) -> Callable[..., dict[str, float]]:
        """``evaluate(config, task, model, data, **options)``: scores by name."""


def units_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model that is, for the most part, a stack of layers; empty for other models.

    They come from its method ``units()``. None is a part of another, and their parameters are read only while they are
    called, or in a function that is called by :func:`within`.
    """
    return list(model.units()) if hasattr(model, "units") else []  # type: ignore[operator]


def within(unit: nn.Module, function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Return ``function(*arguments)``, which reads a unit's parameters; of a sharded unit, as its call."""
    if not hasattr(unit, "unshard"):
        return function(*arguments)
    unit.forward = function
    try:
        found: _Result = unit(*arguments)
    finally:
        del unit.forward  # the class has its own
    return found
