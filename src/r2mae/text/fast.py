"""Stock masked language models of transformers, with logits where labels are and nowhere else."""

import inspect
import threading
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from r2mae.errors import UserError

Model = TypeVar("Model", bound=nn.Module)
IGNORED = -100


def FastMaskedLM(model: Model, *, evaluation: bool = False) -> Model:  # noqa: N802  (named as what it makes)
    """Let a stock ``*ForMaskedLM`` compute logits where labels are, alone.

    The model itself is changed and returned: it stays of its class, trains under ``transformers.Trainer``, and is saved
    as before. The loss is the stock one. Under gradient accumulation ``Trainer`` passes ``num_items_in_batch``, which
    stock RoBERTa and BERT ignore, so that their gradients come out too large; here the loss is the sum over the labels
    divided by it, so that accumulated micro-batches equal one large batch. Without labels nothing changes.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        RoBERTa, BERT, DistilBERT, ELECTRA, DeBERTa, ALBERT, MPNet, ModernBERT and others that are made of an encoder
        (``model.base_model``) and a head on its last hidden states.
    evaluation : bool
        In evaluation mode, too. ``logits`` then have the shape (1, labels, vocabulary), which ``Trainer`` bears only
        without ``compute_metrics``.

    Returns
    -------
    transformers.PreTrainedModel
        `model`; in training its ``logits`` have the shape (1, labels, vocabulary), in the order of the labels.

    Raises
    ------
    UserError
        If the model has no labels or no encoder of its own.
    """
    changed: Any = model
    if not isinstance(changed, _LabelsOnly):
        kind: Any = type(model)
        if "labels" not in inspect.signature(kind.forward).parameters:
            raise UserError(f"{kind.__name__} takes no labels: give a model such as RobertaForMaskedLM")
        if model.base_model is model:
            raise UserError(f"{kind.__name__} is an encoder without a head: give a model such as RobertaForMaskedLM")
        changed.base_model.register_forward_hook(_Selection())
        changed.__class__ = _fast_kind(kind)
    changed._fast_evaluation = evaluation
    return model


def stock_again(model: Model) -> Model:
    """Undo :func:`FastMaskedLM`; the model itself is changed and returned."""
    changed: Any = model
    if isinstance(changed, _LabelsOnly):
        hooks = changed.base_model._forward_hooks
        for number in [number for number, hook in hooks.items() if isinstance(hook, _Selection)]:
            del hooks[number]
        del changed._fast_evaluation
        changed.__class__ = _stock_kind(type(changed))
    return model


class _Selection:
    """Picks, out of an encoder's last hidden states, those of the forward pass under way in this thread."""

    def __init__(self) -> None:
        self.places: dict[int, Tensor] = {}  # by thread, since DataParallel runs copies that share this object

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> Any:
        places = self.places.get(threading.get_ident())
        if places is None:
            return output
        states = output[0].flatten(0, 1).index_select(0, places.to(output[0].device))[None]
        if isinstance(output, tuple):
            return (states, *output[1:])
        output["last_hidden_state"] = states
        return output


class _LabelsOnly:
    """The forward pass that is put before the stock one."""

    accepts_loss_kwargs = True  # Trainer asks, and then passes num_items_in_batch
    _fast_evaluation: bool
    training: bool
    base_model: Any

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the stock forward pass on the states that have labels."""
        items = kwargs.pop("num_items_in_batch", None)
        if args:
            bound = inspect.signature(super().forward).bind(*args, **kwargs)  # type: ignore[misc]
            extra = bound.arguments.pop("kwargs", {})
            args, kwargs = (), {**bound.arguments, **extra}
        labels = kwargs.get("labels")
        if labels is None:
            return super().forward(**kwargs)  # type: ignore[misc]
        places = (labels.flatten() != IGNORED).nonzero()[:, 0]
        if not (self.training or self._fast_evaluation):
            return _scaled(super().forward(**kwargs), len(places), items)  # type: ignore[misc]
        selection = next(hook for hook in self.base_model._forward_hooks.values() if isinstance(hook, _Selection))
        kwargs["labels"] = labels.flatten()[places][None]
        thread = threading.get_ident()
        selection.places[thread] = places
        try:
            output = super().forward(**kwargs)  # type: ignore[misc]
        finally:
            del selection.places[thread]
        if _logits(output).shape[:-1] != kwargs["labels"].shape:
            name = type(self).__name__
            raise UserError(f"{name} has a head that FastMaskedLM does not know: train the stock model, unchanged")
        return _scaled(output, len(places), items)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copy and pickle by the stock class, since this one has no name to be found by."""
        return _rebuild, (_stock_kind(type(self)),), self.__dict__


@cache
def _fast_kind(kind: type) -> type:
    """Make the class of fast models of a kind; Trainer and save_pretrained read its name and signature."""
    fast = type(kind.__name__, (_LabelsOnly, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _LabelsOnly.forward(self, *args, **kwargs)

    forward.__signature__ = inspect.signature(kind.forward)  # type: ignore[attr-defined]
    fast.forward = forward  # type: ignore[attr-defined]
    return fast


def _stock_kind(fast: type) -> type:
    return fast.__mro__[2]


def _rebuild(kind: type) -> Any:
    return object.__new__(_fast_kind(kind))


def _logits(output: Any) -> Tensor:
    logits: Tensor = output[1] if isinstance(output, tuple) else output.logits
    return logits


def _scaled(output: Any, count: int, items: Tensor | int | None) -> Any:
    """Turn the mean over `count` labels into their sum over `items`; no label at all is a loss of 0, not NaN."""
    loss = output[0] if isinstance(output, tuple) else output.loss
    if count == 0:
        loss = _logits(output).sum() * 0.0
    elif items is not None:
        if isinstance(items, Tensor):
            items = items.reshape(-1)[0].to(loss.device)
        loss = loss * (torch.as_tensor(count, device=loss.device) / items)
    if isinstance(output, tuple):
        return (loss, *output[1:])
    output["loss"] = loss
    return output
