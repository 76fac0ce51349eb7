"""Declarations of a domain's options and commands. Importing this module loads no heavy library."""

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
        Help text. It follows "For images: ", so it starts in lower case and ends with a full stop.
    kind : type
        ``str``, ``int``, ``float``, ``bool``, or ``tuple[str, ...]`` for a list. If the option is omitted, the domain's
        method uses its default.
    choices : tuple of str
        Allowed values; empty for any.
    parameter : str
        Parameter of the domain's method that it sets; empty if it has the name of the option.
    whose : str
        What it applies to, if this is narrower than the domain: "models with batch normalisation".
    needed : str
        For a required option: its name in an error, with an example ("the tasks: --task sst2 qnli").
    short : str
        Short form, such as ``-o``.
    meaning : mapping
        Value of the parameter for each choice, if that is not the word itself.
    optional : bool
        Whether a positional argument of a command may be omitted.
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
        """Return the value of the parameter for a given option value."""
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
        """The option as typed: ``--resize-mode``."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Evaluation:
    """An evaluation that ``r2mae evaluate RUN`` offers for runs of a domain.

    Parameters
    ----------
    help : str
        What it measures.
    options : tuple of Option
        Options of :meth:`~r2mae.domains.base.Domain.evaluate`.
    examples : tuple of str
        Examples of arguments of ``r2mae evaluate``.
    name : str
        Name, typed after RUN; empty for the domain's default evaluation.
    fixed : mapping
        Fixed parameters of `evaluate` for this evaluation, by name.
    own_data : bool
        Whether it has its own data: ``--data`` is refused, the run's data may be missing, and the domain's methods get
        None as data.
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
        What the output contains in addition to `embedding`.
    options : tuple of Option
        Options of :meth:`~r2mae.domains.base.Domain.embed`, in addition to the reading options.
    examples : tuple of str
        Examples of arguments of ``r2mae embed``.
    loading : tuple of Option
        Options of :func:`r2mae.training.saving.load_model`, such as :data:`STATISTICS`.
    """

    help: str = ""
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    loading: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command of a domain: ``r2mae NAME ARGUMENT … --OPTION …``.

    Parameters
    ----------
    name, help : str
        The name as typed, and a short help text.
    run : str
        ``module:function``, imported when the command is called. The function takes the given arguments and options as
        keyword arguments. It prints the results, and raises a UserError for users' mistakes.
    places : tuple of Option
        The positional arguments, in order; the last may be a list.
    options : tuple of Option
        The other options. Their help is not preceded by the domain's name.
    examples : tuple of str
        One or more examples of arguments of ``r2mae NAME``.
    """

    name: str
    help: str
    run: str
    places: tuple[Option, ...] = ()
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeveralPaths:
    """The hint of an error if a user gives several files to a command that takes one data set.

    Parameters
    ----------
    hint : str
        Such as "give a folder that holds them all".
    example : callable
        Returns what to type instead, given the paths.
    """

    hint: str
    example: Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Exporter:
    """A file format for embeddings.

    Parameters
    ----------
    suffix : str
        Suffix of the file, such as ".npz".
    write : callable
        Writes the arrays that a domain returned for a source: ``write(output, arrays, source)``.
    replaces : bool
        Whether the file contains only these arrays; then the source is refused as `output`. False for a format that
        adds them to a copy of its source.
    """

    suffix: str
    write: "Callable[[Path, Mapping[str, np.ndarray], str], None]"
    replaces: bool = False


@dataclass(frozen=True)
class ModelFormat:
    """Another library's format in which ``r2mae export RUN --to NAME -o OUT`` writes finished models of a domain.

    Parameters
    ----------
    name, help : str
        The name as typed, and what OUT becomes. Formats of several domains may share a name.
    write : str
        ``module:function``, imported when the command is called. The function takes the run folder, `output` (which
        does not exist yet) and the given options, as keyword arguments. It writes `output` atomically, returns in a few
        words what opens it, and raises a UserError for runs that it cannot write.
    options : tuple of Option
        Options of the function.
    examples : tuple of str
        Examples of arguments of ``r2mae export``.
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
    "batch statistics re-estimated on the inputs of each evaluation (yes), those of training (no, as in the paper), or "
    "scores with each (both); by default as in the run.",
    choices=("yes", "no", "both"),
    whose="models with batch normalisation",
)
"""For evaluations: see docs/batch-statistics.md."""

STATISTICS = Option(
    "bn_statistics",
    "use the statistics that the run re-estimated on unmasked inputs (yes), or those of training (no); by default as "
    "in the run.",
    choices=("yes", "no"),
    whose="models with batch normalisation",
    meaning={"yes": True, "no": False},
)
"""For embeddings."""


@dataclass(frozen=True)
class FigureColumns:
    """How a figure of embeddings treats columns.

    Parameters
    ----------
    numbers : tuple of str
        Numeric columns, which may be stored as text.
    omitted : tuple of str
        Columns drawn only on request, such as names that are unique to each row.
    """

    numbers: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandLine:
    """Everything that a domain declares for the command line; the domain lacks what is omitted.

    Parameters
    ----------
    evaluation : Evaluation
        The default evaluation.
    evaluations : tuple of Evaluation
        Other evaluations, by name.
    reading : tuple of Option
        Reader options for data other than the run's, for :meth:`~r2mae.domains.base.Domain.embed` and
        :meth:`~r2mae.domains.base.Domain.load_other_data`.
    other_data : str
        A clause for the help: what differs when measuring on other data.
    embedding : Embedding
        The embedding of new data.
    baselines : str
        Names that ``--baselines`` takes, as text.
    model_formats : tuple of ModelFormat
        Formats of other libraries in which models can be written.
    commands : tuple of Command
        The domain's commands.
    words : mapping of str to callable
        For completion: a function that returns the names, by the option or configuration field that takes them.
    example : str
        Data in examples of usage errors and help; if empty, a public set of the domain.
    several : SeveralPaths, optional
        The hint for several files.
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
