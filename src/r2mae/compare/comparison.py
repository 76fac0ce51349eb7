"""The result of a comparison: one table of finished runs, from which everything else is derived."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from r2mae.evaluation.examples import Examples
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.metrics import Metric

if TYPE_CHECKING:
    import pandas as pd  # its import takes a second, and the command line needs only constants of this module

BASELINE = "baseline"  # the scheme of variants that were not pretrained


@dataclass(frozen=True)
class Comparison:
    """The outcome of schemes × seeds.

    Parameters
    ----------
    title : str
        Such as "digits".
    metrics : tuple of Metric
        The first is the metric of the headline.
    table : DataFrame
        One line per run (a variant under a seed): label, scheme, ratio, low, high, seed, seconds, then one column per
        score. `label` names the variant ("fixed 0.50", "r2mae"). `ratio` is the fixed ratio or NaN. `low` and `high`
        are the ends of the scheme's ratios. A baseline has the scheme :data:`BASELINE` and NaN for all three. Lines are
        in the order of display: by label, then by seed.
    curves : DataFrame
        Training curves, thinned to means over windows: label, seed, step, loss, validation_loss.
    reconstructions : mapping of label to Examples
        The same masked examples, completed by each variant's model of the first seed; empty if the domain has none.
    config, environment : mapping
        The configuration of the runs, and the machine and libraries.
    measured : str
        How the scores were measured; empty if there is no choice.
    items : mapping of (label, seed) to ItemScores
        Scores of single test items, for the runs that have some.
    by_sample : tuple of str
        The variants that draw a ratio for every sample.
    unread : tuple of str
        Sentences about run files that could not be read, without the period.
    looks : mapping of label to int
        How many times a scheme's headline difference was shown, each time with other seeds or another reference; this
        one included. By default once.
    """

    title: str
    metrics: tuple[Metric, ...]
    table: "pd.DataFrame"
    curves: "pd.DataFrame"
    reconstructions: Mapping[str, Examples] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    measured: str = ""
    items: Mapping[tuple[str, int], ItemScores] = field(default_factory=dict)
    by_sample: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    looks: Mapping[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The answer: whether training paid, where it is not shown to, and whether a scheme is better, by question."""
        from r2mae.compare.analysis import analyse
        from r2mae.compare.answers import answers

        found = answers(self, analyse(self))
        return " ".join(found.headline if found.lead else found.questions)

    @property
    def labels(self) -> list[str]:
        """The labels of the variants, in the order of display."""
        return list(dict.fromkeys(self.table["label"]))

    @property
    def baselines(self) -> list[str]:
        """The labels of the baselines."""
        return list(dict.fromkeys(self.table.loc[self.table["scheme"] == BASELINE, "label"]))
