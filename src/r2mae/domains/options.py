"""Classes with which a domain declares its options and commands. Importing this module loads no heavy library."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Option:
    """An option of a command that a domain declares.

    Parameters
    ----------
    name : str
        As typed, with underscores for dashes.
    help : str
        What it does. It follows "For images: ", so it begins with a small letter and ends with a full stop.
    kind : type
        ``str``, ``int``, ``float``, ``bool``, or ``tuple[str, ...]`` for a list. If the user leaves the option out, the
        domain's method takes its own default.
    choices : tuple of str
        The only values allowed; empty for any.
    parameter : str
        The parameter of the domain's method that it sets; empty if it has the name of the option.
    whose : str
        What it is for, if that is more precise than the domain's name: "models with batch normalisation".
    needed : str
        For a required option: how an error names it, with an example ("the tasks: --task sst2 qnli").
    short : str
        Another spelling, such as ``-o``.
    meaning : mapping
        What the parameter is set to for each choice, where that is not the word itself.
    optional : bool
        Whether a positional argument of a command may be left out.
    """

    name: str
    help: str
    kind: Any = str
    choices: tuple[str, ...] = ()
    parameter: str = ""
    whose: str = ""
    needed: str = ""
    short: str = ""
    meaning: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False

    def value_of(self, given: Any) -> Any:
        """Return what the parameter is set to."""
        return self.meaning[given] if self.meaning else given

    @property
    def sets(self) -> str:
        """The parameter that the option sets."""
        return self.parameter or self.name

    @property
    def is_list(self) -> bool:
        """Whether the option takes several words."""
        return self.kind not in (str, int, float, bool)

    @property
    def typed(self) -> str:
        """The option as people type it: ``--resize-mode``."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Evaluation:
    """An evaluation that ``r2mae evaluate RUN`` offers for runs of a domain.

    Parameters
    ----------
    help : str
        What it measures.
    options : tuple of Option
        Options of :meth:`~r2mae.domains.contract.Domain.evaluate`.
    examples : tuple of str
        Examples of what may follow ``r2mae evaluate``.
    name : str
        The name that is typed after RUN; empty for the domain's default evaluation.
    fixed : mapping
        Parameters of `evaluate` that this evaluation always sets, by name.
    own_data : bool
        Whether it brings data of its own: ``--data`` is refused, those of the run need not be there, and the domain's
        methods are given None for them.
    """

    help: str = ""
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    name: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    own_data: bool = False


