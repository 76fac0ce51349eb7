"""Many small autoencoders trained at once: all ratios, input rules and seeds of a data set, as one batched model.

Every network is an MLP with layer normalisation. Networks of a seed share their first weights, the order of the rows
and the uniform numbers of the masks. They differ in the ratio and in what hidden entries become.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn

from r2mae.masking.keys import Key, permutation, uniforms
from r2mae.masking.masks import device_words

Rule = Literal["zeros", "mean", "rescaled"]
FRACTIONS = tuple(tenth / 10 for tenth in range(1, 10))
"""Missing fractions; the error over all of them is the unweighted mean."""
_RATE = 1e-3  # of Adam
_ONE_HIDDEN = 8  # copies of each test row in which one entry is hidden
_ROWS_AT_ONCE = 512  # of the test


@dataclass(frozen=True)
class Network:
    """How a network is trained."""

    rule: Rule
    """What hidden entries become: zero in the data's own units; the mean; or the mean, with kept entries divided by the
    share that is kept, in training and in use."""
    low: float
    high: float
    """`low`, `high`: the ratio is uniform between them; it is fixed if they are equal."""
    by_sample: bool = False
    """Whether each row draws its own ratio, with an equal weight in the loss; otherwise each mini-batch does."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a data set, each feature divided by its standard deviation in the training rows; not centred."""

    train: Float32[np.ndarray, "n d"]
    test: Float32[np.ndarray, "m d"]


class _Layer(nn.Module):
    """A linear layer of G networks; then, unless it is the last, a normalisation of their own and ReLU."""

    def __init__(self, first: Sequence[nn.Linear], *, last: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([one.weight.detach().T for one in first]))
        self.bias = nn.Parameter(torch.stack([one.bias.detach()[None] for one in first]))
        self.norm = nn.ParameterList([] if last else [torch.ones_like(self.bias), torch.zeros_like(self.bias)])

    def forward(self, x: Float[Tensor, "G b i"]) -> Float[Tensor, "G b o"]:
        x = torch.baddbmm(self.bias, x, self.weight)
        if not len(self.norm):
            return x
        scale, shift = self.norm
        return torch.relu(nn.functional.layer_norm(x, x.shape[-1:]) * scale + shift)


