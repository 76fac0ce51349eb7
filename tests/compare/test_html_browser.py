"""The report in a real browser: Debian's Chromium without a window, driven by Playwright."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from r2mae.compare.analysis import Analysis, analyse
from r2mae.compare.comparison import Comparison
from r2mae.compare.publish import render_report

pytestmark = pytest.mark.slow

Make = Callable[..., Comparison]
Visit = Callable[..., Page]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PATIENCE = 120_000  # milliseconds


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for the file."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is missing, and CI must have it: see .ci/run")
        pytest.skip("needs Chromium on the PATH (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"]
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=PATIENCE)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Open a file on a screen; in the end the pages must have logged nothing and fetched nothing."""
    contexts, complaints, requests = [], [], []

    def visit(path: Path, *, width: int = 1280, dark: bool = False, scripts: bool = True) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            has_touch=width < 500,
            is_mobile=width < 500,
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.on("console", lambda message: complaints.append(message.text))
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on("request", lambda request: requests.append(request.url))
        page = context.new_page()
        page.goto(path.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("data:", "file:"))] == []


def by_ratio(comparison: Comparison) -> Comparison:
    """Add scores at every ratio, as the domains give them."""
    table, rng = comparison.table.copy(), np.random.default_rng(0)
    for ratio in np.arange(1, 10) / 10:
        distance = ratio - (table["low"] + table["high"]) / 2
        table[f"masked_mse_{ratio:g}"] = 0.02 + 0.01 * ratio + 0.02 * distance**2 + rng.normal(0, 4e-4, len(table))
    return replace(comparison, table=table)


@pytest.fixture(scope="module")
def default(comparison: Comparison) -> Comparison:
    """Eight labels, three seeds, scores at nine ratios."""
    return by_ratio(comparison)


@pytest.fixture(scope="module")
def found(default: Comparison) -> Analysis:
    return analyse(default)


