from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import RobertaForMaskedLM

from r2mae.text.models import roberta
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.training.saving import load_weights, save_weights

WORDS, LENGTH = 83, 16


def small(**options: Any) -> MaskedLanguageModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": 32, "layers": 3, "heads": 4, "intermediate_size": 48, "length": LENGTH}
    special = {"pad_id": 1, "bos_id": 0, "eos_id": 2, "dropout": 0.1}
    return MaskedLanguageModel.from_architecture({**sizes, **special, **options})


def tokens(rows: int = 5, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(5, WORDS, (rows, length), generator=torch.Generator().manual_seed(1))


def twin(model: MaskedLanguageModel) -> RobertaForMaskedLM:
    """Make a stock model with weights of its own that equal the model's."""
    stock = RobertaForMaskedLM(model.config)
    stock.load_state_dict(model.stock().state_dict())
    return stock.train(model.training)


def hidden_tokens(rows: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose tokens unequally often in the rows: the mask, columns and targets for the model, and the real units."""
    hidden = torch.rand(rows, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.3
    hidden[0] = False
    most = int(hidden.sum(1).max())
    columns = torch.sort(hidden.byte(), dim=1, stable=True, descending=True).indices[:, :most]
    units = hidden.gather(1, columns).flatten().nonzero()[:, 0]
    return hidden, columns, tokens(rows).gather(1, columns).flatten(), units


def test_loss_and_all_gradients_are_those_of_stock_roberta() -> None:
    model = small().eval()  # without dropout
    stock = twin(model)
    inputs = tokens().flip(1)
    hidden, columns, targets, units = hidden_tokens()
    losses, states = (found[units] for found in model(inputs, columns, targets))
    losses.mean().backward()
    labels = tokens().masked_fill(~hidden, -100)
    expected = stock(input_ids=inputs, labels=labels, attention_mask=torch.ones_like(inputs), output_hidden_states=True)
    expected.loss.backward()
    torch.testing.assert_close(losses.mean(), expected.loss, rtol=1e-6, atol=1e-6)
    each = cross_entropy(expected.logits[hidden], tokens()[hidden], reduction="none")
    torch.testing.assert_close(losses, each, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(states, expected.hidden_states[-1][hidden], rtol=1e-5, atol=1e-5)
    theirs = dict(stock.named_parameters())
    ours = dict(model.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        assert one.grad is not None, name
        torch.testing.assert_close(one.grad, theirs[name].grad, rtol=1e-4, atol=1e-6)


def test_weighted_losses_have_the_gradients_of_weighted_stock_losses() -> None:
    model = small().eval()
    stock = twin(model)
    hidden, columns, targets, units = hidden_tokens()
    weights = torch.linspace(-1, 2, len(units))
    (model(tokens(), columns, targets)[0][units] * weights).sum().backward()
    logits = stock(tokens()).logits[hidden]
    (cross_entropy(logits, tokens()[hidden], reduction="none") * weights).sum().backward()
    for name, one in stock.named_parameters():
        torch.testing.assert_close(model.get_parameter(name).grad, one.grad, rtol=1e-4, atol=1e-6)


def test_states_at_columns_are_those_of_all_tokens() -> None:
    model = small().eval()
    columns = torch.tensor([[3, 0, 3, 9], [1, 2, 15, 4]])
    expected = model.encode(tokens(2)).gather(1, columns[..., None].expand(-1, -1, 32))
    torch.testing.assert_close(model.encode(tokens(2), columns=columns), expected, rtol=1e-5, atol=1e-6)


def test_padding_is_not_attended_to() -> None:
    model = small().eval()
    seen = torch.ones(2, LENGTH, dtype=torch.bool)
    seen[0, 10:] = False
    padded = tokens(2).masked_fill(~seen, 1)
    found = model.encode(padded, attention_mask=seen)
    torch.testing.assert_close(found[0, :10], model.encode(tokens(2)[:1, :10])[0], rtol=1e-5, atol=1e-6)
    theirs = twin(model).roberta(padded, attention_mask=seen.long()).last_hidden_state
    torch.testing.assert_close(found[seen], theirs[seen], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.train(False).logits(found)[seen], twin(model)(padded, seen.long()).logits[seen])


def test_training_differs_by_dropout_alone() -> None:
    model = small(dropout=0.0)
    _, columns, targets, _ = hidden_tokens()
    torch.testing.assert_close(*(model.train(mode)(tokens(), columns, targets)[0] for mode in (True, False)))
    model = small(dropout=0.1).train()
    first, second = (model(tokens(), columns, targets)[0] for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    first = model(tokens(), columns, targets)[0]
    torch.manual_seed(5)
    assert torch.equal(first, model(tokens(), columns, targets)[0]), "torch's generator is all there is"


def test_blocks_of_logits_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2mae.text.task._STATES", 3)
    model = small().eval()
    _, columns, targets, _ = hidden_tokens()
    with torch.no_grad():
        blocks = model(tokens(), columns, targets)[0]
    torch.testing.assert_close(blocks, model(tokens(), columns, targets)[0])


def test_dropout_is_in_embeddings_attention_and_both_ends_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    genuine, attend = roberta.dropout, roberta.scaled_dot_product_attention

    def counted(states: torch.Tensor, rate: float, training: bool) -> torch.Tensor:
        assert (rate, training) == (0.1, True)
        seen.append(tuple(states.shape))
        return genuine(states, rate, training)

    def attended(query: torch.Tensor, *given: torch.Tensor, dropout_p: float, **others: Any) -> torch.Tensor:
        assert dropout_p == 0.1
        seen.append(tuple(query.shape))
        return attend(query, *given, dropout_p=dropout_p, **others)

    monkeypatch.setattr(roberta, "dropout", counted)
    monkeypatch.setattr(roberta, "scaled_dot_product_attention", attended)
    model = small(dropout=0.1).train()
    _, columns, targets, _ = hidden_tokens()
    model(tokens(), columns, targets)
    rows, most, heads = len(columns), columns.shape[1], model.config.num_attention_heads
    whole, few = (rows, LENGTH, 32), (rows, most, 32)
    layers = model.config.num_hidden_layers
    one = [(rows, heads, LENGTH, 32 // heads), whole, whole]
    assert seen == [whole, *one * (layers - 1), (rows, heads, most, 32 // heads), few, few]


def test_saved_weights_have_stock_names_and_none_twice(tmp_path: Path) -> None:
    model = small()
    save_weights(tmp_path / "model.safetensors", model)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert names == {name for name, _ in RobertaForMaskedLM(model.config).named_parameters()}
    other = small()
    with torch.no_grad():
        for one in other.parameters():
            one.add_(1)
    load_weights(tmp_path / "model.safetensors", other.load_state_dict)
    assert torch.equal(other.eval().encode(tokens()), model.eval().encode(tokens()))
    assert other.lm_head.decoder.weight is other.roberta.embeddings.word_embeddings.weight
    assert other.lm_head.decoder.bias is other.lm_head.bias
    # A stock state, with the tied tensors under both names, is read as well.
    other.load_state_dict(twin(model).state_dict())


def test_it_begins_as_hugging_face_does() -> None:
    model = small()
    torch.manual_seed(0)
    stock = RobertaForMaskedLM(model.config)
    for name, one in stock.named_parameters():
        assert torch.equal(one, model.get_parameter(name)), name


def test_the_stock_model_shares_the_parameters() -> None:
    model = small().eval()
    stock = model.stock()
    assert {id(one) for one in stock.parameters()} == {id(one) for one in model.parameters()}
    torch.testing.assert_close(stock(tokens()).logits, model.logits(model.encode(tokens())))


def test_tokenizers_whose_padding_comes_late_and_long_sequences() -> None:
    model = small(vocab_size=700, pad_id=650, length=600).eval()
    ids = torch.randint(5, 600, (2, 600), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.logits(model.encode(ids)), twin(model)(ids).logits, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="sequences have 601 tokens, and the model has 600 positions"):
        model.encode(torch.zeros(1, 601, dtype=torch.long))
    with pytest.raises(ValueError, match="is not a multiple of the number of attention heads"):
        small(heads=3)
