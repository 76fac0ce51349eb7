"""What the package imports is declared: by the core, or by an extra that a missing library names."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2mae
from r2mae.errors import _EXTRAS, install

SOURCE = Path(r2mae.__file__).parent
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"PIL": "pillow", "scvi": "scvi-tools", "sklearn": "scikit-learn", "yaml": "pyyaml"}
# What a part imports at once, beyond the core; functions may import what any extra declares.
PARTS = {
    "cells": "cells", "cli": "cli", "compare": "compare", "genome": "genome", "images": "images", "terminal": "cli",
    "text": "text",
    "integrations/lightning": "lightning", "integrations/transformers": "text",
    "compare/dask_runner": "cluster",
}  # fmt: skip


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(extra: str | None) -> set[str]:
    """The distributions of the core, or of an extra with those that it includes."""
    found = set(PROJECT["dependencies"]) if extra is None else set()
    for line in PROJECT["optional-dependencies"].get(extra, ()):
        if inner := re.fullmatch(r"r2mae\[(.*)\]", line):
            found |= {name for part in inner[1].split(",") for name in declared(part)}
        else:
            found.add(line)
    return {plain(re.match(r"[\w.-]+", line)[0]) for line in found}


def imports(node: ast.AST, *, inside: bool) -> Iterator[str]:
    """Third-party distributions that a module imports at once, or `inside` its functions and for types."""
    for child in ast.iter_child_nodes(node):
        names: list[str] = []
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            names = [child.module or ""]
        for top in (name.split(".")[0] for name in names):
            if top not in sys.stdlib_module_names | {"r2mae"}:
                yield plain(DISTRIBUTIONS.get(top, top))
        later = isinstance(child, ast.FunctionDef) or ast.unparse(getattr(child, "test", ast.Pass())) == "TYPE_CHECKING"
        if inside or not later:
            yield from imports(child, inside=inside)


def test_what_a_module_imports_is_declared() -> None:
    core, anywhere = declared(None), declared(None).union(*map(declared, _EXTRAS))
    for path in sorted(SOURCE.rglob("*.py")):
        where, tree = path.relative_to(SOURCE).with_suffix("").as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        own = {PARTS[part] for part in (where, where.split("/")[0]) if part in PARTS}
        missing = set(imports(tree, inside=False)) - core.union(*map(declared, own))
        assert not missing, f"{where} imports these at once, and {own or 'the core'} does not declare them"
        assert set(imports(tree, inside=True)) <= anywhere, where


def test_a_missing_library_names_the_extra_that_declares_it() -> None:
    for extra, libraries in _EXTRAS.items():
        for library in libraries.split():
            assert plain(DISTRIBUTIONS.get(library, library)) in declared(extra)
            assert install(f"{library}.part") == f"pip install 'r2mae[{extra}]'"
    everything = declared("all")
    assert all(declared(extra) <= everything for extra in ("cli", "compare", "images", "text", "cells", "genome"))


ONLY_CORE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def in_core(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code where all libraries but those of the core are missing."""
    others = {library for libraries in _EXTRAS.values() for library in libraries.split()}
    words = [sys.executable, "-c", f"MISSING = {others}\n{ONLY_CORE}\n{code}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_the_core_needs_no_extra(tmp_path: Path) -> None:
    parts = "masking theory training evaluation training.loop domains.base integrations.sklearn cli.main"
    done = in_core(
        "from importlib import import_module\n"
        f"for part in {parts.split()}:\n"
        "    module = import_module('r2mae.' + part)\n"
        "    [getattr(module, name) for name in getattr(module, '__all__', ())]\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--help", ""),
        ("pretrain images --help", ""),
        ("data list", "r2mae[cli]"),
        ("pretrain digits --out runs/x", "r2mae[images]"),
        ("pretrain text corpus.txt --batch-size 8 --out runs/x", "r2mae[text]"),
        ("compare cells a.h5ad --out runs/x", "r2mae[compare,cells]"),
    ],
)
def test_a_command_without_its_extra_names_it_in_a_line(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a word\n")
    done = in_core(f"from r2mae.cli.main import main\nsys.exit(main({line.split()}))", tmp_path)
    if says:
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1, done.stderr
        assert f"pip install '{says}'" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / "runs").exists()
