"""Logits at labels alone: the stock losses and gradients, for every masked language model; the model stays as it is."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaModel
from transformers.modeling_outputs import MaskedLMOutput

from r2mae.errors import UserError
from r2mae.integrations.transformers import hidden_logits
from stock_models import KINDS, SIZES, batch, gradients, stock


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_loss_and_gradients_are_the_stock_ones(kind: str, attention: str) -> None:
    model, inputs = stock(kind, "eager" if kind in ("Deberta", "DebertaV2", "MPNet") else attention), batch()
    expected = model(**inputs)
    expected.loss.backward()
    before, hooks = gradients(model), len(model.base_model._forward_hooks)
    model.zero_grad()
    logits, labels = hidden_logits(model, inputs)
    assert torch.equal(labels, inputs["labels"][inputs["labels"] != -100])
    torch.testing.assert_close(logits, expected.logits[inputs["labels"] != -100], rtol=1e-4, atol=1e-6)
    loss = cross_entropy(logits, labels)
    torch.testing.assert_close(loss, expected.loss, rtol=1e-6, atol=1e-6)
    loss.backward()
    after = gradients(model)
    assert after.keys() == before.keys()
    for name, grad in before.items():
        torch.testing.assert_close(after[name], grad, rtol=1e-4, atol=1e-7)
    assert len(model.base_model._forward_hooks) == hooks
    torch.testing.assert_close(model(**inputs).logits, expected.logits)


def test_accumulated_gradients_equal_those_of_one_large_batch() -> None:
    model, inputs = stock(), batch(6)
    cross_entropy(*hidden_logits(model, inputs)).backward()
    large = gradients(model)
    model.zero_grad()
    items = (inputs["labels"] != -100).sum()
    for part in (slice(0, 1), slice(1, 3), slice(3, 6)):
        logits, labels = hidden_logits(model, {name: value[part] for name, value in inputs.items()})
        (cross_entropy(logits, labels, reduction="sum") / items).backward()
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad, large[name], rtol=1e-4, atol=1e-7)


def test_stock_roberta_ignores_the_number_of_items() -> None:
    # Where this fails, transformers has mended it, and the documentation should say so.
    model, inputs = stock(), batch()
    assert model(**inputs, num_items_in_batch=10**6).loss.item() == model(**inputs).loss.item()


def test_a_batch_without_labels_has_no_logits() -> None:
    inputs = batch()
    logits, labels = hidden_logits(stock(), {**inputs, "labels": torch.full_like(inputs["labels"], -100)})
    assert logits.shape == (0, 61) and labels.shape == (0,)
    cross_entropy(logits, labels, reduction="sum").backward()


def test_an_error_leaves_no_hook() -> None:
    model, inputs = stock(), batch()
    with pytest.raises((IndexError, RuntimeError)):
        hidden_logits(model, {**inputs, "input_ids": torch.full_like(inputs["input_ids"], 10**6)})
    assert not model.base_model._forward_hooks


class Odd(RobertaForMaskedLM):
    """A head on other hidden states."""

    def forward(self, input_ids: Any = None, **others: Any) -> Any:
        hidden = self.roberta(input_ids, output_hidden_states=True).hidden_states[-1]
        return MaskedLMOutput(logits=self.lm_head(hidden))


def test_other_models_are_refused() -> None:
    inputs = batch()
    with pytest.raises(UserError, match="RobertaModel has no encoder below a head"):
        hidden_logits(RobertaModel(RobertaConfig(**SIZES)), inputs)
    with pytest.raises(UserError, match="Odd has a head that is not known here"):
        hidden_logits(Odd(RobertaConfig(**SIZES)), inputs)
