"""The options that send the runs of a sweep to a cluster."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2mae.training.fields import option

if TYPE_CHECKING:
    from r2mae.compare import cluster_options


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Where runs are trained.

    Parameters
    ----------
    jobs : int, optional
        Number of processes; by default one per core.
    cluster : str, optional
        Train on the workers of a Dask cluster: tcp://HOST:PORT of a running scheduler, or slurm or kubernetes to start
        workers there. docs/cluster.md has recipes.
    cluster_config : str, optional
        For slurm and kubernetes: a YAML file with the arguments of SLURMCluster or KubeCluster.
    run_memory : str, optional
        Memory of each run, such as 8GB, taken of the resource MEMORY that workers offer.
    """

    jobs: int | None = None
    cluster: str | None = option(None, common=False, words=("slurm", "kubernetes"))
    cluster_config: str | None = option(None, common=False, metavar="FILE")
    run_memory: str | None = option(None, common=False, metavar="SIZE")


def read_cluster(options: ClusterOptions) -> "cluster_options.ClusterOptions | None":
    """Return the cluster of the options, or None; refuse mistakes in them."""
    from r2mae.compare.cluster_options import cluster_options

    return cluster_options(options.cluster, config=options.cluster_config, memory=options.run_memory, jobs=options.jobs)
