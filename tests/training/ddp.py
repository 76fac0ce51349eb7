"""Train the toy wing with several processes; a script, because its processes start it again.

python tests/training/ddp.py OUT '{"devices": 2, "steps": 20}'
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.training.conftest import ToyConfig, ToyWing

from r2mae.training.loop import fit

if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    fit(ToyConfig(threads=1, **json.loads(sys.argv[2])), ToyWing(), sys.argv[1])
