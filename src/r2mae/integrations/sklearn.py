"""Imputers of tables, in the manner of scikit-learn's: a Gaussian, and masked autoencoders that correct it."""

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data
from torch import Tensor, nn

from r2mae.cores import refuse_beyond_memory
from r2mae.environment import standard_session
from r2mae.errors import UserError, listed
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.masking.keys import Key, permutation
from r2mae.training.run import torch_device

if TYPE_CHECKING:
    from typing import Self

_MASKS = ("per-sample", "table-patterns")
_PRIORS = (4.0, 1.0, 0.25, 0.0625, 0.01)  # further rows of independent columns, as multiples of the number of columns
_FOLDS = 4  # a row sees a Gaussian that was fitted without its fold
_DRAWS = 4  # masks of each row that the prior, and the scale of the correction, are chosen on
_CHOSEN_ON = 4000  # rows at most that they are chosen on
_REPEATS = 2  # divisions into folds, for each of which there are as many networks as folds
_FEWEST = 20  # rows, to choose a prior and to train networks
_POOL = 8192  # masked rows that the Gaussian fills in at once
_CHECKED_EVERY = 50  # steps
_PATIENCE = 3  # checks without an error that is lower by a thousandth, after which training stops
_WEIGHT_DECAY = 1e-2
_SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the correction
_ROWS_AT_ONCE = 4096


class GaussianImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill in NaN by the conditional mean of a Gaussian, which is fitted to the observed entries.

    Columns are standardised. Mean and covariance are estimated by expectation-maximisation. The covariance is shrunk by
    the amount that fills in hidden entries best in rows that it was not fitted to.

    Parameters
    ----------
    sample_posterior : bool
        Draw from the conditional Gaussian; each call of :meth:`transform` draws anew, as that of IterativeImputer.
        For multiple imputation fit imputers of different `random_state`.
    min_value, max_value : float, or array (d,)
        Bounds of what is filled in.
    keep_empty_features : bool
        Fill in 0 where a column had no observed entry in `fit`. Such columns are left out otherwise.
    random_state : int, RandomState or None
        Seed of the rows and entries that the shrinkage is chosen on, and of draws.

    Attributes
    ----------
    mean_, scale_ : array (d,)
        Mean and standard deviation of the observed entries. The scale of a constant or empty column is 0.
    gaussian_ : GaussianConditionalMean
        Of the standardised columns that are not constant.
    random_state_ : RandomState
        Of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.random.default_rng(0).normal(size=(200, 3)) @ np.ones((3, 4))
    >>> table[::3, 1] = np.nan
    >>> bool(np.isnan(GaussianImputer().fit_transform(table)).any())
    False
    """

    def __init__(
        self,
        *,
        sample_posterior: bool = False,
        min_value: float | ArrayLike = -np.inf,
        max_value: float | ArrayLike = np.inf,
        keep_empty_features: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.sample_posterior = sample_posterior
        self.min_value = min_value
        self.max_value = max_value
        self.keep_empty_features = keep_empty_features
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: NaN are allowed, and 32-bit floats are kept."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @standard_session()
    def fit(self, X: Any, y: Any = None) -> "Self":
        """Fit the imputer to a table.

        Parameters
        ----------
        X : array or DataFrame (n, d)
            Missing entries are NaN.
        y : ignored

        Raises
        ------
        UserError
            For columns that are not numbers, a table without observed entries, or an option that is out of range.
        """
        self._check_options()
        x = self._checked(X, reset=True, ensure_min_samples=2).astype(np.float64)
        seen = ~np.isnan(x)
        self._empty = ~seen.any(axis=0)
        if self._empty.all():
            raise UserError("the table has no observed entry: give rows that have some")
        self._least, self._most = (self._bound(name, x.shape[1]) for name in ("min_value", "max_value"))
        if (self._least > self._most).any():
            raise UserError("min_value is above max_value: exchange them")
        least = np.min(x, axis=0, where=seen, initial=np.inf)
        constant = self._empty | (least == np.max(x, axis=0, where=seen, initial=-np.inf))
        count = np.maximum(seen.sum(axis=0), 1)
        self.mean_ = np.where(self._empty, 0.0, np.where(constant, least, np.where(seen, x, 0.0).sum(axis=0) / count))
        squares = np.where(seen, x - self.mean_, 0.0) ** 2
        self.scale_ = np.where(constant, 0.0, np.sqrt(squares.sum(axis=0) / count))
        self.random_state_ = check_random_state(self.random_state)
        key = Key.root(int(self.random_state_.randint(2**31 - 1)))
        if self.scale_.any():
            self._fit(self._standardised(x[seen.any(axis=1)]), key)
        return self

    @standard_session()
    def transform(self, X: Any) -> Any:
        """Return the table with NaN filled in; observed entries stay as they are."""
        check_is_fitted(self)
        given = self._checked(X, reset=False)
        x, missing, varying = given.astype(np.float64), np.isnan(given), self.scale_ > 0
        filled = np.broadcast_to(self.mean_, x.shape).copy()
        rows = missing[:, varying].any(axis=1)
        if rows.any():
            part = self._fill(self._standardised(x[rows]), missing[np.ix_(rows, varying)])
            filled[np.ix_(rows, varying)] += part * self.scale_[varying]
        filled = np.where(missing, np.clip(filled, self._least, self._most), x)
        return filled[:, ~self._empty | self.keep_empty_features].astype(given.dtype)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns that :meth:`transform` returns."""
        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[~self._empty | self.keep_empty_features]

    def _check_options(self) -> None:
        """Refuse options that are out of range."""

    def _bound(self, name: str, columns: int) -> Float[np.ndarray, " d"]:
        given = np.asarray(getattr(self, name), dtype=np.float64)
        if given.shape not in ((), (columns,)) or np.isnan(given).any():
            raise UserError(f"{name} must be a number, or one for each of the {columns} columns")
        return np.broadcast_to(given, columns)

    def _checked(self, X: Any, *, reset: bool, **how: Any) -> Float[np.ndarray, "n d"]:
        """Return the table as an array of floats."""
        kinds: Any = getattr(X, "dtypes", None)  # of pandas; those of polars have no names
        named = kinds.items() if hasattr(kinds, "items") else ()
        words = [str(name) for name, kind in named if not _are_numbers(X[name], kind)]
        if words:
            raise UserError(f"columns without numbers: {listed(words)}: leave them out, or encode them as numbers")
        types = [np.float64, np.float32]
        return np.asarray(validate_data(self, X, reset=reset, dtype=types, ensure_all_finite="allow-nan", **how))

    def _standardised(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n varying"]:
        varying = self.scale_ > 0
        return np.asarray((x - self.mean_)[:, varying] / self.scale_[varying])

    def _fit(self, z: Float[np.ndarray, "n d"], key: Key) -> None:
        """Fit to standardised columns; each row has an observed entry."""
        self.gaussian_ = _CrossFitted.of(z, key).gaussian

    def _fill(self, z: Float[np.ndarray, "n d"], missing: Bool[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return standardised columns, filled in."""
        return self._drawn(self.gaussian_.fill(z, missing), missing)

    def _drawn(
        self, mean: Float[np.ndarray, "n d"], missing: Bool[np.ndarray, "n d"], spread: float = 1.0
    ) -> Float[np.ndarray, "n d"]:
        """Add a draw of the Gaussian's deviation from its conditional mean, if `sample_posterior`."""
        if not self.sample_posterior:
            return mean
        centre = np.broadcast_to(self.gaussian_.mean, mean.shape)  # the deviation does not depend on what is observed
        drawn = self.gaussian_.draw(centre, missing, int(self.random_state_.randint(2**31 - 1)))
        return np.asarray(mean + spread * (drawn - centre))


class MaskedAutoencoderImputer(GaussianImputer):
    """Fill in NaN by a Gaussian, and by masked autoencoders that learn what it leaves.

    The conditional mean of :class:`GaussianImputer` is the start. Eight small networks, each trained on three quarters
    of the rows, predict the difference to it from the filled row and the mask; their mean is added. Their last layer
    begins at zero. In training a row's Gaussian was fitted without it, and further observed entries are hidden, a share
    p ~ U(low, high) of each row. The correction is scaled by 0, ¼, ½, ¾ or 1. The scale is chosen on rows that a
    network was not trained on, with masks like the table's own, and must gain more than one standard error. So the
    table is filled in by the Gaussian where networks are not shown to be better, and where it has less than 20 rows.

    Parameters
    ----------
    low, high : float
        Range of the hidden share, between 0 and 1.
    masks : {"per-sample", "table-patterns"}
        "table-patterns" hides what is missing in another row, drawn at random, in place of a random share.
    hidden : int
        Width of the two hidden layers.
    max_epochs : int
        Most passes over the rows. Training stops before when the error in rows left out stops falling.
    learning_rate : float
        Of AdamW.
    sample_posterior, min_value, max_value, keep_empty_features
        As those of :class:`GaussianImputer`.
    random_state : int, RandomState or None
        Seed of weights, order, masks and draws.
    device : str
        Device of torch, for the networks; "auto" is a CUDA device if there is one.

    Attributes
    ----------
    mean_, scale_, gaussian_, random_state_
        As those of :class:`GaussianImputer`.
    correction_ : float
        The chosen scale; 0 is the Gaussian alone.
    validation_error_, gaussian_error_ : float
        Mean squared error of the result and of the Gaussian at hidden standardised entries, in rows left out. NaN if
        no network was trained.
    n_steps_ : int
        Number of optimiser steps that led to the weights.
    networks_ : torch.nn.Module or None
        None if the scale is 0.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.random.default_rng(0).normal(size=(200, 3)) @ np.ones((3, 4))
    >>> table[::3, 1] = np.nan
    >>> filled = MaskedAutoencoderImputer(max_epochs=5).fit_transform(table)
    >>> bool(np.isnan(filled).any())
    False
    """

    def __init__(
        self,
        low: float = 0.05,
        high: float = 0.95,
        *,
        masks: str = "per-sample",
        hidden: int = 64,
        max_epochs: int = 100,
        learning_rate: float = 5e-3,
        sample_posterior: bool = False,
        min_value: float | ArrayLike = -np.inf,
        max_value: float | ArrayLike = np.inf,
        keep_empty_features: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            sample_posterior=sample_posterior,
            min_value=min_value,
            max_value=max_value,
            keep_empty_features=keep_empty_features,
            random_state=random_state,
        )
        self.low = low
        self.high = high
        self.masks = masks
        self.hidden = hidden
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.device = device

    def _check_options(self) -> None:
        for name in ("hidden", "max_epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be 1 or more, not {getattr(self, name)}")
            if getattr(self, name) % 1 != 0:  # NaN and infinity, too
                raise UserError(f"{name} must be a whole number, not {getattr(self, name)}")
        _ = self._device
        if not 0 < self.learning_rate < np.inf:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}")
        if not 0 <= self.low <= self.high <= 1:
            raise UserError(f"low and high must be 0 <= low <= high <= 1, not {self.low:g} and {self.high:g}")
        if self.masks not in _MASKS:
            raise UserError(f"masks must be one of {listed(_MASKS)}, not {self.masks!r}")

    @property
    def _device(self) -> str:
        return str(torch_device(str(self.device)))

    def _fit(self, z: Float[np.ndarray, "n d"], key: Key) -> None:
        found = _CrossFitted.of(z, key)
        self.gaussian_, self.networks_, self.correction_, self.n_steps_ = found.gaussian, None, 0.0, 0
        self.validation_error_ = self.gaussian_error_ = float("nan")
        if not found.of_folds or z.shape[1] < 2:
            return
        networks, per_row = self._train(found, key.fold("networks"))
        gain = per_row[0] - per_row
        sure = gain.mean(1) - gain.std(1, correction=0) / gain.shape[1] ** 0.5
        chosen = int(sure.argmax())  # the first, 0, has the gain 0
        self.correction_, self.networks_ = _SCALES[chosen], networks if chosen else None
        self.gaussian_error_, self.validation_error_ = float(per_row[0].mean()), float(per_row[chosen].mean())

    def _fill(self, z: Float[np.ndarray, "n d"], missing: Bool[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        filled = self.gaussian_.fill(z, missing)
        if self.networks_ is None:
            return self._drawn(filled, missing)
        inputs = _inputs(filled, missing, self._device)
        with torch.no_grad():
            parts = [
                self.networks_(part.expand(self.networks_.count, -1, -1)) for part in torch.split(inputs, _ROWS_AT_ONCE)
            ]
        correction = torch.cat([part.mean(0) for part in parts]).cpu().double().numpy()
        spread = (self.validation_error_ / self.gaussian_error_) ** 0.5
        return self._drawn(filled + self.correction_ * correction, missing, spread)

    def _train(self, found: "_CrossFitted", key: Key) -> tuple["_Networks", Float[Tensor, "scales rows"]]:
        """Return the networks, and each row's error in networks that were not trained on it, for each scale."""
        (n, d), hidden, count = found.z.shape, int(self.hidden), _REPEATS * _FOLDS
        refuse_beyond_memory(20 * count * hidden * (hidden + 3 * d), f"hidden={hidden:,} needs", "give less")
        batch = min(max(n // 4, 8), 64)
        division = np.stack([permutation(key.fold("division", one), n) % _FOLDS for one in range(_REPEATS)])
        checks = _Checks.of(found, division, self._device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.fold("weights").seed())
            networks = _Networks(count, d, hidden).to(self._device)
        optimizer = torch.optim.AdamW(networks.parameters(), self.learning_rate, weight_decay=_WEIGHT_DECAY, fused=True)
        last, pool = int(self.max_epochs) * -(-n // batch), iter(())
        best, per_row, weights = float("inf"), checks.errors(networks), networks.state_dict()
        for step in range(1, last + 1):
            given = next(pool, None)
            if given is None:
                pool = self._batches(found, division, batch, key.fold("pool", step))
                given = next(pool)
            inputs, target, hidden = given
            squared = (networks(inputs) - target) ** 2 * hidden
            loss = (squared.sum(2) / hidden.sum(2).clamp(min=1)).mean(1).sum()  # each network has its own mean
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % _CHECKED_EVERY == 0 or step == last:
                errors = checks.errors(networks)
                least = float(errors[1:].mean(1).min())
                if least < 0.999 * best:
                    best, per_row, self.n_steps_, weights = least, errors, step, deepcopy(networks.state_dict())
                elif step - self.n_steps_ >= _PATIENCE * _CHECKED_EVERY:
                    break
        networks.load_state_dict(weights)
        return networks, per_row

    def _batches(self, found: "_CrossFitted", division: Int64[np.ndarray, "repeats n"], batch: int, key: Key) -> Any:
        """Yield inputs, targets and hidden entries, one batch for each network, from one pool of masked rows."""
        rng, n = np.random.default_rng(key.seed()), len(found.z)
        rows = np.concatenate([rng.permutation(n) for _ in range(min(8, -(-_POOL // n)))])[:_POOL]
        if self.masks == "table-patterns" and found.missing.any():
            hidden = _copied(found.missing, rows, rng)
        else:
            ratio = self.low + (self.high - self.low) * (rng.permutation(len(rows)) + rng.random(len(rows))) / len(rows)
            hidden = ~found.missing[rows] & (rng.random((len(rows), found.z.shape[1])) < ratio[:, None])
        start, missing = found.start(rows, hidden), hidden | found.missing[rows]
        inputs, target = (
            _inputs(start, missing, self._device),
            _floats(np.nan_to_num(found.z[rows]) - start, self._device),
        )
        counted = _floats(hidden, self._device)
        trained = [rng.permutation(np.flatnonzero(part[rows] != fold)) for part in division for fold in range(_FOLDS)]
        order = np.stack([np.resize(own, max(batch, min(map(len, trained)))) for own in trained])
        for first in range(0, order.shape[1] - batch + 1, batch):
            chosen = torch.from_numpy(order[:, first : first + batch]).to(self._device)
            yield inputs[chosen], target[chosen], counted[chosen]


@dataclass(frozen=True, eq=False)
class _CrossFitted:
    """A Gaussian of all rows, and one for each fold, of the other rows; with the shrinkage that is best for the folds.

    A table with fewer rows than :data:`_FEWEST` has no folds.
    """

    z: Float[np.ndarray, "n d"]
    missing: Bool[np.ndarray, "n d"]
    gaussian: GaussianConditionalMean
    of_folds: list[GaussianConditionalMean]
    fold: Int64[np.ndarray, " n"]
    checked: Int64[np.ndarray, " checked"]
    """Rows that shrinkage and correction are chosen on, several times each."""
    hidden: Bool[np.ndarray, "checked d"]
    """Their hidden entries, at the table's own share: those of the missing patterns of other rows."""

    @classmethod
    def of(cls, z: Float[np.ndarray, "n d"], key: Key) -> "_CrossFitted":
        """Fit all Gaussians."""
        (n, d), rng, fit = z.shape, np.random.default_rng(key.fold("folds").seed()), GaussianConditionalMean.fit_missing
        missing, fold, checked = (
            np.isnan(z),
            rng.permutation(n) % _FOLDS,
            np.tile(rng.permutation(n)[:_CHOSEN_ON], _DRAWS),
        )
        if missing.any():
            hidden = _copied(missing, checked, rng)
        else:
            hidden = rng.random((len(checked), d)) < rng.uniform(0.05, 0.95, (len(checked), 1))
        if n < _FEWEST:
            return cls(z, missing, fit(z), [], fold, checked, hidden)
        least, prior, some = np.inf, 1.0, np.isin(np.arange(n), checked)
        last: list[GaussianConditionalMean | None] = [None] * _FOLDS
        parts: list[GaussianConditionalMean] = []
        for one in _PRIORS:
            tried = [
                fit(z[some & (fold != number)], prior=one * d, tolerance=1e-2, start=start)
                for number, start in enumerate(last)
            ]
            made = _filled(z, missing, tried, fold, checked, hidden)
            error = float(np.square(made - z[checked], where=hidden, out=np.zeros(made.shape)).sum())
            if error < least:
                least, prior, parts = error, one, tried
            last = [*tried]
        if not some.all():
            parts = [fit(z[fold != number], prior=prior * d, start=part) for number, part in enumerate(parts)]
        return cls(z, missing, fit(z, prior=prior * d), parts, fold, checked, hidden)

    def start(
        self, rows: Int64[np.ndarray, " rows"], hidden: Bool[np.ndarray, "rows d"]
    ) -> Float[np.ndarray, "rows d"]:
        """Return rows whose hidden and missing entries are filled in by the Gaussian that was fitted without them."""
        return _filled(self.z, self.missing, self.of_folds, self.fold, rows, hidden)


def _filled(
    z: Float[np.ndarray, "n d"],
    missing: Bool[np.ndarray, "n d"],
    of_folds: list[GaussianConditionalMean],
    fold: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " rows"],
    hidden: Bool[np.ndarray, "rows d"],
) -> Float[np.ndarray, "rows d"]:
    filled = np.empty(hidden.shape)
    for number, gaussian in enumerate(of_folds):
        own = fold[rows] == number
        filled[own] = gaussian.fill(z[rows[own]], (hidden | missing[rows])[own])
    return filled


def _copied(
    missing: Bool[np.ndarray, "n d"], rows: Int64[np.ndarray, " rows"], rng: np.random.Generator
) -> Bool[np.ndarray, "rows d"]:
    """Return which observed entries of rows are missing in other rows, drawn from those that have missing entries."""
    donors = rng.choice(np.flatnonzero(missing.any(axis=1)), len(rows))
    return np.asarray(~missing[rows] & missing[donors])


@dataclass(frozen=True, eq=False)
class _Checks:
    """Masked rows, and for each network those that it is not trained on."""

    inputs: Float[Tensor, "checked inputs"]
    target: Float[Tensor, "checked d"]
    hidden: Float[Tensor, "checked d"]
    place: Int64[Tensor, "networks most"]
    """Where the rows of each network are, padded by repetition."""
    real: Bool[Tensor, "networks most"]

    @classmethod
    def of(cls, found: _CrossFitted, division: Int64[np.ndarray, "repeats n"], device: str) -> "_Checks":
        """Fill in the rows by the Gaussians."""
        start = found.start(found.checked, found.hidden)
        held = [np.flatnonzero(part[found.checked] == fold) for part in division for fold in range(_FOLDS)]
        most = max(map(len, held))
        place, real = (np.stack([np.resize(own, most) for own in held]), np.arange(most) < np.c_[[*map(len, held)]])
        return cls(
            _inputs(start, found.hidden | found.missing[found.checked], device),
            _floats(np.nan_to_num(found.z[found.checked]) - start, device),
            _floats(found.hidden, device),
            torch.from_numpy(place).to(device),
            torch.from_numpy(real).to(device),
        )

    @torch.no_grad()
    def errors(self, networks: "_Networks") -> Float[Tensor, "scales rows"]:
        """Return the squared error of each row for each scale of the correction; their mean is that of an entry."""
        found = networks(self.inputs[self.place]) * self.real[..., None] / _REPEATS
        out = torch.zeros_like(self.target).index_add_(0, self.place.flatten(), found.flatten(0, 1))
        squared = [((scale * out - self.target) ** 2 * self.hidden).sum(1) for scale in _SCALES]
        of_rows: Tensor = torch.stack(squared).reshape(len(_SCALES), _DRAWS, -1).sum(1)
        return of_rows.mul(of_rows.shape[1] / self.hidden.sum().clamp(min=1)).cpu()


class _Networks(nn.Module):
    """Networks with two hidden layers each, computed together; the last layer begins at zero.

    Takes and returns a batch for each network.
    """

    def __init__(self, count: int, features: int, hidden: int) -> None:
        super().__init__()
        self.count = count
        self.first = nn.Parameter(torch.randn(count, 2 * features, hidden) / (2 * features) ** 0.5)
        self.second = nn.Parameter(torch.randn(count, hidden, hidden) / hidden**0.5)
        self.last = nn.Parameter(torch.zeros(count, hidden, features))
        self.biases = nn.Parameter(torch.zeros(2, count, 1, hidden))
        self.mean = nn.Parameter(torch.zeros(count, 1, features))

    def forward(self, x: Float[Tensor, "count b inputs"]) -> Float[Tensor, "count b features"]:
        """Return the predictions of each network for its own batch."""
        for bias, weight in zip(self.biases, (self.first, self.second), strict=True):
            x = nn.functional.silu(nn.functional.layer_norm(torch.baddbmm(bias, x, weight), weight.shape[-1:]))
        return torch.baddbmm(self.mean, x, self.last)


def _inputs(
    filled: Float[np.ndarray, "n d"], missing: Bool[np.ndarray, "n d"], device: str
) -> Float[Tensor, "n inputs"]:
    return _floats(np.concatenate([filled, missing], axis=1), device)


def _floats(values: np.ndarray, device: str) -> Float[Tensor, "..."]:
    return torch.from_numpy(values.astype(np.float32)).to(device)


def _are_numbers(column: Any, kind: Any) -> bool:
    """Tell whether a column of a data frame can be read as numbers."""
    if kind.kind in "biuf":
        return True
    try:
        column.astype(float)
    except (TypeError, ValueError):
        return False
    return bool(kind.kind == "O")
