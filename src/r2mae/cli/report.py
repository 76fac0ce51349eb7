"""``r2mae report DIR…``: make reports of comparisons again, or with ``--out`` one page of any results."""

from collections.abc import Sequence
from pathlib import Path

from r2mae.cli.parsing import Parser
from r2mae.errors import UserError

_PAGE_NAME = "report.html"


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae report",
        "Make the table, the figures, results.csv, results.json and report.html of a comparison again, from all "
        "finished runs in its folder. With --out, gather any comparisons, runs and reproductions in one page, with "
        "verdicts on the paper's claims at the top. Nothing is trained or measured.",
        "r2mae report runs/compare-digits",
        "r2mae report runs/compare-digits runs/reproduce runs/a --out page",
    )
    parser.add_argument(
        "folders", metavar="DIR", nargs="+", type=str, help="Folders that compare, pretrain or reproduce made."
    )
    parser.add_argument(
        "--out",
        type=str,
        help=f"Folder for one page ({_PAGE_NAME}) of all DIR, which may then hold any results. An existing page is "
        "replaced; a folder with other files is refused.",
    )
    values = parser.read(words)
    folders = [Path(word) for word in values["folders"]]
    return _remake_reports(folders) if values["out"] is None else _write_page(folders, Path(values["out"]))


def _remake_reports(folders: Sequence[Path]) -> int:
    """Make the report of each comparison again, in its folder."""
    from r2mae.compare.finished import check_folder

    for folder in folders:  # finds mistakes before torch is imported, and before anything is written
        try:
            check_folder(folder)
        except UserError as error:
            hint = ". For a page of any results, add --out FOLDER" if folder.is_dir() else ""
            raise UserError(f"{error}{hint}") from None

    from r2mae.compare.again import gather_again
    from r2mae.report.publish import publish
    from r2mae.training.folder import FolderLock

    for folder in folders:
        with FolderLock(folder):
            comparison = gather_again(folder)
            publish(comparison, folder)
        print(f"table, figures and report.html are in {folder}")
    return 0


def _write_page(folders: Sequence[Path], out: Path) -> int:
    """Gather any results in one page."""
    if out.exists() and (not out.is_dir() or any(entry.name != _PAGE_NAME for entry in out.iterdir())):
        raise UserError(f"{out} holds other files than a page ({_PAGE_NAME}): choose a new folder as --out")

    from r2mae.report.folders import find_results
    from r2mae.reproduce.targets import ARTEFACTS, folder_of

    results = find_results(folders, {folder_of(name) for name in ARTEFACTS})

    from r2mae.cli.gathering import claims_of, sections_of, sorted_sections
    from r2mae.report.page import write_page

    sections = sections_of(results)
    title = f"Results in {', '.join(map(str, folders))}" if len(folders) <= 3 else f"Results in {len(folders)} folders"
    claims = claims_of(folders, results)
    write_page(out / _PAGE_NAME, title, sorted_sections(sections), claims)
    unread = [section for section in sections if section.unread]
    for reason in [reason for one in sections for reason in (one.lines[:1] if one.unread else one.left_out)]:
        print(f"not read: {reason}")
    for reason in claims.left_out if claims else ():
        print(f"not judged: {reason}")
    words = "result is" if len(sections) - len(unread) == 1 else "results are"
    print(f"{len(sections) - len(unread)} {words} in {out / _PAGE_NAME}")
    return 0
