"""`MaskedAutoencoderImputer` fills in missing entries of a table, in the manner of scikit-learn's imputers."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.masking.keys import Key, permutation
from r2mae.masking.masks import element_mask
from r2mae.masking.ratios import Uniform

if TYPE_CHECKING:
    from typing import Self

_ROWS_AT_ONCE = 4096
_VALIDATION = 0.1  # share of the rows whose error decides when training stops
_FEWEST = 20  # rows of a table, to have such rows
_PATIENCE = 20  # passes without a lower validation error after which training stops
_WEIGHT_DECAY = 1e-4


class MaskedAutoencoderImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill in NaN by a masked autoencoder that is trained on the table itself.

    In training each row hides a further share of its observed entries, p ~ U(low, high), and the network predicts
    these. The shares of a mini-batch divide the range (`r2mae-per-sample`). Features are standardised. A missing or
    hidden entry is zero, and the network also gets the mask. Training stops after 20
    passes without a lower error in a tenth of the rows, and the best weights are kept.

    Compare it with :class:`~sklearn.impute.IterativeImputer` and :class:`~sklearn.impute.KNNImputer`: which one is best
    depends on the table.

    Parameters
    ----------
    low, high : float
        Range of the hidden share, between 0 and 1.
    hidden : int
        Width of the two hidden layers.
    max_epochs : int
        Most passes over the rows.
    min_steps : int
        Fewest optimiser steps, also if `max_epochs` are over: small tables need many passes.
    batch_size : int
    learning_rate : float
        Of AdamW.
    random_state : int, RandomState or None
        Seed of weights, order and masks; None draws one.
    device : str
        Device of torch.

    Attributes
    ----------
    mean_, scale_ : array (d,)
        Mean and standard deviation of the observed entries.
    n_epochs_ : int
        Number of passes.
    validation_error_ : float
        Lowest mean squared error of hidden standardised entries; NaN for tables of less than 20 rows, which have no
        validation.
    network_ : torch.nn.Module

    Examples
    --------
    >>> import numpy as np
    >>> table = np.random.default_rng(0).normal(size=(200, 3)) @ np.ones((3, 4))
    >>> table[::3, 1] = np.nan
    >>> filled = MaskedAutoencoderImputer(min_steps=20, max_epochs=1).fit_transform(table)
    >>> bool(np.isnan(filled).any())
    False
    """

    def __init__(
        self,
        low: float = 0.05,
        high: float = 0.95,
        *,
        hidden: int = 256,
        max_epochs: int = 200,
        min_steps: int = 1000,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.low = low
        self.high = high
        self.hidden = hidden
        self.max_epochs = max_epochs
        self.min_steps = min_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.device = device

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: NaN are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> "Self":
        """Train the network on a table.

        Parameters
        ----------
        X : array (n, d)
            Missing entries are NaN.
        y : ignored

        Raises
        ------
        UserError
            For a range outside of 0 to 1, another option that is out of range, or a column without any observed entry.
        """
        if self.batch_size < 1:
            raise UserError(f"batch_size must be 1 or more, not {self.batch_size}")
        if not 0 <= self.low <= self.high <= 1:
            raise UserError(f"low and high must be 0 <= low <= high <= 1, not {self.low:g} and {self.high:g}")
        x = np.asarray(
            validate_data(
                self, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2, ensure_min_features=2
            )
        )
        seen = ~np.isnan(x)
        if not seen.any(axis=0).all():
            empty = int(np.argmin(seen.any(axis=0)))
            raise UserError(f"column {empty} has no observed entry: drop it, or give rows that have it")
        self.mean_ = np.nanmean(x, axis=0)
        spread = np.nanstd(x, axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        state = self.random_state
        key = Key.root(int(state) if isinstance(state, int) else int(check_random_state(state).randint(2**31 - 1)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.fold("weights").seed())
            self.network_ = _network(x.shape[1], self.hidden).to(self.device)
        self._train(*self._standardised(x), key)
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "n d"]:
        """Return the table with predictions in the place of NaN; observed entries stay as they are."""
        check_is_fitted(self)
        x = np.asarray(validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"))
        missing = np.isnan(x)
        if not missing.any():
            return x.copy()
        values, seen = self._standardised(x)
        self.network_.eval()
        with torch.no_grad():
            places = [slice(first, first + _ROWS_AT_ONCE) for first in range(0, len(x), _ROWS_AT_ONCE)]
            predicted = [self._predict(values[rows], seen[rows]) for rows in places]
        filled = torch.cat(predicted).cpu().double().numpy() * self.scale_ + self.mean_
        return np.where(missing, filled, x)

    def _standardised(self, x: Float[np.ndarray, "n d"]) -> tuple[Float[Tensor, "n d"], Bool[Tensor, "n d"]]:
        """Return standardised values, zero where nothing is observed, and what is observed."""
        values = torch.from_numpy(np.nan_to_num((x - self.mean_) / self.scale_)).float()
        return values.to(self.device), torch.from_numpy(~np.isnan(x)).to(self.device)

    def _predict(self, values: Float[Tensor, "b d"], seen: Bool[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        out: Tensor = self.network_(torch.cat([values * seen, ~seen], dim=1))
        return out

    def _error(self, values: Float[Tensor, "b d"], seen: Bool[Tensor, "b d"], step: int, key: Key) -> Float[Tensor, ""]:
        """Hide observed entries and return their mean squared error; each row has the same weight."""
        ratio = Uniform(self.low, self.high, "stratified", "sample").draw(step, key, len(values))
        hidden = element_mask(tuple(values.shape), ratio, key.fold("mask", step), device=values.device) & seen
        squared = (self._predict(values, seen & ~hidden) - values) ** 2 * hidden
        rows = hidden.sum(1)
        return (squared.sum(1) / rows.clamp(min=1)).sum() / (rows > 0).sum().clamp(min=1)

    def _train(self, values: Float[Tensor, "n d"], seen: Bool[Tensor, "n d"], key: Key) -> None:
        """Train until the validation error stops falling."""
        order = torch.from_numpy(permutation(key.fold("validation"), len(values))).to(values.device)
        held = round(_VALIDATION * len(order)) if len(order) >= _FEWEST else 0
        checked, rows = order[:held], order[held:]
        optimizer = torch.optim.AdamW(self.network_.parameters(), self.learning_rate, weight_decay=_WEIGHT_DECAY)
        best, best_epoch, kept = float("inf"), 0, None
        step = epoch = 0
        while epoch < self.max_epochs or step < self.min_steps:
            self.network_.train()
            drawn = torch.from_numpy(permutation(key.fold("order", epoch), len(rows))).to(values.device)
            for first in range(0, len(rows), self.batch_size):
                chosen = rows[drawn[first : first + self.batch_size]]
                loss = self._error(values[chosen], seen[chosen], step, key)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                step += 1
            epoch += 1
            if held:
                self.network_.eval()
                with torch.no_grad():
                    error = float(self._error(values[checked], seen[checked], 0, key.fold("validation masks")))
                if error < best:
                    best, best_epoch = error, epoch
                    kept = {name: value.clone() for name, value in self.network_.state_dict().items()}
                elif epoch - best_epoch >= _PATIENCE and step >= self.min_steps:
                    break
        if kept is not None:
            self.network_.load_state_dict(kept)
        self.n_epochs_, self.validation_error_ = epoch, best if held else float("nan")


def _network(features: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(2 * features, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, features),
    )
