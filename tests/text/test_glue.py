"""Official layouts are read as they are, and what is wrong with a file is said in a line."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from r2mae.errors import UserError
from r2mae.text import glue as module
from r2mae.text.glue import TASKS, GlueExamples, GlueScores, glue_task, score

MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
# The first lines of the official files, as the benchmark lays them out.
OFFICIAL = {
    "sst2": ["sentence\tlabel", "a fine film \t1", "dull \t0"],
    "mnli": [
        "\t".join([*MNLI.split(), "sentence1", "sentence2", "label1", "gold_label"]),
        "\t".join(["0", "1", "1n", "g", "p", "p", "p", "p", "A cat.", "An animal.", "neutral", "entailment"]),
        "\t".join(["1", "2", "2n", "g", "p", "p", "p", "p", "A dog.", "A cat.", "neutral", "contradiction"]),
    ],
    "qqp": ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t1\t2\tWhy?\tHow?\t0", "1\t3\t4\tA?\tA?\t1"],
    "qnli": ["index\tquestion\tsentence\tlabel", "0\tWho?\tHe.\tentailment", "1\tWhen?\tThere.\tnot_entailment"],
    "cola": ["gj04\t1\t\tHe ran.", "gj04\t0\t*\tRan he the."],
    "rte": ["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tnot_entailment", "1\tC.\tD.\tentailment"],
    "mrpc": [
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        '1\t7\t8\t"Yes," he said.\tHe said yes.',
        "0\t9\t1\tA.\tB.",
    ],
    "stsb": [
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tg\tf\t2012\t1\tn\tn\tA plane.\tAn air plane.\t5.000",
        "1\tg\tf\t2012\t2\tn\tn\tA man.\tA flute.\t0.25",
    ],
}
LABELS = {
    "sst2": [1, 0], "mnli": [0, 2], "qqp": [0, 1], "qnli": [0, 1], "cola": [1, 0], "rte": [1, 0], "mrpc": [1, 0],
    "stsb": [5.0, 0.25],
}  # fmt: skip
NAMES = {"sst2": "train.tsv", "mnli": "dev_matched.tsv", "mrpc": "msr_paraphrase_train.txt"}


@pytest.fixture
def glue_root() -> Path:
    """Real files: in $R2MAE_DATA, else in ../shared/data next to the repository; skips without, but not in CI."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    root = Path(os.environ.get("R2MAE_DATA") or default).expanduser() / "glue"
    if not root.is_dir():
        reason = f"no real files of GLUE: {root} is not a folder (set R2MAE_DATA)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return root


def read_examples(path: Path, task: str) -> GlueExamples:
    return module.read_examples(path, glue_task(task))


