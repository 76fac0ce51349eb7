"""Which cluster a sweep runs on, as the command line says it. Mistakes are found before torch is loaded."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from r2mae.errors import UserError, nearest
from r2mae.training.records import read_yaml


@dataclass(frozen=True)
class Engine:
    """What starts workers: the class of a library, where its keyword arguments are named, and what brings it."""

    package: str
    module: str
    name: str
    extra: str
    workers: bool
    """Whether the class starts no workers unless it is told how many."""


ENGINES = {
    "slurm": Engine("dask_jobqueue", "dask_jobqueue", "SLURMCluster", "slurm", True),
    "kubernetes": Engine("dask_kubernetes", "dask_kubernetes.operator", "KubeCluster", "kubernetes", False),
}

# Arguments that a file cannot say, or that belong to programs of another kind.
_NOT_OURS = {"self", "args", "kwargs", "job_kwargs", "base_class_kwargs", "asynchronous", "loop", "job_cls"} | {
    *("scheduler", "scheduler_cls", "jupyter")
}
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://.+:\d+")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?) ?(k|M|G|T)(i?)B")


@dataclass(frozen=True)
class ClusterOptions:
    """Where the runs of a sweep run.

    Parameters
    ----------
    where : str
        Address of a scheduler that runs ("tcp://host:8786"), or the name of an engine that starts one.
    settings : mapping
        Keyword arguments for the engine.
    memory : int, optional
        Bytes that each run may take.
    """

    where: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: int | None = None


def cluster_options(
    where: str | None, *, config: str | None = None, memory: str | None = None, jobs: int | None = None
) -> ClusterOptions | None:
    """Return what the options say, or None if there is no cluster.

    Parameters
    ----------
    where : str, optional
        ``--cluster``.
    config : str, optional
        ``--cluster-config``: a YAML file of keyword arguments for the engine.
    memory : str, optional
        ``--run-memory``, such as "8GB".
    jobs : int, optional
        ``--jobs``, which has no meaning on a cluster.

    Raises
    ------
    UserError
        For options that do not go together, a cluster of no known kind, a missing library, or unknown settings.
    """
    if where is None:
        for name, value in (("--cluster-config", config), ("--run-memory", memory)):
            if value is not None:
                raise UserError(f"{name} belongs to --cluster: name the cluster, or omit {name}")
        return None
    if jobs is not None:
        raise UserError(
            "--jobs counts processes of this machine, and --cluster runs none here: omit --jobs (a worker runs as "
            "many runs at once as it has threads: dask worker --nthreads 1)"
        )
    engine = ENGINES.get(where)
    if engine is None and not _ADDRESS.fullmatch(where):
        raise UserError(
            f"--cluster {where!r} is neither the address of a scheduler (tcp://HOST:PORT) nor an engine: "
            f"{nearest(where, ENGINES)}"
        )
    _need("distributed", "cluster")
    size = None if memory is None else _bytes(memory)
    if engine is None:
        if config is not None:
            raise UserError(
                "--cluster-config is for slurm and kubernetes: the scheduler that runs has its own settings"
            )
        return ClusterOptions(where, memory=size)
    if config is None:
        known = ", ".join(ENGINES)
        raise UserError(f"--cluster {where} needs --cluster-config FILE (with {known}; docs/cluster.md has examples)")
    _need(engine.package, engine.extra)
    return ClusterOptions(where, _settings(engine, Path(config)), size)


def engine_class(engine: Engine) -> Any:
    """Return the class that starts a cluster."""
    return getattr(import_module(engine.module), engine.name)


def known_settings(engine: Engine) -> set[str]:
    """Return the keyword arguments of an engine: those of its class, of the classes below it, and of their jobs."""
    cls = engine_class(engine)
    classes = [*cls.__mro__, *getattr(getattr(cls, "job_cls", None), "__mro__", ())]
    own = [one for one in classes if one.__module__.split(".")[0] == engine.package and "__init__" in vars(one)]
    return {name for one in own for name in inspect.signature(one.__init__).parameters} - _NOT_OURS


def _settings(engine: Engine, file: Path) -> dict[str, Any]:
    values = read_yaml(file, linked=True)
    known = known_settings(engine)
    for name in values:
        if name not in known:
            raise UserError(f"{file}: {engine.name} takes no {name!r}: {nearest(name, sorted(known))}")
    count = values.get("n_workers")
    if (count is None and engine.workers) or (count is not None and (type(count) is not int or count < 1)):
        raise UserError(f"{file}: say how many workers to start, 1 or more (n_workers: 4)")
    return values


def _need(package: str, extra: str) -> None:
    if find_spec(package) is None:
        library = {"distributed": "Dask"}.get(package, package.replace("_", "-"))
        raise UserError(f"--cluster needs {library}, which is not installed: pip install 'r2mae[{extra}]'")


def _bytes(text: str) -> int:
    found = _MEMORY.fullmatch(text.strip())
    size = 0 if found is None else int(float(found[1]) * (1024 if found[3] else 1000) ** ("kMGT".index(found[2]) + 1))
    if size < 1:
        raise UserError(f"--run-memory {text!r} is no amount of memory: say 8GB, for example")
    return size
