"""The domain `text`, as used by the layers above. It imports torch and transformers only for data and models."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from os import PathLike
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.domains.base import Domain, described
from r2mae.domains.lookup import check_transformer_step
from r2mae.domains.options import CommandLine, Evaluation, ModelFormat, Offered, as_in_run
from r2mae.errors import UserError, listed
from r2mae.evaluation.metrics import FEATURES, FILLING_IN, Metric
from r2mae.fields import option
from r2mae.files import holds
from r2mae.text.config import (
    MODELS,
    PAPER_VOCABULARY,
    PRETRAINED,
    Split,
    TextConfig,
    TextDataConfig,
    TextEvaluationConfig,
)
from r2mae.text.sets import HUB, SETS
from r2mae.text.tokenizer import load_tokenizer
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from r2mae.text.batches import TextData
    from r2mae.text.task import TokenModel, TokenTask
    from r2mae.training.initial import Origin


def task_names() -> tuple[str, ...]:
    """Return the names of GLUE's tasks."""
    from r2mae.text.glue import TASKS

    return tuple(TASKS)


@dataclass(frozen=True, kw_only=True)
class Glue:
    """Options of evaluations on GLUE.

    Parameters
    ----------
    glue : list of str
        Tasks to fine-tune on, such as sst2 qnli. Without --task and --probe the tasks are the run's.
    glue_probes : list of str
        Tasks for linear probes, such as sst2 qnli.
    glue_limit : int, optional
        Most training examples of a task; by default as in the run.
    """

    glue: tuple[str, ...] = option((), flag="task", metavar="TASK", words=task_names)
    glue_probes: tuple[str, ...] = option((), flag="probe", metavar="TASK", words=task_names)
    glue_limit: int | None = option(None, flag="limit")


HiddenTokens = as_in_run(TextEvaluationConfig, "eval_sequences")
"""Options of the default evaluation."""
Reading = as_in_run(TextDataConfig, "text_column", "split")
"""Options of reading other text."""


