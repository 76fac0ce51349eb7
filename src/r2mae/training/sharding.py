"""Fully sharded training: each process holds a part of every parameter, gradient and moment of the optimiser.

The parameters of one layer at a time are gathered for its forward and its backward pass (torch's FSDP2). What belongs
to no layer (:mod:`r2mae.training.units`), such as embeddings, heads and the weight network of a curriculum, is gathered
for the whole step. Gradients are summed onto the process that holds the part. Numbers are those of DDP, up to rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from r2mae.training.checkpoint import STEP, read_checkpoint
from r2mae.training.launcher import WatchedStrategy
from r2mae.training.shards import SHARDS, as_sharded, flat, like, read_shards, shards_of, write_shards
from r2mae.training.step import Pretraining
from r2mae.training.units import listen, units_of, within


class ShardedStrategy(WatchedStrategy):
    """Shards a :class:`Pretraining` over the processes of a run, which end together, and its checkpoints with it."""

    @property
    def pretraining(self) -> Pretraining:
        """The module that trains."""
        assert isinstance(self.lightning_module, Pretraining)
        return self.lightning_module

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """Checkpoints are read when each process knows which part is its own."""
        return True

    def model_to_device(self) -> None:
        """Shard the module; each part goes to the device by itself."""
        shard(self.pretraining, self.root_device)

    def configure_ddp(self) -> None:
        """Do nothing: the module is sharded, not wrapped."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Return the loss of a micro-batch; what belongs to no layer is there for the whole step."""
        with self.precision_plugin.train_step_context():
            return within(self.pretraining, self.pretraining.training_step, *args)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        """Write the parts of all processes, and then the checkpoint that names them."""
        path = Path(self.broadcast(filepath))
        optimizer = _fused(checkpoint["optimizer_states"][0], fused=True)
        record = write_shards(flat(checkpoint["state_dict"], optimizer), shards_of(path, checkpoint[STEP]))
        rest = {**checkpoint, SHARDS: record, "state_dict": {}, "optimizer_states": [{**optimizer, "state": {}}]}
        super().save_checkpoint(rest, path, storage_options)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint, sharded or not, with the tensors divided as they are here."""
        path, groups = Path(checkpoint_path), self.optimizers[0].param_groups
        checkpoint = read_checkpoint(path)
        optimizer = _fused(checkpoint["optimizer_states"][0], fused=groups[0].get("fused"))
        weights = self.pretraining.state_dict()
        own = [parameter for group in groups for parameter in group["params"]]
        if SHARDS in checkpoint:
            checkpoint["optimizer_states"] = [optimizer]
            return read_shards(path, checkpoint, partial(like, weights=weights, own=own))
        state = {
            number: {name: as_sharded(value, own[number]) for name, value in entries.items()}
            for number, entries in optimizer["state"].items()
        }
        there = checkpoint["state_dict"]
        divided = {name: as_sharded(value, weights.get(name, value)) for name, value in there.items()}
        return {**checkpoint, "state_dict": divided, "optimizer_states": [{**optimizer, "state": state}]}

    def teardown(self) -> None:
        """Leave the parts where they are."""
        assert self.cluster_environment is not None and self.accelerator is not None
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        self.checkpoint_io.teardown()


def _fused(optimizer: dict[str, Any], *, fused: bool | None) -> dict[str, Any]:
    """Say of an optimiser's state by which kernel the weights are moved: checkpoints are those of one process."""
    groups = [{**group, "fused": fused} if "fused" in group else group for group in optimizer["param_groups"]]
    return {**optimizer, "param_groups": groups}


def shard(module: Pretraining, device: torch.device) -> None:
    """Divide parameters among the processes: of each layer by itself, of the moving average, and of all the rest."""
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for model in (module.model, *(() if module.average is None else (module.average.module,))):
        for unit in units_of(model):
            fully_shard(unit, mesh=mesh)
            listen(unit)
    if module.average is not None:
        fully_shard(module.average.module, mesh=mesh)
    fully_shard(module, mesh=mesh)
    module.to(device)  # what is no parameter
    listen(module)


@contextmanager
def gathered(module: Pretraining) -> Iterator[None]:
    """Within the block, let the model that is kept be used outside of a step; all processes must do so together."""
    parts = [one for one in (module, module.evaluation_model) if isinstance(one, FSDPModule)]
    for part in parts:
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
