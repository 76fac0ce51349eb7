"""The report: well-formed, self-contained, with the comparison's numbers and nothing unescaped."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from r2mae.compare.analysis import analyse
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


def test_headline_comes_first_and_numbers_are_those_of_the_analysis(comparison: Comparison, html: str) -> None:
    found = analyse(comparison)
    page = parse(html)
    assert html.index(found.headline.split("(")[0]) < html.index("<table")
    row = next(row for row in page.rows if row[0] == "r2mae")
    line = found.interval("r2mae", "probe_accuracy")
    assert row[1] == "3"
    assert row[2] == f"{line['mean']:.4f} {line['low']:.4f} to {line['high']:.4f}"
    assert row[-1] == f"{found.average_rank('r2mae'):.1f}"
    against = [row for row in page.rows if row[0] == "mdlm"]
    assert len(against) == 3  # scores, best fixed, default
    difference = found.difference("mdlm", "probe_accuracy")
    assert difference is not None
    assert against[1][2].startswith(f"−{abs(difference['mean']):.4f} {difference['verdict']}")  # noqa: RUF001
    assert [row for row in page.rows if row[:1] == ["fixed 0.70"]][1][2].strip() == "is the best fixed"


def test_the_page_says_what_the_headline_compares_with(comparison: Comparison, html: str) -> None:
    captions = re.findall(r"Scheme minus <b>(.*?)</b>", html)
    assert captions == ["best fixed ratio", "fixed 0.70 (the default)"]
    assert "of the headline, which compares with the best fixed ratio." in html
    named = replace(comparison, config={**comparison.config, "against": "r2mae"})
    page = render_report(named, analyse(named))
    assert re.findall(r"Scheme minus <b>(.*?)</b>", page) == ["r2mae (named by --against)", "best fixed ratio"]
    assert "of the headline, which compares with r2mae." in page


def test_best_fixed_is_listed_by_seed(tiny: Make) -> None:
    comparison = tiny({"fixed 0.50": [3.0, 7.0, 4.0], "fixed 0.70": [7.0, 3.0, 3.0], "r2mae": [6.0, 6.0, 5.0]})
    page = parse(render_report(comparison, analyse(comparison)))
    listed = [row[1:] for row in page.rows if row[-1] == "the other seeds"]
    assert listed == [[str(seed), f"fixed {p}", "the other seeds"] for seed, p in enumerate(("0.50", "0.70", "0.50"))]


def test_every_figure_is_there_with_words(html: str) -> None:
    page = parse(html)
    figures = [attributes["id"] for tag, attributes in page.tags if tag == "figure"]
    assert figures[:2] == ["figure-score_by_scheme", "figure-score_by_scheme_masked_mse"]
    assert figures[-2:] == ["figure-loss_curves", "figure-reconstructions"]
    assert sum(attributes.get("class") == "plot" for tag, attributes in page.tags if tag == "svg") == len(figures)
    assert sum(attributes.get("role") == "img" for _, attributes in page.tags) == len(figures)
    assert all(attributes["aria-label"] for _, attributes in page.tags if attributes.get("role") == "img")


def test_columns_know_how_to_be_sorted(comparison: Comparison, html: str) -> None:
    found = analyse(comparison)
    tags = parse(html).tags
    assert {attributes.get("class") for tag, attributes in tags if tag == "table"} == {"sortable"}
    numbers = [attributes["data-sort"] for tag, attributes in tags if tag == "td" and "data-sort" in attributes]
    assert numbers[1] == repr(found.interval("fixed 0.50", "probe_accuracy")["mean"])
    first = [attributes.get("data-first") for tag, attributes in tags if tag == "th"][:6]
    assert first == [None, None, "descending", None, None, "descending"]  # the best first: down where lower is better


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
    assert sum(tag == "details" for tag, _ in page.tags) == 3
    assert "batch_size: 128" in page.text
    assert "torch: 2.13.0" in page.text


@pytest.mark.parametrize("how", [{"seeds": 1}, {"ratios": ()}, {"schemes": ()}, {"ratios": (0.7,)}])
def test_small_comparisons_have_a_report_too(make_comparison: Make, how: dict[str, object]) -> None:
    comparison = replace(make_comparison(**how), reconstructions={})
    page = parse(render_report(comparison, analyse(comparison)))
    assert "nan" not in page.text.lower().replace("finance", "")
    assert "Best fixed ratio by seed" not in page.text or len(how.get("ratios", (1, 2))) > 1


def test_pairs_are_those_of_the_differences_beside_them(comparison: Comparison) -> None:
    table = comparison.table.copy()
    cl, first = table["label"] == "cl", table["seed"] == 0
    table.loc[cl, "probe_accuracy"] = np.nan
    table.loc[cl & first, "clean_mse"] = np.nan
    table.loc[(table["label"] == "mdlm"), "probe_accuracy"] = np.nan
    missing = replace(comparison, table=table)
    html = render_report(missing, analyse(missing))
    differences = html[html.index('id="differences"') :]
    cells = {
        label: differences[differences.index(f"</span>{label}</th>") :].split("</td>")[:5]
        for label in ("r2mae", "mdlm", "cl")
    }
    pairs = {label: re.sub(r"<[^>]*>", "", found[0]).split("\n")[-1] for label, found in cells.items()}
    assert pairs == {"r2mae": "3", "mdlm": "3", "cl": "2 to 3"}
    assert "3 pairs" in cells["cl"][2]
    assert "2 pairs" in cells["cl"][3]
    assert "pairs" not in "".join(cells["mdlm"])


def test_missing_values_leave_empty_cells(comparison: Comparison) -> None:
    table = comparison.table.copy()
    table.loc[table["label"] == "cl", "effective_rank"] = np.nan
    comparison = replace(comparison, table=table)
    page = parse(render_report(comparison, analyse(comparison)))
    row = next(row for row in page.rows if row[0] == "cl")
    assert row[5] == ""


def test_report_is_whole_and_the_same_every_time(comparison: Comparison, html: str) -> None:
    assert render_report(comparison, analyse(comparison)) == html
    assert html.rstrip().endswith("</html>")
