"""What is left out of stock layers, and when nothing may be."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
import transformers

from r2mae.text.fast import fast_masked_lm, stock_again
from r2mae.training import dropout
from stock_models import FIVE, batch, gradients, same_as_stock, stock


def of_the_last_layer(model: Any, inputs: dict[str, Any]) -> int:
    """Return how many tokens the feed-forward part of the last layer was computed for."""
    seen: list[int] = []
    dense = model.base_model.encoder.layer[-1].intermediate.dense
    handle = dense.register_forward_hook(lambda module, given, made: seen.append(made[..., 0].numel()))
    model(**inputs)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("kind", FIVE)
def test_the_last_layer_is_computed_at_labels(kind: str) -> None:
    inputs = batch()
    most = int((inputs["labels"] != -100).sum(1).max())
    assert of_the_last_layer(fast_masked_lm(stock(kind, "sdpa")), inputs) == 4 * most < 4 * 12
    # All tokens without labels, in evaluation, and with attention that is not torch's own.
    model = fast_masked_lm(stock(kind, "sdpa"))
    assert of_the_last_layer(model, {**inputs, "labels": None}) == 48
    assert of_the_last_layer(model.eval(), inputs) == 48
    assert of_the_last_layer(fast_masked_lm(stock(kind, "eager")), inputs) == 48


def test_attention_within_documents_stays_within_them() -> None:
    # Packed rows: a mask of its own for each token, as flash attention's users give it.
    inputs = batch()
    document = torch.tensor([0] * 5 + [1] * 7).expand(4, -1)
    inputs["attention_mask"] = (document[:, :, None] == document[:, None, :])[:, None]
    model = stock("Roberta", "sdpa")
    same_as_stock(model, inputs)
    assert of_the_last_layer(model, inputs) < 48


def test_checkpointed_layers_are_run_again() -> None:
    model = stock("Roberta", "sdpa")
    model.activation_checkpointing_enable()
    same_as_stock(model, batch())


def test_hidden_states_that_are_asked_for_are_whole() -> None:
    found = same_as_stock(stock("Bert", "sdpa"), {**batch(), "output_hidden_states": True})
    assert [one.shape for one in found.hidden_states] == [(4, 12, 16)] * 3


def test_hidden_states_that_the_configuration_asks_for_are_whole() -> None:
    model = stock("Bert", "sdpa")
    model.config.output_hidden_states = True
    found = same_as_stock(model, batch())
    assert [one.shape for one in found.hidden_states] == [(4, 12, 16)] * 3


def test_adapters_are_not_passed_by() -> None:
    class Adapted(torch.nn.Module):
        def __init__(self, base: torch.nn.Linear) -> None:
            super().__init__()
            self.base, self.added = base, torch.nn.Linear(16, 16)

        @property
        def weight(self) -> torch.Tensor:
            return self.base.weight

        @property
        def bias(self) -> torch.Tensor:
            return self.base.bias

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return self.base(states) + self.added(states)

    model = stock("Roberta", "sdpa")
    for layer in model.roberta.encoder.layer:
        layer.attention.self.value = Adapted(layer.attention.self.value)
    same_as_stock(model, batch())
    assert model.roberta.encoder.layer[0].attention.self.value.added.weight.grad.abs().sum() > 0


def test_a_head_of_its_own_and_a_frozen_table_learn_as_before() -> None:
    same_as_stock(stock("Roberta", "sdpa", tie_word_embeddings=False), batch())
    model = stock("Roberta", "sdpa")
    model.roberta.embeddings.word_embeddings.weight.requires_grad_(False)
    same_as_stock(model, batch())


def test_a_head_that_is_untied_later_has_its_own_weights() -> None:
    model, inputs = fast_masked_lm(stock("Roberta", "sdpa")), batch()
    model.lm_head.decoder.weight = torch.nn.Parameter(torch.zeros(61, 16))
    assert torch.equal(model(**inputs).logits[0], model.lm_head.bias.expand(model(**inputs).logits.shape)[0])


def test_dropout_stays_dropout() -> None:
    model, inputs = stock("Roberta", "sdpa"), batch()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    fast_masked_lm(model)
    torch.manual_seed(1)
    first, second = model(**inputs).loss, model(**inputs).loss
    assert first != second
    torch.manual_seed(1)
    assert model(**inputs).loss == first, "torch's generator is all there is"
    model.eval()
    assert model(**inputs).loss == model(**inputs).loss
    assert all(type(module) is not torch.nn.Dropout for module in model.modules() if hasattr(module, "inplace"))
    stock_again(model)
    kinds = {type(module).__module__.split(".")[0] for module in model.modules()}
    assert kinds == {"torch", "transformers"}
    assert all(not {"selection", "_selection", "_hook"} & set(vars(module)) for module in model.modules())


def by_column(states: torch.Tensor, rate: float) -> torch.Tensor:
    """Drop by the last axis alone, so that all tokens, of a whole layer or a narrowed one, are treated alike."""
    generator = torch.Generator().manual_seed(states.shape[-1])
    return states * torch.rand(states.shape[-1], generator=generator).ge(rate).float() / (1 - rate)


def with_dropout(monkeypatch: pytest.MonkeyPatch, kind: str = "Roberta", attention: str = "sdpa") -> Any:
    """Make a model with dropout that does not depend on chance, stock or fast."""
    monkeypatch.setattr(dropout, "keep_factors", lambda shape, rate: by_column(torch.ones(shape), rate))
    monkeypatch.setattr(
        torch.nn.functional,
        "dropout",
        lambda x, p=0.5, training=True, inplace=False: by_column(x, p if training else 0),
    )
    model = stock(kind, attention)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.4
    return model


@pytest.mark.parametrize("kind", FIVE)
def test_dropout_is_where_the_stock_model_has_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = with_dropout(monkeypatch, kind, "eager"), batch()
    expected = model(**inputs)
    expected.loss.backward()
    before = gradients(model)
    fast = with_dropout(monkeypatch, kind)
    fast.load_state_dict(model.state_dict())
    found = fast_masked_lm(fast)(**inputs)
    found.loss.backward()
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-5, atol=1e-6)
    for name, grad in gradients(fast).items():
        torch.testing.assert_close(grad, before[name], rtol=1e-3, atol=1e-6)
    # In evaluation there is none, even where it is as narrow.
    fast_masked_lm(fast.eval(), evaluation=True)
    few = fast(**inputs)
    assert few.logits.shape[0] == 1
    torch.testing.assert_close(few.loss, model.eval()(**inputs).loss, rtol=1e-5, atol=1e-6)


def test_hooks_are_heard() -> None:
    def doubled(module: Any, given: Any, made: Any) -> Any:
        return (made[0] * 2, *made[1:]) if isinstance(made, tuple) else made * 2

    for place in ("attention.self", "attention.self.query", "attention.self.value"):
        model = stock("Roberta", "sdpa")
        for layer in model.roberta.encoder.layer:
            layer.get_submodule(place).register_forward_hook(doubled)
        same_as_stock(model, batch())
    model = stock("Roberta", "sdpa")
    for layer in model.roberta.encoder.layer:
        layer.attention.self.query.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    same_as_stock(model, batch())
    model = stock("Roberta", "sdpa")
    torch.nn.utils.prune.random_unstructured(model.roberta.encoder.layer[1].attention.self.key, "weight", 0.5)
    same_as_stock(model, batch())


def test_encoders_with_more_than_layers_are_not_narrowed() -> None:
    class Convolved(transformers.RobertaModel):
        def forward(self, *given: Any, **options: Any) -> Any:
            made = super().forward(*given, **options)
            made["last_hidden_state"] = made.last_hidden_state + made.last_hidden_state.roll(1, 1)
            return made

    model = stock("Roberta", "sdpa")
    model.roberta.__class__ = Convolved
    same_as_stock(model, batch())


def test_masks_may_differ_between_heads() -> None:
    inputs = batch()
    generator = torch.Generator().manual_seed(3)
    inputs["attention_mask"] = torch.rand(4, 2, 12, 12, generator=generator).lt(0.6) | torch.eye(12, dtype=torch.bool)
    same_as_stock(stock("Roberta", "sdpa"), inputs)


def test_checkpoints_of_torch_are_run_again() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = stock("Roberta", "sdpa")
    layers = tuple(model.roberta.encoder.layer)
    apply_activation_checkpointing(model, check_fn=lambda module: module in layers)
    found = fast_masked_lm(model)(**batch())
    found.loss.backward()
    torch.testing.assert_close(found.loss, stock("Roberta", "sdpa")(**batch()).loss)


def test_threads_do_not_mix_their_labels() -> None:
    model = fast_masked_lm(stock("Roberta", "sdpa"))
    parts = [{name: value[row : row + 2] for name, value in batch().items()} for row in (0, 2)]
    expected = [model(**part).loss.item() for part in parts]
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda turn: model(**parts[turn % 2]).loss.item(), range(40)):
            assert found == pytest.approx(expected[0]) or found == pytest.approx(expected[1])
        found = list(pool.map(lambda turn: model(**parts[turn % 2]).loss.item(), range(40)))
    assert found == pytest.approx(expected * 20)


def test_causal_attention_stays_causal() -> None:
    model = stock("Roberta", "sdpa", is_decoder=True)
    inputs = batch()
    del inputs["attention_mask"]
    same_as_stock(model, inputs)
    assert of_the_last_layer(model, inputs) == 48


def test_rows_that_attend_to_nothing_do_no_harm() -> None:
    inputs = batch()
    seen = inputs["attention_mask"].bool()
    inputs["attention_mask"] = (seen[:, :, None] & seen[:, None, :])[:, None]  # padding does not attend to itself
    found = same_as_stock(stock("Roberta", "sdpa"), inputs)
    assert found.loss.isfinite()
    model = stock("Roberta", "sdpa")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    loss = fast_masked_lm(model)(**inputs).loss
    loss.backward()
    assert loss.isfinite(), "with dropout the kernels are at work"
    assert all(bool(grad.isfinite().all()) for grad in gradients(model).values())
