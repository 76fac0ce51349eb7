"""Parts of a run, and the species that a model is shown."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, add_track, build_store
from r2mae.genome.batches import load_data
from r2mae.genome.config import GenomeConfig
from r2mae.genome.domain import DOMAIN
from r2mae.masking.keys import Key

KEY = Key.root(0)


def aligned(folder: Path, positions: int = 1500, species: int = 4, name: str = "a") -> AlignmentStore:
    """A store of random rows on one contig; the first tenth of the reference is soft-masked."""
    rng = np.random.default_rng(1)
    rows = ["".join(rng.choice(list("ACGT-"), positions)) for _ in range(species)]
    reference = rows[0].replace("-", "A")
    rows[0] = reference[: positions // 10].lower() + reference[positions // 10 :]
    path = folder / f"{name}.fa"
    path.write_text("".join(f">s{number}\n{row}\n" for number, row in enumerate(rows)))
    return build_store(path, folder / name, contig="chr1")


@pytest.fixture
def small(tmp_path: Path) -> AlignmentStore:
    return aligned(tmp_path)


def config(store: AlignmentStore, **fields: Any) -> GenomeConfig:
    return GenomeConfig.make(data=str(store.folder), **{"window": 16, "batch_size": 8, **fields})


def spans(part: Any) -> list[tuple[int, int]]:
    _, starts = part.at(np.arange(len(part)))
    return [(int(start), int(start) + 16) for start in starts]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_blocks_lie_apart(small: AlignmentStore, seed: int) -> None:
    data = load_data(config(small, seed=seed, test_regions=("chr1:701-800",)))
    assert data.validation is not None
    assert data.test is not None
    assert data.measured is data.test
    learned, held, tested = spans(data.train), spans(data.validation), spans(data.test)
    assert 0.05 < 16 * len(held) / 1500 < 0.15
    assert all(first >= 700 and last <= 800 for first, last in tested)
    for one, other in ((learned, held), (learned, tested), (held, tested)):
        gaps = [max(start - last, first - end) for first, last in one for start, end in other]
        assert min(gaps) >= 16


def test_the_seed_chooses_the_blocks(small: AlignmentStore) -> None:
    found = [spans(load_data(config(small, seed=seed)).validation) for seed in (0, 1, 0)]
    assert found[0] == found[2] != found[1]


def test_named_regions_are_held_out(small: AlignmentStore) -> None:
    data = load_data(config(small, validation_regions=("chr1:1-160",), exclude=("chr1:1401-1500",)))
    assert spans(data.validation) == [(first, first + 16) for first in range(0, 160, 16)]
    assert max(last for _, last in spans(data.train)) <= 1400
    assert load_data(config(small, validation=0.0)).validation is None


def test_species_by_name(small: AlignmentStore) -> None:
    whole = load_data(config(small, reverse=0.0)).train.batch([3, 5], KEY)
    some = load_data(config(small, reverse=0.0, species=("s3", "s1")))
    assert some.architecture["species"] == ["s3", "s1"]
    assert (some.train.batch([3, 5], KEY)["aligned"] == whole["aligned"][:, :, [2, 0]]).all()
    none = load_data(config(small, species=("none",)))
    assert none.train.batch([0], KEY)["aligned"].shape == (1, 16, 0)
    assert config(small, species=("none",)).data.aligned_species(small.species) == ()
    for names, told in ((("s9",), "unknown species 's9'"), (("s0",), "the reference, which is always used")):
        with pytest.raises(UserError, match=told):
            DOMAIN.check(config(small, species=names))


def test_another_store_is_read_by_names(small: AlignmentStore, tmp_path: Path) -> None:
    built = load_data(config(small, species=("s2", "s1"))).architecture
    other = aligned(tmp_path, 200, 5, "b")
    _, data = DOMAIN.load_other_data(config(small), str(other.folder), built)
    assert data.measured is data.test
    assert len(data.test or ()) == 200 // 16
    assert data.train.columns == [1, 0]
    with pytest.raises(UserError, match=r"lacks 1 of the 1 aligned species of the model \(s9\)"):
        other.columns(("s9",))


def test_strides(small: AlignmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def stride(**fields: int) -> int:
        return load_data(config(small, **fields)).train.stride

    assert (stride(), stride(stride=5)) == (1, 5)
    monkeypatch.setattr("r2mae.genome.batches._SMALL", 1000)
    assert stride() == 8


def test_notes_say_what_there_is(small: AlignmentStore) -> None:
    told = load_data(config(small, batch_size=4096)).notes
    assert "windows of 16 positions, a start every 1, with 3 aligned species" in told[0]
    assert "held out for the validation loss" in told[0]
    assert "each is seen several times" in told[1]


def test_tracks_weigh_positions_and_change_the_fingerprint(small: AlignmentStore, tmp_path: Path) -> None:
    plain = DOMAIN.fingerprint(config(small))
    with pytest.raises(UserError, match="has no tracks"):
        DOMAIN.check(config(small, weight_track="w"))
    (tmp_path / "w.bg").write_text("chr1\t0\t1500\t2.5\n")
    add_track(small, tmp_path / "w.bg", "w")
    weighted = config(small, weight_track="w")
    DOMAIN.check(weighted)
    assert DOMAIN.fingerprint(config(small)) == plain != DOMAIN.fingerprint(weighted)
    data = load_data(weighted)
    assert data.validation is not None
    assert (data.train.batch([0], KEY)["weights"] == 2.5).all()
    assert (data.validation.batch([0], KEY)["weights"] == 2.5).all()
    with pytest.raises(UserError, match="unknown track 'v'"):
        DOMAIN.check(config(small, weight_track="v"))


def test_gpn_msas_preset_needs_its_tracks_and_flips_labels(small: AlignmentStore, tmp_path: Path) -> None:
    fields = DOMAIN.presets["gpn-msa"]
    run = config(small, **{name: fields[name] for name in ("conservation",)})
    with pytest.raises(UserError, match="has no tracks: add one with r2mae data alignment track"):
        DOMAIN.check(run)
    for name, value in (("phylop", 2.0), ("phastcons", 0.5)):
        (tmp_path / "w.bg").write_text(f"chr1\t0\t1000\t{value}\n")
        add_track(small, tmp_path / "w.bg", name)
        assert DOMAIN.fingerprint(run) != DOMAIN.fingerprint(config(small))
    DOMAIN.check(run)
    data = load_data(run)
    assert load_data(config(small)).architecture["flip"] == 0 != data.architecture["flip"]
    assert (data.train.batch([0], KEY)["weights"] == np.float32(1.2)).all()


def test_a_store_that_a_run_is_measured_on_needs_no_track(small: AlignmentStore, tmp_path: Path) -> None:
    other = aligned(tmp_path, 200, 4, "b")
    assert DOMAIN.fingerprint(config(other, weight_track="w")) == DOMAIN.fingerprint(config(other))
    with pytest.raises(UserError, match="has no tracks"):
        DOMAIN.check(config(other, weight_track="w"))


def test_regions_in_a_file_are_part_of_the_fingerprint(small: AlignmentStore, tmp_path: Path) -> None:
    bed = tmp_path / "held.bed"
    found = []
    for end in (100, 200):
        bed.write_text(f"chr1\t0\t{end}\n")
        found.append(DOMAIN.fingerprint(config(small, validation_regions=(str(bed),))))
    assert found[0] != found[1]


def test_an_alignment_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "chr1.maf.gz"
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"build one first with r2mae data alignment build .* -o chr1$"):
        DOMAIN.check(GenomeConfig.make(data=str(path)))
    with pytest.raises(UserError, match="is no alignment store"):
        DOMAIN.check(GenomeConfig.make(data=str(tmp_path)))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"window": 1}, "window must be 2"),
        ({"stride": 0}, "stride must be 1"),
        ({"reverse": 1.5}, "reverse must be 0 to 1"),
        ({"repeat_weight": -1.0}, "repeat_weight must be 0 or more"),
        ({"flip": 2.0}, "flip must be 0 to 1"),
        ({"conservation": ("phylop",)}, "names two tracks"),
        ({"conservation": ("a", "b"), "weight_track": "w"}, "give one of them"),
        ({"validation": 0.2, "validation_regions": ("chr1",)}, "give one of them"),
        ({"species": ("a", "a")}, "names 'a' twice"),
        ({"species": ("a", "none")}, "takes either 'none' or names"),
        ({"width": 30, "heads": 4}, "is not a multiple of 2 x 4 heads"),
        ({"layers": 2000}, "layers must be 1 to"),
    ],
)
def test_options_that_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        GenomeConfig.make(data="x", **fields)


def test_a_genome_too_small_to_hold_a_block_out(tmp_path: Path) -> None:
    store = aligned(tmp_path, 100, 2)
    with pytest.raises(UserError, match="no block of 64 positions can be held out"):
        load_data(config(store))


def test_a_step_that_does_not_fit_into_memory_is_refused(
    small: AlignmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 5,000 windows on a machine with little memory."""
    monkeypatch.setattr("r2mae.cores.available_memory", lambda: 4 << 30)
    large = {"window": 128, "batch_size": 5000, "width": 128, "layers": 2, "heads": 4, "device": "cpu"}
    told = r"5,000 windows at a time need about 19.2 GB, and 4.29 GB are free: give --accumulate 10 \(500 at a time"
    with pytest.raises(UserError, match=told):
        DOMAIN.check(config(small, **large))
    DOMAIN.check(config(small, **large, accumulate=10))
    with pytest.raises(UserError, match="a smaller --window"):
        DOMAIN.check(
            config(small, **{**large, "window": 1000, "batch_size": 97, "layers": 2000 // 4, "accumulate": 97})
        )
