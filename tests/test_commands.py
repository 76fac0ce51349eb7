"""Every command that pages, tutorials and help tell people to type: the real parser reads it, what is quick is run."""

import gzip
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from functools import partial
from inspect import Signature, signature
from pathlib import Path

import anndata
import numpy as np
import pytest
from benchmarks.__main__ import NAMES as BENCHMARKS

from contract.conftest import made
from r2mae import __version__
from r2mae.cli import main as program
from r2mae.cli.commands import COMMANDS, DOMAIN_COMMANDS, all_commands, parser_for, split_command
from r2mae.cli.parsing import HELP
from r2mae.domains.lookup import all_domains, get_domain
from r2mae.masking import schemes
from r2mae.training.loop import fit
from r2mae_paper import command as reproduce

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.*"), *(ROOT / "paper").rglob("*.md")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# `r2mae per sample` and `r2mae stratified` are rows of tables.
COMMAND = re.compile(r"(?:\S+/bin/|(?:srun )?(?:torchrun .*-m )?)(r2mae|make|pip|python) (?!per sample|stratified)(.+)")


def _text(path: Path) -> str:
    """Return the text of a page; of a notebook that of its cells of Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


PAGES = {str(path.relative_to(ROOT)): _text(path) for path in sorted(FILES) if path.suffix in (".md", ".ipynb")}
PROSE = {page: FENCE.sub("", text) for page, text in PAGES.items()}
PYTHON = {page: [code for kind, code in FENCE.findall(text) if kind == "python"] for page, text in PAGES.items()}
INLINE = {page: [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)] for page, text in PROSE.items()}


def _commands(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield page, program and arguments of every command in the code of a page: blocks, indented lines, and inline."""
    text = re.sub(r"\\\n\s*", "", PAGES[page])
    lines = "\n".join(code for kind, code in FENCE.findall(text) if kind != "python").splitlines()
    lines += re.findall(r"^ {4,}(\S.*)$", FENCE.sub("", text), flags=re.MULTILINE) + INLINE[page]
    for part in (part for line in lines for part in line.split(" && ")):
        if found := COMMAND.fullmatch(re.split(" #| >", part)[0].strip()):
            yield page, found[1], found[2]


def _help() -> Iterator[tuple[str, str, str]]:
    """Yield the same of every example in a help text."""
    examples = re.findall("^  r2mae .+$", program._ABOUT, flags=re.MULTILINE)
    for command in [*COMMANDS, *DOMAIN_COMMANDS]:
        for words in [[one.name] for one in all_domains()] if command in ("pretrain", "compare") else [[]]:
            examples += parser_for(command, [*words, "--help"]).examples
    examples += reproduce._parser(listing=False).examples
    yield from (("help", "r2mae", line.strip().removeprefix("r2mae ").split(" >")[0]) for line in examples)


LINES = sorted({found for page in PAGES for found in _commands(page)} | {*_help()})
OURS = [(page, line) for page, name, line in LINES if name == "r2mae"]
OTHERS = [(page, name, line) for page, name, line in LINES if name != "r2mae"]


def test_commands_are_found() -> None:
    found = {split_command(shlex.split(line))[0] for _, line in OURS}
    assert found >= all_commands().keys(), "no page names some command"
    assert {page for page, _ in OURS} >= {"README.md", "docs/index.md", "docs/cells.md", "docs/images.md", "help"}
    assert len(OURS) > 200


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of two steps for every domain, and one of ViT-MAE; next to each its data, and others."""
    found = {}
    for kind in ("images", "cells", "text", "genome", "vit"):
        domain, folder = "images" if kind == "vit" else kind, tmp_path_factory.mktemp(kind)
        model = "vit-mae" if kind == "vit" else get_domain(domain).config.model.name
        with made(domain, model, folder) as case:
            if kind == "cells":
                cells = anndata.read_h5ad(case.source)
                cells.obsm["X_scgpt"], cells.layers["counts"] = np.eye(cells.n_obs, 3), cells.X
                cells.obs["tissue"] = cells.obs["kind"]
                cells.write_h5ad(case.source)
                cells[:-6].copy().write_h5ad(folder / "other.h5ad")
            fields = {"data": "digits"} if kind == "images" else {}
            config = case.config(steps=2, **fields)
            if kind == "genome":  # exports to GPN have one-hot inputs, and these a width
                config = config.replace(one_hot=True, model={"name": model, "width": 24, "layers": 1, "heads": 2})
            fit(config, case.domain, folder / "run")
        found[kind] = folder / "run"
    text = (found["text"].parent / "corpus.txt").read_text(encoding="utf-8")
    (found["text"].parent / "other.txt").write_text(f"{text}\n\nalpha beta gamma delta")
    np.savez(found["images"].parent / "other.npz", images=np.zeros((20, 8, 8), np.uint8), labels=np.arange(20) % 2)
    return found


def run_of(page: str, name: str) -> str:
    """Return whose run has this name on a page: the name or the page says it."""
    names = {"vit": "vit", "dna": "genome", "cells": "cells", "text": "text", "genome": "genome"}
    return next((kind for text in (name, page) for word, kind in names.items() if word in text), "images")


VARIANTS = """##fileformat=VCFv4.2
##INFO=<ID=pathogenic,Number=1,Type=Integer,Description="label">
##INFO=<ID=phyloP,Number=1,Type=Float,Description="score">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
"""
OTHER_DATA = {".h5ad": "cells", ".txt": "text", ".npz": "images"}
WORK = (  # what takes minutes, or a network
    *("r2mae.catalogue.fetch", "r2mae.images.finetune.finetune"),
    *("r2mae_paper.runner.run_study", "r2mae_paper.command._preview"),
)
MISSING = re.compile(
    "(there is no (such |run )?(file|folder|configuration)|no such file|is missing: |is not a folder|no results of|"
    r"\(it has no (meta|compare)\.json)",
    re.IGNORECASE,
)
PLACEHOLDER = re.compile(r"(^|[ /])[A-Z]+(\.\w+)?( |$)|…")
INCOMPLETE = re.compile(r" what\? |arguments are required|expected one argument|: name the data|: name a data set")


class ReachedError(Exception):
    """The command was understood, and its work would begin."""


def _reached(signature: Signature | None, *given: object, **named: object) -> None:
    if signature:
        signature.bind("self", *given, **named)
    raise ReachedError


@pytest.fixture
def page_folder(runs: dict[str, Path], page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder with the runs and small files that a line names, without real data and long work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path))
    for work in WORK:
        monkeypatch.setattr(work, partial(_reached, None))
    for domain in all_domains():
        if domain.name != "text":  # the tasks of GLUE are checked where they begin
            monkeypatch.setattr(type(domain), "evaluate", partial(_reached, signature(type(domain).evaluate)))
    (tmp_path / "clinvar.vcf.gz").write_bytes(gzip.compress(VARIANTS.encode()))  # its columns may be baselines
    read = re.sub(r"(--out|-o) \S+", "", line)
    for name in set(re.findall(r"\bruns/[\w-]+", read)):
        shutil.copytree(runs[run_of(page, name)], name)
    for name in re.findall(r"[\w-]+\.(?:h5ad|txt|npz)\b", read):
        shutil.copy(runs[OTHER_DATA[Path(name).suffix]].parent / f"other{Path(name).suffix}", name)
    monkeypatch.setattr(schemes, "_REGISTRY", dict(schemes._REGISTRY))
    if "r2mae-wide" in line:  # the page's own scheme
        exec(compile(PYTHON[page][0], page, "exec"), {})


@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize(("page", "line"), [(page, line) for page, line in OURS if not PLACEHOLDER.search(line)])
def test_a_line_of_ours_works(page: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to files that are not here; an inline one may be incomplete."""
    words = shlex.split(line)
    try:
        code = program.main([*words, *(["--print_config"] if words[0] in ("pretrain", "compare") else [])])
    except ReachedError:
        code = 0
    except SystemExit as end:  # of --help
        code = int(end.code or 0)
    told = capsys.readouterr().err
    assert code == 0 or MISSING.search(told) or (line in _inline(page) and INCOMPLETE.search(told)), told


