"""The coverage of every printed interval, with few draws; ``python -m tests.evaluation.coverage`` takes many."""

import pytest
from tests.evaluation.coverage import CASES, Case


@pytest.mark.usefixtures("unchecked")  # checks of types would take ten times as long as the draws
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}, {case.world}")
def test_the_coverage_is_what_the_documentation_says(case: Case) -> None:
    share, error = case.coverage(150)
    assert case.is_within(share, error), f"{share:.3f}, not {case.low:g} to {case.high:g}"
