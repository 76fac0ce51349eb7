"""The options that send the runs of a sweep to a cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from r2mae.cli.parsing import Parser

if TYPE_CHECKING:
    from r2mae.sweep.cluster_options import ClusterOptions


def add_cluster(parser: Parser) -> None:
    """Add the options to the parser of a command."""
    parser.add_argument(
        "--cluster",
        type=str,
        help="Train on the workers of a Dask cluster: tcp://HOST:PORT of a running scheduler, or slurm or kubernetes "
        "to start workers there. docs/cluster.md has recipes.",
    )
    parser.add_argument(
        "--cluster_config",
        type=str,
        help="For slurm and kubernetes: a YAML file with the arguments of SLURMCluster or KubeCluster.",
    )
    parser.add_argument(
        "--run_memory",
        type=str,
        help="Memory of each run, such as 8GB, taken of the resource MEMORY that workers offer.",
    )


def read_cluster(values: Mapping[str, Any]) -> "ClusterOptions | None":
    """Return the cluster of the options, or None; refuse mistakes in them."""
    from r2mae.sweep.cluster_options import cluster_options

    return cluster_options(
        values["cluster"], config=values["cluster_config"], memory=values["run_memory"], jobs=values["jobs"]
    )
