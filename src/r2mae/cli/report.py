"""``r2mae report DIR…``: make reports of comparisons again."""

from dataclasses import dataclass
from pathlib import Path

from r2mae.fields import argument


@dataclass(frozen=True)
class Options:
    """Make the table, figures, results.csv, results.json and report.html of a comparison again.

    They hold everything that is finished in its folder. Nothing is trained or measured.

    Parameters
    ----------
    folders : list of str
        Folders of comparisons.

    Examples
    --------
    r2mae report runs/compare-digits
    """

    folders: tuple[str, ...] = argument(metavar="DIR")


def run(options: Options) -> int:
    """Run the command."""
    from r2mae.compare.run_states import read_shared_fields

    folders = list(map(Path, options.folders))
    for folder in folders:  # finds mistakes before torch is imported, and before anything is written
        read_shared_fields(folder)

    from r2mae.compare.gather import gather_again
    from r2mae.compare.publish import publish
    from r2mae.training.folder import FolderLock

    for folder in folders:
        with FolderLock(folder):
            publish(gather_again(folder), folder)
    return 0
