"""The report in a real browser: Chromium without a window, spoken to through a pipe by its DevTools protocol."""

import json
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from r2mae.report.analysis import Analysis, analyse
from r2mae.report.comparison import Comparison
from r2mae.report.html import render_report

Make = Callable[..., Comparison]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
    "--no-first-run", "--disable-component-update", "--disable-dev-shm-usage", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe", "about:blank",
)  # fmt: skip
# The browser reads commands from descriptor 3 and answers on 4.
LAUNCH = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"
PATIENCE = 120


class Browser:
    """A running Chromium; messages are JSON, each ended by a zero byte."""

    def __init__(self, profile: Path) -> None:
        import fcntl

        pipes = [*os.pipe(), *os.pipe()]
        # Away from 3 and 4, which the child overwrites.
        read, self.out, self.into, write = (fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 20) for pipe in pipes)
        for pipe in pipes:
            os.close(pipe)
        command = [sys.executable, "-c", LAUNCH, str(read), str(write), str(CHROMIUM), *OPTIONS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self.rest = b""
        self.numbers = count(1)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come meanwhile are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def receive(self) -> dict[str, Any]:
        """Wait for the next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(end - time.monotonic(), 0))
            assert ready, f"Chromium has been silent for {PATIENCE} s"
            part = os.read(self.into, 1 << 20)
            assert part, "Chromium has ended"
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def close(self) -> None:
        """End it, whatever state it is in."""
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)


@dataclass
class Tab:
    """A page, opened from a file and sized like a screen."""

    browser: Browser
    target: str = ""
    session: str = ""

    def open(self, path: Path, *, width: int = 1280, dark: bool = False, scripts: bool = True) -> None:
        self.target = self.browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.browser.call("Target.attachToTarget", targetId=self.target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        loaded = {"loaderId": self.call("Page.navigate", url=path.as_uri())["loaderId"], "name": "load"}
        while not any(loaded.items() <= event.items() for event in self.events("Page.lifecycleEvent")):
            self.browser.events.append(self.browser.receive())

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def events(self, *methods: str) -> list[dict[str, Any]]:
        mine = (event for event in self.browser.events if event.get("sessionId") == self.session)
        return [event["params"] for event in mine if event["method"] in methods]

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript; an exception in it fails the test."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def place(self, finder: str) -> dict[str, float]:
        """Scroll an element (a JavaScript expression) into sight and return its frame."""
        return self.run(
            f"(() => {{ const e = {finder}; e.scrollIntoView({{block: 'center', inline: 'center'}});"
            " const {x, y, width, height} = e.getBoundingClientRect(); return {x, y, width, height}; })()"
        )

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def click(self, finder: str) -> None:
        frame = self.place(finder)
        x, y = frame["x"] + min(frame["width"] / 2, 20), frame["y"] + frame["height"] / 2
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def press(self, key: str, code: int, text: str = "") -> None:
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path: Path) -> tuple[int, int]:
        """Write a PNG and return its width and height."""
        data = b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])
        path.write_bytes(data)
        return struct.unpack(">II", data[16:24])

    def complaints(self) -> list[dict[str, Any]]:
        """What the console, the log and uncaught exceptions have said."""
        self.run("new Promise((done) => setTimeout(done, 50))")
        return self.events("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")

    def requests(self) -> list[str]:
        urls = [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]
        return [url for url in urls if not url.startswith(("data:", "file:"))]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for the file."""
    if CHROMIUM is None or sys.platform == "win32":
        if os.environ.get("CI"):
            pytest.fail("Chromium is missing, and CI must have it: see .ci/run")
        pytest.skip("needs Chromium on the PATH (Debian: apt install chromium)")
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """An empty page, closed afterwards."""
    page = Tab(browser)
    yield page
    browser.call("Target.closeTarget", targetId=page.target)


def by_ratio(comparison: Comparison) -> Comparison:
    """Add scores at every ratio, as the wings give them."""
    table, rng = comparison.table.copy(), np.random.default_rng(0)
    for ratio in np.arange(1, 10) / 10:
        distance = ratio - (table["low"] + table["high"]) / 2
        table[f"masked_mse_{ratio:g}"] = 0.02 + 0.01 * ratio + 0.02 * distance**2 + rng.normal(0, 4e-4, len(table))
    return replace(comparison, table=table)


@pytest.fixture(scope="module")
def usual(comparison: Comparison) -> Comparison:
    """Eight labels, three seeds, scores at nine ratios."""
    return by_ratio(comparison)


@pytest.fixture(scope="module")
def found(usual: Comparison) -> Analysis:
    return analyse(usual)


@pytest.fixture(scope="module")
def path(usual: Comparison, found: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The usual report."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_report(usual, found), encoding="utf-8")
    return file


HEADINGS = "document.querySelector('#scores-table thead').rows[0].cells"
ROWS = "[...document.querySelector('#scores-table').tBodies[0].rows]"
LABELS = f"{ROWS}.map((row) => row.cells[0].textContent.trim())"
AREA = "document.getElementById('panel-loss')"
TIP = f"{AREA}.querySelector('.tip')"


def in_order(found: Analysis, labels: list[str], metric: str, *, rising: bool) -> list[str]:
    return sorted(labels, key=lambda label: found.interval(label, metric)["mean"] * (1 if rising else -1))


def test_table_is_sorted_by_click_and_shows_the_numbers_of_the_analysis(
    tab: Tab, path: Path, usual: Comparison, found: Analysis
) -> None:
    tab.open(path)
    assert tab.run(LABELS) == usual.labels
    tab.click(f"{HEADINGS}[2].querySelector('button')")
    assert tab.run(f"{HEADINGS}[2].getAttribute('aria-sort')") == "descending"  # higher is better: the best first
    assert tab.run(LABELS) == in_order(found, usual.labels, "probe_accuracy", rising=False)
    best = tab.run(f"{ROWS}[0].cells[2].querySelector('.best').textContent")
    top = tab.run(f"{ROWS}[0].cells[0].textContent.trim()")
    mean = found.interval(top, "probe_accuracy")["mean"]
    assert best == f"{mean:.{found.decimals['probe_accuracy']}f}"
    assert float(tab.run(f"{ROWS}[0].cells[2].dataset.sort")) == mean
    tab.click(f"{HEADINGS}[2].querySelector('button')")
    assert tab.run(f"{HEADINGS}[2].getAttribute('aria-sort')") == "ascending"
    assert tab.run(LABELS) == in_order(found, usual.labels, "probe_accuracy", rising=True)
    tab.click(f"{HEADINGS}[3].querySelector('button')")  # lower is better
    assert tab.run(f"[...{HEADINGS}].map((cell) => cell.getAttribute('aria-sort'))")[2:4] == [None, "ascending"]
    assert tab.run(LABELS) == in_order(found, usual.labels, "masked_mse", rising=True)
    assert tab.complaints() == []
    assert tab.requests() == []


def test_table_is_sorted_by_keyboard_and_keeps_equal_rows_in_order(
    tab: Tab, path: Path, usual: Comparison, found: Analysis
) -> None:
    tab.open(path)
    tab.run(f"{HEADINGS}[2].querySelector('button').focus()")
    tab.press("Enter", 13, "\r")
    by_accuracy = in_order(found, usual.labels, "probe_accuracy", rising=False)
    assert tab.run(LABELS) == by_accuracy
    tab.run(f"{HEADINGS}[1].querySelector('button').focus()")
    for _ in range(2):  # all have three seeds: either way nothing moves
        tab.press(" ", 32, " ")
        assert tab.run(LABELS) == by_accuracy
    assert tab.run(f"{HEADINGS}[1].getAttribute('aria-sort')") == "descending"
    tab.press("Tab", 9)
    assert tab.run(f"document.activeElement.closest('th') === {HEADINGS}[2]")
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert tab.complaints() == []


def test_missing_values_stay_last(tab: Tab, usual: Comparison, tmp_path: Path) -> None:
    table = usual.table.copy()
    table.loc[table["label"] == "cl", ["probe_accuracy"]] = np.nan
    gapped = replace(usual, table=table)
    (tmp_path / "report.html").write_text(render_report(gapped, analyse(gapped)), encoding="utf-8")
    tab.open(tmp_path / "report.html")
    for _ in range(2):
        tab.click(f"{HEADINGS}[2].querySelector('button')")
        assert tab.run(LABELS)[-1] == "cl"


def test_hovering_shows_the_value_under_the_pointer(tab: Tab, path: Path, usual: Comparison) -> None:
    tab.open(path)
    assert tab.run(f"{TIP}.hidden")
    frame = tab.place(AREA)
    tab.mouse("mouseMoved", frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] * 0.9)
    said = tab.run(f"[...{TIP}.children].map((line) => line.textContent)")
    step = int(said[0].removeprefix("optimiser step "))
    means = usual.curves[usual.curves["step"] == step].groupby("label")["loss"].mean()
    assert abs(step - 402) < 20
    shown = dict(line.split(": ") for line in said[1:] if ": " in line)
    assert set(shown) == set(usual.labels)
    for label, value in shown.items():
        assert float(value) == pytest.approx(means[label], rel=2e-4)
    assert len([line for line in said[1:] if " to " in line]) == 1  # the nearest line says its band, too
    tab.mouse("mouseMoved", 2, 2)
    assert tab.run(f"{TIP}.hidden")
    assert tab.complaints() == []


def test_keys_read_the_scores_by_ratio(tab: Tab, path: Path, usual: Comparison) -> None:
    tab.open(path)
    area = "document.getElementById('panel-ratio-0')"
    tab.run(f"{area}.focus()")
    for _ in range(3):
        tab.press("ArrowRight", 39)
    tab.press("ArrowDown", 40)
    said = tab.run(f"{area}.querySelector('.tip').innerText").split("\n")
    assert said[0] == "mask ratio 0.3"
    means = usual.table.groupby("label")["masked_mse_0.3"].mean()
    label, value = next(line for line in said[2:] if ": " in line).split(": ")
    assert float(value) == pytest.approx(means[label], rel=2e-3)
    tab.press("Escape", 27)
    assert tab.run(f"{area}.querySelector('.tip').hidden")


def test_legend_hides_lines(tab: Tab, path: Path, usual: Comparison) -> None:
    tab.open(path)
    tab.click("document.querySelector('#figure-loss_curves .legend li[data-label=\"cl\"] button')")
    assert tab.run("document.querySelectorAll('#figure-loss_curves .series[hidden]').length") == 2  # in both panels
    frame = tab.place(AREA)
    tab.mouse("mouseMoved", frame["x"] + 100, frame["y"] + 100)
    assert tab.run(f"{TIP}.querySelectorAll('.ink').length") == len(usual.labels) - 1
    assert tab.complaints() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_the_screen(tab: Tab, path: Path, tmp_path: Path, width: int, dark: bool) -> None:
    tab.open(path, width=width, dark=dark)
    assert tab.run("document.documentElement.scrollWidth") == width  # tables and figures scroll in their own frames
    assert tab.screenshot(tmp_path / "page.png")[0] == width
    with Image.open(tmp_path / "page.png") as image:
        colours = image.convert("RGB").getcolors(1 << 24)
    assert max(colours or [])[1] == ((21, 23, 26) if dark else (255, 255, 255))
    assert len(colours or []) > 200
    assert tab.complaints() == []


def test_page_reads_without_scripts(tab: Tab, path: Path, usual: Comparison) -> None:
    tab.open(path, scripts=False)
    document = tab.call("DOM.getDocument", depth=-1)["root"]["nodeId"]

    def number(selector: str) -> int:
        return len(tab.call("DOM.querySelectorAll", nodeId=document, selector=selector)["nodeIds"])

    assert number("#scores-table tbody tr") == len(usual.labels)
    assert number("#scores-table button, .legend button") == 0  # nothing that would not answer
    assert number("#figure-loss_curves .line") == 2 * len(usual.labels)


def test_print_has_everything_unfolded(tab: Tab, path: Path) -> None:
    tab.open(path, dark=True)
    tab.run(
        "addEventListener('beforeprint', () => window.open_then = document.querySelectorAll('details[open]').length)"
    )
    pdf = b64decode(tab.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
    assert tab.run("window.open_then") == tab.run("document.querySelectorAll('details').length") > 0
    assert tab.run("document.querySelectorAll('details[open]').length") == 0
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.complaints() == []


def test_hostile_names_do_nothing(tab: Tab, usual: Comparison, tmp_path: Path) -> None:
    evil = "</script><script>document.title = 1</script>"
    table = usual.table.replace({"label": {"cl": evil}})
    curves = usual.curves.replace({"label": {"cl": evil}})
    hostile = replace(usual, title=evil, table=table, curves=curves, reconstructions=None, config={evil: evil})
    (tmp_path / "report.html").write_text(render_report(hostile, analyse(hostile)), encoding="utf-8")
    tab.open(tmp_path / "report.html")
    assert tab.run("document.title").startswith("</script><script>")
    assert evil in tab.run(LABELS)
    frame = tab.place(AREA)
    tab.mouse("mouseMoved", frame["x"] + 100, frame["y"] + 100)
    assert evil in tab.run(f"{TIP}.textContent")
    assert tab.complaints() == []


def test_two_hundred_runs_are_a_light_page(tab: Tab, make_comparison: Make, tmp_path: Path) -> None:
    comparison = by_ratio(make_comparison(ratios=tuple(np.arange(1, 21) * 0.04), seeds=8))
    assert len(comparison.table) == 200
    assert len(comparison.curves) == 200 * 200
    file = tmp_path / "report.html"
    file.write_text(render_report(comparison, analyse(comparison)), encoding="utf-8")
    assert file.stat().st_size < 10_000_000
    tab.open(file)
    assert tab.run(f"{ROWS}.length") == 25
    tab.click(f"{HEADINGS}[2].querySelector('button')")
    frame = tab.place(AREA)
    tab.mouse("mouseMoved", frame["x"] + 100, frame["y"] + 100)
    assert tab.run(f"{TIP}.lastChild.textContent") == "and 15 further away"
    assert tab.run("document.documentElement.scrollWidth") == 1280
    assert tab.complaints() == []
