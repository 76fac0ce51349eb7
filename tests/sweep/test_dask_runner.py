"""Cells on a cluster of two workers: the same table as here, whatever happens to a worker, the scheduler or the user."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from sweep.dask_cluster import LocalCluster

from r2mae.compare.compare import compare
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.wing import WING
from r2mae.report.publish import write_table
from r2mae.sweep.cluster_options import ClusterOptions
from r2mae.training.folder import FolderLock

pytestmark = pytest.mark.slow

# Large enough that a worker can be killed within a run, and small enough to wait for.
BASE = ImagesConfig(data="digits", device="cpu", steps=150, hidden=16, latent=8, save_every=20, probe=False)
PLAN = {"schemes": ["fixed", "r2mae", "mdlm"], "ratios": [0.5], "seeds": [0, 1, 2, 3]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    local = LocalCluster(tmp_path_factory.mktemp("cluster"))
    yield local
    local.close()
