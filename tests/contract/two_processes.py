"""Train a wing with several processes; a script, because its processes start it again.

python tests/contract/two_processes.py WING OUT '{"data": "…", "devices": 2, "steps": 3}'
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
    name, out, values = sys.argv[1:]
    with known(name):
        wing = get_wing(name)
        fit(wing.config.from_dict(json.loads(values)), wing, out)
