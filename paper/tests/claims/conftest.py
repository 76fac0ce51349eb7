"""What judges tables that a test makes."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from paper.tests.claims.judged import Rows, found_in

from r2mae.files import write_json
from r2mae_paper.claims import Found
from r2mae_paper.rows import write_rows
from r2mae_paper.state import MADE


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., dict[str, Found]]:
    """Write tables of a target, and judge all claims by them: what was found by the former names of cases."""

    def write_and_judge(target: str, tables: Mapping[str, Rows], scale: str = "") -> dict[str, Found]:
        folder = tmp_path / target
        folder.mkdir(exist_ok=True)
        for name, rows in tables.items():
            write_rows(folder / f"{name}.csv", rows, list(dict.fromkeys(key for row in rows for key in row)))
        if scale:
            write_json(folder / MADE, {"scale": scale})
        return found_in(tmp_path)

    return write_and_judge
