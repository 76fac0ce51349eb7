"""GLUE: its tasks, their official files, and the scores of a task."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64, Int64, Num

from r2mae.errors import UserError, reading, unknown, warn_once
from r2mae.fields import decimal
from r2mae.files import warn_if_cut
from r2mae.masking.keys import Key, permutation
from r2mae.text.documents import unpacked

Score = Literal["accuracy", "f1", "matthews", "spearman"]

_TRAIN = ("train.tsv", "train_9k.tsv", "msr_paraphrase_train.txt")
_TEST = ("dev.tsv", "dev_matched.tsv", "heldout_1k.tsv", "msr_paraphrase_test.txt")
_TORN = {"qqp": 1e-3}  # fraction of rows that may have a wrong number of fields and are omitted: a few of QQP are torn
_YES_NO = ("0", "1")
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")


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
        Its values, in the order of the class numbers; empty for similarities from 0 to 5.
    scores : tuple of str
        What is measured; the first is the main score.
    layout : tuple of str
        The columns of official files without a header.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    scores: tuple[Score, ...]
    layout: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self.sentences, self.label)

    def number(self, label: str) -> float | None:
        """Return the class number or similarity that a label means; None if it is no label of this task."""
        if self.classes:
            return float(self.classes.index(label)) if label in self.classes else None
        value = decimal(label)
        return value if value is not None and 0 <= value <= 5 else None


_MNLI_CLASSES = ("entailment", "neutral", "contradiction")
_QUESTIONS = ("question1", "question2")
_COLA = ("source", "label", "star", "sentence")
_STRINGS = ("#1 String", "#2 String")
TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        GlueTask("sst2", "SST-2", ("sentence",), "label", _YES_NO, ("accuracy",)),
        GlueTask("mnli", "MNLI", _PAIR, "gold_label", _MNLI_CLASSES, ("accuracy",)),
        GlueTask("qqp", "QQP", _QUESTIONS, "is_duplicate", _YES_NO, ("accuracy", "f1")),
        GlueTask("qnli", "QNLI", ("question", "sentence"), "label", _ENTAILMENT, ("accuracy",)),
        GlueTask("cola", "CoLA", ("sentence",), "label", _YES_NO, ("matthews", "accuracy"), _COLA),
        GlueTask("rte", "RTE", _PAIR, "label", _ENTAILMENT, ("accuracy",)),
        GlueTask("mrpc", "MRPC", _STRINGS, "Quality", _YES_NO, ("accuracy", "f1")),
        GlueTask("stsb", "STS-B", _PAIR, "score", (), ("spearman",)),
    )
}


@dataclass(frozen=True, eq=False)
class GlueExamples:
    """The examples of one file: one or two columns of sentences, and class numbers or similarities."""

    file: Path
    texts: tuple[tuple[str, ...], ...]
    labels: Int64[np.ndarray, " n"] | Float64[np.ndarray, " n"]

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def take(self, rows: Int64[np.ndarray, " m"]) -> "GlueExamples":
        """Return the examples of these rows, in this order."""
        texts = tuple(tuple(column[row] for row in rows) for column in self.texts)
        return GlueExamples(self.file, texts, self.labels[rows])

    @property
    def rarest_class(self) -> int:
        """The number of examples of the rarest class that occurs."""
        return int(np.unique(self.labels, return_counts=True)[1].min())


@dataclass(frozen=True, eq=False)
class GlueScores:
    """The scores of fine-tuning on a task, or of a linear probe.

    Parameters
    ----------
    task : GlueTask
    train, test : GlueExamples
    runs : tuple of dict of str to float
        The scores of each run, from 0 (or -1) to 1, the main score first.
    seeds : tuple of int
        Seeds of fine-tuning: they determine the head's initial weights, the order of the examples and dropout. Empty
        for a probe, which draws nothing.
    """

    task: GlueTask
    train: GlueExamples
    test: GlueExamples
    runs: tuple[Mapping[Score, float], ...]
    seeds: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return a sentence on the examples: scores on subsets are not comparable with published ones."""
        seeds = f", {len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}" if self.seeds else ""
        made = (
            f"{self.task.name}{'' if seeds else ', linear probe'}: {len(self.train):,} examples of "
            f"{self.train.file.name}, {len(self.test):,} of {self.test.file.name}{seeds}"
        )
        if not self.task.classes:
            return made
        return f"{made}; the commonest label is right in {np.bincount(self.test.labels).max() / len(self.test):.3f}"

    @property
    def score(self) -> float:
        """The task's main score, mean over the seeds."""
        return float(np.mean([run[self.task.scores[0]] for run in self.runs]))

    def by_name(self) -> dict[str, float]:
        """Return ``TASK_SCORE``, the means over the seeds, and of several seeds also ``TASK_SCORE_sd``.

        Those of a probe are ``TASK_probe_SCORE``.
        """
        title = self.task.name if self.seeds else f"{self.task.name}_probe"
        values = {f"{title}_{name}": [run[name] for run in self.runs] for name in self.task.scores}
        named = {name: float(np.mean(of_runs)) for name, of_runs in values.items()}
        if len(self.runs) > 1:
            named |= {f"{name}_sd": float(np.std(of_runs, ddof=1)) for name, of_runs in values.items()}
        return named


def glue_task(name: str) -> GlueTask:
    """Return a task by name, in any spelling: ``sst2``, ``SST-2``, ``sst_2``."""
    plain = name.lower().replace("-", "").replace("_", "")
    if plain not in TASKS:
        raise unknown("GLUE task", name, TASKS)
    return TASKS[plain]


