"""Adds to the pages, when the site is built, tables of options and schemes from the package, and figures of results."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from r2mae.cli.configs import config_options
from r2mae.images.config import ImagesConfig
from r2mae.masking.schemes import scheme_kind, scheme_names
from r2mae.training.config import RunConfig

ROOT = Path(__file__).parents[1]
FIGURES = (
    "fills/fills/fills.png",
    "theory/bias-variance/bias-variance.png",
    "theory/many-masks/many-masks-ranges.png",
    "theory/many-masks/many-masks.png",
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
    rows = ["| option | default | what it does |", "|---|---|---|"]
    for option in config_options(kind):
        if not option.group:
            continue
        default = option.default_text or ("" if option.default in (None, ()) else str(option.default))
        mark = " †" if option.group == "machine" else ""
        text = option.help.replace("|", "\\|")
        rows.append(f"| `{option.typed}`{mark} | {f'`{default}`' if default else ''} | {text} |")
    return "\n".join(rows)


def schemes_table() -> str:
    """List every registered scheme."""
    rows = ["| scheme | what it does | options |", "|---|---|---|"]
    for name in scheme_names():
        takes = ", ".join(f"`--{number.replace('_', '-')}`" for number in scheme_kind(name).options)
        rows.append(f"| `{name}` | {scheme_kind(name).summary} | {takes} |")
    return "\n".join(rows)
