"""For ``transformers.Trainer``: random mask ratios for tokens, and for models that mask themselves."""

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.data.data_collator import pad_without_fast_tokenizer_warning
from transformers.trainer_utils import has_length

from r2mae.domains.masked_tokens import SHARES, Corruption, Units, hide_units, word_edges
from r2mae.errors import UserError, unknown
from r2mae.integrations.ratios import RatioGiven, RatioSetter, ratio_and_seed
from r2mae.masking.keys import Key
from r2mae.masking.masks import corrupt_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, TrainerState

__all__ = ["FixedMasks", "MaskCallback", "MaskCollator", "MaskRatioCallback", "hidden_logits"]

_IGNORED = -100
_REPEATED = (
    "MaskCollator received a batch again without a new epoch, and hides the same tokens as before: add "
    "callbacks=[MaskCallback(collator)] to the Trainer, or call collator.set_epoch(epoch) in your own loop"
)


class MaskCollator:
    """Pads a batch, hides tokens at a ratio drawn for it, and labels them: ``Trainer(..., data_collator=...)``.

    Ratio and masks are a function of (`seed`, epoch, the batch's tokens): they are the same for any number of workers,
    and after ``resume_from_checkpoint``. A collator knows neither the step nor the rank: processes that train together
    each draw a ratio of their own, and schedules over steps are refused. Special tokens and padding are never hidden,
    and never replace another token. Rows of :class:`FixedMasks` stay as they are.

    The epoch comes from :class:`MaskCallback` or :meth:`set_epoch`. Without either, a repeated batch has the same masks
    every time; if the order is not shuffled, these are all batches of every epoch. A warning is then given once.

    Parameters
    ----------
    tokenizer : transformers tokenizer
        Pads batches, and defines the mask token and the special tokens.
    ratio : MaskRatio, number, pair of numbers, or Ratio
        ``(0.15, 0.4)`` is R²MAE, as is ``MaskRatio("r2mae", low=0.15, high=0.4)``; 0.15 is the default of BERT.
    seed : int
        Seed of ratios and masks; a MaskRatio has its own.
    mask : {"tokens", "whole-word", "span"}
        What is hidden; words are told by the spelling of tokens in the vocabulary (``##``, ``▁``, ``Ġ``).
    corruption : {"80-10-10", "mask"}
        The replacement of a hidden token; see :class:`~r2mae.text.task.TokenTask`.
    pad_to_multiple_of : int, optional
        As in the stock collators.

    Raises
    ------
    UserError
        If the tokenizer has no mask token or no padding token, or the ratio depends on the step.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        ratio: RatioGiven,
        *,
        seed: int = 0,
        mask: Units = "tokens",
        corruption: Corruption = "80-10-10",
        pad_to_multiple_of: int | None = None,
    ) -> None:
        self.ratio, seed = ratio_and_seed(ratio, seed)
        if self.ratio.stratified_per_sample:
            raise UserError(
                "per-sample ratios need a loss with equal weight for each row, and Trainer's loss weights tokens "
                "equally: give Uniform(low, high), or train with `r2mae pretrain text --scheme r2mae-per-sample`"
            )
        if self.ratio.scheduled:
            raise UserError(
                f"{self.ratio} depends on the step, which a collator does not know: give a number, a Grid or an "
                "independent Uniform, or train with `r2mae pretrain text`"
            )
        if corruption not in SHARES:
            raise unknown("corruption", corruption, SHARES)
        if mask not in get_args(Units):
            raise unknown("mask", mask, get_args(Units))
        for kind in ("mask", "pad"):
            if getattr(tokenizer, f"{kind}_token_id") is None:
                raise UserError(
                    f"the tokenizer {tokenizer.name_or_path!r} has no {kind} token: add one with "
                    f"tokenizer.add_special_tokens({{'{kind}_token': '<{kind}>'}}), and make room for it: "
                    "model.resize_token_embeddings(len(tokenizer))"
                )
        self.tokenizer, self.seed = tokenizer, seed
        self.corruption: Corruption = corruption
        self.mask: Units = mask
        self._edges: Tensor | None = None
        if mask == "whole-word":
            self._edges = word_edges(tuple(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))))
        self.pad_to_multiple_of = pad_to_multiple_of
        self._special = torch.tensor(sorted({int(one) for one in tokenizer.all_special_ids}))
        self._ordinary = torch.from_numpy(np.setdiff1d(np.arange(len(tokenizer)), self._special.numpy()))
        # Shared with all workers, also persistent ones: epoch; whether it was set; digest of the first batch; whether
        # there was one; whether a repetition was warned of.
        self._shared = torch.zeros(5, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        """The epoch of the masks."""
        return int(self._shared[0])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the masks, also in worker processes."""
        self._shared[0], self._shared[1] = index(epoch), 1

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        """Return padded `input_ids` with hidden tokens, `labels` (−100 at other tokens), and the other fields.

        Parameters
        ----------
        examples : sequence
            Mappings with `input_ids` (and perhaps `attention_mask`, `special_tokens_mask`), or sequences of tokens.
            `labels` are replaced, except those of :class:`FixedMasks`.
        """
        rows = [dict(one) if isinstance(one, Mapping) else {"input_ids": one} for one in examples]
        known = [row.pop("labels", None) for row in rows]
        batch = self._pad(rows)
        clean = batch["input_ids"]
        special_rows = batch.pop("special_tokens_mask", None)
        fixed = torch.tensor([isinstance(labels, _FixedLabels) for labels in known])
        labels = self._fixed_labels(known, clean)
        if fixed.all():
            return {**batch, "labels": labels}
        special = torch.isin(clean, self._special) | fixed[:, None]
        if special_rows is not None:
            special |= special_rows.bool()
        if "attention_mask" in batch:
            special |= batch["attention_mask"] == 0
        key = self._key(clean)
        ratio = self.ratio.draw(0, key.fold("ratio"), len(clean))
        hidden = hide_units(clean, special, ratio, key.fold("mask"), self.mask, self._edges)
        batch["input_ids"] = corrupt_tokens(
            clean,
            hidden,
            key.fold("corruption"),
            mask_id=int(self.tokenizer.mask_token_id),
            vocabulary=self._ordinary,
            shares=SHARES[self.corruption],
        )
        batch["labels"] = torch.where(hidden, clean, labels)
        return batch

    def _pad(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        for row in rows:
            if "input_ids" not in row:
                raise UserError(
                    f"the examples have no input_ids but {', '.join(row) or 'nothing'}: tokenise the data set first"
                )
            row.update({name: value.tolist() for name, value in row.items() if isinstance(value, Tensor | np.ndarray)})
        padded = pad_without_fast_tokenizer_warning(  # type: ignore[no-untyped-call]
            self.tokenizer, rows, return_tensors="pt", pad_to_multiple_of=self.pad_to_multiple_of
        )
        return {**padded, "input_ids": padded["input_ids"].long()}

    def _fixed_labels(self, known: Sequence[Any], ids: Int64[Tensor, "batch length"]) -> Int64[Tensor, "batch length"]:
        """Return the labels of fixed rows, padded; −100 in other rows."""
        labels = torch.full_like(ids, _IGNORED)
        for row, given in zip(labels, known, strict=True):
            if isinstance(given, _FixedLabels):
                place = slice(-len(given), None) if self.tokenizer.padding_side == "left" else slice(len(given))
                row[place] = torch.tensor(given)
        return labels

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


class _FixedLabels(list[int]):
    """Labels of a row of :class:`FixedMasks`. The type marks them: ``Trainer`` would remove a column that did."""


class FixedMasks(torch.utils.data.Dataset[dict[str, Any]]):
    """An evaluation set whose rows have the same hidden tokens every time: ``Trainer(..., eval_dataset=...)``.

    ``Trainer`` has one collator for training and evaluation, so the masks are in the rows, and :class:`MaskCollator`
    and other collators that pad `labels` leave them as they are. The mask of a row depends on its tokens and the seed
    alone, not on the batch, the epoch or the ratios of training: every ``eval_loss`` is of the same task. Rows copied
    into another data set (``Dataset.from_list``) are ordinary rows to :class:`MaskCollator`, which masks them again.

    Parameters
    ----------
    rows : data set or sequence
        Tokenised rows, as :class:`MaskCollator` takes them. It has a length.
    tokenizer, ratio, **options
        As of :class:`MaskCollator`; a number makes all rows equally hard.

    Examples
    --------
    >>> Trainer(..., eval_dataset=FixedMasks(data, tokenizer, 0.15), data_collator=collator)  # doctest: +SKIP
    """

    def __init__(self, rows: Any, tokenizer: "PreTrainedTokenizerBase", ratio: RatioGiven, **options: Any) -> None:
        self.rows, self._mask = rows, MaskCollator(tokenizer, ratio, **options)
        self._mask.set_epoch(0)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return a row with `labels`, −100 at tokens that are not hidden."""
        row = {name: value[0].tolist() for name, value in self._mask([self.rows[index]]).items()}
        return {**row, "labels": _FixedLabels(row["labels"])}


class MaskCallback(TrainerCallback):
    """Sets the collator's epoch, so that every epoch has new masks.

    Parameters
    ----------
    collator : MaskCollator
        The collator that ``Trainer`` was given.

    Examples
    --------
    >>> collator = MaskCollator(tokenizer, Uniform(0.15, 0.4))  # doctest: +SKIP
    >>> Trainer(..., data_collator=collator, callbacks=[MaskCallback(collator)])  # doctest: +SKIP
    """

    def __init__(self, collator: MaskCollator) -> None:
        self.collator = collator
        self._epoch: int | None = None

    def on_train_begin(self, args: Any, state: "TrainerState", control: Any, **kwargs: Any) -> None:
        """Start counting epochs."""
        self._epoch = None

    def on_epoch_begin(self, args: Any, state: "TrainerState", control: Any, **kwargs: Any) -> None:
        """Set the collator's epoch, before the first batch is made.

        A resumed run starts in the epoch in which it was interrupted. If the data have no length, ``Trainer`` starts
        again with the first pass over them, and its epoch number lags behind the number of passes. Passes are
        therefore counted here.
        """
        if self._epoch is not None:
            self._epoch += 1
        else:
            loader = kwargs.get("train_dataloader")
            self._epoch = 0 if loader is not None and not has_length(loader) else math.floor((state.epoch or 0) + 1e-6)
        self.collator.set_epoch(self._epoch)


class MaskRatioCallback(TrainerCallback):
    """Set the mask ratio of a model such as ``ViTMAEForPreTraining`` for every optimiser step.

    Under accumulation all micro-batches of a step have the same ratio, and so have all processes. It is a function of
    seed and ``global_step``, so that a resumed training continues with the same ratios. Evaluation has the model's own
    ratio. The mean ratio of the steps is logged with their loss. ``Trainer`` tells its callbacks of no error: after
    one, or after Ctrl-C, the model has the ratio of that step, until :meth:`restore` is called or the same callback
    begins another training.

    Parameters
    ----------
    ratio : MaskRatio, number, pair or Ratio
        ``(0.5, 0.9)`` is R²MAE; ``MaskRatio("r2mae-dynamic", low=0.5, high=0.9, total_steps=1000)`` is another scheme.
    seed : int
        Of a MaskRatio it is its own.
    attribute : str
        Name of the ratio in the model's `config` or modules: ``mask_ratio`` of ViT-MAE and Hiera,
        ``random_mask_ratio`` of PatchTST.

    Examples
    --------
    >>> Trainer(model=ViTMAEForPreTraining(config), callbacks=[MaskRatioCallback((0.5, 0.9))])  # doctest: +SKIP
    """

    def __init__(self, ratio: RatioGiven, seed: int = 0, attribute: str = "mask_ratio") -> None:
        self.ratio = RatioSetter(ratio, seed, attribute)
        self._used: list[float] = []

    def on_train_begin(self, args: Any, state: "TrainerState", control: Any, **kwargs: Any) -> None:
        """Find the ratio of the model."""
        self._used = []
        self.ratio.begin(kwargs["model"], state.max_steps, "give TrainingArguments max_steps=")

    def on_step_begin(self, args: Any, state: "TrainerState", control: Any, **kwargs: Any) -> None:
        """Set the ratio of an optimiser step."""
        self._used.append(self.ratio.set(state.global_step))

    def on_step_end(self, args: Any, state: "TrainerState", control: Any, **kwargs: Any) -> None:
        """Set the model's own ratio: an evaluation or a saved model may follow."""
        self.ratio.restore()

    def restore(self) -> None:
        """Set the model's own ratio, for a notebook that goes on with the model after an error in training."""
        self.ratio.restore()

    def on_log(self, args: Any, state: "TrainerState", control: Any, **kwargs: Any) -> None:
        """Log the mean ratio."""
        if self._used and "loss" in (logs := kwargs["logs"]):
            logs[self.ratio.attribute] = float(np.mean(self._used))
            if state.log_history:
                state.log_history[-1] |= {self.ratio.attribute: logs[self.ratio.attribute]}
            self._used = []


def hidden_logits(
    model: nn.Module, inputs: Mapping[str, Tensor]
) -> tuple[Float[Tensor, "labels words"], Int[Tensor, " labels"]]:
    """Return the logits of a ``*ForMaskedLM`` at labels, and the labels there, for ``cross_entropy``.

    The encoder's last hidden states at labels are selected before the head is applied. Losses and gradients equal the
    stock ones. The model itself is not changed.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A model with an encoder (``model.base_model``) and a head on its last hidden states: RoBERTa, BERT, DistilBERT,
        ELECTRA, DeBERTa, ALBERT, MPNet, ModernBERT and others. It may be wrapped in DistributedDataParallel.
    inputs : mapping of str to tensor
        Arguments of its forward pass by name, with `labels`: −100 where there is no label.

    Raises
    ------
    UserError
        If the model has no encoder of its own, or a head that needs all hidden states.

    Examples
    --------
    >>> logits, labels = hidden_logits(model, batch)  # doctest: +SKIP
    >>> loss = cross_entropy(logits, labels)  # doctest: +SKIP
    """
    inner: Any = getattr(model, "module", model)
    encoder = getattr(inner, "base_model", inner)
    if encoder is inner:
        raise UserError(f"{type(inner).__name__} has no encoder below a head: give a model such as RobertaForMaskedLM")
    labelled = inputs["labels"] != _IGNORED

    def select(module: nn.Module, given: Any, output: Any) -> Any:
        output["last_hidden_state"] = output["last_hidden_state"][labelled][None]
        return output

    handle = encoder.register_forward_hook(select)
    try:
        others = {name: value for name, value in inputs.items() if name != "labels"}
        logits: Tensor = model(**others, return_dict=True).logits
    finally:
        handle.remove()
    labels = inputs["labels"][labelled]
    if logits.shape[:-1] != (1, len(labels)):
        raise UserError(f"{type(inner).__name__} has a head that is not known here: train it without hidden_logits")
    return logits[0], labels
