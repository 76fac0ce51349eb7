import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from r2mae.cells.config import CellsConfig
from r2mae.cells.counts import Counts
from r2mae.cells.donors import check_probes, choose_test_donors, limit_cells, probe_cells, probe_values, split_donors
from r2mae.cells.evaluate import evaluate_embedding
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.cells.table import CellTable
from r2mae.errors import UserError
from r2mae.masking.keys import Key

CONFIG = CellsConfig.make(data="x", donor_key="donor", labels=("cell_type", "disease"), regress=("age",))


def make_table(obs: pd.DataFrame) -> CellTable:
    counts = csr_matrix(np.ones((len(obs), 3), dtype=np.int32))
    return CellTable(
        name="some.h5ad",
        counts=Counts(counts),
        genes=("a", "b", "c"),
        obs=obs.set_axis([f"cell{i}" for i in range(len(obs))], axis=0),
        batch=np.zeros(len(obs), dtype=np.int64),
        batches=("all",),
        notes=(),
    )


@pytest.fixture
def obs() -> pd.DataFrame:
    """Ten donors of 30 cells, four of them ill; three cell types in turn; an age for each donor."""
    donor = np.repeat(np.arange(10), 30)
    return pd.DataFrame(
        {
            "donor": [f"D{i}" for i in donor],
            "disease": np.where(donor < 4, "ill", "well"),
            "cell_type": np.array(["B", "T", "NK"])[np.arange(300) % 3],
            "age": (20 + 5 * donor).astype(str),
        }
    )


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=60), st.floats(0.05, 0.95), st.integers(0, 5))
def test_every_stratum_is_divided_in_proportion(strata: list[str], fraction: float, seed: int) -> None:
    test = choose_test_donors(strata, fraction, Key.root(seed))
    values, stratum = np.unique(strata, return_inverse=True)
    sizes, tested = np.bincount(stratum), np.bincount(stratum, test)
    assert 0 < test.sum() < len(test)
    several = sizes > 1
    assert (tested[several] >= 1).all()
    assert (tested[several] <= sizes[several] - 1).all()
    wanted = len(strata) - min(max(int((1 - fraction) * len(strata) + 1e-9), 1), len(strata) - 1)
    low = np.where(several, 1, 0).sum()
    high = np.where(several, sizes - 1, 1).sum()
    assert test.sum() == min(max(wanted, low), high)
    if len(values) == 1:
        assert test.sum() == wanted


def test_the_paper_trains_on_six_donors_of_ten_in_both_conditions(obs: pd.DataFrame) -> None:
    split = split_donors(make_table(obs), CONFIG)
    assert split.names == tuple(f"D{i}" for i in range(10))
    assert split.test.sum() == 4
    assert split.test[:4].sum() in (1, 2)
    assert [split.names[code] for code in split.codes] == list(obs["donor"])


def test_the_seed_alone_divides_the_donors(obs: pd.DataFrame) -> None:
    def test_donors(config: CellsConfig, table: CellTable) -> set[str]:
        split = split_donors(table, config)
        return {name for name, test in zip(split.names, split.test, strict=True) if test}

    table = make_table(obs)
    first = test_donors(CONFIG, table)
    assert first == test_donors(CONFIG.replace(scheme="mdlm"), table)
    assert first == test_donors(CONFIG, make_table(obs.iloc[::-1].reset_index(drop=True)))
    assert len({frozenset(test_donors(CONFIG.replace(seed=seed), table)) for seed in range(8)}) > 2


def test_probes_share_no_donor(obs: pd.DataFrame) -> None:
    probes, notes = probe_cells(make_table(obs), CONFIG)
    assert [(one.column, one.kind, one.by_donor) for one in probes] == [
        ("cell_type", "label", False),
        ("disease", "label", True),
        ("age", "number", True),
    ]
    assert notes == ()
    for one in probes:
        assert not set(one.train_donors) & set(one.test_donors)
        assert len(one.train) + len(one.test) == 300
        assert list(obs[one.column].iloc[one.test].astype(one.test_values.dtype)) == list(one.test_values)


