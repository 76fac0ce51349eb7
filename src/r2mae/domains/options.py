"""What a domain declares for the command line. Importing this module loads no heavy library.

Options are the fields of a dataclass, with the help in its NumPy docstring (:mod:`r2mae.fields`). A given
option becomes a keyword argument, named after the field, of the function or method that it is for; for others, the
function's own default counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any

from r2mae.fields import option, options_of


@dataclass(frozen=True)
class NoOptions:
    """No options."""


def as_in_run(group: type, *names: str, base: type = NoOptions) -> type:
    """Return a dataclass with some fields of a group of the configuration as options, by default as in the run.

    Parameters
    ----------
    group : type
        Such as :class:`r2mae.training.config.EvaluationConfig` of the domain; its docstring is their help.
    *names : str
        The fields.
    base : type
        Dataclass with further options.
    """
    known = {one.name: one for one in options_of(group)}
    fields = [
        (name, known[name].kind | None, option(None, help=known[name].help, default_text="as in the run"))
        for name in names
    ]
    return make_dataclass("AsInRun", fields, bases=(base,), frozen=True)


@dataclass(frozen=True)
class Offered:
    """What a command offers for runs of a domain, such as the embedding of new data by ``r2mae embed RUN DATA``.

    Parameters
    ----------
    help : str
        What it measures, or what the output is, or contains in addition to `embedding`.
    options : type
        Dataclass with the options of the function, in addition to the reading options.
    examples : tuple of str
        Examples of arguments of the command.
    name : str
        Name as typed, after RUN or ``--to``; empty for the default.
    """

    help: str = ""
    options: type = NoOptions
    examples: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Evaluation(Offered):
    """An evaluation that ``r2mae evaluate RUN`` offers, by :meth:`~r2mae.domains.base.Domain.evaluate`.

    Parameters
    ----------
    fixed : mapping
        Fixed parameters of `evaluate` for this evaluation, by name.
    own_data : bool
        Whether it has its own data: ``--data`` is refused, the run's data may be missing, and the domain's methods get
        None as data.
    """

    fixed: Mapping[str, Any] = field(default_factory=dict)
    own_data: bool = False


@dataclass(frozen=True)
class ModelFormat(Offered):
    """Another library's format in which ``r2mae export RUN --to NAME -o OUT`` writes finished models.

    Parameters
    ----------
    write : str
        ``module:function``, imported when the command is called. The function takes the run folder, `output` (which
        does not exist yet) and the given options, as keyword arguments. It writes `output` atomically, returns in a few
        words what opens it, and raises a UserError for runs that it cannot write.
    """

    write: str = ""


@dataclass(frozen=True)
class Command:
    """A command of a domain of this package, which :data:`r2mae.registry.DOMAIN_COMMANDS` lists.

    Parameters
    ----------
    run : str
        ``module:function``, imported when the command is called. The function takes the given arguments and options as
        keyword arguments. It prints the results, and raises a UserError for users' mistakes.
    options : type
        Dataclass with arguments and options; its docstring describes the command and has examples.
    config : type, optional
        A configuration (:class:`~r2mae.training.config.RunConfig`) some fields of which are options, too.
    fields : tuple of str
        These fields.
    """

    run: str
    options: type = NoOptions
    config: type | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandLine:
    """Everything that a domain declares for the command line; the domain lacks what is omitted.

    Parameters
    ----------
    evaluation : Evaluation
        The default evaluation.
    evaluations : tuple of Evaluation
        Other evaluations, by name.
    reading : type
        Dataclass with reader options for data other than the run's, for :meth:`~r2mae.domains.base.Domain.embed` and
        :meth:`~r2mae.domains.base.Domain.load_other_data`.
    other_data : str
        A clause for the help: what differs when measuring on other data.
    embedding : Offered
        The embedding of new data.
    baselines : str
        What ``--baselines`` takes besides the names of registered ones, as text.
    model_formats : tuple of ModelFormat
        Formats of other libraries in which models can be written.
    commands : mapping of str to Command
        The domain's commands, by the name as typed. Other packages add theirs by entry points.
    words : mapping of str to callable
        For completion: a function that returns the names, by the configuration field that takes them.
    example : str
        Data in examples of usage errors and help; if empty, a public set of the domain.
    """

    evaluation: Evaluation = Evaluation()
    evaluations: tuple[Evaluation, ...] = ()
    reading: type = NoOptions
    other_data: str = ""
    embedding: Offered = Offered()
    baselines: str = ""
    model_formats: tuple[ModelFormat, ...] = ()
    commands: Mapping[str, Command] = field(default_factory=dict)
    words: Mapping[str, Callable[[], Sequence[str]]] = field(default_factory=dict)
    example: str = ""