def read_glue(task: str, folder: Path) -> tuple[GlueExamples, GlueExamples]:
    return module.read_glue(glue_task(task), folder)


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(line + end for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", OFFICIAL)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_official_layouts(name: str, ending: str, tmp_path: Path) -> None:
    examples = read_examples(write(tmp_path / "train.tsv", OFFICIAL[name], ending), name)
    np.testing.assert_array_equal(examples.labels, LABELS[name])
    assert len(examples.texts) == len(TASKS[name].sentences)
    assert examples.labels.dtype == (np.float64 if name == "stsb" else np.int64)


def test_cola_with_a_header(tmp_path: Path) -> None:
    examples = read_examples(write(tmp_path / "x.tsv", ["sentence\tlabel", "He ran.\t1", "Ran.\t0"]), "cola")
    assert examples.texts == (("He ran.", "Ran."),)


def test_quotes_carriage_returns_and_a_byte_order_mark_are_text(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes('\ufeffsentence\tlabel\n"open\u2028quote \r in \tit\n'.replace("\tit", "\t1").encode())
    assert read_examples(path, "sst2").texts == (('"open\u2028quote \r in ',),)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"])), st.sampled_from("01")
        ),
        min_size=1,
    )
)
def test_whatever_the_sentences_hold(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    lines = ["sentence\tlabel", *("\t".join(row) for row in rows)]
    examples = read_examples(write(tmp_path_factory.mktemp("sst") / "train.tsv.gz", lines), "sst2")
    assert examples.texts[0] == tuple(text for text, _ in rows)
    assert examples.labels.tolist() == [int(label) for _, label in rows]


@pytest.mark.parametrize("typed", ["SST-2", "sst_2", "sst2", "Sst-2"])
def test_names_however_they_are_spelt(typed: str) -> None:
    assert glue_task(typed).title == "SST-2"


def test_unknown_task() -> None:
    with pytest.raises(UserError, match=r"unknown GLUE task 'qnl': did you mean 'qnli'\?"):
        glue_task("qnl")


@pytest.mark.parametrize(
    ("lines", "task", "message"),
    [
        (
            ["sentence\tlabels", "a\t1"],
            "sst2",
            r"line 1: no column 'label', which SST-2 needs \(it names 'sentence, labels'\): take",
        ),
        (
            ["index\tsentence", "0\tx"],
            "sst2",
            r"line 1: no column 'label', which SST-2 needs \(it names 'index, sentence'\)",
        ),
        (["sentence\tlabel", "a\t1", "b\t"], "sst2", r"line 3: the field 'label' is empty, expected one of 0, 1"),
        (["sentence\tlabel", "a\t2"], "sst2", r"line 2: the field 'label' has '2', expected one of 0, 1"),
        (["sentence\tlabel", "a\t1", "", "b\tc\t1"], "sst2", r"line 4: 3 fields instead of 2: .*tabs"),
        (["sentence\tlabel", "a 1"], "sst2", r"line 2: 1 fields instead of 2"),
        (["sentence\tlabel"], "sst2", "holds no examples, only a header"),
        ([], "sst2", "is empty: expected the columns sentence, label of SST-2"),
        ([*OFFICIAL["qnli"], "2\tWho?\tHe.\tmaybe"], "qnli", "line 4: the field 'label' has 'maybe', expected one of"),
        ([*OFFICIAL["stsb"][:2], OFFICIAL["stsb"][2].replace("0.25", "nan")], "stsb", "line 3.* from 0 to 5"),
        ([*OFFICIAL["stsb"][:2], OFFICIAL["stsb"][2].replace("0.25", "0_1")], "stsb", "line 3.* from 0 to 5"),
        ([*OFFICIAL["stsb"][:2], OFFICIAL["stsb"][2].replace("0.25", "6")], "stsb", "line 3.* from 0 to 5"),
        (["x\u2028\ty\tz"], "sst2", r"no column 'sentence', which SST-2 needs \(it names 'x.u2028, y, z'\)"),
        (["only words here"], "cola", r"no column 'sentence', which CoLA needs \(it names 'only words here'\)"),
    ],
)
def test_bad_files(lines: list[str], task: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "train.tsv", lines)
    with pytest.raises(UserError, match=message) as caught:
        read_examples(path, task)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_last_line_without_an_end_is_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.tsv", OFFICIAL["stsb"])
    whole = read_examples(path, "stsb")
    assert not caplog.messages
    path.write_text(path.read_text("utf-8").rstrip("\n"), "utf-8")
    assert (read_examples(path, "stsb").labels == whole.labels).all()
    assert "a.tsv, line 3: the file ends within this line" in caplog.text


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(b"sentence\tlabel\nfine\t1\ncaf\xe9\t1\n")
    with pytest.raises(UserError, match=r"train.tsv cannot be read \(.*can't decode byte 0xe9"):
        read_examples(path, "sst2")


def test_damaged_gz(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv.gz"
    whole = gzip.compress(b"sentence\tlabel\n" + b"fine\t1\n" * 1000)
    for content in (whole[:-12], b"sentence\tlabel\n", whole[:20] + b"\xff\xff" + whole[22:]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"cannot be read .*: take another copy"):
            read_examples(path, "sst2")


def test_torn_rows_of_qqp_are_left_out_and_counted_but_not_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = [OFFICIAL["qqp"][0], *["0\t1\t2\tWhy?\tHow?\t0", "1\t3\t4\tA?\tA?\t1"] * 1000]
    examples = read_examples(write(tmp_path / "a.tsv", [*many, "2\t5\t6\tWhat"]), "qqp")
    assert len(examples) == 2000
    assert "1 rows with another number of fields than 6 are omitted" in caplog.text
    with pytest.raises(UserError, match="line 2002: 4 fields instead of 6"):
        read_examples(write(tmp_path / "b.tsv", [*many, *["2\t5\t6\tWhat"] * 3]), "qqp")
    other = [OFFICIAL["sst2"][0], *["fine\t1", "dull\t0"] * 1000, "torn"]
    with pytest.raises(UserError, match="line 2002: 1 fields instead of 2"):
        read_examples(write(tmp_path / "c.tsv", other), "sst2")


@pytest.mark.parametrize("inner", ["SST-2", "sst2", "."])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_folders(inner: str, end: str, tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv", "heldout_1k.tsv"):
        write(tmp_path / inner / f"{name}{end}", OFFICIAL["sst2"])
    train, test = read_glue("sst2", tmp_path)
    assert (train.file.name, test.file.name) == (f"train.tsv{end}", f"dev.tsv{end}")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"CoLA holds none of train.tsv, train_9k.tsv, .* \(or with .gz\)"):
        read_glue("cola", tmp_path)
    with pytest.raises(UserError, match=r"nothing is not a folder: put GLUE there, .* holds glue/CoLA/train"):
        read_glue("cola", tmp_path / "nothing")
    (tmp_path / "train.tsv").mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        read_examples(tmp_path / "train.tsv", "cola")


def test_take(tmp_path: Path) -> None:
    examples = read_examples(write(tmp_path / "train.tsv", OFFICIAL["qnli"]), "qnli").take(np.array([1, 0, 1]))
    assert examples.texts == (("When?", "Who?", "When?"), ("There.", "He.", "There."))
    assert examples.labels.tolist() == [1, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "sizes"),
    [("sst2", (67349, 872)), ("qnli", (8999, 5463)), ("mnli", (8999, 1000)), ("qqp", (8999, 1000))],
)
def test_real_files(task: str, sizes: tuple[int, int], glue_root: Path) -> None:
    train, test = read_glue(task, glue_root)
    assert (len(train), len(test)) == sizes
    assert len(np.unique(test.labels)) == len(TASKS[task].classes)


def test_scores() -> None:
    rng = np.random.default_rng(0)
    truth, logits = rng.integers(0, 2, 50), rng.normal(size=(50, 2))
    answer = logits.argmax(1)
    found = score(TASKS["qqp"], truth, logits)
    assert list(found) == ["accuracy", "f1"]
    assert found["accuracy"] == np.mean(answer == truth)
    assert found["f1"] == pytest.approx(f1_score(truth, answer))
    cola = score(TASKS["cola"], truth, logits)
    assert next(iter(cola)) == "matthews"
    assert cola["matthews"] == pytest.approx(matthews_corrcoef(truth, answer))
    near = rng.uniform(0, 5, 50)
    guess = near[:, None] + rng.normal(size=(50, 1))
    assert score(TASKS["stsb"], near, guess) == {"spearman": pytest.approx(spearmanr(near, guess[:, 0]).statistic)}


def test_names_of_scores(tmp_path: Path) -> None:
    examples = read_examples(write(tmp_path / "train.tsv", OFFICIAL["qqp"]), "qqp")
    runs = tuple({"accuracy": accuracy, "f1": 0.2} for accuracy in (0.5, 0.7))
    scores = GlueScores(TASKS["qqp"], examples, examples, runs, seeds=(0, 1))
    assert scores.score == 0.6
    expected = {"qqp_accuracy": 0.6, "qqp_accuracy_sd": 0.2 / 2**0.5, "qqp_f1": 0.2, "qqp_f1_sd": 0.0}
    assert scores.by_name() == pytest.approx(expected)
    assert str(scores) == (
        "qqp: 2 examples of train.tsv, 2 of train.tsv, 2 seeds; the commonest label is right in 0.500"
    )


def test_scores_of_a_classifier_that_always_says_the_same() -> None:
    truth = np.array([0, 0, 1])
    assert score(TASKS["mrpc"], truth, np.tile([1.0, 0.0], (3, 1))) == {"accuracy": 2 / 3, "f1": 0.0}
    assert score(TASKS["cola"], truth, np.tile([1.0, 0.0], (3, 1)))["matthews"] == 0.0
    assert score(TASKS["stsb"], np.array([0.0, 1.0, 2.0]), np.ones((3, 1))) == {"spearman": 0.0}