def test_cells_are_removed_by_rule(obs: pd.DataFrame) -> None:
    obs.loc[:4, "cell_type"] = "Unknown"
    obs.loc[5:6, "cell_type"] = None
    obs.loc[obs["donor"] == "D1", "age"] = "60-69"
    obs.loc[obs["donor"] == "D2", "age"] = None
    probes, notes = probe_cells(make_table(obs), CONFIG.replace(exclude=("donor=D9",)))
    removed = {one.column: 300 - len(one.train) - len(one.test) for one in probes}
    assert removed == {"cell_type": 30 + 7, "disease": 30, "age": 90}
    assert notes == (
        "30 cells with donor=D9 omitted from the probes",
        "cell_type: 7 cells with no known label removed",
        "age: 60 cells with no number removed",
    )


def test_numbers_are_exact_ages() -> None:
    obs = pd.DataFrame({"age": ["63", "60-69", "90+", "inf", None, "7.5", "less than 40"]})
    for table in (make_table(obs), make_table(obs.astype("category"))):
        numbers, known = probe_values(table, "age", "number")
        assert np.flatnonzero(known).tolist() == [0, 5]
        np.testing.assert_array_equal(numbers[known], [63, 7.5])
    whole = pd.DataFrame({"age": pd.array([3, None, 5], dtype="Int64")})
    np.testing.assert_array_equal(probe_values(make_table(whole), "age", "number")[0], [3, np.nan, 5])


def test_classes_of_one_donor_are_left_out(obs: pd.DataFrame) -> None:
    obs.loc[:1, "cell_type"] = "rare"
    probes, notes = probe_cells(make_table(obs), CONFIG.replace(labels=("cell_type",), regress=()))
    assert "rare" not in {*probes[0].train_values, *probes[0].test_values}
    assert notes == ("cell_type: 2 cells removed of classes in one donor only: rare",)


def test_test_classes_that_were_not_learned_are_left_out(obs: pd.DataFrame) -> None:
    config = CONFIG.replace(labels=("cell_type",), regress=())
    table = make_table(obs)
    split = split_donors(table, config)
    for name in [name for name, test in zip(split.names, split.test, strict=True) if test][:2]:
        obs.loc[obs.index[obs["donor"] == name][0], "cell_type"] = "new"
    probes, notes = probe_cells(make_table(obs), config)
    assert notes == ("cell_type: 2 cells removed from the test: no training donor has new",)
    assert set(probes[0].test_values) == {"B", "NK", "T"}


def test_without_two_values_there_is_no_probe(obs: pd.DataFrame) -> None:
    obs["cell_type"] = "B"
    probes, notes = probe_cells(make_table(obs), CONFIG)
    assert [one.column for one in probes] == ["disease", "age"]
    assert notes == ("cell_type: no probe, as the training donors have fewer than two values",)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(1, 60), st.integers(0, 3))
