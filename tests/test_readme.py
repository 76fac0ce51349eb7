"""What the README tells people to type works."""

import re
from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.masking.schemes import scheme_names

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_python_blocks_run(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


def test_every_scheme_is_in_the_table() -> None:
    assert all(f"`{name}`" in TEXT for name in scheme_names())


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if not link.startswith("http")]
    assert links
    assert all((README.parent / link).exists() for link in links)


@pytest.mark.parametrize("line", re.findall(r"^    r2mae (pretrain|compare)(.*)$", TEXT, flags=re.MULTILINE))
def test_commands_parse(line: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([line[0], *line[1].split("#")[0].split(), "--print_config"]) == 0
    wing = "cells" if line[1].split()[0] == "cells" else "images"
    assert f"wing: {wing}" in capsys.readouterr().out
