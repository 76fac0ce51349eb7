"""What the README tells people to type works."""

import re
from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.masking.schemes import scheme_names
from r2mae.registry import WINGS

pytestmark = pytest.mark.slow

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
CELLS = "csle_44donors.h5ad"
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated.*")
def test_python_blocks_run(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    if CELLS in block:
        (tmp_path / CELLS).symlink_to(request.getfixturevalue("shared_data") / "cells" / CELLS)
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
    wing = line[1].split()[0]
    wing = wing if wing in WINGS else "images"
    assert f"wing: {wing}" in capsys.readouterr().out