def test_donors_are_limited_alike(donors: list[int], limit: int, seed: int) -> None:
    codes = np.sort(np.array(donors, dtype=np.int64))
    rows = 5 * np.arange(len(codes), dtype=np.int64)
    kept = limit_cells(rows, codes, limit, Key.root(seed))
    most = max(1, limit // len(np.unique(codes)))
    assert (np.diff(kept) > 0).all()
    assert set(kept) <= set(rows)
    assert len(kept) <= limit
    counts = np.bincount(codes[kept // 5], minlength=7)
    assert (counts <= most).all()
    if limit >= len(np.unique(codes)):
        np.testing.assert_array_equal(counts, np.minimum(np.bincount(codes, minlength=7), most))


def test_cells_of_a_side_are_limited(obs: pd.DataFrame) -> None:
    table = make_table(obs)
    config = CONFIG.replace(max_cells=("cell_type=48",))
    (cell_type, _, _), _ = probe_cells(table, config)
    assert np.bincount(cell_type.train_donors).max() == 8
    assert np.bincount(cell_type.test_donors).max() == 12
    (other, _, _), _ = probe_cells(table, config.replace(seed=1))
    assert not np.array_equal(cell_type.train, other.train)


def test_without_donors_cells_are_divided(obs: pd.DataFrame) -> None:
    probes, notes = probe_cells(make_table(obs), CONFIG.replace(donor_key=None))
    assert notes == ("no donor_key: training and test cells of the probes share donors, and scores are too high",)
    assert [len(one.train) for one in probes] == [180, 180, 180]
    assert not any(one.by_donor for one in probes)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"donor_key": "doner"}, "some.h5ad: obs has no column 'doner': did you mean 'donor'"),
        ({}, {"labels": ("celltype",)}, "obs has no column 'celltype': did you mean 'cell_type'"),
        ({}, {"regress": ("aeg",)}, "obs has no column 'aeg': did you mean 'age'"),
        ({}, {"exclude": ("disease=wel",)}, r"no cell has disease=wel \(exclude\): did you mean 'well'"),
        (
            {},
            {"exclude": ("disease=well", "disease=ill")},
            r"exclude and only leave no cell for the probes: remove a rule",
        ),
        ({"donor": None}, {}, "300 cells without a value in column 'donor' of obs: fill it in, or remove these cells"),
        (
            {"donor": "D0"},
            {},
            "or regress can be predicted: cell_type: 300 cells removed of classes in one donor",
        ),
        (
            {"cell_type": "B"},
            {"labels": ("cell_type",), "regress": ()},
            "predicted: cell_type: no probe, as",
        ),
    ],
)
def test_mistakes_are_found_before_training(
    obs: pd.DataFrame, change: dict[str, str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_probes(make_table(obs.assign(**change)), CONFIG.replace(**options))
    assert "\n" not in str(caught.value)


def test_without_probes_nothing_is_checked(obs: pd.DataFrame) -> None:
    assert check_probes(make_table(obs), CellsConfig.make(data="x", donor_key="donor")) == ((), ())
    assert check_probes(make_table(obs), CONFIG)[1] == ()


def test_probes_of_several_columns_choose_the_same_cells() -> None:
    rows, donors = np.arange(100), np.arange(100) % 4
    few = limit_cells(rows[::2], donors[::2], 20, Key.root(0))
    assert len(few) == 20
    all_of = limit_cells(rows, donors, 60, Key.root(0))
    assert np.isin(few, all_of).mean() > 0.7  # 20 at random would have 12 in common


def test_a_column_can_have_a_limit_of_its_own(obs: pd.DataFrame) -> None:
    config = CONFIG.replace(max_cells=("cell_type=48",))
    (cell_type, disease, _), _ = probe_cells(make_table(obs), config)
    assert np.bincount(cell_type.train_donors).max() == 8
    assert np.bincount(cell_type.test_donors).max() == 12
    assert len(disease.train) + len(disease.test) == 300


def taken(obs: pd.DataFrame, **options: object) -> dict[str, set[int]]:
    probes, _ = probe_cells(make_table(obs), CONFIG.replace(**options))  # type: ignore[arg-type]
    return {one.column: {*one.train, *one.test} for one in probes}


def test_only_some_cells(obs: pd.DataFrame) -> None:
    b, t = (set(np.flatnonzero(obs["cell_type"] == name)) for name in "BT")
    assert all(cells == b | t for cells in taken(obs, only=("cell_type=B", "cell_type=T")).values())
    ill = set(np.flatnonzero(obs["disease"] == "ill"))
    rules = ("cell_type=B", "disease=ill", "cell_type=T")
    assert taken(obs, only=rules, labels=("cell_type",))["cell_type"] == (b | t) & ill
    _, notes = probe_cells(make_table(obs), CONFIG.replace(only=rules, labels=("cell_type",)))
    assert notes == (
        "100 cells without cell_type=B or cell_type=T omitted from the probes",
        "120 cells without disease=ill omitted from the probes",
    )


def test_a_rule_for_one_probe_leaves_the_others_and_the_split(obs: pd.DataFrame) -> None:
    obs["a:b"] = obs["cell_type"]  # a name with a colon
    table, b = make_table(obs), set(np.flatnonzero(obs["cell_type"] == "B"))
    rules = {"only": ("cell_type:cell_type=B", "cell_type:cell_type=T"), "exclude": ("age:a:b=B", "a:b=NK")}
    found, rest = taken(obs, **rules), set(np.flatnonzero(obs["cell_type"] != "NK"))
    assert found == {"cell_type": rest, "disease": rest, "age": rest - b}
    one = {"only": ("cell_type:disease=ill",)}
    np.testing.assert_array_equal(split_donors(table, CONFIG.replace(**one)).test, split_donors(table, CONFIG).test)
    probes, notes = probe_cells(table, CONFIG.replace(**one))
    assert [len(probe.train) + len(probe.test) for probe in probes] == [120, 300, 300]
    assert notes == ("180 cells without disease=ill omitted from the probe of cell_type",)


@pytest.mark.parametrize("limit", [24, 48, 200_000])
def test_cells_can_be_limited_before_unknown_labels_are_removed(obs: pd.DataFrame, limit: int) -> None:
    """As the paper does for the types of HLCA: the rows are those of a probe of which every label is known."""
    obs["all_known"] = obs["cell_type"]
    obs.loc[obs.index % 4 == 1, "cell_type"] = "Unknown"
    columns = {"labels": ("cell_type", "all_known"), "max_cells": (f"cell_type={limit}", f"all_known={limit}")}
    known = set(np.flatnonzero(obs["cell_type"] != "Unknown"))
    first = taken(obs, **columns, limit_first=("cell_type",))
    assert first["cell_type"] == first["all_known"] & known
    after = taken(obs, **columns)["cell_type"]
    assert (after == first["cell_type"]) == (limit > 300) and len(after) >= len(first["cell_type"])
    hlca = CellsConfig.make(data="hlca", **SET_DEFAULTS["hlca"])
    assert hlca.data.limit_first == ("ann_finest_level",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exclude": ("diseas:cell_type=B",)}, "exclude diseas:cell_type=B: no probe .* name: did you mean 'disease'"),
        ({"exclude": ("disease:cell=B",)}, "some.h5ad: obs has no column 'cell': did you mean 'cell_type'"),
        ({"only": ("age:cell_type=X",)}, r"no cell has cell_type=X \(only\): choose from: B, NK, T"),
        ({"exclude": ("age:disease=ill", "age:disease=well")}, "leave no cell for the probe of age: remove a rule"),
        ({"only": ("cell_type=X",)}, r"no cell has cell_type=X \(only\): choose from: B, NK, T"),
        ({"only": ("cell_type=B",), "labels": ("cell_type",), "regress": ()}, "cell_type: no probe, as the training"),
    ],
)
def test_rules_that_mean_nothing_are_refused(obs: pd.DataFrame, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_probes(make_table(obs), CONFIG.replace(**options))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        evaluate_embedding(make_table(obs), np.zeros((len(obs), 2)), CONFIG.replace(**options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"only": (form,)}, rf"only takes column=value \(.*\) .* or probe:column=value for one, not {form!r}")
            for form in ("cell_type", "age:cell_type", "age:=B", ":cell_type=B", "=B", "age:cell_type=")
        ),
        ({"limit_first": ("diseas",)}, "limit_first names 'diseas', which no probe predicts: did you mean 'disease'"),
        ({"auroc_labels": ("diseas",)}, "auroc_labels names 'diseas', which no probe predicts: did you mean 'disease'"),
        (
            {"max_cells": ("cel_type=48",)},
            "'cel_type', which no probe predicts: did you mean 'cell_type'",
        ),
        ({"labels": (), "max_cells": ("sex=48",)}, "max_cells names 'sex', which no probe predicts"),
    ],
)
def test_options_that_cannot_be_are_refused_without_data(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CONFIG.replace(**options)  # type: ignore[arg-type]
