"""GLUE in its official tsv layouts: which task reads which columns, and what is wrong with a file that has others."""

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64, Int64, Num

from r2mae.errors import UserError, unknown
from r2mae.masking.keys import Key, permutation
from r2mae.text.formats import reason

Score = Literal["accuracy", "f1", "matthews", "spearman"]

_TRAIN = ("train.tsv", "train_9k.tsv")
_TEST = ("dev.tsv", "heldout_1k.tsv")
_YES_NO = ("0", "1")
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_MNLI = (
    *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"),
    *("sentence1_parse", "sentence2_parse", *_PAIR),
)


@dataclass(frozen=True)
class GlueTask:
    """One task of GLUE.

    Parameters
    ----------
    name, title : str
        As typed (``"sst2"``), and as the benchmark's folders are called (``"SST-2"``).
    sentences : tuple of str
        One or two columns of text.
    label : str
        The column of the answer.
    classes : tuple of str
        What may stand there, in the order of the class numbers; empty for similarities from 0 to 5.
    scores : tuple of str
        What is measured; the first is the task's own.
    layouts : tuple of tuple of str
        The columns of official files, by which files without a header are read.
    train, test : tuple of str
        Names of files, the first that exists is taken; each may end in ``.gz``.
    broken : float
        Fraction of rows that may have a wrong number of fields (they are left out and counted): a few rows of the
        official QQP files are torn.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    scores: tuple[Score, ...]
    layouts: tuple[tuple[str, ...], ...]
    train: tuple[str, ...] = _TRAIN
    test: tuple[str, ...] = _TEST
    broken: float = 0.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self.sentences, self.label)

    def number(self, label: str) -> float | None:
        """Return the class number or similarity that a label means; None if it is no label of this task."""
        if self.classes:
            return float(self.classes.index(label)) if label in self.classes else None
        try:
            value = float(label)
        except ValueError:
            return None
        return value if 0 <= value <= 5 else None


TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        GlueTask("sst2", "SST-2", ("sentence",), "label", _YES_NO, ("accuracy",), (("sentence", "label"),)),
        GlueTask(
            "mnli",
            "MNLI",
            _PAIR,
            "gold_label",
            ("entailment", "neutral", "contradiction"),
            ("accuracy",),
            (
                (*_MNLI, "label1", "gold_label"),
                (*_MNLI, "label1", "label2", "label3", "label4", "label5", "gold_label"),
                ("index", *_PAIR, "gold_label"),
            ),
            test=("dev_matched.tsv", "heldout_1k.tsv"),
        ),
        GlueTask(
            "qqp",
            "QQP",
            ("question1", "question2"),
            "is_duplicate",
            _YES_NO,
            ("accuracy", "f1"),
            (
                ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
                ("id", "question1", "question2", "is_duplicate"),
            ),
            broken=1e-3,
        ),
        GlueTask(
            "qnli",
            "QNLI",
            ("question", "sentence"),
            "label",
            _ENTAILMENT,
            ("accuracy",),
            (("index", "question", "sentence", "label"),),
        ),
        GlueTask(
            "cola",
            "CoLA",
            ("sentence",),
            "label",
            _YES_NO,
            ("matthews", "accuracy"),
            (("source", "label", "star", "sentence"),),
        ),
        GlueTask("rte", "RTE", _PAIR, "label", _ENTAILMENT, ("accuracy",), (("index", *_PAIR, "label"),)),
        GlueTask(
            "mrpc",
            "MRPC",
            ("#1 String", "#2 String"),
            "Quality",
            _YES_NO,
            ("accuracy", "f1"),
            (("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),),
            train=(*_TRAIN, "msr_paraphrase_train.txt"),
            test=(*_TEST, "msr_paraphrase_test.txt"),
        ),
        GlueTask(
            "stsb",
            "STS-B",
            _PAIR,
            "score",
            (),
            ("spearman",),
            (("index", "genre", "filename", "year", "old_index", "source1", "source2", *_PAIR, "score"),),
        ),
    )
}


@dataclass(frozen=True, eq=False)
class GlueExamples:
    """The examples of one file.

    Attributes
    ----------
    file : Path
        Where they come from.
    texts : tuple of tuple of str
        One or two columns of sentences.
    labels : ndarray, shape (n,)
        Class numbers, or similarities.
    broken : int
        Rows that were left out, see :class:`GlueTask`.
    """

    file: Path
    texts: tuple[tuple[str, ...], ...]
    labels: Int64[np.ndarray, " n"] | Float64[np.ndarray, " n"]
    broken: int = 0

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def take(self, rows: Int64[np.ndarray, " m"]) -> "GlueExamples":
        """Return the examples of these rows, in this order."""
        texts = tuple(tuple(column[row] for row in rows) for column in self.texts)
        return GlueExamples(self.file, texts, self.labels[rows], self.broken)


@dataclass(frozen=True)
class GlueScores:
    """The scores of fine-tuning on a task, or of a linear probe.

    Attributes
    ----------
    task : str
        Short name of the task.
    scores : mapping of str to tuple of float
        One number for each run, the task's main score first; all from 0 (or −1) to 1.
    train, test : int
        Numbers of training and test examples.
    files : (str, str)
        Names of the files of both: subsets are not comparable with published figures.
    broken : int
        Rows of the files that were omitted, see :class:`GlueTask`.
    commonest : float, optional
        Share of the commonest class among the held-out examples.
    seeds : tuple of int
        Seeds of fine-tuning: they determine the head's initial weights, the order of the examples and dropout. Empty
        for a probe, which draws nothing.
    """

    task: str
    scores: Mapping[str, tuple[float, ...]]
    train: int
    test: int
    files: tuple[str, str]
    broken: int = 0
    commonest: float | None = None
    seeds: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        task: GlueTask,
        train: GlueExamples,
        test: GlueExamples,
        scores: Sequence[Mapping[Score, float]],
        seeds: tuple[int, ...] = (),
    ) -> "GlueScores":
        """Gather the scores of runs on the same examples."""
        by_name = {str(name): tuple(float(one[name]) for one in scores) for name in task.scores}
        files, broken = (train.file.name, test.file.name), train.broken + test.broken
        share = float(np.bincount(test.labels).max() / len(test)) if task.classes else None
        return cls(task.name, by_name, len(train), len(test), files, broken, share, seeds)

    def __str__(self) -> str:
        """Return a sentence on the training and test examples."""
        made = f"{self.train:,} examples of {self.files[0]}, {self.test:,} of {self.files[1]}"
        made = (
            f"{self.task}: {made}, {len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}"
            if self.seeds
            else (f"{self.task}, linear probe: {made}")
        )
        return made if self.commonest is None else f"{made}; the commonest label is right in {self.commonest:.3f}"

    @property
    def score(self) -> float:
        """The task's main score, mean over the seeds."""
        return float(np.mean(next(iter(self.scores.values()))))

    def scores_by_name(self) -> dict[str, float]:
        """Return ``<task>_<score>``, the mean over the seeds, with two or more also ``<task>_<score>_sd``.

        Those of a probe are called ``<task>_probe_<score>``.
        """
        title = self.task if self.seeds else f"{self.task}_probe"
        named = {f"{title}_{name}": float(np.mean(values)) for name, values in self.scores.items()}
        if len(self.seeds) > 1:
            named |= {f"{title}_{name}_sd": float(np.std(values, ddof=1)) for name, values in self.scores.items()}
        return named