def find_glue(task: GlueTask, folder: str | Path) -> tuple[Path, Path]:
    """Find the files of training and held-out examples.

    `folder` is GLUE's, with a folder for each task, or the task's own; files may end in ``.gz``. Held-out examples are
    those of the official ``dev`` file (MNLI: matched), since the answers of the test files are not public (except
    MRPC's); without one, those of ``heldout_1k.tsv``.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder: put GLUE there, or set R2MAE_DATA to a folder that holds "
            f"glue/{task.title}/{_TRAIN[0]}"
        )
    inner = {place.name.lower().replace("-", ""): place for place in sorted(folder.iterdir()) if place.is_dir()}
    own = inner.get(task.title.lower().replace("-", ""), folder)
    found = []
    for names in (_TRAIN, _TEST):
        files = (own / f"{name}{packed}" for name in names for packed in ("", ".gz"))
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            names_of = f"{', '.join(names)} (or with .gz)"
            raise UserError(f"{folder / task.title} holds none of {names_of}: place the official files there")
        found.append(file)
    return found[0], found[1]


def read_glue(
    task: GlueTask, folder: str | Path, limit: int | None = None, *, fewest: int = 1
) -> tuple[GlueExamples, GlueExamples]:
    """Read the training and the held-out examples of a task, which :func:`find_glue` finds.

    There are at most `limit` training examples, always the same ones. A UserError is raised if they are of one class
    alone, or fewer than `fewest` of a class.
    """
    train, test = (read_examples(file, task) for file in find_glue(task, folder))
    if limit is not None:
        train = train.take(np.sort(permutation(Key.root(0).fold("glue", task.name), len(train))[:limit]))
    if len(np.unique(train.labels)) < 2:
        raise UserError(f"{train.file}: all {len(train)} examples have the same {task.label!r}: nothing to learn")
    if task.classes and train.rarest_class < fewest:
        raise UserError(
            f"{train.file}: of {len(train)} training examples one class has {train.rarest_class}, and {fewest} are "
            "needed: raise the limit, or omit it"
        )
    return train, test


def read_examples(path: Path, task: GlueTask) -> GlueExamples:
    """Read one file in the official layout: tabs, no quoting, with a header or none, plain or .gz.

    Line feeds alone end lines, since some sentences hold other line ends. A few rows of the official QQP have another
    number of fields: up to 0.1 % of its rows are omitted, with a warning. Other mistakes raise a UserError with file,
    line and field.
    """
    with reading(path, "take another copy of the file"), unpacked(path) as file:
        lines = [*enumerate(file.read().decode("utf-8-sig").split("\n"), 1)]
    if lines[-1][1]:
        warn_if_cut(path, len(lines))
    rows = [(number, line.split("\t")) for number, text in lines if (line := text.rstrip("\r"))]
    if not rows:
        raise UserError(f"{path} is empty: expected the columns {', '.join(task.columns)} of {task.title}")
    header = rows[0][1]
    if set(task.columns) <= set(header):
        rows = rows[1:]
    elif len(header) == len(task.layout) and task.number(header[task.layout.index(task.label)]) is not None:
        header = list(task.layout)
    else:
        missing = next(column for column in task.columns if column not in header)
        named = ascii(", ".join(header))[:100]
        raise UserError(
            f"{path}, line 1: no column {missing!r}, which {task.title} needs (it names {named}): take the official "
            "file, or rename its columns"
        )
    torn = [(number, len(fields)) for number, fields in rows if len(fields) != len(header)]
    if len(torn) > _TORN.get(task.name, 0) * len(rows):
        number, found = torn[0]
        raise UserError(
            f"{path}, line {number}: {found} fields instead of {len(header)}: fields are separated by single tabs, "
            "without quoting"
        )
    if torn:
        warn_once(f"{path}: {len(torn):,} rows with another number of fields than {len(header)} are omitted")
    intact = [(line, dict(zip(header, fields, strict=True))) for line, fields in rows if len(fields) == len(header)]
    if not intact:
        raise UserError(f"{path} holds no examples, only a header: take the official file of {task.title}")
    labels = [_label(path, line, task, fields[task.label]) for line, fields in intact]
    texts = tuple(tuple(fields[column] for _, fields in intact) for column in task.sentences)
    return GlueExamples(path, texts, np.array(labels, dtype=np.int64 if task.classes else np.float64))


def score(
    task: GlueTask, truth: Num[np.ndarray, " n"], predicted: Float[np.ndarray, "n outputs"]
) -> dict[Score, float]:
    """Measure outputs of a classifier (logits, or one similarity) as GLUE does.

    Accuracy; F1 of the class "1"; Matthews' correlation; Spearman's rank correlation, which is 0 where all
    predictions are equal.
    """
    from scipy.stats import spearmanr
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    if not task.classes:
        return {"spearman": float(spearmanr(truth, predicted[:, 0]).statistic) if np.ptp(predicted) else 0.0}
    answer = predicted.argmax(1)
    found: dict[Score, float] = {
        "accuracy": accuracy_score(truth, answer),
        "f1": f1_score(truth, answer, zero_division=0.0) if "f1" in task.scores else 0.0,
        "matthews": matthews_corrcoef(truth, answer),
    }
    return {name: float(found[name]) for name in task.scores}


def _label(path: Path, line: int, task: GlueTask, text: str) -> float:
    value = task.number(text)
    if value is None:
        expected = "one of " + ", ".join(task.classes) if task.classes else "a number from 0 to 5"
        what = f"has {text[:40]!r}" if text else "is empty"
        raise UserError(f"{path}, line {line}: the field {task.label!r} {what}, expected {expected}")
    return value
