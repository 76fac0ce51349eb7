"""Scores of sites: strands, ends of contigs, and one pass for all alternatives."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genome.made import network
from genome.variants.conftest import PREDICT, SIZES, WINDOW, alignment, build, letters
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore
from r2mae.genome.score import scores_of, site_scorer, window_start
from r2mae.genome.store.tokens import MASK, reverse_complement
from r2mae.genome.variants.files import substitutions
from r2mae.training.validation import evaluating

_OTHER = str.maketrans("ACGTacgt", "TGCAtgca")


def everywhere(store: AlignmentStore) -> tuple[np.ndarray, np.ndarray]:
    """All positions of all contigs."""
    lengths = store.lengths.tolist()
    contigs = np.repeat(np.arange(len(lengths)), lengths)
    return contigs, np.concatenate([np.arange(length) for length in lengths])


@given(position=st.integers(0, 60), more=st.integers(0, 60), length=st.integers(1, 40))
def test_windows_hold_their_site_and_as_much_of_the_contig_as_they_can(position: int, more: int, length: int) -> None:
    size = position + 1 + more
    start = int(window_start(np.array([position]), np.array([size]), length)[0])
    assert start <= position < start + length
    held = min(start + length, size) - max(start, 0)
    assert held == min(length, size)
    if length // 2 <= position <= size - length + length // 2:
        assert position - start == length // 2


def test_a_reverse_complement_has_the_same_scores(small: AlignmentStore, tmp_path: Path) -> None:
    """At every position, those at the ends and on the contig that is shorter than a window included."""
    turned = {contig: [row.translate(_OTHER)[::-1] for row in alignment(contig)] for contig in SIZES}
    (tmp_path / "turned").mkdir()
    other = build(tmp_path / "turned", turned)
    contigs, positions = everywhere(small)
    mine = site_scorer(small, PREDICT, WINDOW)(contigs, positions)
    its = site_scorer(other, PREDICT, WINDOW)(contigs, small.lengths[contigs] - 1 - positions)
    np.testing.assert_allclose(mine, its[:, ::-1], atol=1e-6)
    assert np.ptp(mine) > 0.1


def test_one_strand_counts_as_much_as_the_other(small: AlignmentStore) -> None:
    """The mean, from windows made one by one."""
    scorer = site_scorer(small, PREDICT, WINDOW)
    for position in (0, 3, 40, 88, 89):
        found = scorer(np.array([0]), np.array([position]))[0]
        strands = []
        for strand in "+-":
            place = position if strand == "+" else 89 - position
            start = min(max(place - WINDOW // 2, 0), 90 - WINDOW)
            first = start if strand == "+" else 90 - start - WINDOW
            window = small.windows(np.array([0]), np.array([first]), WINDOW)
            tokens = torch.from_numpy(window if strand == "+" else reverse_complement(window)).long()
            tokens[0, place - start, 0] = MASK
            logits, _ = PREDICT(tokens[:, :, 0], tokens[:, :, 1:], torch.tensor([[place - start]]))
            logs = logits[0, 0].log_softmax(-1)
            strands.append(logs if strand == "+" else logs.flip(0))
        np.testing.assert_allclose(found, torch.stack(strands).mean(0).detach().numpy(), atol=1e-6)


def test_a_model_in_one_pass_and_one_by_one(small: AlignmentStore) -> None:
    model = network(2, length=WINDOW)
    contigs, positions = everywhere(small)
    model.species = small.species[1:]
    with evaluating(model):
        together = site_scorer(small, model, WINDOW, rows=50)(contigs, positions)
        alone = site_scorer(small, model, WINDOW, rows=2)
        single = np.concatenate([alone(contigs[[n]], positions[[n]]) for n in range(len(contigs))])
    np.testing.assert_allclose(together, single, atol=1e-5)
    assert np.isfinite(together).all()


def test_what_stands_at_a_site_is_not_seen(small: AlignmentStore, tmp_path: Path) -> None:
    rows = {contig: alignment(contig) for contig in SIZES}
    text = rows["chr1"][0]
    rows["chr1"][0] = text[:40] + text[40].translate(_OTHER) + text[41:]
    other = build(tmp_path, rows)
    contigs, positions = np.array([0, 0]), np.array([40, 41])
    mine, its = (site_scorer(store, PREDICT, WINDOW)(contigs, positions) for store in (small, other))
    np.testing.assert_array_equal(mine[0], its[0])
    assert (mine[1] != its[1]).all()


def test_species_are_found_by_name(small: AlignmentStore, tmp_path: Path) -> None:
    model = network(1, length=WINDOW)
    model.species = ("s2",)
    contigs, positions = everywhere(small)
    with evaluating(model):
        scores = site_scorer(small, model, WINDOW)(contigs, positions)
        alone = build(tmp_path, {contig: alignment(contig)[::2] for contig in SIZES})  # with the other species
        alone.species = ("s0", "s2")
        same = site_scorer(alone, model, WINDOW)(contigs, positions)
    np.testing.assert_array_equal(scores, same)
    model.species = ("s9",)
    with pytest.raises(UserError, match="lacks 1 of the 1 aligned species"):
        site_scorer(small, model, WINDOW)


@settings(max_examples=30)
@given(data=st.data())
def test_scores_are_differences_and_a_site_is_predicted_once(small: AlignmentStore, data: st.DataObject) -> None:
    table = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
    asked: list[int] = []

    def logs(contigs: np.ndarray, positions: np.ndarray) -> np.ndarray:
        asked.extend(positions.tolist())
        return table[positions]

    text = letters("chr1").upper()
    sites = data.draw(st.lists(st.tuples(st.integers(0, 89), st.sampled_from("ACGT")), max_size=30))
    found = substitutions([("chr1", place + 1, text[place], alt) for place, alt in sites], small)
    scores = scores_of(found, logs)
    wanted = [(place, alt) for place, alt in sites if alt != text[place]]
    assert asked == sorted({place for place, _ in wanted})
    for (position, alt), score in zip(sites, scores.tolist(), strict=True):
        if alt == text[position]:
            assert np.isnan(score)
        else:
            row = table[position]
            assert score == pytest.approx(row["ACGT".index(alt)] - row["ACGT".index(text[position])], abs=1e-6)