@pytest.mark.parametrize(("page", "line"), [(page, line) for page, line in OURS if PLACEHOLDER.search(line)])
def test_a_line_with_placeholders_names_a_command(page: str, line: str) -> None:
    assert split_command(line.split())[0] in all_commands()


def _inline(page: str) -> list[str]:
    return [code.removeprefix("r2mae ") for code in INLINE.get(page, ())]


@pytest.mark.parametrize(("page", "name", "line"), OTHERS)
def test_a_line_of_another_program_works(page: str, name: str, line: str) -> None:
    """Targets of make, extras and files of pip, modules or scripts of python with their options."""
    words = shlex.split(line)
    if name == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    elif name == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        named = re.findall(r"\[([\w,]+)\]", line)
        assert {extra for group in named for extra in group.split(",")} <= extras.keys()
        assert all((ROOT / word).exists() for word in words if word.startswith("./") or word.endswith(".txt"))
        assert all(version == __version__ for version in re.findall(r"r2mae-([\d.]+)-py3", line))
    else:
        script, *rest = words[words[0] == "-m" :]
        path = script if script.endswith(".py") else f"{script.replace('.', '/')}.py"
        places = [ROOT / path, ROOT / "paper" / "src" / path, ROOT / script / "__main__.py"]
        if script != "venv":
            source = next(place for place in places if place.exists()).read_text(encoding="utf-8")
            assert all(f'"{word}"' in source for word in rest if word.startswith("--"))
        assert script != "benchmarks" or {*rest} <= {*BENCHMARKS}


@pytest.fixture(scope="module")
def options(runs: dict[str, Path]) -> set[str]:
    """Every option of every command, domain, model and evaluation."""
    lines = [(one, []) for one in (*COMMANDS, *DOMAIN_COMMANDS) if one not in ("pretrain", "compare")]
    lines += [(one, [str(run)]) for one in ("evaluate", "embed", "export") for run in runs.values()]
    parsers = [reproduce._parser(listing=False)]
    for domain in all_domains():
        lines += [("evaluate", [str(runs[domain.name]), one.name]) for one in domain.command_line.evaluations]
        for model in domain.config.models:
            lines += [(one, [domain.name, "--model", model, "--help-all"]) for one in ("pretrain", "compare")]
    parsers += [parser_for(*line) for line in lines]
    return {*HELP, *(name for parser in parsers for one in parser.options.values() for name in (one.typed, one.short))}


# Of torchrun, SLURM, Dask and MAE; and what stands for any name.
FOREIGN = {"--max-restarts", "--rdzv-backend", "--rdzv-conf", "--signal", "--resources", "--finetune", "--model.NAME"}


def test_every_option_in_the_text_is_one(options: set[str]) -> None:
    unknown = set()
    for page, codes in INLINE.items():
        own = {f"--{word.replace('_', '-')}" for code in PYTHON[page] for word in re.findall(r"\w+", code)}
        for code in codes:
            if not COMMAND.fullmatch(code) or PLACEHOLDER.search(code):
                named = re.findall(r"(?<![\w-])--[a-zA-Z][\w.-]*", code)
                unknown |= {(page, one) for one in named if one.replace("scheme.", "") not in options | own | FOREIGN}
    assert not unknown