class TextDomain(Domain):
    """Text, tokenised once into a memory-mapped store, and RoBERTa, computed only where the loss needs it."""

    name = "text"
    title = "Text: .txt, .jsonl, .fasta or .parquet (also compressed), or hf:NAME of the Hugging Face Hub"
    config = TextConfig
    sets = SETS
    command_line = CommandLine(
        evaluation=Evaluation(
            "loss and accuracy of hidden tokens in held-out text at six mask ratios",
            options=HiddenTokens,
            examples=("runs/text --eval-sequences 200",),
        ),
        evaluations=(
            Evaluation(
                "fine-tuning on the tasks of --task, 5 epochs each, mean of three seeds (and its standard deviation), "
                "rate 2e-5, batches of 32, as in the paper; warm-up over 6 % and weight decay 0.01 are ours; finished "
                "fine-tunings are saved in RUN/evaluation.json and not repeated. On those of --probe, linear probes of "
                "frozen features: logistic regression on the mean of the last hidden states (of two sentences both "
                "means, their product and absolute difference)",
                options=Glue,
                examples=("runs/text glue --task sst2 qnli --limit 2000", "runs/text glue --probe sst2 qnli"),
                name="glue",
                fixed={"curve": False},
                own_data=True,
            ),
        ),
        reading=Reading,
        other_data="text is measured on the whole corpus",
        embedding=Offered(
            "`index`, the number of each document, from 0: there is a row for each, in their order, zeros for an empty "
            "one, and for a long one the mean over all of its pieces; `documents`, their first 80 characters; "
            "`tokens`, their numbers of tokens; and of several files `files`, that of each",
            examples=("runs/text notes.txt -o notes.npz",),
        ),
        model_formats=(
            ModelFormat(
                name="transformers",
                help="a folder for AutoModelForMaskedLM and AutoTokenizer",
                write="r2mae.text.checkpoint:save_pretrained",
                examples=("runs/text --to transformers -o my_roberta",),
            ),
        ),
        words={"glue": task_names, "glue_probes": task_names},
        example="notes.txt",
    )

    def recognises(self, data: Any) -> bool:
        """Whether data are a file or folder of text, hf:NAME, a data set of text without images, or a list of texts."""
        from r2mae.text.documents import kind_of

        if isinstance(data, Path):
            if data.is_file():
                return kind_of(data) is not None
            others = holds(data, lambda file: kind_of(file) is None and not file.name.startswith("."))
            return holds(data, kind_of) and not others
        if isinstance(data, str):
            return data.startswith("hf:")
        if isinstance(data, list):
            return bool(data) and all(isinstance(one, str) for one in data)
        features = getattr(data, "features", None)
        kinds = [getattr(one, "dtype", "") for one in features.values()] if isinstance(features, dict) else []
        return any(str(kind) in ("string", "large_string") for kind in kinds) and "PIL.Image.Image" not in kinds

    def write_data(self, data: Any, folder: Path, config: Any = None) -> Path:
        """Write a data set of Hugging Face, or a list of texts."""
        import json

        if hasattr(data, "to_parquet"):
            data.to_parquet(path := folder / "text.parquet")
            return path
        if not isinstance(data, list):
            return super().write_data(data, folder)
        # Path.exists raises for long texts.
        if data and all(isinstance(one, str | PathLike) and exists(one) for one in data):  # noqa: PTH110
            raise UserError(f"the data are a list of paths ({listed(data, 2)}): give their folder, or their texts")
        if (row := next((row for row, one in enumerate(data) if not isinstance(one, str)), None)) is not None:
            raise UserError(f"entry {row} of the data is a {described(data[row])}: give a list of texts only")
        column = "text" if config is None else config.data.text_column
        lines = (json.dumps({column: text}) + "\n" for text in data)
        (path := folder / "text.jsonl").write_text("".join(lines), encoding="utf-8")
        return path

    def metrics_of(self, config: TextConfig) -> tuple[Metric, ...]:
        """Return loss and accuracy over the mask ratios, then the score of each GLUE task, probed or fine-tuned.

        With fine-tuned tasks, the rank is over these only, as in the paper's Table 2; otherwise over probes.
        """
        from r2mae.text.glue import glue_task

        tasks = [glue_task(name) for name in config.evaluation.glue]
        probes = [glue_task(name) for name in config.evaluation.glue_probes]
        alone = not tasks and not probes
        return (
            Metric(
                "loss",
                "masked loss in nats",
                higher_is_better=False,
                bounds=(0, inf),
                ranked=alone,
                question=FILLING_IN,
            ),
            Metric("accuracy", "masked token accuracy", bounds=(0, 1), ranked=alone),
            *(
                Metric(
                    f"{task.name}_probe_{task.scores[0]}",
                    f"{task.title} {task.scores[0]}, probe",
                    ranked=not tasks,
                    question=FEATURES,
                )
                for task in probes
            ),
            *(
                Metric(f"{task.name}_{task.scores[0]}", f"{task.title} {task.scores[0]}", question=FEATURES)
                for task in tasks
            ),
        )

    def fingerprint(self, config: TextConfig) -> str:
        """Return a fingerprint of the corpus (its content, or for the Hub its name and version) and the tokenizer."""
        from r2mae.fingerprint import fingerprint
        from r2mae.text.documents import corpus_of

        corpus = config.data.source
        if corpus not in SETS or corpus in HUB:
            corpus = corpus_of(corpus, column=config.data.text_column, split=config.data.split).fingerprint()
        tokenizer = config.init or config.data.tokenizer
        if tokenizer is None:
            return corpus
        if config.init is not None and Path(config.init).is_dir():  # its weights are checked elsewhere
            return f"{corpus}-{load_tokenizer(config.init).fingerprint}"
        return f"{corpus}-{fingerprint(tokenizer)}"

    def check_source(self, config: TextConfig) -> None:
        """Refuse a missing corpus, without torch."""
        from r2mae.text.documents import corpus_of

        if config.data.source not in HUB:
            corpus_of(config.data.source, column=config.data.text_column, split=config.data.split)

    def check(self, config: TextConfig) -> None:
        """Refuse mistakes that can be found without torch: missing files, a step that does not fit into memory."""
        from r2mae.catalogue import data_root
        from r2mae.text.glue import find_glue, glue_task, read_glue

        self.check_source(config)
        if config.init is not None and Path(config.init).is_absolute() and not Path(config.init).is_dir():
            raise UserError(f"init {config.init} is no folder: name that of a checkpoint, or a model of the Hub")
        for name in (*config.evaluation.glue, *config.evaluation.glue_probes):
            find_glue(glue_task(name), data_root() / "glue")
        if config.evaluation.glue_limit is not None:  # too few examples for a probe are refused
            for name in config.evaluation.glue_probes:
                read_glue(glue_task(name), data_root() / "glue", config.evaluation.glue_limit, fewest=2)
        if config.model.name != PRETRAINED:  # the sizes of a checkpoint are not read yet
            check_transformer_step(
                config,
                rows="sequences",
                length="sequence_length",
                width=config.model.hidden_size,
                inner=config.model.intermediate_size,
                words=config.data.vocab_size if config.data.tokenizer is None else PAPER_VOCABULARY,
                ratio=config.scheme.make().ends[1],
            )

    def load_initial_weights(self, config: TextConfig, model: "nn.Module") -> "Origin | None":
        """Load the checkpoint that `init` names into its fresh model."""
        if config.init is None:
            return None
        from r2mae.text.checkpoint import load_checkpoint

        return load_checkpoint(config.init, model)

    def before_training(self, config: TextConfig) -> TextConfig | None:
        """Measure the checkpoint that `init` names on hidden tokens alone; fine-tuning it would take hours."""
        return None if config.init is None else config.replace(glue=(), glue_probes=(), glue_limit=None)

    def load(self, config: TextConfig) -> "TextData":
        """Return the data of a run, tokenised unless that was done before."""
        from r2mae.text.batches import load_data

        return load_data(config)

    def build(self, architecture: Mapping[str, Any]) -> "tuple[TokenTask, TokenModel]":
        """Return the task and a freshly initialised model."""
        made: tuple[TokenTask, TokenModel] = build_model(MODELS, architecture)
        return made

    evaluation_support = ("items", "kept", "progress")

    def evaluate(
        self, config: TextConfig, task: "TokenTask", model: "TokenModel", data: "TextData | None", **options: Any
    ) -> dict[str, float]:
        """Return the scores of a pretrained model on held-out text, and on the configuration's GLUE tasks.

        GLUE does not need `data`.
        """
        from r2mae.text.evaluate import evaluate

        if data is None and not (config.evaluation.glue or config.evaluation.glue_probes):
            raise UserError("the run names no tasks of GLUE: name them, --task sst2 qnli or --probe sst2 qnli")
        return evaluate(config, task, model, data, **options)

    def load_other_data(
        self, config: TextConfig, source: str, architecture: Mapping[str, Any], **reading: Any
    ) -> "tuple[TextConfig, TextData]":
        """Read another corpus with the run's tokenizer for :meth:`evaluate`, with all of it as validation data.

        `reading` are the fields of :data:`Reading`, by default as in the run.
        """
        from r2mae.text.batches import load_data
        from r2mae.text.tokenizer import tokenizer_of

        config = _of_corpus(config.replace(data=source, glue=(), glue_probes=()), source, **reading)
        return config, load_data(config, tokenizer=tokenizer_of(architecture), hold_out=False)

    def embed(
        self, config: TextConfig, task: "TokenTask", model: "TokenModel", source: str, **reading: Any
    ) -> "dict[str, np.ndarray]":
        """Embed the documents of a corpus; `reading` is as in :meth:`load_other_data`."""
        from r2mae.text.evaluate import embed_documents

        return embed_documents(_of_corpus(config, source, **reading), task, model, source)


def _of_corpus(
    config: TextConfig, source: str, text_column: str | None = None, split: Split | None = None
) -> TextConfig:
    """Return the configuration with another corpus's text column and part, where they are given."""
    if text_column is not None:
        from r2mae.text.documents import check_column

        check_column(source, text_column)
        config = config.replace(text_column=text_column)
    return config if split is None else config.replace(split=split)


DOMAIN = TextDomain()
