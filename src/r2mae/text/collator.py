"""Reproducible masks for ``transformers.Trainer`` and other loaders, keyed by seed, epoch and batch."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from r2mae.errors import UserError, unknown
from r2mae.masking.keys import Key
from r2mae.masking.masks import corrupt_tokens, token_mask
from r2mae.masking.ratios import Ratio, as_ratio, draw, is_scheduled, is_stratified_per_sample
from r2mae.text.task import special_tokens
from r2mae.training.masked_tokens import SHARES, Corruption

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
_SLOTS = 257  # the training process, and up to 256 workers
_REPEATED = (
    "MaskCollator received a batch again without a new epoch, and hides the same tokens as before: add "
    "callbacks=[MaskCallback(collator)] to the Trainer, or call collator.set_epoch(epoch) in your own loop"
)


class MaskCollator:
    """Pads a batch, hides tokens at a ratio drawn for it, and labels them: ``Trainer(..., data_collator=...)``.

    Ratio and masks are a function of (`seed`, epoch, the batch's tokens): they are the same for any number of workers,
    and after ``resume_from_checkpoint``. A collator knows neither the step nor the rank: processes that train together
    each draw a ratio of their own, and schedules over steps are refused. Special tokens and padding are never hidden,
    and never replace another token.

    The epoch comes from :class:`~r2mae.text.callback.MaskCallback` or :meth:`set_epoch`. Without either, a repeated
    batch has the same masks every time; if the order is not shuffled, these are all batches of every epoch. A warning
    is then given once.

    Parameters
    ----------
    tokenizer : transformers tokenizer
        Pads batches, and defines the mask token and the special tokens.
    ratio : float, pair of floats, or ratio
        ``Uniform(0.15, 0.4)`` (or ``(0.15, 0.4)``) is R²MAE; 0.15 is the default of BERT. Also ``Grid``.
    seed : int
        Seed of ratios and masks.
    corruption : {"80-10-10", "mask"}
        The replacement of a hidden token; see :class:`~r2mae.text.task.TokenTask`.
    exact : bool
        Hide the rounded count of each row's ordinary tokens, instead of each token independently.
    pad_to_multiple_of : int, optional
        As in the stock collators.

    Raises
    ------
    UserError
        If the tokenizer has no mask token, or the ratio depends on the step.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        ratio: float | Sequence[float] | Ratio,
        *,
        seed: int = 0,
        corruption: Corruption = "80-10-10",
        exact: bool = True,
        pad_to_multiple_of: int | None = None,
    ) -> None:
        try:
            self.ratio = as_ratio(ratio)
        except ValueError as error:
            raise UserError(str(error)) from None
        if is_stratified_per_sample(self.ratio):
            raise UserError(
                "per-sample ratios need a loss with equal weight for each row, and Trainer's loss weights tokens "
                "equally: give Uniform(low, high), or train with `r2mae pretrain text --scheme r2mae-per-sample`"
            )
        if is_scheduled(self.ratio):
            raise UserError(
                f"{self.ratio} depends on the step, which a collator does not know: give a number, a Grid or an "
                "independent Uniform, or train with `r2mae pretrain text`"
            )
        if corruption not in SHARES:
            raise unknown("corruption", corruption, SHARES)
        if tokenizer.mask_token_id is None:
            raise UserError(
                f"the tokenizer {tokenizer.name_or_path!r} has no mask token: add one with "
                "tokenizer.add_special_tokens({'mask_token': '<mask>'})"
            )
        self.tokenizer, self.seed, self.exact = tokenizer, seed, exact
        self.corruption: Corruption = corruption
        self.pad_to_multiple_of = pad_to_multiple_of
        special = {int(one) for one in tokenizer.all_special_ids}
        self.special_ids = tuple(sorted(special))
        self._ordinary = torch.from_numpy(np.setdiff1d(np.arange(len(tokenizer)), self.special_ids))
        # Shared with all workers, also persistent ones: epoch; whether it was set; digest of the first batch; whether
        # there was one; whether a repetition was warned of.
        self._shared = torch.zeros(5, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        ratios = torch.zeros(_SLOTS, 3, dtype=torch.float64)  # sum, count and last of each process
        self._ratios = ratios.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        """The epoch of the masks."""
        return int(self._shared[0])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the masks, also in worker processes."""
        self._shared[0], self._shared[1] = epoch, 1

    def frozen(self, ratio: float | Sequence[float] | Ratio | None = None) -> "MaskCollator":
        """Return a collator for evaluation: a batch has the same masks in every epoch.

        Parameters
        ----------
        ratio : float, pair of floats, or ratio, optional
            By default the ratio of training. With a number, all losses are of the same task.
        """
        made = MaskCollator(
            self.tokenizer,
            self.ratio if ratio is None else ratio,
            seed=self.seed,
            corruption=self.corruption,
            exact=self.exact,
            pad_to_multiple_of=self.pad_to_multiple_of,
        )
        made.set_epoch(0)  # a set epoch gives no warning of repetitions
        return made

    def take_mean_ratio(self) -> float | None:
        """Return the mean of the ratios drawn since the last call, over all workers; None if there were none."""
        total, count, _ = self._ratios.sum(0).tolist()
        self._ratios.zero_()
        return total / count if count else None

    def forget_skipped(self) -> None:
        """Omit the batches that a resumed run makes and skips from the mean ratio; with workers, all batches so far."""
        last = float(self._ratios[0, 2]) if self._ratios[0, 1] else None
        self._ratios.zero_()
        if last is not None:
            self._ratios[0] = torch.tensor([last, 1, last], dtype=torch.float64)

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        """Return padded `input_ids` with hidden tokens, `labels` (−100 at other tokens), and the other fields.

        Parameters
        ----------
        examples : sequence
            Mappings with `input_ids` (and perhaps `attention_mask`, `special_tokens_mask`), or sequences of tokens.
        """
        batch = self._pad(examples)
        clean = batch["input_ids"]
        given = batch.pop("special_tokens_mask", None)
        special = special_tokens(clean, self.special_ids)
        if given is not None:
            special |= given.bool()
        if "attention_mask" in batch:
            special |= batch["attention_mask"] == 0
        key = self._key(clean)
        ratio = draw(self.ratio, 0, key.fold("ratio"), len(clean))
        self._record_ratio(float(np.mean(ratio)))
        hidden = token_mask(special, ratio, key.fold("mask"), exact=self.exact)
        batch["input_ids"] = corrupt_tokens(
            clean,
            hidden,
            key.fold("corruption"),
            mask_id=int(self.tokenizer.mask_token_id),
            vocabulary=self._ordinary,
            shares=SHARES[self.corruption],
        )
        batch["labels"] = clean.masked_fill(~hidden, IGNORED)
        return batch

    def _pad(self, examples: Sequence[Any]) -> dict[str, Any]:
        from transformers.data.data_collator import pad_without_fast_tokenizer_warning

        rows = [dict(one) if isinstance(one, Mapping) else {"input_ids": one} for one in examples]
        for row in rows:
            row.pop("labels", None)
            if "input_ids" not in row:
                raise UserError(
                    f"the examples have no input_ids but {', '.join(row) or 'nothing'}: tokenise the data set first"
                )
            row.update({name: value.tolist() for name, value in row.items() if isinstance(value, Tensor | np.ndarray)})
        lacking = self.tokenizer.pad_token is None
        if lacking and (self.pad_to_multiple_of or len({len(row["input_ids"]) for row in rows}) > 1):
            raise UserError(
                f"the tokenizer {self.tokenizer.name_or_path!r} has no padding token and the rows differ in length: "
                "set tokenizer.pad_token, or cut the text into equal rows"
            )
        padded = pad_without_fast_tokenizer_warning(  # type: ignore[no-untyped-call]
            self.tokenizer,
            rows,
            padding=not lacking,
            return_tensors="pt",
            pad_to_multiple_of=self.pad_to_multiple_of,
        )
        return {**padded, "input_ids": padded["input_ids"].long()}

    def _key(self, clean: Int64[Tensor, "batch length"]) -> Key:
        digest = hashlib.blake2b(np.ascontiguousarray(clean.numpy()).tobytes(), digest_size=8)
        digest.update(str(tuple(clean.shape)).encode())
        mark = int.from_bytes(digest.digest(), "little") >> 1
        self._warn_of_repetition(mark)
        return Key.root(self.seed).fold("collator", self.epoch, mark)

    def _warn_of_repetition(self, mark: int) -> None:
        _, epoch_set, first, seen, warned = self._shared.tolist()
        if not seen:
            self._shared[2], self._shared[3] = mark, 1
        elif mark == first and not epoch_set and not warned:
            self._shared[4] = 1
            warnings.warn(_REPEATED, stacklevel=4)

    def _record_ratio(self, ratio: float) -> None:
        worker = torch.utils.data.get_worker_info()
        slot = self._ratios[0 if worker is None else 1 + worker.id % (_SLOTS - 1)]
        slot[0] += ratio
        slot[1] += 1
        slot[2] = ratio