def glue_task(name: str) -> GlueTask:
    """Return a task by name, however it is spelt: ``sst2``, ``SST-2``, ``sst_2``.

    Raises
    ------
    UserError
        For an unknown name.
    """
    plain = name.lower().replace("-", "").replace("_", "")
    plain = {"mnlim": "mnli", "mnlimatched": "mnli", "sst": "sst2", "sts": "stsb"}.get(plain, plain)
    if plain not in TASKS:
        raise unknown("GLUE task", name, TASKS)
    return TASKS[plain]


def read_glue(task: str | GlueTask, folder: str | Path) -> tuple[GlueExamples, GlueExamples]:
    """Read the training and the held-out examples of a task.

    Parameters
    ----------
    task : str or GlueTask
    folder : str or Path
        GLUE's folder, with a folder for each task, or the task's own. Held-out examples are those of the official
        ``dev`` file (MNLI: matched), since the answers of the test files are not public; where there is none, those
        of ``heldout_1k.tsv``.

    Returns
    -------
    train, test : GlueExamples

    Raises
    ------
    UserError
        A file that is not there, or that :func:`read_examples` cannot read.
    """
    train, test = find_glue(task, folder)
    return read_examples(train, task), read_examples(test, task)


def read_limited(
    task: str | GlueTask, folder: str | Path, limit: int | None = None, *, fewest: int = 1
) -> tuple[GlueExamples, GlueExamples]:
    """Read the training and the held-out examples of a task; with a limit so many training examples, always the same.

    Raises
    ------
    UserError
        As :func:`read_glue`; a limit below 2, training examples of one class only, or fewer than `fewest` of a class.
    """
    glue = glue_task(task) if isinstance(task, str) else task
    train, test = read_glue(glue, folder)
    if limit is not None:
        if limit < 2:
            raise UserError(f"limit must be 2 or more examples, not {limit}")
        chosen = permutation(Key.root(0).fold("glue", glue.name), len(train))[:limit]
        train = train.take(np.sort(chosen))
    if len(np.unique(train.labels)) < 2:
        raise UserError(f"{train.file}: all {len(train)} examples have the same {glue.label!r}: nothing to learn")
    if glue.classes and rarest_class(train) < fewest:
        raise UserError(
            f"{train.file}: of {len(train)} training examples one class has {rarest_class(train)}, and {fewest} are "
            "needed: raise the limit, or omit it"
        )
    return train, test


def find_glue(task: str | GlueTask, folder: str | Path) -> tuple[Path, Path]:
    """Find the files of training and held-out examples, as :func:`read_glue` reads them.

    Raises
    ------
    UserError
        A folder or file that is not there.
    """
    task = glue_task(task) if isinstance(task, str) else task
    return _find(task, Path(folder), task.train), _find(task, Path(folder), task.test)


