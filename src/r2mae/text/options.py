"""Options of commands on text. No torch."""

from dataclasses import dataclass

from r2mae.domains.options import as_in_run
from r2mae.fields import option
from r2mae.text.config import TextDataConfig, TextEvaluationConfig


def task_names() -> tuple[str, ...]:
    """Return the names of GLUE's tasks."""
    from r2mae.text.glue import TASKS

    return tuple(TASKS)


@dataclass(frozen=True)
class OfGlue:
    """Options of evaluations on GLUE.

    Parameters
    ----------
    folder : str, optional
        The folder of GLUE; by default glue/ in the data folder.
    glue_limit : int, optional
        Most training examples of a task; by default as in the run.
    """

    folder: str | None = None
    glue_limit: int | None = option(None, flag="limit")


HiddenTokens = as_in_run(TextEvaluationConfig, "eval_sequences", base=OfGlue)
"""Options of the default evaluation."""
Reading = as_in_run(TextDataConfig, "text_column", "split")
"""Options of reading other text."""


@dataclass(frozen=True, kw_only=True)
class FineTuning(OfGlue):
    """Options of fine-tuning on GLUE.

    Parameters
    ----------
    glue : list of str
        The tasks, such as sst2 qnli.
    """

    glue: tuple[str, ...] = option(flag="task", metavar="TASK", words=task_names)


@dataclass(frozen=True, kw_only=True)
class Probing(OfGlue):
    """Options of linear probes on GLUE.

    Parameters
    ----------
    glue_probes : list of str
        The tasks, such as sst2 qnli.
    """

    glue_probes: tuple[str, ...] = option(flag="task", metavar="TASK", words=task_names)
