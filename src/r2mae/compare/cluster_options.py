"""Which cluster a sweep runs on, as the command line says it. Mistakes are found before torch is loaded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from r2mae.errors import UserError, install, nearest
from r2mae.fields import option
from r2mae.training.folder import read_yaml

ENGINES = {"slurm": ("dask_jobqueue", "SLURMCluster"), "kubernetes": ("dask_kubernetes.operator", "KubeCluster")}
"""What starts workers: module and class. The name is also that of the extra which installs the library."""

_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://.+:\d+")


@dataclass(frozen=True)
class ClusterOptions:
    """Where the runs of a sweep run.

    Parameters
    ----------
    where : str
        Address of a scheduler that runs ("tcp://host:8786"), or the name of an engine that starts one.
    settings : mapping
        Keyword arguments for the engine.
    """

    where: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """The options of the command line that say where runs are trained.

    Parameters
    ----------
    jobs : int, optional
        Number of processes; by default one per core.
    cluster : str, optional
        Train on the workers of a Dask cluster: tcp://HOST:PORT of a running scheduler, or slurm or kubernetes to start
        workers there. docs/cluster-recipes.md has examples.
    cluster_config : str, optional
        For slurm and kubernetes: a YAML file with the arguments of SLURMCluster or KubeCluster.
    """

    jobs: int | None = option(None, common=False)
    cluster: str | None = option(None, common=False, words=tuple(ENGINES))
    cluster_config: str | None = option(None, common=False, metavar="FILE")

    def read(self) -> ClusterOptions | None:
        """Return what the options say, or None if there is no cluster.

        Raises
        ------
        UserError
            For options that do not go together, a cluster of no known kind, or a missing library.
        """
        where, config = self.cluster, self.cluster_config
        if where is None:
            if config is not None:
                raise UserError("--cluster-config belongs to --cluster: name the cluster, or omit --cluster-config")
            return None
        if self.jobs is not None:
            raise UserError(
                "--jobs counts processes of this machine, and --cluster runs none here: omit --jobs (a worker runs as "
                "many runs at once as it has threads: dask worker --nthreads 1)"
            )
        if where not in ENGINES and not _ADDRESS.fullmatch(where):
            raise UserError(
                f"--cluster {where!r} is neither the address of a scheduler (tcp://HOST:PORT) nor an engine: "
                f"{nearest(where, ENGINES)}"
            )
        _need("distributed")
        if where not in ENGINES:
            if config is not None:
                raise UserError(
                    "--cluster-config is for slurm and kubernetes: the scheduler that runs has its own settings"
                )
            return ClusterOptions(where)
        if config is None:
            known = ", ".join(ENGINES)
            raise UserError(
                f"--cluster {where} needs --cluster-config FILE (with {known}; docs/cluster-recipes.md has examples)"
            )
        _need(ENGINES[where][0].split(".")[0])
        settings = read_yaml(Path(config), linked=True)
        if type(count := settings.get("n_workers")) is not int or count < 1:
            raise UserError(f"{config}: say how many workers to start, 1 or more (n_workers: 4)")
        return ClusterOptions(where, settings)


def engine_class(engine: str) -> Any:
    """Return the class that starts a cluster."""
    module, name = ENGINES[engine]
    return getattr(import_module(module), name)


def _need(package: str) -> None:
    if find_spec(package) is None:
        library = {"distributed": "Dask"}.get(package, package.replace("_", "-"))
        raise UserError(f"--cluster needs {library}, which is not installed: {install(package)}")