def read_examples(path: str | Path, task: str | GlueTask) -> GlueExamples:
    """Read one file in the official layout: tabs, no quoting, with a header or none, plain or .gz.

    Raises
    ------
    UserError
        No such file, not UTF-8, damaged .gz, a missing column, a row with another number of fields, an empty or
        unknown label, no examples at all: each with file, line and field.
    """
    path, task = Path(path), glue_task(task) if isinstance(task, str) else task
    rows = _rows(path)
    if not rows:
        raise UserError(f"{path} is empty: expected the columns {', '.join(task.columns)} of {task.title}")
    header, has_header = _header(path, task, rows[0][1])
    rows = rows[1:] if has_header else rows
    intact = [(line, fields) for line, fields in rows if len(fields) == len(header)]
    if len(rows) - len(intact) > task.broken * len(rows):
        line, fields = next(row for row in rows if len(row[1]) != len(header))
        raise UserError(
            f"{path}, line {line}: {len(fields)} fields instead of {len(header)}: fields are separated by single tabs, "
            "without quoting"
        )
    if not intact:
        raise UserError(f"{path} holds no examples, only a header: take the official file of {task.title}")
    answer = header.index(task.label)
    labels = [_label(path, line, task, fields[answer]) for line, fields in intact]
    places = [header.index(column) for column in task.sentences]
    texts = tuple(tuple(fields[place] for _, fields in intact) for place in places)
    kind = np.int64 if task.classes else np.float64
    return GlueExamples(path, texts, np.array(labels).astype(kind), len(rows) - len(intact))


def rarest_class(examples: GlueExamples) -> int:
    """Return how many examples the rarest class has, of those that occur."""
    return int(np.unique(examples.labels, return_counts=True)[1].min())


def score(
    task: GlueTask, truth: Num[np.ndarray, " n"], predicted: Float[np.ndarray, "n outputs"]
) -> dict[Score, float]:
    """Measure outputs of a classifier (logits, or one similarity) as GLUE does.

    Accuracy; F1 of the class "1"; Matthews' correlation; Spearman's rank correlation, which is 0 where all
    predictions are equal.
    """
    if not task.classes:
        from scipy.stats import spearmanr

        constant = np.ptp(predicted) == 0
        return {"spearman": 0.0 if constant else float(spearmanr(truth, predicted[:, 0]).statistic)}
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    answer = predicted.argmax(1)
    made: dict[Score, Callable[[], float]] = {
        "accuracy": lambda: accuracy_score(truth, answer),
        "f1": lambda: f1_score(truth, answer, zero_division=0.0),
        "matthews": lambda: matthews_corrcoef(truth, answer),
    }
    return {name: float(made[name]()) for name in task.scores}


def _find(task: GlueTask, folder: Path, names: tuple[str, ...]) -> Path:
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder: put GLUE there, or set R2MAE_DATA (evaluate: --folder) to one that holds "
            f"glue/{task.title}/{names[0]}"
        )
    inner = {place.name.lower().replace("-", ""): place for place in sorted(folder.iterdir()) if place.is_dir()}
    own = inner.get(task.title.lower().replace("-", ""), folder)
    for name in names:
        for place in (own / name, own / f"{name}.gz"):
            if place.is_file():
                return place
    where = folder / task.title
    raise UserError(f"{where} holds none of {', '.join(names)} (or with .gz): place the official files there")


def _header(path: Path, task: GlueTask, fields: list[str]) -> tuple[tuple[str, ...], bool]:
    """Return the columns, and whether the first line names them."""
    if set(task.columns) <= set(fields):
        return tuple(fields), True
    for layout in task.layouts:
        if len(layout) == len(fields) and task.number(fields[layout.index(task.label)]) is not None:
            return layout, False
    missing = next(column for column in task.columns if column not in fields)
    names = len(fields) <= 30 and all(field.isprintable() and len(field) < 40 for field in fields)
    found = f"it names {', '.join(fields)}" if names else "it names no columns"
    raise UserError(
        f"{path}, line 1: no column {missing!r}, which {task.title} needs ({found}): take the official file, or "
        "rename its columns"
    )


def _label(path: Path, line: int, task: GlueTask, text: str) -> float:
    value = task.number(text)
    if value is not None:
        return value
    expected = "one of " + ", ".join(task.classes) if task.classes else "a number from 0 to 5"
    what = f"has {text[:40]!r}" if text else "is empty"
    raise UserError(f"{path}, line {line}: the field {task.label!r} {what}, expected {expected}")


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return line numbers and fields, without empty lines; pandas would fill torn rows, and cut fields at NUL."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is damaged ({reason(error)}): take another copy of the file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path") from None
    rows = []
    # Line feeds alone end lines: some sentences hold other line ends.
    for line, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = raw.decode().rstrip("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {line}: byte {error.start + 1} is not UTF-8: convert the file to UTF-8"
            ) from None
        if text:
            rows.append((line, text.split("\t")))
    return rows
