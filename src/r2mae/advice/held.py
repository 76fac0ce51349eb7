"""How reliable advice on the ratio was in tests, and what follows from it. The results of the tests are only here."""

from dataclasses import dataclass

from r2mae.advice.trustworthiness import Shape
from r2mae.theory.advise import Advice


@dataclass(frozen=True)
class LinearCases:
    """Tests on masked linear regression, which the formula describes, fitted to real data.

    Attributes
    ----------
    cases : int
        Number of tests without nearly empty features; the advice was right in all of them.
    within : float
        Largest distance of an advised ratio from the best measured one, over directions and features.
    cost, worst : float
        Largest excess of the mean normalised risk at the advised ratio, without the worst case; and in that case.
    source : str
        Where the results are.
    """

    cases: int
    within: float
    cost: float
    worst: float
    source: str


@dataclass(frozen=True)
class Trained:
    """Test on an autoencoder trained at many fixed ratios, for which the advice was wrong.

    Attributes
    ----------
    name : str
        Name of the data.
    rows, features : int
        Rows and features that the advice was computed for.
    advised, best : (float, float)
        Ranges of ratios: the advised one, and the one in which the probe was best.
    at_advised : (float, float)
        Probe accuracy at those trained ratios that are in the advised range.
    at_best : float
        Probe accuracy at the best ratios.
    source : str
        Where the results are.
    """

    name: str
    rows: int
    features: int
    advised: tuple[float, float]
    best: tuple[float, float]
    at_advised: tuple[float, float]
    at_best: float
    source: str


@dataclass(frozen=True)
class Swept:
    """Test on small networks trained at five fixed ratios on several sets.

    Attributes
    ----------
    sets, failed : int
        Number of sets, and of those where the error is above that of the best of five ratios beyond doubt (95 %).
    error : (float, float)
        Smallest and largest excess, over sets, of the error over all missing fractions at the ratio that is advised for
        features: a fraction of the error at the best of the five ratios.
    probe : (float, float, float)
        What the probe loses at the ratio that is advised for directions, on average over sets, and its interval.
    source : str
        Where the results are.
    """

    sets: int
    failed: int
    error: tuple[float, float]
    probe: tuple[float, float, float]
    source: str


LINEAR = LinearCases(cases=16, within=0.1, cost=0.007, worst=0.065, source="results/theory/realdata")
DEEP = Trained(
    name="MNIST",
    rows=1000,
    features=400,
    advised=(0.10, 0.19),
    best=(0.6, 0.8),
    at_advised=(0.959, 0.961),  # ratios 0.1 and 0.2
    at_best=0.972,
    source="results/mnist",
)


SWEPT = Swept(sets=6, failed=6, error=(0.025, 0.463), probe=(0.0005, -0.003, 0.004), source="results/randomness")


def holds_for_regression(advice: Advice, shape: Shape) -> bool:
    """Return whether advice for masked linear regression was right on data of this kind.

    It was wrong where features hardly ever vary: with n > d the risk was 50 to 1,400 times the predicted one, and with
    n < d up to three features in ten had their best ratio elsewhere.
    """
    return not shape.rare if advice.peak is not None else shape.unseen <= 0.05 * advice.d


def answer(advice: Advice, shape: Shape) -> str:
    """Return the answer in one line: what is suggested, and how reliable such advice was."""
    line = (
        f"Answer: no ratio for pretraining. Such advice failed for networks trained on {SWEPT.failed} of {SWEPT.sets} "
        f"sets, and held in all {LINEAR.cases} linear fits without nearly empty features"
    )
    if not holds_for_regression(advice, shape):
        return f"{line}; these data have such features: no ratio for linear regression either."
    if advice.suggested is None:
        return f"{line}; but here no direction can be learned: no ratio for linear regression either."
    return f"{line}: for linear regression {span(advice.suggested.low, advice.suggested.high)}."


def caveat() -> str:
    """Return what is modelled, and what was found when a deep model was trained."""
    low, high = DEEP.at_advised
    first, last = DEEP.best
    return " ".join(
        [
            "What is modelled: each row is masked once, the model is linear and without a ridge. A deep autoencoder",
            "sees every row under many masks and is regularised by its training.",
            f"On {DEEP.name} the advice was {span(*DEEP.advised)} ({DEEP.rows:,} rows, {DEEP.features} features); an",
            f"autoencoder trained there had a probe accuracy of {low:.3f} to {high:.3f}, at {first:g} to {last:g} one",
            f"of {DEEP.at_best:.3f} ({DEEP.source}).",
            f"Small networks on {SWEPT.sets} sets had, at the ratio advised for features, an error over all missing",
            f"fractions {100 * SWEPT.error[0]:.1f} % to {100 * SWEPT.error[1]:.0f} % above that of the best of five",
            f"ratios; at that for directions their probes were not told apart from the best ({SWEPT.source}).",
            f"For masked linear regression the advised ratio was within {LINEAR.within:g} of the best measured one and",
            f"cost at most {LINEAR.cost:g} normalised risk on average, {LINEAR.worst:g} in one case of 40 features",
            f"({LINEAR.source}).",
        ]
    )


def what_to_do() -> str:
    """Return how to find a ratio for pretraining."""
    return (
        "To choose a ratio for pretraining, train: r2mae compare DATA --schemes fixed r2mae --ratios 0.1 0.3 0.5 0.7 "
        "0.9 --seeds 3. Until then the default range of r2mae needs no choice. Take from this advice which directions "
        "want larger ratios than others and what mistuning costs, not the number itself."
    )


def evidence() -> dict[str, object]:
    """Return the results of the tests as dictionaries, lists, numbers and text."""
    return {
        "linear_regression": {"held": True, **vars(LINEAR)},
        "autoencoder": {"held": False, **{key: _plain(value) for key, value in vars(DEEP).items()}},
        "small_networks": {"held": False, **{key: _plain(value) for key, value in vars(SWEPT).items()}},
    }


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def span(low: float, high: float) -> str:
    """Write a range of ratios; one number where both ends round to the same."""
    first, last = f"{low:.2f}", f"{high:.2f}"
    return first if first == last else f"{first} to {last}"
