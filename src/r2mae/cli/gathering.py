"""Sections of a page of results: comparisons, reproductions and runs."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from r2mae.compare.again import gather_again
from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.report.analysis import measured_metrics
from r2mae.report.folders import Kind, Results
from r2mae.report.sections import (
    Section,
    Table,
    section_of_files,
    section_of_published,
    section_of_run,
)
from r2mae.reproduce.claims import MEANING, Verdict, judge
from r2mae.reproduce.claims import Results as Evidence
from r2mae.reproduce.state import state_of
from r2mae.reproduce.targets import ARTEFACTS, target_of
from r2mae.training.folder import RunFolder

ORDER = ("Comparisons", "Reproductions", "Runs", "Tables")
_KINDS: Mapping[Kind, str] = {
    "comparison": "Comparisons",
    "published": "Comparisons",
    "reproduction": "Reproductions",
    "run": "Runs",
    "tables": "Tables",
}
_CLASSES = {"reproduced": "better", "not reproduced": "worse", "undecided": "undecided", "direction only": "undecided"}
_CLAIMS = "Claims of the paper"
_WITHOUT_VERDICT = ("not testable here", "not run")
_HEADINGS = ("place", "verdict", "the paper says", "measure", "paper", "ours (95 % interval)", "on what, and why")


def sections_of(results: Sequence[Results]) -> list[Section]:
    """Return the page's sections, one for each folder of results. An unreadable folder's section has the error.

    Raises
    ------
    UserError
        If no folder can be read.
    """
    sections = [_section_or_error(one) for one in results]
    if all(section.unread for section in sections):
        others = f" (and {len(sections) - 1} more results cannot be read)" if len(sections) > 1 else ""
        raise UserError(f"{sections[0].lines[0]}{others}")
    return sections


def _section_or_error(results: Results) -> Section:
    try:
        return section_of(results)
    except (UserError, OSError, csv.Error) as error:
        reason = str(error) if isinstance(error, UserError) else f"{results.folder} cannot be read ({error})"
        return Section(results.folder.name, _KINDS[results.kind], str(results.folder), (reason,), unread=True)


def section_of(results: Results) -> Section:
    """Return the page's section of a folder of results."""
    folder = results.folder
    if results.kind == "comparison":
        comparison = gather_again(folder)
        measured_metrics(comparison)
        title, left_out = comparison.title, comparison.unread
        return Section(title, "Comparisons", str(folder), comparison=comparison, left_out=left_out)
    if results.kind == "published":
        section = section_of_published(folder)
        if section.comparison is not None:
            measured_metrics(section.comparison)
        return section
    if results.kind == "run":
        return section_of_run(folder, _metrics_of(folder))
    if results.kind == "tables":
        return section_of_files(folder, folder.name, "Tables")
    title = target_of(folder.name).title if folder.name in ARTEFACTS else folder.name
    return section_of_files(folder, title, "Reproductions", [f"State: {state_of(folder).in_words()}."])


def _metrics_of(folder: Path) -> tuple[Metric, ...]:
    """Return the metrics of a run's domain; empty if the domain is not installed."""
    written = RunFolder(folder).read_config()
    try:
        domain = domain_of_run(written, folder)
        return domain.metrics_of(domain.config.from_dict(written, source=str(folder)))
    except UserError:
        return ()


def sorted_sections(sections: Sequence[Section]) -> list[Section]:
    """Return comparisons first, then reproductions, runs and other tables."""
    return sorted(sections, key=lambda section: ORDER.index(section.kind))


def claims_of(folders: Sequence[Path], results: Sequence[Results]) -> Section | None:
    """Return the section of the paper's claims with their verdicts; None if the folders decide none of them."""
    if not any(one.kind in ("reproduction", "published", "comparison") for one in results):
        return None
    try:
        evidence = Evidence(folders, pass_over=True)
        found = judge(evidence)
    except UserError as error:
        return Section(_CLAIMS, "Claims", "", (f"They could not be judged: {error}.",), left_out=(str(error),))
    twice = tuple(f"{reason}, for the paper's claims" for reason in evidence.twice.values())
    lines = tuple(f"Not judged: {reason}." for reason in evidence.twice.values())
    judged = [one for one in found if one.verdict not in _WITHOUT_VERDICT]
    if not judged:
        return Section(_CLAIMS, "Claims", "", lines, left_out=twice) if twice else None
    counts = [f"{sum(one.verdict == word for one in found)} {word}" for word in MEANING]
    tables = [_table(judged, f"{len(judged)} claims that these results decide or leave undecided")]
    groups = {word: [one for one in found if one.verdict == word] for word in _WITHOUT_VERDICT}
    tables += [_table(rest, f"{len(rest)} claims: {word}", folded=True) for word, rest in groups.items() if rest]
    texts = {"What the verdicts mean": "\n".join(f"{word}: {meaning}" for word, meaning in MEANING.items())}
    summary = f"{len(found)} claims: {', '.join(counts)}."
    return Section(_CLAIMS, "Claims", "", (summary, *lines), tuple(tables), (), texts, left_out=twice)


def _table(found: Sequence[Verdict], caption: str, *, folded: bool = False) -> Table:
    rows = tuple(
        (v.claim.place, v.verdict, v.claim.says, v.claim.measure, v.paper_in_words, v.ours_in_words, v.reason)
        for v in found
    )
    classes = tuple(_CLASSES.get(v.verdict, "same") for v in found)
    return Table(caption, _HEADINGS, rows, open=not folded, classes=classes)
