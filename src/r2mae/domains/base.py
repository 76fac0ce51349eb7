"""What a domain is: one class, with defaults for all parts that are optional. Importing this module loads no torch."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.domains.baselines import Baseline, known_baselines
from r2mae.domains.options import CommandLine
from r2mae.environment import standard_session
from r2mae.errors import UserError, unknown, warn_once
from r2mae.files import write_arrays

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from r2mae.catalogue import PublicSet
    from r2mae.evaluation.examples import Examples
    from r2mae.evaluation.metrics import Metric
    from r2mae.training.initial import Origin
    from r2mae.training.task import Data, Task


class Domain:
    """A domain, such as images: its configuration, data, task, model and evaluation, in one object.

    A domain defines the parts of :data:`REQUIRED`. The other methods have defaults. Register the object in
    :mod:`r2mae.registry`, or by an entry point of your package. The training loop needs the parts of
    :class:`r2mae.training.task.Trainable` alone.
    """

    name: str
    """The domain's name."""
    title: str
    """A description in one line, for help texts."""
    config: type[Any]
    """The class of the configuration, a :class:`~r2mae.training.config.RunConfig`."""
    sets: Mapping[str, "PublicSet"] = {}
    """Public data sets, by name."""
    command_line: CommandLine = CommandLine()
    """The domain's own options, evaluations and commands on the command line."""
    evaluation_support: tuple[str, ...] = ()
    """The arguments among `items`, `kept` and `progress` that `evaluate` takes, in addition to users' options.

    `items` is an :class:`~r2mae.evaluation.items.ItemRecorder` or None, which records the scores that are means over
    test items, `kept` the path of a file for finished parts, and `progress` is called with the amount done and the
    total.
    """
    has_examples: bool = False
    """Whether :meth:`examples` may return examples."""
    exporters: Mapping[str, Callable[[Path, Any, str], None]] = {
        ".npz": lambda output, arrays, source: write_arrays(output, arrays)
    }
    """How embeddings are written, by the suffix of the file, the default first: ``write(output, arrays, source)``.

    `arrays` are those of :meth:`embed`.
    """

    metrics_of: "Callable[[Any], tuple[Metric, ...]]"
    """``metrics_of(config)``: the scores of `evaluate` that tables show for such runs, the primary score first."""
    fingerprint: Callable[[Any], str]
    """``fingerprint(config)``: a short text that differs for other data; it reads as little as possible."""
    load: "Callable[[Any], Data]"
    """``load(config)``: the data of a run."""
    build: "Callable[[Mapping[str, Any]], tuple[Task[Any, Any], Any]]"
    """``build(architecture)``: the task, and a model with fresh weights."""
    evaluate: Callable[..., dict[str, float]]
    """``evaluate(config, task, model, data, **options)``: scores by name, including those of `metrics_of`.

    `data` is the result of `load`, or None for an evaluation with its own data
    (:attr:`r2mae.domains.options.Evaluation.own_data`).
    """
    embed: "Callable[..., dict[str, np.ndarray]]"
    """``embed(config, task, model, source, **options)``: arrays of new data by name: `embedding`, and columns."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let what computes ignore what the caller's session has set (:func:`r2mae.environment.standard_session`)."""
        super().__init_subclass__(**options)
        for name in ("load", "evaluate", "embed", "examples", "load_other_data"):
            if inspect.isfunction(function := vars(cls).get(name)):
                setattr(cls, name, standard_session()(function))

    def recognises(self, data: Any) -> bool:
        """Whether data are of the kind that this domain reads: a path that exists, another text, or an object."""
        return False

    def write_data(self, data: Any, folder: Path, config: Any = None) -> Path:
        """Write data in memory into a folder, as a file or folder that the domain reads, and return its path.

        `config` is that of the finished run that they are for, if any.

        Raises
        ------
        UserError
            If they are of no kind that the domain can write; by default always.
        """
        raise UserError(
            f"the domain {self.name} takes no {described(data)}: save the data as a file, and give its path"
        )

    @property
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        """The presets of the configuration."""
        presets: Mapping[str, Mapping[str, Any]] = self.config.presets
        return presets

    def of_run(self, fields: Mapping[str, Any]) -> "Domain":
        """Return the domain as it opens a run with these fields in its configuration: by default the domain itself."""
        return self

    def check_source(self, config: Any) -> None:
        """Refuse missing data, and import no heavy library; by default mistakes are found when the data are read."""

    def check(self, config: Any) -> None:
        """Refuse missing data and other mistakes that are found without heavy libraries."""
        self.check_source(config)

    def load_initial_weights(self, config: Any, model: "nn.Module") -> "Origin | None":
        """Load the weights of a file that the configuration names into a fresh model; None if it names none."""
        return None

    def before_training(self, config: Any) -> Any:
        """Return the configuration with which initial weights are measured before training; None: they are not."""
        return None

    def examples(
        self, config: Any, task: Any, model: "nn.Module", data: Any, *, ratio: float | None = None
    ) -> "Examples | None":
        """Let the model complete a few masked test samples, the same in every run; by default there are none.

        Without `ratio`, the domain's default ratio is hidden.
        """
        return None

    def load_other_data(self, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        """Read other data than the run's: ``load_other_data(config, source, architecture, **options)``.

        Returns the configuration adapted to them, and the data, both for `evaluate`. `options` are those of reading
        (:attr:`r2mae.domains.options.CommandLine.reading`).

        Raises
        ------
        UserError
            If the data do not fit the model of `architecture`; by default always.
        """
        raise UserError(f"runs of the domain {self.name} are measured only on their own data: omit --data")

    def baselines_of(self, config: Any) -> Mapping[str, Baseline]:
        """Return the baselines that exist for such a run, by name: the registered ones, then others."""
        own = {name: one for name, one in known_baselines(self.name).items() if one.applies(config)}
        return {**own, **self.other_baselines(config)}

    def other_baselines(self, config: Any) -> Mapping[str, Baseline]:
        """Return the baselines that a run's files bring along, such as columns of scores; by default none."""
        return {}

    def baseline(self, config: Any, name: str) -> Baseline:
        """Return a baseline of such a run; an unknown one is refused. Files are opened for those that they bring."""
        registered = known_baselines(self.name).get(name)
        if registered is not None and registered.applies(config):
            return registered
        known = self.baselines_of(config)
        if name not in known:
            raise unknown("baseline", name, tuple(known))
        return known[name]

    def default_baselines_of(self, config: Any) -> tuple[str, ...]:
        """Return the names of those that a comparison measures by default; no file is opened."""
        known = known_baselines(self.name).values()
        return tuple(one.name for one in known if one.default and one.applies(config))

    def check_baseline_sizes(self, config: Any, names: Sequence[str], data: Any) -> None:
        """Refuse a named baseline that does not fit into memory, before models are trained or measured."""
        for name in names:
            if not (one := self.baseline(config, name)).default:
                one.check_memory(config, data)

    @standard_session()
    def score_baseline(self, config: Any, name: str, data: Any, **options: Any) -> dict[str, float]:
        """Measure a baseline by the parts of `evaluate` that apply.

        One that does not fit into memory has no scores, and a line says so.
        """
        one = self.baseline(config, name)
        try:
            one.check_memory(config, data)
        except UserError as error:
            warn_once(f"not measured: {error}")
            return {}
        if "progress" in options and not one.takes("progress"):
            options.pop("progress")
        return one.score(config, self, data, **options)


def described(data: Any) -> str:
    """Return the kind and the shape of data in memory, for errors."""
    kind = f"{type(data).__module__.split('.')[0]}.{type(data).__name__}".removeprefix("builtins.")
    return f"{kind} of shape {tuple(data.shape)}" if hasattr(data, "shape") else kind


REQUIRED = ("name", "title", "config", "metrics_of", "fingerprint", "load", "build", "evaluate", "embed")
"""The parts that every domain defines."""
