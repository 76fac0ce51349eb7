"""What is measured, by name. Standard library only, since the command line reads it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number that a run scores.

    Parameters
    ----------
    name : str
        Key in results files, such as ``probe_accuracy``.
    label : str
        In words, for tables and figures.
    higher_is_better : bool
        Its direction.
    """

    name: str
    label: str
    higher_is_better: bool = True
