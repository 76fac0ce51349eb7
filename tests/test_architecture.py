"""The layers: a package imports only from layers below its own, and the idea's two packages know hardly any library."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import r2mae

ROOT = Path(r2mae.__file__).parent
LAYERS = {
    "errors": -3, "lazy": -2, "registry": -2, "screen": -2,  # utilities
    "spawned": -1,
    "cores": -1, "fields": -1, "files": -1, "fingerprint": 0, "terminal": -1, "progress": 0,
    "cache": 0, "catalogue": 0, "environment": 0,
    "masking": 1, "theory": 1,
    "evaluation": 2,
    "training": 3,
    "domains": 4,
    "images": 5, "text": 5, "genome": 5, "cells": 5,
    "matrices": 6, "integrations": 6, "compare": 6,
    "cli": 7, "front": 8,
}  # fmt: skip
# jaxtyping is the vocabulary of shapes in signatures; it does nothing at run time.
LIBRARIES = {
    "masking": {"numpy", "torch", "jaxtyping"},
    "theory": {"numpy", "scipy", "sklearn", "threadpoolctl", "jaxtyping"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from named_by(node)


def named_by(call: ast.Call) -> Iterator[str]:
    """The modules of this package that a call names, as text or as the beginning of an f-string."""
    for node in ast.walk(call):
        if isinstance(node, ast.Constant) and str(node.value).startswith("r2mae."):
            assert str(node.value) != "r2mae.", f"{ast.unparse(call)} may import anything"
            yield str(node.value).rstrip(".")


def package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


MODULES = [path for path in sorted(ROOT.rglob("*.py")) if package(path) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_imports_only_from_below(path: Path) -> None:
    here = package(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "r2mae" and len(parts) > 1 and parts[1] != here:
            assert LAYERS[parts[1]] < LAYERS[here], f"{here} (layer {LAYERS[here]}) imports {name}"
        assert parts[0] != "r2mae_paper", f"{here} imports the paper's studies"
        if here in LIBRARIES and parts[0] != "r2mae":
            assert parts[0] in sys.stdlib_module_names | LIBRARIES[here], f"{here} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_console_is_a_terminal(path: Path) -> None:
    """Other consoles send control characters of strangers."""
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    assert not any(ast.unparse(call.func).endswith("Console") for call in calls)


def test_no_import_goes_in_a_circle() -> None:
    """Imports inside functions count, too; those for the type checker alone do not."""
    names = {_module(path): path for path in MODULES}
    graph = {name: {used for used in _at_run_time(path) if used in names} for name, path in names.items()}
    while graph:
        free = {name for name, used in graph.items() if not used & graph.keys() - {name}}
        assert free, f"these import each other in a circle, or import from one: {sorted(graph)}"
        graph = {name: used for name, used in graph.items() if name not in free}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _at_run_time(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_the_package_brings_no_library() -> None:
    assert not imported_by("import r2mae") & {"torch", "numpy", "lightning", "sklearn", "pandas", "matplotlib"}


@pytest.mark.parametrize(
    "statement",
    [
        "import r2mae.masking",
        "import r2mae.images; r2mae.images.DOMAIN",
        "import r2mae.genome; r2mae.genome.build_store",
        "import r2mae.cli.main; r2mae.cli.main.main(['--help'])",
        "import r2mae.cli.pretrain",
        "import r2mae.compare.runs",
        "import r2mae.cli.main; r2mae.cli.main.main(['compare', 'digits', '--print-config'])",
        "import r2mae.theory",
        "import r2mae.cli.main; r2mae.cli.main.main(['theory', '--help'])",
        "import r2mae.cli.main; r2mae.cli.main.parser_for('pretrain', ['images', '--help-all']).format_help()",
        "from r2mae.domains.lookup import public_sets; public_sets()",
    ],
)
def test_torch_waits_until_it_is_needed(statement: str) -> None:
    assert not imported_by(statement) & {"torch", "lightning", "sklearn", "pandas", "matplotlib"}


@pytest.mark.parametrize("line", ["pretrain images --help", "compare cells --help-all", "finetune --help", "report"])
def test_help_needs_no_numpy(line: str) -> None:
    name, *words = line.split()
    parsed = f"import r2mae.cli.main; r2mae.cli.main.parser_for({name!r}, {words!r}).format_help()"
    assert not imported_by(parsed) & {"numpy", "torch", "rich", "pandas"}


def test_every_name_of_the_theory_exists() -> None:
    import r2mae.theory

    assert r2mae.theory.__all__ == sorted(r2mae.theory.__all__)
    assert all(getattr(r2mae.theory, public) is not None for public in r2mae.theory.__all__)


def test_every_lazy_name_exists() -> None:
    from importlib import import_module

    for name in ("masking", "training", "evaluation", "images", "genome"):
        package = import_module(f"r2mae.{name}")
        for public in package.__all__:
            assert getattr(package, public) is not None
        assert dir(package) == sorted(package.__all__)
        with pytest.raises(AttributeError, match="no attribute"):
            package.nothing  # noqa: B018


RATIO = 0.4375
"""A mask ratio that no other number of a run equals."""
# What a domain gives to the loop, which calls it without importing it: methods of domain and task, and a class of
# settings.
HANDED_DOWN = {"load", "fingerprint", "load_initial_weights", "corrupt", "__post_init__", "ignores"}


class Reached(Exception):
    """The walk is at its end."""


def carries_ratio(value: Any) -> bool:
    """Whether a value is the ratio, a word or collection with it, or an object of r2mae with it in a field."""
    if type(value) in (list, tuple):
        return any(is_ratio(one) for one in value)
    if type(value) is dict or type(value).__module__.startswith("r2mae."):
        fields = value if type(value) is dict else getattr(value, "__dict__", {})
        return any(is_ratio(one) for one in fields.values())
    return is_ratio(value)


def is_ratio(value: Any) -> bool:
    return value == RATIO if type(value) is float else isinstance(value, str) and str(RATIO) in value.split("=")


def walk_of_the_ratio(steps: set[tuple[str, str, str]], losses: int) -> Callable[[FrameType, str, Any], None]:
    """Note caller, package and name of every function that has the ratio in hand, until so many losses are computed."""
    left = iter(range(losses))

    def note(frame: FrameType, event: str, found: Any) -> None:
        here = _whose(frame.f_code.co_filename)
        if event not in ("call", "return") or not here:
            return
        if any(carries_ratio(one) for one in (*frame.f_locals.values(), found)):
            caller = frame.f_back
            while caller is not None and not _whose(caller.f_code.co_filename):
                caller = caller.f_back
            steps.add(("" if caller is None else _whose(caller.f_code.co_filename), here, frame.f_code.co_name))
        if event == "call" and frame.f_code.co_name == "losses" and next(left, None) == losses - 1:
            raise Reached

    return note


@cache
def _whose(file: str) -> str:
    """The package of a file of r2mae, else nothing."""
    return package(Path(file)) if file.startswith(f"{ROOT}/") and package(Path(file)) in LAYERS else ""


@pytest.mark.slow
def test_the_ratio_walks_down_from_the_command_line_to_the_loss(tmp_path: Path) -> None:
    """Through five packages; upwards only where the loop calls what the domain gave to it."""
    import r2mae.compare.measure  # noqa: F401
    from r2mae.cli.main import main

    line = f"pretrain images digits --scheme fixed --ratio {RATIO} --steps 2 --threads 1 --device cpu"
    steps: set[tuple[str, str, str]] = set()
    former = sys.getprofile()
    sys.setprofile(walk_of_the_ratio(steps, losses=2))
    try:
        with pytest.raises(Reached):
            main([*line.split(), "--out", str(tmp_path / "run")])
    finally:
        sys.setprofile(former)
    assert {here for _, here, _ in steps} == {"cli", "domains", "fields", "images", "training", "masking"}
    climbs = {(above, here, name) for above, here, name in steps if above and LAYERS[here] > LAYERS[above]}
    handed = {("training", "images", name) for name in HANDED_DOWN} | {("domains", "images", "check_given")}
    assert climbs <= handed