def _model(features: int, seeds: int, copies: int, hidden: int, latent: int) -> nn.Sequential:
    """Return features → hidden → latent → features for seeds × copies networks, seed by seed."""
    widths = (features, hidden, latent, features)
    layers: list[list[nn.Linear]] = [[], [], []]
    for seed in range(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(Key.root(seed).fold("weights").seed())
            for place in range(3):
                layers[place] += [nn.Linear(widths[place], widths[place + 1])] * copies
    return nn.Sequential(*(_Layer(first, last=first is layers[-1]) for first in layers))


class _Inputs:
    """Rows of G networks as each network sees them: G = seeds × networks, seed by seed."""

    def __init__(self, rows: Rows, networks: Sequence[Network], seeds: int, device: torch.device) -> None:
        def of_all(values: list[bool]) -> Bool[Tensor, "G 1 1"]:
            return torch.tensor(values * seeds, device=device)[:, None, None]

        self.mean = torch.from_numpy(rows.train.mean(axis=0)).to(device)
        self.zeros = of_all([one.rule == "zeros" for one in networks])
        self.rescaled = of_all([one.rule == "rescaled" for one in networks])

    def __call__(
        self, centred: Float[Tensor, "G b d"], hidden: Bool[Tensor, "G b d"], ratio: Float[Tensor, "G b 1"]
    ) -> Float[Tensor, "G b d"]:
        kept = (centred + self.zeros * self.mean).masked_fill(hidden, 0.0)
        return kept / torch.where(self.rescaled, 1 - ratio, 1.0)


def _ratios(
    networks: Sequence[Network], seed: int, steps: range, batch: int
) -> Float[np.ndarray, "networks steps batch"]:
    """Return the ratio of each row of some steps."""
    keys = [Key.root(seed).fold("ratio", step) for step in steps]
    drawn = np.array([key.uniform() * np.ones(batch) for key in keys])
    # The rows of a mini-batch divide the range into equal parts, as those of r2mae-per-sample do.
    each = np.array([(permutation(key, batch) + uniforms(key.fold("within"), batch)) / batch for key in keys])
    return np.array([one.low + (one.high - one.low) * (each if one.by_sample else drawn) for one in networks])


def _uniform(key: Key, rows: int, width: int, device: torch.device) -> Float[Tensor, "rows width"]:
    """Return uniform numbers of 24 bits, the same on every device."""
    return ((device_words(key, rows, width, device) >> 40) & 0xFFFFFF).float() * 2.0**-24


def train(
    rows: Rows,
    networks: Sequence[Network],
    *,
    seeds: int,
    epochs: Sequence[int],
    batch: int = 100,
    hidden: int = 256,
    latent: int = 64,
    device: str = "cpu",
) -> Float[np.ndarray, "epochs seeds networks fractions"]:
    """Train all networks under the seeds 0, 1, …, and return their errors on the test rows after some epochs.

    The loss is the mean over a batch's rows of the mean squared error at a row's hidden entries; targets are centred,
    whatever the networks see. Adam has a constant rate, so that a shorter training is the beginning of a longer one.
    Errors are mean squared ones at hidden entries: where one entry of each row is hidden, then at each of
    :data:`FRACTIONS`.
    """
    place = torch.device(device)
    mean = rows.train.mean(axis=0)
    x = torch.from_numpy(rows.train - mean).to(place)
    n, d = x.shape
    copies, steps = len(networks), n // batch
    model = _model(d, seeds, copies, hidden, latent).to(place)
    inputs = _Inputs(rows, networks, seeds, place)
    optimiser = torch.optim.Adam(model.parameters(), _RATE)
    errors = []
    for epoch in range(max(epochs)):
        keys = [Key.root(seed) for seed in range(seeds)]
        order = torch.from_numpy(np.stack([permutation(key.fold("order", epoch), n) for key in keys])).to(place)
        uniform = torch.stack([_uniform(key.fold("mask", epoch), steps * batch, d, place) for key in keys])
        numbers = range(epoch * steps, (epoch + 1) * steps)
        drawn = np.concatenate([_ratios(networks, seed, numbers, batch) for seed in range(seeds)])
        ratios = torch.from_numpy(drawn).to(place, torch.float32)[..., None]
        for step in range(steps):
            rows_of_step = slice(step * batch, (step + 1) * batch)
            mask = uniform[:, rows_of_step].repeat_interleave(copies, 0) < ratios[:, step]
            target = x[order[:, rows_of_step]].repeat_interleave(copies, 0)
            predicted = model(inputs(target, mask, ratios[:, step]))
            squared = ((predicted - target) ** 2 * mask).sum(-1) / mask.sum(-1).clamp(min=1)
            loss = squared.mean(1).sum()  # the networks share no weight: each has the gradient of its own mean
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        if epoch + 1 in epochs:
            errors.append(_errors(model, inputs, torch.from_numpy(rows.test - mean).to(place), copies * seeds))
    return np.stack(errors).reshape(len(errors), seeds, copies, -1)


def missing_entries(test: Float32[np.ndarray, "m d"], fraction: float) -> Bool[np.ndarray, "m d"]:
    """Return which entries of the test rows are missing at one of :data:`FRACTIONS`, the same for everything."""
    number = 1 + FRACTIONS.index(fraction)
    uniform = _uniform(_key_of_fraction(number), len(test), test.shape[1], torch.device("cpu"))
    return np.asarray(uniform < fraction)


def _key_of_fraction(number: int) -> Key:
    return Key.root(0).fold("missing", number)


@torch.no_grad()
def _errors(
    model: nn.Module, inputs: _Inputs, test: Float[Tensor, "m d"], count: int
) -> Float[np.ndarray, "G fractions"]:
    """Return errors with one hidden entry, and at each missing fraction; the masks are the same for all networks."""
    found = []
    for number, fraction in enumerate((0.0, *FRACTIONS)):
        x = test.repeat(_ONE_HIDDEN, 1) if number == 0 else test
        uniform = _uniform(_key_of_fraction(number), len(x), x.shape[1], test.device)
        hidden = uniform == uniform.amin(1, keepdim=True) if number == 0 else uniform < fraction
        total = torch.zeros(count, dtype=torch.float64, device=test.device)
        for first in range(0, len(x), _ROWS_AT_ONCE):
            target, mask = (values[first : first + _ROWS_AT_ONCE].expand(count, -1, -1) for values in (x, hidden))
            seen = inputs(target, mask, torch.full_like(target[..., :1], fraction))
            total += ((model(seen) - target) ** 2 * mask).sum((1, 2)).double()
        found.append(total / hidden.sum())
    return np.asarray(torch.stack(found, 1).cpu())
