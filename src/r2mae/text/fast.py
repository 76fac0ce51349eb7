"""Stock masked language models of transformers that compute what the loss sees, and nowhere else."""

import inspect
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from r2mae.errors import UserError
from r2mae.text.kernels import summed_cross_entropy
from r2mae.text.layers import ATTENTIONS, NarrowAttention, QuickDropout, Selection, Wanted, hooked
from r2mae.text.swapping import Swapped, swap, unswap

Model = TypeVar("Model", bound=nn.Module)
IGNORED = -100
_NAMES = ("ForMaskedLM", "FlaubertWithLMHeadModel", "XLMWithLMHeadModel")  # of masked language models
# Models whose loss is the mean cross entropy over labels of what their head makes of the last hidden states.
_PLAIN = (
    "BertForMaskedLM",
    "RobertaForMaskedLM",
    "XLMRobertaForMaskedLM",
    "CamembertForMaskedLM",
    "ElectraForMaskedLM",
)


def fast_masked_lm(model: Model, *, evaluation: bool | None = None) -> Model:
    """Let a stock ``*ForMaskedLM`` compute logits where labels are, alone.

    The model itself is changed and returned: it stays of its class, trains under ``transformers.Trainer``, and is saved
    as before. The loss is the stock one. Under gradient accumulation ``Trainer`` passes ``num_items_in_batch``, which
    stock RoBERTa and BERT ignore, so that their gradients come out too large; here the loss is the sum over the labels
    divided by it, so that accumulated micro-batches equal one large batch. Without labels nothing changes.

    RoBERTa, XLM-RoBERTa, CamemBERT, BERT and ELECTRA also compute their last layer at labels alone. On a CPU dropout
    takes a fraction of its usual time (a tenth becomes 0.100006), in these five within attention, too.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        RoBERTa, BERT, DistilBERT, ELECTRA, DeBERTa, ALBERT, MPNet, ModernBERT and others that are made of an encoder
        (``model.base_model``) and a head on its last hidden states.
    evaluation : bool, optional
        In evaluation mode, too; by default not, or as it was. ``logits`` then have the shape (1, labels, vocabulary),
        which ``Trainer`` bears only without ``compute_metrics``.

    Returns
    -------
    transformers.PreTrainedModel
        `model`; in training its ``logits`` have the shape (1, labels, vocabulary), in the order of the labels.

    Raises
    ------
    UserError
        If it is no masked language model, or has no encoder of its own.
    """
    changed: Any = model
    if not isinstance(changed, _LabelsOnly):
        kind: Any = type(model)
        if not any(base.__name__.endswith(_NAMES) for base in kind.__mro__):
            raise UserError(f"{kind.__name__} is no masked language model: give a model such as RobertaForMaskedLM")
        if model.base_model is model:
            raise UserError(f"{kind.__name__} is an encoder without a head: give a model such as RobertaForMaskedLM")
        _quicken(changed)
        changed._fast_evaluation = False
    if evaluation is not None:
        changed._fast_evaluation = evaluation
    return model


FastMaskedLM = fast_masked_lm
"""The same function under its first name."""


def stock_again(model: Model) -> Model:
    """Undo :func:`fast_masked_lm`; the model itself is changed and returned."""
    changed: Any = model
    if isinstance(changed, _LabelsOnly):
        changed._hook.remove()
        del changed._fast_evaluation, changed._selection, changed._hook
        for module in model.modules():
            for name in ("selection", "last") if isinstance(module, Swapped) else ():
                module.__dict__.pop(name, None)
            unswap(module)
    return model


def _quicken(model: Any) -> None:
    selection = Selection()
    for module in list(model.modules()):
        if type(module) is nn.Dropout:
            swap(module, QuickDropout)
    if _is_known(model):
        attentions = [one for one in model.base_model.modules() if type(one).__name__ in ATTENTIONS]
        for attention in attentions:
            swap(attention, NarrowAttention)
            attention.selection, attention.last = selection, attention is attentions[-1]
    swap(model, _LabelsOnly)
    model._selection = selection
    model._hook = model.base_model.register_forward_hook(selection)