@pytest.fixture(scope="module")
def path(default: Comparison, found: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default report."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_report(default, found), encoding="utf-8")
    return file


def labels_of(page: Page) -> list[str]:
    return [text.strip() for text in page.locator("#scores-table tbody th").all_inner_texts()]


def heading(page: Page, column: int) -> Locator:
    return page.locator("#scores-table thead th").nth(column)


def in_order(found: Analysis, labels: list[str], metric: str, *, rising: bool) -> list[str]:
    return sorted(labels, key=lambda label: found.interval(label, metric)["mean"] * (1 if rising else -1))


def test_table_is_sorted_by_click_and_shows_the_numbers_of_the_analysis(
    visit: Visit, path: Path, default: Comparison, found: Analysis
) -> None:
    page = visit(path)
    assert labels_of(page) == default.labels
    heading(page, 1).get_by_role("button").click()
    assert heading(page, 1).get_attribute("aria-sort") == "descending"  # higher is better: the best first
    assert labels_of(page) == in_order(found, default.labels, "probe_accuracy", rising=False)
    cell = page.locator("#scores-table tbody tr").first.locator("td").nth(0)
    mean = found.interval(labels_of(page)[0], "probe_accuracy")["mean"]
    assert cell.locator(".best").inner_text() == f"{mean:.{found.decimals['probe_accuracy']}f}"
    assert float(cell.get_attribute("data-sort") or "nan") == mean
    heading(page, 1).get_by_role("button").click()
    assert heading(page, 1).get_attribute("aria-sort") == "ascending"
    assert labels_of(page) == in_order(found, default.labels, "probe_accuracy", rising=True)
    heading(page, 3).get_by_role("button").click()
    assert [heading(page, column).get_attribute("aria-sort") for column in (1, 3)] == [None, "ascending"]


def test_table_is_sorted_by_keyboard_and_keeps_equal_rows_in_order(
    visit: Visit, path: Path, default: Comparison, found: Analysis
) -> None:
    page = visit(path)
    heading(page, 1).get_by_role("button").press("Enter")
    by_accuracy = in_order(found, default.labels, "probe_accuracy", rising=False)
    assert labels_of(page) == by_accuracy
    heading(page, 3).get_by_role("button").press("Space")  # rows with one verdict keep their order
    undecided = [
        label for label in by_accuracy if (found.difference(label, "probe_accuracy") or {})["verdict"] == "undecided"
    ]
    assert [label for label in labels_of(page) if label in undecided] == undecided
    page.keyboard.press("Shift+Tab")
    focused = heading(page, 2).locator("button:focus")
    assert focused.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"


def test_missing_values_stay_last(visit: Visit, default: Comparison, tmp_path: Path) -> None:
    table = default.table.copy()
    table.loc[table["label"] == "cl", ["probe_accuracy"]] = np.nan
    gapped = replace(default, table=table, metrics=default.metrics[:1], reconstructions={})
    (tmp_path / "report.html").write_text(render_report(gapped, analyse(gapped)), encoding="utf-8")
    page = visit(tmp_path / "report.html")
    for _ in range(2):
        heading(page, 1).get_by_role("button").click()
        assert labels_of(page)[-1] == "cl"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_page_fits_the_screen(visit: Visit, path: Path, tmp_path: Path, width: int, dark: bool) -> None:
    page = visit(path, width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") == width  # tables and figures scroll in their frames
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    with Image.open(tmp_path / "page.png") as image:
        assert image.width == width
        colours = image.convert("RGB").getcolors(1 << 24)
    assert max(colours or [])[1] == ((21, 23, 26) if dark else (255, 255, 255))
    assert len(colours or []) > 200


def test_figures_follow_the_page_but_images_stay(visit: Visit, path: Path, tmp_path: Path) -> None:
    for dark in (False, True):
        page = visit(path, dark=dark)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        for name in ("differences", "loss_curves", "reconstructions"):
            page.locator(f"#figure-{name} .plot").screenshot(path=tmp_path / f"{name}.png")
            with Image.open(tmp_path / f"{name}.png") as image:
                colours = image.convert("L").getcolors() or []
            background = max(colours)[1]
            ends = max(value for _, value in colours), min(value for _, value in colours)
            assert background < 40 if dark and name != "reconstructions" else background == 255
            assert ends[0] - ends[1] > 180  # text stands out


def test_page_reads_without_scripts(visit: Visit, path: Path, default: Comparison) -> None:
    page = visit(path, scripts=False)
    assert page.locator("#scores-table tbody tr").count() == len(default.labels)
    assert page.locator("#scores-table button").count() == 0  # nothing that would not answer
    shown = page.locator("#figure-loss_curves text").all_text_contents()
    assert set(default.labels) <= set(shown)


def test_print_has_everything_unfolded(visit: Visit, path: Path) -> None:
    page = visit(path, dark=True)
    folded = page.locator("details > pre").last
    seen = "element => element.checkVisibility({contentVisibilityAuto: true})"
    assert not folded.evaluate(seen)
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    assert folded.evaluate(seen)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_hostile_names_do_nothing(visit: Visit, default: Comparison, tmp_path: Path) -> None:
    evil = "</script><script>document.title = 1</script>"
    table = default.table.replace({"label": {"cl": evil}})
    curves = default.curves.replace({"label": {"cl": evil}})
    few = replace(default, metrics=default.metrics[:1], reconstructions={})
    hostile = replace(few, title=evil, table=table, curves=curves, config={evil: evil})
    (tmp_path / "report.html").write_text(render_report(hostile, analyse(hostile)), encoding="utf-8")
    page = visit(tmp_path / "report.html")
    assert page.title().startswith("</script><script>")
    assert evil in labels_of(page)
    assert evil in page.locator("#figure-loss_curves text").all_text_contents()


def test_two_hundred_runs_are_a_light_page(visit: Visit, make_comparison: Make, tmp_path: Path) -> None:
    comparison = by_ratio(make_comparison(ratios=tuple(np.arange(1, 21) * 0.04), seeds=8))
    assert len(comparison.table) == 200
    assert len(comparison.curves) == 200 * 200
    file = tmp_path / "report.html"
    file.write_text(render_report(comparison, analyse(comparison)), encoding="utf-8")
    assert file.stat().st_size < 3_000_000
    page = visit(file)
    assert len(labels_of(page)) == 25
    heading(page, 1).get_by_role("button").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
