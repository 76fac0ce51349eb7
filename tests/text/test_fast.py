"""Stock models made fast: the stock losses and gradients, copies, files, what is refused."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
import transformers
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaModel

from r2mae.errors import UserError
from r2mae.text.fast import fast_masked_lm, stock_again
from stock_models import FIVE, KINDS, SIZES, batch, gradients, same_as_stock, stock


@pytest.mark.parametrize(
    ("kind", "attention"), [*((kind, "eager") for kind in KINDS), *((kind, "sdpa") for kind in FIVE)]
)
def test_loss_and_gradients_are_the_stock_ones(kind: str, attention: str) -> None:
    model, inputs = stock(kind, attention), batch()
    expected = model(**inputs).logits
    found = same_as_stock(model, inputs)
    assert fast_masked_lm(model) is model
    assert isinstance(model, getattr(transformers, f"{kind}ForMaskedLM"))
    # What is computed is as many logits as there are labels, in their order.
    torch.testing.assert_close(found.logits[0], expected[inputs["labels"] != -100], rtol=1e-4, atol=1e-6)


def test_accumulated_gradients_equal_those_of_one_large_batch() -> None:
    model, inputs = fast_masked_lm(stock()), batch(6)
    model(**inputs).loss.backward()
    large = gradients(model)
    model.zero_grad()
    items = (inputs["labels"] != -100).sum()
    total = 0.0
    for part in (slice(0, 1), slice(1, 3), slice(3, 6)):
        loss = model(**{name: value[part] for name, value in inputs.items()}, num_items_in_batch=items).loss
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(model(**inputs).loss.item(), rel=1e-5)
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad, large[name], rtol=1e-4, atol=1e-7)


def test_stock_roberta_ignores_the_number_of_items() -> None:
    # The reason for the scaling: where this fails, transformers has mended it, and the documentation should say so.
    model, inputs = stock(), batch()
    assert model(**inputs, num_items_in_batch=10**6).loss.item() == model(**inputs).loss.item()


def test_evaluation_has_all_logits_unless_asked() -> None:
    model, inputs = fast_masked_lm(stock()).eval(), batch()
    whole = model(**inputs)
    assert whole.logits.shape == (4, 12, 61)
    fast_masked_lm(model, evaluation=True)
    few = model(**inputs)
    assert few.logits.shape == (1, int((inputs["labels"] != -100).sum()), 61)
    torch.testing.assert_close(few.loss, whole.loss)
    del inputs["labels"]
    assert model.train()(**inputs).logits.shape == (4, 12, 61)


def test_labels_may_come_by_place_and_outputs_as_tuples() -> None:
    model, inputs = fast_masked_lm(stock()), batch()
    expected = model(**inputs).loss
    none = [None] * 5
    by_place = model(inputs["input_ids"], inputs["attention_mask"], *none, inputs["labels"])
    torch.testing.assert_close(by_place.loss, expected)
    for kind in ("Roberta", "Deberta"):
        model = fast_masked_lm(stock(kind))
        as_tuple = model(**inputs, return_dict=False)
        assert isinstance(as_tuple, tuple)
        torch.testing.assert_close(as_tuple[0], model(**inputs).loss)


def test_no_labels_in_a_batch_is_a_loss_of_zero() -> None:
    model, inputs = fast_masked_lm(stock()), batch()
    loss = model(**{**inputs, "labels": torch.full_like(inputs["labels"], -100)}).loss
    loss.backward()
    assert loss.item() == 0
    assert all(bool((grad == 0).all()) for grad in gradients(model).values())


def test_restored_it_is_the_stock_model() -> None:
    model, inputs = stock(), batch()
    kind, expected = type(model), model(**inputs).logits
    assert stock_again(fast_masked_lm(fast_masked_lm(model))) is model
    assert type(model) is kind
    assert not model.base_model._forward_hooks
    assert torch.equal(model(**inputs).logits, expected)
    assert stock_again(model) is model


def test_copies_are_fast_and_their_own() -> None:
    model, inputs = fast_masked_lm(stock()), batch()
    expected = model(**inputs).loss
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin(**inputs).logits.shape[0] == 1
        torch.testing.assert_close(twin(**inputs).loss, expected)
        with torch.no_grad():
            twin.lm_head.bias.fill_(3.0)
        torch.testing.assert_close(model(**inputs).loss, expected)
        assert stock_again(twin)(**inputs).logits.shape[0] == 4, "its own hook is taken away"
        torch.testing.assert_close(model(**inputs).loss, expected)


def test_the_first_name_is_the_same_function() -> None:
    import r2mae.text

    assert r2mae.text.FastMaskedLM is r2mae.text.fast_masked_lm is fast_masked_lm


def test_saved_it_opens_as_the_stock_model(tmp_path: Path) -> None:
    model, inputs = fast_masked_lm(stock()), batch()
    model.save_pretrained(tmp_path)
    assert '"RobertaForMaskedLM"' in (tmp_path / "config.json").read_text(encoding="utf-8")
    opened = RobertaForMaskedLM.from_pretrained(tmp_path).eval()
    assert type(opened) is RobertaForMaskedLM
    torch.testing.assert_close(opened(**inputs).logits, model.eval()(**inputs).logits)


def test_models_without_labels_or_head_are_refused() -> None:
    with pytest.raises(UserError, match="RobertaModel is no masked language model"):
        fast_masked_lm(RobertaModel(RobertaConfig.make(**SIZES)))
    model = stock()
    model.base_model_prefix = ""
    with pytest.raises(UserError, match="without a head"):
        fast_masked_lm(model)


def test_a_head_that_is_not_on_the_last_hidden_states_is_refused() -> None:
    class Odd(RobertaForMaskedLM):
        def forward(self, input_ids: Any = None, labels: Any = None, **others: Any) -> Any:
            hidden = self.roberta(input_ids, output_hidden_states=True).hidden_states[-1]
            logits = self.lm_head(hidden)
            return transformers.modeling_outputs.MaskedLMOutput(loss=logits.sum(), logits=logits)

    inputs = batch()
    with pytest.raises(UserError, match="a head that is not known here"):
        fast_masked_lm(Odd(RobertaConfig.make(**SIZES)))(inputs["input_ids"], labels=inputs["labels"])


def test_one_of_several_models_in_a_process_is_fast() -> None:
    fast, plain, inputs = fast_masked_lm(stock("Roberta", "sdpa")), stock("Roberta", "sdpa"), batch()
    assert plain(**inputs).logits.shape == (4, 12, 61)
    torch.testing.assert_close(plain(**inputs).loss, fast(**inputs).loss)


@pytest.mark.parametrize("kind", ["RobertaForCausalLM", "BertForPreTraining", "BartForConditionalGeneration"])
def test_other_models_with_labels_are_refused(kind: str) -> None:
    with torch.device("meta"), pytest.raises(UserError, match="no masked language model"):
        made = getattr(transformers, kind)
        fast_masked_lm(made(made.config_class()))


def test_the_number_of_items_may_come_once_for_each_device() -> None:
    model, inputs = fast_masked_lm(stock("Roberta", "sdpa")), batch()
    expected = model(**inputs, num_items_in_batch=7).loss
    torch.testing.assert_close(model(**inputs, num_items_in_batch=torch.tensor([7, 7])).loss, expected)
    nothing = {**inputs, "labels": torch.full_like(inputs["labels"], -100)}
    for items in (None, 0, torch.tensor(0)):
        assert model(**nothing, num_items_in_batch=items).loss.item() == 0


def test_second_derivatives_are_refused() -> None:
    model = fast_masked_lm(stock("Roberta", "sdpa"))
    weight = model.lm_head.dense.weight
    with pytest.raises(RuntimeError, match="take the stock model"):
        torch.autograd.grad(model(**batch()).loss, weight, create_graph=True)


def test_evaluation_stays_as_it_was_chosen() -> None:
    model = fast_masked_lm(stock(), evaluation=True).eval()
    assert fast_masked_lm(model)(**batch()).logits.shape[0] == 1
    assert fast_masked_lm(model, evaluation=False)(**batch()).logits.shape[0] == 4


def test_a_second_backward_pass_is_possible() -> None:
    model, inputs = fast_masked_lm(stock("Roberta", "sdpa")), batch()
    loss = model(**inputs).loss
    (loss * 3).backward(retain_graph=True)
    first = gradients(model)
    model.zero_grad()
    loss.backward()
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad * 3, first[name], rtol=1e-4, atol=1e-7)
