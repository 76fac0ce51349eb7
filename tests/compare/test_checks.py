"""What is checked before any process of a sweep starts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from r2mae.compare.checks import check_data
from r2mae.compare.runs import Variant, runs_of
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import ImagesDomain

BASE = ImagesConfig.make(data="digits", device="cpu", steps=2)


def variants(points: Iterable[dict[str, Any]]) -> list[Variant]:
    return [Variant(" ".join(map(str, point.values())), BASE.replace(**point)) for point in points]


class Counting(ImagesDomain):
    """Counts how often data are read."""

    loads = 0

    def load(self, config: ImagesConfig) -> Any:
        self.loads += 1
        return super().load(config)


def test_the_largest_model_must_fit_whichever_cell_it_is(tmp_path: Path) -> None:
    rows = variants({"hidden": hidden, "low": low} for hidden in (8, 2**31 - 1, 16) for low in (0.3, 0.5))
    domain = Counting()
    with pytest.raises(UserError, match=r"make it smaller \(--hidden is 2,147,483,647\)"):
        check_data(runs_of(rows, [0, 1], tmp_path), domain)
    assert domain.loads == 2


def test_data_are_read_once_for_rows_of_one_model(tmp_path: Path) -> None:
    rows = variants({"hidden": hidden, "scheme": scheme} for hidden in (8, 16) for scheme in ("r2mae", "mdlm"))
    domain = Counting()
    check_data(runs_of(rows, [0, 1], tmp_path), domain)
    assert domain.loads == 2
