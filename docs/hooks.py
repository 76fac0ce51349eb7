"""Adds to the pages, when the site is built, tables of options and schemes from the package, and figures of results."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from r2mae.images.config import ImagesConfig
from r2mae.masking.schemes import scheme_names, scheme_summary, scheme_takes
from r2mae.training.config import MACHINE_FIELDS, RunConfig

ROOT = Path(__file__).parents[1]
FIGURES = (
    "mnist/batch-statistics/figures/score_against_ratio.png",
    "randomness/randomness/randomness.png",
    "randomness/randomness/randomness-rules.png",
    "randomness/randomness-images/randomness-images-by-fraction.png",
    "randomness/randomness-cells/randomness-cells-by-fraction.png",
    "randomness/randomness-text/randomness-text-by-fraction.png",
    "theory/bias-variance/bias-variance.png",
    "theory/ranges/ranges.png",
    "theory/r2mae-vs-fixed/rules.png",
    "theory/realdata/measured_vs_predicted.png",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add figures of the results from the folder `paper/results/`."""
    for figure in FIGURES:
        files.append(File.generated(config, f"results/{figure}", abs_src_path=str(ROOT / "paper" / "results" / figure)))
    return files


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Replace comments such as ``<!-- table: schemes -->`` by the tables."""
    tables = {"options of images": lambda: options_table(ImagesConfig), "schemes": schemes_table}
    for name, table in tables.items():
        markdown = markdown.replace(f"<!-- table: {name} -->", table())
    return markdown


def options_table(kind: type[RunConfig]) -> str:
    """List every option of a domain with its default, from the configuration's fields and docstrings."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        texts |= _parameters(inspect.getdoc(base) or "")
    rows = ["| option | default | what it does |", "|---|---|---|"]
    for field in dataclasses.fields(kind):
        if field.name == "data":
            continue
        default = "" if field.default is None else f"`{field.default}`"
        mark = " †" if field.name in MACHINE_FIELDS else ""
        rows.append(f"| `--{field.name.replace('_', '-')}`{mark} | {default} | {texts[field.name]} |")
    return "\n".join(rows)


def schemes_table() -> str:
    """List every registered scheme."""
    rows = ["| scheme | what it does | options |", "|---|---|---|"]
    for name in scheme_names():
        takes = ", ".join(f"`--{number.replace('_', '-')}`" for number in scheme_takes(name))
        rows.append(f"| `{name}` | {scheme_summary(name)} | {takes} |")
    return "\n".join(rows)


def _parameters(docstring: str) -> dict[str, str]:
    """Read `name : type` and the indented text below it."""
    parameters = re.findall(r"^(\w+) : .*\n((?:    .*\n?)+)", docstring, flags=re.MULTILINE)
    return {name: " ".join(text.split()).replace("|", "\\|") for name, text in parameters}
