"""Train domains with several processes, one run after the other; a script for torchrun.

torchrun --nproc-per-node 2 tests/contract/two_processes.py RUNS.json
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contract.conftest import known
from r2mae.domains.lookup import get_domain
from r2mae.training.loop import fit

if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for one in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        os.environ["R2MAE_CACHE"] = one["cache"]
        with known(one["domain"]):
            domain = get_domain(one["domain"])
            fit(domain.config.from_dict(one["config"]), domain, one["out"])
