"""What the pages name in code exists: modules, classes, functions, methods, fields and files."""

import ast
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from r2mae.masking.schemes import SCHEME_OPTIONS

ROOT = Path(__file__).parents[1]
FILES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "paper/README.md")]
FILES += sorted((ROOT / "docs").rglob("*.md"))
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
LIBRARY = [*(ROOT / "src").rglob("*.py"), *(ROOT / "paper" / "src").rglob("*.py")]
MORE = [path for part in ("tests", "benchmarks", "examples") for path in (ROOT / part).rglob("*.py")]
CODE = re.compile(r"^```\w*\n.*?^```|^ {4,}.*$", re.DOTALL | re.MULTILINE)


def inline(page: str) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", re.sub(CODE, "", PAGES[page]))]


def defined(tree: ast.Module) -> set[str]:
    """Return the names of functions, classes, fields and constants."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.Module | ast.ClassDef):
            targets = [one for part in node.body if isinstance(part, ast.Assign) for one in part.targets]
            targets += [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return found


def used(tree: ast.Module) -> set[str]:
    """Return the names of arguments, attributes and modules, and words of strings: options, scores, columns."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.Attribute(attr=name) | ast.alias(name=name):
                found |= set(name.split("."))
            case ast.Constant(value=str(text)):
                found |= {*re.findall(r"\w+", text)}
    return found


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in [*LIBRARY, *MORE]}
DEFINED = {name for path in LIBRARY for name in defined(TREES[path]) | {path.stem, path.parent.name}}
USED = {name for path in LIBRARY for name in used(TREES[path])} | {
    name for path in MORE for name in defined(TREES[path])
}
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in LIBRARY)

DOTTED = re.compile(r"(?<![\w./-])r2mae(?:\.\w+)+")
FILE = re.compile(r"[\w./-]*\w\.(?:py|toml|json|csv|yaml|safetensors)")

# Of other libraries and programs; `score_reason` is made of two parts.
FOREIGN = {
    *("AutoModelForMaskedLM", "DataCollatorForLanguageModeling", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    *("custom_cluster_spec", "differential_expression", "fcntl", "labels_key", "max_time", "n_samples", "neighbors"),
    *(
        "posterior_predictive_sample",
        "prepare_query_anndata",
        "score_reason",
        "set_output",
        "tmux",
        "training_step",
        "unfrozen",
    ),
}


def unknown_names(page: str) -> set[str]:
    """Return what a page names and nothing has; one on extending the package names what is defined, no mere word."""
    known = DEFINED | FOREIGN | {*re.findall(r"\w+", " ".join(CODE.findall(PAGES[page])))}
    known |= {*SCHEME_OPTIONS} if page.startswith("docs/add-a-") else USED
    codes = [code for code in inline(page) if not FILE.fullmatch(code)]
    return {one for code in codes for one in re.findall(r"^(?:\w+\.)*([A-Za-z_]\w*)(?:\(.*)?$", code)} - known


def test_names_exist() -> None:
    assert {page: names for page in PAGES if (names := unknown_names(page))} == {}


def test_a_wrong_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES, "docs/add-a-model.md", "A task has `is_measured`, `complete` and `r2mae.images.gone`.")
    assert unknown_names("docs/add-a-model.md") == {"is_measured", "gone"}


@pytest.mark.slow  # imports every module
def test_dotted_names_resolve() -> None:
    for name in {one for page in PAGES for code in inline(page) for one in DOTTED.findall(code)}:
        resolve_name(name)


def test_files_exist() -> None:
    """Those of the repository are there; the library names those of a run."""
    paths = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("*.*")]
    for part in ("src", "paper", "tests", "docs", "examples", "benchmarks"):
        paths += [f"/{path.relative_to(ROOT)}" for path in (ROOT / part).rglob("*.*")]
    for page, text in PAGES.items():
        for name in {code for code in inline(page) if FILE.fullmatch(code)}:
            found = any(path.endswith(f"/{name}") for path in paths) or f"/{name}".rpartition("/")[2] in TEXT
            assert found or name in " ".join(CODE.findall(text)), (page, name)


def test_listed_methods_are_those_of_the_module() -> None:
    """Such as: four methods are optional (`r2mae.images.task`): `complete` makes pictures, …."""
    lists = re.compile(r"methods[\w ]*\(`(r2mae[\w.]+)`\):(.*?)\.\n", re.DOTALL)
    found = [one for text in PAGES.values() for one in lists.findall(text)]
    assert found
    for module, names in found:
        classes = [one for one in vars(resolve_name(module)).values() if isinstance(one, type)]
        for name in re.findall(r"`(\w+)`", names):
            assert any(hasattr(one, name) for one in classes), (module, name)
