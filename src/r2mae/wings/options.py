"""What a wing declares for the command line, as data. Importing this module loads no library."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Option:
    """An option of a command that a wing declares.

    Parameters
    ----------
    name : str
        As typed, with underscores for dashes.
    help : str
        What it does. It follows "For images: ", so it begins with a small letter and ends with a full stop.
    kind : type
        ``str``, ``int``, ``float``, ``bool``, or ``tuple[str, ...]`` for a list. Left out, the option is None (an
        empty list), and the wing's method takes its own default.
    choices : tuple of str
        The only values allowed; empty for any.
    parameter : str
        The parameter of the wing's method that it sets; empty for that of its own name.
    whose : str
        Whom it is for, if that says more than the wing's name: "models with batch normalisation".
    needed : str
        For what cannot do without it: how an error names it, with an example ("the tasks: --task sst2 qnli").
    """

    name: str
    help: str
    kind: Any = str
    choices: tuple[str, ...] = ()
    parameter: str = ""
    whose: str = ""
    needed: str = ""

    @property
    def sets(self) -> str:
        """The parameter that it sets."""
        return self.parameter or self.name

    @property
    def is_list(self) -> bool:
        """Whether it takes several words."""
        return self.kind not in (str, int, float, bool)

    @property
    def typed(self) -> str:
        """The option as people type it: ``--resize-mode``."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Evaluation:
    """An evaluation that ``r2mae evaluate RUN`` offers for runs of a wing.

    Parameters
    ----------
    help : str
        What it measures.
    options : tuple of Option
        What :meth:`~r2mae.wings.contract.Wing.evaluate` can be asked for.
    examples : tuple of str
        What may follow ``r2mae evaluate``.
    name : str
        What is typed behind RUN; empty for the wing's usual evaluation.
    fixed : mapping
        Parameters that it sets by itself.
    own_data : bool
        Whether it brings data of its own, so that ``--data`` is refused.
    """

    help: str = ""
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    name: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    own_data: bool = False


@dataclass(frozen=True)
class Embedding:
    """What ``r2mae embed RUN DATA`` offers for runs of a wing.

    Parameters
    ----------
    help : str
        What the output holds beside `embedding`.
    options : tuple of Option
        What :meth:`~r2mae.wings.contract.Wing.embed` can be asked for, beside the options of reading.
    examples : tuple of str
        What may follow ``r2mae embed``.
    """

    help: str = ""
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command of a wing's own: ``r2mae NAME PLACE … --OPTION …``.

    Parameters
    ----------
    name, help : str
        As typed, and what it does in a few words.
    run : str
        ``module:function``, imported when the command is called. It takes the places and those options that were
        given as keyword arguments, prints what there is to tell, and raises a UserError for users' mistakes.
    places : tuple of Option
        What stands behind the name, in this order; a list may stand last.
    options : tuple of Option
        The others. Their help stands alone, without a wing's name before it.
    examples : tuple of str
        What may follow ``r2mae NAME``; one or more.
    """

    name: str
    help: str
    run: str
    places: tuple[Option, ...] = ()
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeveralPaths:
    """What to do with several files, where a command takes one data set.

    Parameters
    ----------
    remedy : str
        Such as "give a folder that holds them all".
    example : callable
        Given the paths, returns what to type instead.
    """

    remedy: str
    example: Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Exporter:
    """A kind of file that embeddings are written as.

    Parameters
    ----------
    suffix : str
        Of the file, such as ".npz".
    write : callable
        Writes the arrays that a wing made of a source: ``write(output, arrays, source)``.
    """

    suffix: str
    write: "Callable[[Path, Mapping[str, np.ndarray], str], None]"


def _write_npz(output: Path, arrays: "Mapping[str, np.ndarray]", source: str) -> None:
    from r2mae.files import write_arrays

    write_arrays(output, arrays)


NPZ = Exporter(".npz", _write_npz)

RECALIBRATE = Option(
    "recalibrate",
    "statistics re-estimated on the inputs of each evaluation, those of training (as in the paper), or scores with "
    "either; by default as in the run.",
    choices=("yes", "no", "both"),
    whose="models with batch normalisation",
)


@dataclass(frozen=True)
class FigureColumns:
    """How a figure of embeddings treats their columns.

    Parameters
    ----------
    numbers : tuple of str
        Columns that are numbers, though they may be written as text.
    left_out : tuple of str
        Columns that tell nothing in a figure (names, one value per row): drawn only when asked for.
    """

    numbers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandLine:
    """All that a wing declares for the command line; whatever is left out, the wing does not have.

    Parameters
    ----------
    evaluation : Evaluation
        The usual one.
    evaluations : tuple of Evaluation
        Others, by name.
    reading : tuple of Option
        How data other than the run's are read, for :meth:`~r2mae.wings.contract.Wing.embed` and
        :meth:`~r2mae.wings.contract.MeasuresElsewhere.elsewhere`.
    elsewhere : str
        What is special about measuring on other data, in a clause.
    embedding : Embedding
        Of new data.
    baselines : str
        Names that ``--baselines`` takes, in words.
    commands : tuple of Command
        The wing's own.
    words : mapping of str to callable
        What completion offers for options and fields of the configuration that take lists of names.
    example : str
        Data that a usage error names after the wing; empty where the wing need not be named there.
    several : SeveralPaths, optional
        What to do with several files.
    """

    evaluation: Evaluation = Evaluation()
    evaluations: tuple[Evaluation, ...] = ()
    reading: tuple[Option, ...] = ()
    elsewhere: str = ""
    embedding: Embedding = Embedding()
    baselines: str = ""
    commands: tuple[Command, ...] = ()
    words: Mapping[str, Callable[[], Sequence[str]]] = field(default_factory=dict)
    example: str = ""
    several: SeveralPaths | None = None
