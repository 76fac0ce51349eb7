"""How far advice on the ratio has held where it was put to the test, and what follows; the figures stand here alone."""

from dataclasses import dataclass

from r2mae.advice.trustworthiness import Shape
from r2mae.theory.advise import Advice


@dataclass(frozen=True)
class LinearCases:
    """Masked linear regression, which the formula describes, fitted for real.

    Attributes
    ----------
    cases : int
        Measured without nearly empty features; the advice held in all of them.
    within : float
        From the best measured ratio, for every direction and feature.
    cost, worst : float
        Mean normalised risk that the advised ratio cost, at most, but for one case; and in that one.
    source : str
    """

    cases: int
    within: float
    cost: float
    worst: float
    source: str


@dataclass(frozen=True)
class Trained:
    """An autoencoder trained at many fixed ratios; the advice did not hold.

    Attributes
    ----------
    name : str
    rows, features : int
        Of the advice.
    advised, best : (float, float)
        Ratios: the range of the advice, and where the probe did best.
    at_advised : (float, float)
        Probe accuracy at the advised ratios that were trained.
    at_best : float
        Probe accuracy at the best ratios.
    source : str
    """

    name: str
    rows: int
    features: int
    advised: tuple[float, float]
    best: tuple[float, float]
    at_advised: tuple[float, float]
    at_best: float
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


def holds_for_regression(advice: Advice, shape: Shape) -> bool:
    """Return whether the data are of a kind on which advice for masked linear regression has held.

    It has not where features hardly ever vary: with n > d the risk was 50 to 1,400 times the predicted one, with n < d
    up to three features in ten were best at another ratio.
    """
    return not shape.rare if advice.peak is not None else shape.unseen <= 0.05 * advice.d


def answer(advice: Advice, shape: Shape) -> str:
    """Answer in one line: what is suggested, and how far such advice has held."""
    line = (
        f"Answer: no ratio for pretraining. Such advice failed for the one autoencoder measured ({DEEP.name}), and "
        f"held in all {LINEAR.cases} linear fits without nearly empty features"
    )
    if not holds_for_regression(advice, shape):
        return f"{line}; these data have such features: no ratio for linear regression either."
    if advice.suggested is None:
        return f"{line}; but here no direction can be learned: no ratio for linear regression either."
    return f"{line}: for linear regression {span(advice.suggested.low, advice.suggested.high)}."


def caveat() -> str:
    """Say what is modelled, and what came out where a deep model was trained."""
    low, high = DEEP.at_advised
    first, last = DEEP.best
    return " ".join(
        [
            "What is modelled: each row is masked once, the model is linear and without a ridge. A deep autoencoder",
            "sees every row under many masks and is regularised by its training.",
            f"On {DEEP.name} the advice was {span(*DEEP.advised)} ({DEEP.rows:,} rows, {DEEP.features} features); an",
            f"autoencoder trained there had a probe accuracy of {low:.3f} to {high:.3f}, at {first:g} to {last:g} one",
            f"of {DEEP.at_best:.3f} ({DEEP.source}).",
            f"For masked linear regression the advised ratio was within {LINEAR.within:g} of the best measured one and",
            f"cost at most {LINEAR.cost:g} normalised risk on average, {LINEAR.worst:g} in one case of 40 features",
            f"({LINEAR.source}).",
        ]
    )


def what_to_do() -> str:
    """Say how to find a ratio for pretraining."""
    return (
        "To choose a ratio for pretraining, train: r2mae compare DATA --schemes fixed r2mae --ratios 0.1 0.3 0.5 0.7 "
        "0.9 --seeds 3. Until then the default range of r2mae needs no choice. Take from this advice which directions "
        "want larger ratios than others and what mistuning costs, not the number itself."
    )


def evidence() -> dict[str, object]:
    """Return the figures in plain types."""
    return {
        "linear_regression": {"held": True, **vars(LINEAR)},
        "autoencoder": {"held": False, **{key: _plain(value) for key, value in vars(DEEP).items()}},
    }


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def span(low: float, high: float) -> str:
    """Write a range of ratios; one number where both ends round to the same."""
    first, last = f"{low:.2f}", f"{high:.2f}"
    return first if first == last else f"{first} to {last}"
