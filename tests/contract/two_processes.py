"""Train wings with several processes, one run after the other; a script for torchrun.

torchrun --nproc-per-node 2 tests/contract/two_processes.py RUNS.json
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contract.conftest import known
from r2mae.training.loop import fit
from r2mae.wings.lookup import get_wing

if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for one in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        os.environ["R2MAE_CACHE"] = one["cache"]
        with known(one["wing"]):
            wing = get_wing(one["wing"])
            fit(wing.config.from_dict(one["config"]), wing, one["out"])
