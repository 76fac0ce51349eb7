"""Logits of stock masked language models of transformers at labels alone, where the loss needs them."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.text.collator import IGNORED


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
    labelled = inputs["labels"] != IGNORED

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
