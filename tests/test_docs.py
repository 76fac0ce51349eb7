"""The documentation's Python runs, and what it claims is there; see test_commands.py and test_names.py, too."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from r2mae.domains import baselines
from r2mae.images.config import ImagesConfig
from r2mae.images.models import MODELS
from r2mae.masking import schemes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
BLOCKS = {name: re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) for name, text in PAGES.items()}
# Names of tests that stand in the table of complaints.
GUARDS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGES["contributing/neighbours.md"])))


@pytest.fixture
def page_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in a folder of its own, and forget what a page registers."""
    monkeypatch.chdir(tmp_path)
    for registry in (schemes, baselines):
        monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    models = set(MODELS)
    yield tmp_path
    for name in MODELS.keys() - models:
        del MODELS[name]


# Lightning's own news about small loaders and torch's pytree, one by one; everything else stays an error.
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated.*")
@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]])
def test_python_blocks_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Dataclasses look their module up by name.
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("docs_page", None))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "docs_page", module)
    for number, block in enumerate(BLOCKS[page]):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), module.__dict__)


def test_guards_are_found() -> None:
    assert len(GUARDS) > 20


@pytest.mark.parametrize(("path", "name"), GUARDS)
def test_every_named_guard_is_a_test(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_complaint_links_to_where_it_was_made() -> None:
    """As owner/repository, the number that the text names; none is left as plain text."""
    page = PAGES["contributing/neighbours.md"]
    links = re.findall(r"\[([^\]]*)#(\d+)\]\(https://github\.com/[\w.-]+/([\w.-]+)/(issues|pull)/(\d+)\)", page)
    assert len(links) > 25
    assert len(re.findall(r"#\d+", page)) == len(links)
    for told, number, repository, kind, linked in links:
        assert number == linked
        assert told.removesuffix("PR").strip().lower() in ("", repository.lower(), repository.split("-")[-1].lower())
        assert told.endswith("PR") == (kind == "pull")


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    assert all(f" {page}\n" in navigation for page in PAGES)


def test_the_glossary_is_in_order() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\*", PAGES["glossary.md"], flags=re.MULTILINE)
    assert 10 < len(terms) <= 25
    assert [term.lower() for term in terms] == sorted(term.lower() for term in terms)


def test_every_complaint_has_an_answer() -> None:
    rows = [row for row in PAGES["contributing/neighbours.md"].splitlines() if row.startswith("| ")][1:]
    for row in rows:
        assert "::" in row, row


# What `make dev` environments lack is an error in CI, and a reason to skip elsewhere.
needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None and not os.environ.get("CI"),
    reason="needs the extra `docs`: pip install -e '.[docs]'",
)


class _Loaded(HTMLParser):
    """Collects what a browser fetches without being asked, and links to other pages."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if "src" in named:
            self.fetched.append(named["src"])
        if tag == "link":
            self.fetched.append(named.get("href", ""))
        if tag == "a":
            self.links.append(named.get("href", ""))


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


@needs_mkdocs
def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    for name in ("mkdocs.yml", "src", "paper"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(DOCS, tmp_path / "docs")
    with (tmp_path / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write("\n[gone](gone.md), [gone](images.md#lost), [gone][r2mae.training.missing]\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(told) == 3
    for name in ("'gone.md'", "'#lost'", "'r2mae.training.missing'"):
        assert any(name in line for line in told), done.stderr


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@needs_mkdocs
def test_the_search_works_from_a_folder(site: Path, tmp_path: Path) -> None:
    """A browser starts no worker from file://, and our stand-in for one takes its place."""
    flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    more = ["--disable-sync", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", "--dump-dom"]
    page = f"file://{site}/index.html?q=stratified"
    done = subprocess.run(
        ["chromium", *flags.split(), *more, page], capture_output=True, text=True, check=True, timeout=120
    )
    assert re.search(r"[1-9]\d* matching document", done.stdout)


@needs_mkdocs
def test_the_site_needs_no_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        away = [url for url in loaded.fetched if re.match(r"(https?:)?//", url)]
        assert not away, f"{page.name} loads {away}"
        for url in [*loaded.fetched, *loaded.links]:
            target = url.split("#")[0].split("?")[0]
            if target and "://" not in target and page.name != "404.html":
                assert (page.parent / target).exists(), f"{page.name} names {url}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet.name


@needs_mkdocs
def test_the_search_index_is_next_to_the_pages(site: Path) -> None:
    assert "LinearProbe" in (site / "search" / "search_index.js").read_text(encoding="utf-8")


@needs_mkdocs
def test_tables_and_signatures_come_from_the_package(site: Path) -> None:
    images = (site / "images.html").read_text(encoding="utf-8")
    for name in set(ImagesConfig.names()) - {"data"}:
        assert f"--{name.replace('_', '-')}<" in images, name
    page = (site / "schemes.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in page for name in schemes.scheme_names())
    extending = (site / "api" / "extending.html").read_text(encoding="utf-8")
    for room in ("masking", "training", "evaluation", "images"):
        text = (site / "api" / f"{room}.html").read_text(encoding="utf-8") + extending
        public = importlib.import_module(f"r2mae.{room}").__all__
        shown = [name for name in public if f'id="r2mae.{room}.{name}"' in text]
        missing = set(public) - set(shown)
        # The domain object is no class, and masks are shown where they live.
        assert missing <= ({"DOMAIN", "element_mask", "patch_mask"} if room == "images" else set()), missing
        assert ":class:" not in text and ":func:" not in text


def _documented() -> set[int]:
    """The identities of the objects on the API pages: of a package those of its `__all__`, of a module all public."""
    found: set[int] = set()
    for target in re.findall(r"^::: ([\w.]+)", "\n".join(text for name, text in PAGES.items() if "api/" in name), re.M):
        try:
            module = importlib.import_module(target)
        except ModuleNotFoundError:
            home, _, name = target.rpartition(".")
            found.add(id(getattr(importlib.import_module(home), name)))
            continue
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        found |= {id(getattr(module, name)) for name in names}
    return found


def test_the_api_pages_have_what_guides_of_scripts_and_extensions_import() -> None:
    documented, lacking = _documented(), []
    for page in (
        "own-loop.md",
        "integrations.md",
        "trainer.md",
        *(name for name in PAGES if name.startswith("add-a-")),
    ):
        for home, names in re.findall(r"^from (r2mae[\w.]*) import ([\w, ]+)$", "\n".join(BLOCKS[page]), re.M):
            for name in names.split(", "):
                one = getattr(importlib.import_module(home), name)
                if id(one) not in documented:
                    lacking.append(f"{page}: {home}.{name}")
    assert not lacking