def _is_known(model: Any) -> bool:
    """Whether a plain model's encoder is a stock one as well, so that its last layer is the end of it."""
    encoder = model.base_model
    if not _is_plain(type(model)) or hooked(encoder):
        return False
    parts = (encoder, encoder.embeddings, encoder.encoder, *encoder.encoder.layer)
    return all(_is_stock(type(one)) and not hooked(one) for one in parts)


def _is_plain(kind: type) -> bool:
    return kind.__name__ in _PLAIN and _is_stock(kind)


def _is_stock(kind: type) -> bool:
    return kind.__module__.startswith("transformers.models.")


class _LabelsOnly(Swapped):
    """The forward pass that is put before the stock one."""

    accepts_loss_kwargs = True  # Trainer asks, and then passes num_items_in_batch
    _fast_evaluation: bool
    _selection: Selection
    _hook: RemovableHandle
    training: bool
    base_model: Any
    config: Any

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
        if not (self.training or self._fast_evaluation):
            return _scaled(super().forward(**kwargs), int((labels != IGNORED).sum()), items)  # type: ignore[misc]
        plain = _is_plain(self.stock_class)
        wanted = Wanted.of(labels != IGNORED, narrow=plain and self._may_narrow(kwargs))
        targets = labels.flatten()[wanted.places]
        kwargs["labels"] = None if plain else targets[None]
        with self._selection.wanting(wanted):
            output = super().forward(**kwargs)  # type: ignore[misc]
        if _logits(output, with_loss=not plain).shape[:-1] != (1, len(targets)):
            name = type(self).__name__
            raise UserError(f"{name} has a head that is not known here: train the stock model, unchanged")
        return _with_loss(output, targets, items) if plain else _scaled(output, len(targets), items)

    def _may_narrow(self, options: dict[str, Any]) -> bool:
        """Whether the labelled tokens' last states are all that is asked for, and layers are not run a second time."""
        asked = [options.get(f"output_{name}") for name in ("hidden_states", "attentions")]
        asked += [self.config.output_hidden_states, self.config.output_attentions]
        return not any(asked) and not any(_is_run_again(module) for module in self.base_model.modules())


def _is_run_again(module: nn.Module) -> bool:
    """Whether a module is a checkpoint, of transformers or torch: in the backward pass nothing is known of labels."""
    return bool(getattr(module, "gradient_checkpointing", False)) or type(module).__name__ == "CheckpointWrapper"


def _logits(output: Any, *, with_loss: bool = True) -> Tensor:
    logits: Tensor = output[int(with_loss)] if isinstance(output, tuple) else output.logits
    return logits


def _with_loss(output: Any, targets: Tensor, items: Tensor | int | None) -> Any:
    """Add the sum of the cross entropies over `items`, by default their mean, to an output that has no loss."""
    logits = _logits(output, with_loss=False)
    if not len(targets):
        loss = logits.sum() * 0.0
    else:
        count = len(targets) if items is None else _number(items, targets.device)
        loss = summed_cross_entropy(logits.flatten(0, 1), targets, 1 / count)
    if isinstance(output, tuple):
        return (loss, *output)
    output["loss"] = loss
    output.move_to_end("loss", last=False)
    return output


def _scaled(output: Any, count: int, items: Tensor | int | None) -> Any:
    """Turn the mean over `count` labels into their sum over `items`; no label at all is a loss of 0, not NaN."""
    loss = output[0] if isinstance(output, tuple) else output.loss
    if count == 0:
        loss = _logits(output).sum() * 0.0
    elif items is not None:
        loss = loss * (torch.as_tensor(count, device=loss.device) / _number(items, loss.device))
    if isinstance(output, tuple):
        return (loss, *output[1:])
    output["loss"] = loss
    return output


def _number(items: Tensor | int, device: torch.device) -> Tensor | int:
    return items.reshape(-1)[0].to(device) if isinstance(items, Tensor) else items