@dataclass(frozen=True)
class Embedding:
    """What ``r2mae embed RUN DATA`` offers for runs of a domain.

    Parameters
    ----------
    help : str
        What the output contains beside `embedding`.
    options : tuple of Option
        Options of :meth:`~r2mae.domains.contract.Domain.embed`, beside the options of reading.
    examples : tuple of str
        Examples of what may follow ``r2mae embed``.
    loading : tuple of Option
        Options of :func:`r2mae.training.saving.load_model`, such as :data:`STATISTICS`.
    """

    help: str = ""
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    loading: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command of a domain's own: ``r2mae NAME ARGUMENT … --OPTION …``.

    Parameters
    ----------
    name, help : str
        The name as typed, and what the command does in a few words.
    run : str
        ``module:function``, imported when the command is called. The function takes the arguments and those options
        that were given, as keyword arguments. It prints the results, and raises a UserError for users' mistakes.
    places : tuple of Option
        The positional arguments, in order; the last may be a list.
    options : tuple of Option
        The other options. Their help stands alone, without a domain's name before it.
    examples : tuple of str
        One or more examples of what may follow ``r2mae NAME``.
    """

    name: str
    help: str
    run: str
    places: tuple[Option, ...] = ()
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeveralPaths:
    """What an error proposes if a user gives several files to a command that takes one data set.

    Parameters
    ----------
    hint : str
        Such as "give a folder that holds them all".
    example : callable
        Takes the paths, and returns what to type instead.
    """

    hint: str
    example: Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Exporter:
    """A file format in which embeddings can be written.

    Parameters
    ----------
    suffix : str
        Of the file, such as ".npz".
    write : callable
        Writes the arrays that a domain returned for a source: ``write(output, arrays, source)``.
    replaces : bool
        Whether the file then holds these arrays alone, so that the file that is read is refused as `output`. A format
        that adds them to a copy of its source has no need of that.
    """

    suffix: str
    write: "Callable[[Path, Mapping[str, np.ndarray], str], None]"
    replaces: bool = False


@dataclass(frozen=True)
class ModelFormat:
    """A layout of other libraries in which ``r2mae export RUN --to NAME -o OUT`` writes finished models of a domain.

    Parameters
    ----------
    name, help : str
        The name as typed, and what OUT becomes. Formats of several domains may share a name.
    write : str
        ``module:function``, imported when the command is called. The function takes the run folder, `output` (not
        there yet) and those options that were given, as keyword arguments. It writes `output` whole or not at all,
        returns in a few words what opens it, and raises a UserError for runs that it cannot write.
    options : tuple of Option
        Options of the function.
    examples : tuple of str
        Examples of what may follow ``r2mae export``.
    """

    name: str
    help: str
    write: str
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()


def _write_npz(output: Path, arrays: "Mapping[str, np.ndarray]", source: str) -> None:
    from r2mae.files import write_arrays

    write_arrays(output, arrays)


NPZ = Exporter(".npz", _write_npz, replaces=True)

BN_STATISTICS = Option(
    "bn_statistics",
    "statistics re-estimated on the inputs of each evaluation, those of training (as in the paper), or scores with "
    "either; by default as in the run.",
    choices=("yes", "no", "both"),
    whose="models with batch normalisation",
)
"""For evaluations: see docs/batch-statistics.md."""

STATISTICS = Option(
    "bn_statistics",
    "take the statistics that the run re-estimated on whole inputs (yes), or those of training (no); by default as in "
    "the run.",
    choices=("yes", "no"),
    whose="models with batch normalisation",
    meaning={"yes": True, "no": False},
)
"""For embeddings."""


@dataclass(frozen=True)
class FigureColumns:
    """How a figure of embeddings treats their columns.

    Parameters
    ----------
    numbers : tuple of str
        Columns that are numbers, though they may be written as text.
    omitted : tuple of str
        Columns that are useless in a figure, such as names, one for each row. They are drawn only on request.
    """

    numbers: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandLine:
    """Everything that a domain declares for the command line. The domain does not have what is left out.

    Parameters
    ----------
    evaluation : Evaluation
        The default one.
    evaluations : tuple of Evaluation
        Others, by name.
    reading : tuple of Option
        How data other than the run's are read, for :meth:`~r2mae.domains.contract.Domain.embed` and
        :meth:`~r2mae.domains.abilities.MeasuresOtherData.load_other_data`.
    other_data : str
        A clause for the help: what is special about measuring on other data.
    embedding : Embedding
        The embedding of new data.
    baselines : str
        Names that ``--baselines`` takes, in words.
    model_formats : tuple of ModelFormat
        The layouts of other libraries in which models can be written.
    commands : tuple of Command
        The domain's own.
    words : mapping of str to callable
        For completion: by option or field of the configuration that takes names, a function that returns the names.
    example : str
        Data that usage errors and help name after the domain; if empty, a public set of the domain.
    several : SeveralPaths, optional
        What to do with several files.
    """

    evaluation: Evaluation = Evaluation()
    evaluations: tuple[Evaluation, ...] = ()
    reading: tuple[Option, ...] = ()
    other_data: str = ""
    embedding: Embedding = Embedding()
    baselines: str = ""
    model_formats: tuple[ModelFormat, ...] = ()
    commands: tuple[Command, ...] = ()
    words: Mapping[str, Callable[[], Sequence[str]]] = field(default_factory=dict)
    example: str = ""
    several: SeveralPaths | None = None
