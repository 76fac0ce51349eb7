"""``r2mae report DIR…``: make reports of comparisons again."""

from collections.abc import Sequence
from pathlib import Path

from r2mae.cli.parsing import Parser


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae report",
        "Make the table, the figures, results.csv, results.json and report.html of a comparison again, from everything "
        "that is finished in its folder. Nothing is trained or measured.",
        "r2mae report runs/compare-digits",
    )
    parser.add_argument("folders", metavar="DIR", nargs="+", type=str, help="Folders of comparisons.")
    folders = [Path(word) for word in parser.read(words)["folders"]]

    from r2mae.compare.finished import check_folder

    for folder in folders:  # finds mistakes before torch is imported, and before anything is written
        check_folder(folder)

    from r2mae.compare.again import gather_again
    from r2mae.report.publish import publish
    from r2mae.training.folder import FolderLock

    for folder in folders:
        with FolderLock(folder):
            comparison = gather_again(folder)
            publish(comparison, folder)
        print(f"table, figures and report.html are in {folder}")
    return 0
