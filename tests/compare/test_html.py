"""The report: well-formed, self-contained, with the comparison's numbers and nothing unescaped."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from r2mae.compare.analysis import analyse
from r2mae.compare.answers import answers
from r2mae.compare.comparison import Comparison
from r2mae.compare.publish import render_report

pytestmark = pytest.mark.slow

Make = Callable[..., Comparison]
VOID = {"meta", "link", "img", "br", "hr", "input"}


@dataclass
class Page(HTMLParser):
    """Collects what the tests ask for, and fails on an element that is not closed."""

    stack: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and ("td" in self.stack or "th" in self.stack):
            self.rows[-1][-1] += data


def parse(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    assert page.stack == []
    return page


@pytest.fixture(scope="module")
def html(comparison: Comparison) -> str:
    """The report of the default comparison."""
    return render_report(comparison, analyse(comparison))


def test_page_is_well_formed_and_needs_nothing_else(html: str) -> None:
    page = parse(html)
    assert not re.search(r"https?:", html)
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "object")
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert not re.search(r"@import|url\((?!#)", html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert (policy or "").startswith("default-src 'none';")  # a browser would refuse to fetch anything


def test_the_answers_come_first_and_numbers_are_those_of_the_analysis(comparison: Comparison, html: str) -> None:
    found, page = analyse(comparison), parse(html)
    line = answers(comparison, found).headline[0]
    assert html.index(line.split("(")[0]) < html.index("<figure") < html.index("<table")
    rows = [row for row in page.rows if row[0] == "mdlm"]
    own, difference = found.interval("mdlm", "probe_accuracy"), found.difference("mdlm", "probe_accuracy")
    assert difference is not None and len(rows) == 3  # scores, measures, statistics
    assert rows[0][1] == f"{own['mean']:.4f}" and rows[0][3].rstrip("*") == difference["verdict"]
    assert rows[0][2].startswith(f"−{abs(difference['mean']):.4f} ")  # noqa: RUF001
    assert rows[1][1] == "3" and rows[1][2] == f"{own['mean']:.4f} {own['low']:.4f} to {own['high']:.4f}"
    assert rows[1][-1] == f"{found.average_rank('mdlm'):.1f}"
    assert rows[2][-1] == f"{difference['decides']:.4f}"
    assert next(row for row in page.rows if row[0] == "fixed 0.70")[3] == "best fixed"


def test_the_page_has_half_of_the_words_it_had(html: str) -> None:
    closed = re.sub(r"<(script|style|svg|details)[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    assert len(re.sub(r"<[^>]*>", " ", closed).split()) < 450


def test_the_page_says_what_it_compares_with(comparison: Comparison, html: str) -> None:
    named = replace(comparison, config={**comparison.config, "against": "r2mae"})
    page = render_report(named, analyse(named))
    for text, against, other in ((html, "best fixed", "r2mae"), (page, "r2mae", "best fixed")):
        heads = parse(text).rows[0]
        assert f"minus {against}" in heads and f"minus {other}" not in heads


def test_best_fixed_is_listed_by_seed(tiny: Make) -> None:
    comparison = tiny({"fixed 0.50": [3.0, 7.0, 4.0], "fixed 0.70": [7.0, 3.0, 3.0], "r2mae": [6.0, 6.0, 5.0]})
    page = parse(render_report(comparison, analyse(comparison)))
    listed = [row for row in page.rows if row[0].startswith("seed ")]
    assert listed == [[f"seed {seed}", f"fixed {p}"] for seed, p in enumerate(("0.50", "0.70", "0.50"))]


def test_every_figure_is_there_with_words(html: str) -> None:
    page = parse(html)
    figures = [attributes["id"] for tag, attributes in page.tags if tag == "figure"]
    assert figures == ["figure-reconstructions", "figure-differences", "figure-loss_curves"]
    assert sum(attributes.get("class") == "plot" for tag, attributes in page.tags if tag == "svg") == len(figures)
    assert sum(attributes.get("role") == "img" for _, attributes in page.tags) == len(figures)
    assert all(attributes["aria-label"] for _, attributes in page.tags if attributes.get("role") == "img")


def test_columns_know_how_to_be_sorted(comparison: Comparison, html: str) -> None:
    found = analyse(comparison)
    tags = parse(html).tags
    assert {attributes.get("class") for tag, attributes in tags if tag == "table"} == {"sortable"}
    numbers = [attributes["data-sort"] for tag, attributes in tags if tag == "td" and "data-sort" in attributes]
    assert numbers[0] == repr(found.interval("fixed 0.50", "probe_accuracy")["mean"])
    measures = html[html.index('id="measures-table"') :]
    first = [attributes.get("data-first") for tag, attributes in parse_part(measures) if tag == "th"][:6]
    assert first == [None, None, "descending", None, None, "descending"]  # the best first: down where lower is better


def parse_part(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """The tags of the first table in a part of a page."""
    page = Page()
    page.feed("<div><table " + html[: html.index("</table>")] + "</table></div>")
    return page.tags


def test_hostile_names_are_text(comparison: Comparison) -> None:
    evil = '</title><script>alert("x")</script><img src=x onerror=y>'
    table = comparison.table.replace({"label": {"mdlm": evil}})
    curves = comparison.curves.replace({"label": {"mdlm": evil}})
    comparison = replace(
        comparison, title=evil, table=table, curves=curves, config={"data": evil, evil: 1}, environment={"host": evil}
    )
    html = render_report(comparison, analyse(comparison))
    page = parse(html)
    assert sum(tag == "script" for tag, _ in page.tags) == 1  # the page's own
    assert "<script>alert" not in html
    assert "onerror=y>" not in html
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert evil in page.text


def test_configuration_and_environment_are_folded_away(html: str) -> None:
    page = parse(html)
    assert [text for text in ("All measures", "Configuration", "Environment") if f"<summary>{text}</summary>" in html]
    assert sum(tag == "details" for tag, _ in page.tags) == 6
    assert "batch_size: 128" in page.text
    assert "torch: 2.13.0" in page.text


@pytest.mark.parametrize("how", [{"seeds": 1}, {"ratios": ()}, {"schemes": ()}, {"ratios": (0.7,)}])
def test_small_comparisons_have_a_report_too(make_comparison: Make, how: dict[str, object]) -> None:
    comparison = replace(make_comparison(**how), reconstructions={})
    page = parse(render_report(comparison, analyse(comparison)))
    assert "nan" not in page.text.lower().replace("finance", "")
    assert "Best fixed ratio by seed" not in page.text or len(how.get("ratios", (1, 2))) > 1


def test_missing_values_leave_empty_cells(comparison: Comparison) -> None:
    table = comparison.table.copy()
    table.loc[table["label"] == "cl", "effective_rank"] = np.nan
    comparison = replace(comparison, table=table)
    page = parse(render_report(comparison, analyse(comparison)))
    row = [row for row in page.rows if row[0] == "cl"][1]
    assert row[5] == ""


def test_report_is_whole_and_the_same_every_time(comparison: Comparison, html: str) -> None:
    assert render_report(comparison, analyse(comparison)) == html
    assert html.rstrip().endswith("</html>")
