"""Text has no curricula in the paper: its tokens take the numbers of the paper's DNA models."""

from r2mae.text.domain import DOMAIN


def test_text_curricula_are_those_of_dna_and_marked_as_ours() -> None:
    curriculum = DOMAIN.config.make(data="x", scheme="cl").scheme.make().bind(600).curriculum
    assert curriculum is not None
    assert len(curriculum.grid.values) == 10
    assert (curriculum.iterations, curriculum.floor) == (10, 0.5)
    assert curriculum.frozen(99)
    assert not curriculum.frozen(100)
    assert curriculum.multiplier_at(300) == 0
    assert not DOMAIN.config.ratios.not_in_paper
