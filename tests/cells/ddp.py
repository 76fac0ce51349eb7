"""Train on cells with several processes; a script, because its processes start it again.

python tests/cells/ddp.py DATA OUT '{"devices": 2, "steps": 20}'
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import CellsDomain
from r2mae.cells.task import GeneTask
from r2mae.training.loop import fit


class WithoutNormalisation(CellsDomain):
    """The domain with a model that has no batch statistics, so that processes and one process can be compared."""

    def build(self, architecture: Mapping[str, Any]) -> tuple[GeneTask, nn.Module]:
        task, model = super().build(architecture)
        for part in (model.encoder, model.decoder):
            for place, layer in enumerate(part):
                if isinstance(layer, nn.BatchNorm1d):
                    part[place] = nn.Identity()
        return task, model


def run(data: str, out: str, options: Mapping[str, Any]) -> None:
    """Train a small model."""
    config = CellsConfig.make(data=data, n_hidden=16, n_latent=4, batch_size=40, threads=1, device="cpu", **options)
    fit(config, WithoutNormalisation(), out)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
