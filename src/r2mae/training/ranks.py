"""Which of several processes this is, also before any process group exists."""

import os

from r2mae.errors import UserError


def process_rank(devices: int) -> int:
    """Return this process's rank among those that train one model together.

    torchrun's variables say it, SLURM's, or those that Lightning sets for the processes it starts. A run on one
    device is rank 0 also where SLURM started it beside others: they are runs of their own.

    Parameters
    ----------
    devices : int
        How many processes the run is meant to have.

    Raises
    ------
    UserError
        If a launcher started another number of processes.
    """
    for rank, size in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        count = os.environ.get(size, "1")
        if not os.environ.get(rank, "").isdigit() or not count.isdigit() or count == "1":
            continue
        if devices == 1 and rank == "SLURM_PROCID":
            return 0
        if int(count) != devices:
            raise UserError(f"{count} processes were started for {devices} device(s): say --devices {count}")
        return int(os.environ[rank])
    return int(os.environ.get("LOCAL_RANK", "0")) if devices > 1 else 0
