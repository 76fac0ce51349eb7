import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import RobertaForMaskedLM

from r2mae.domains.base import Domain as BaseDomain
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.keys import Key
from r2mae.masking.masks import hidden_count
from r2mae.masking.schemes import make_scheme
from r2mae.text import task as task_module
from r2mae.text.config import TextConfig
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.task import HiddenTokens, TokenTask
from r2mae.training.loop import fit
from r2mae.training.task import Batches, MaskedBatch, Output, Task
from r2mae.training.task import Data as BaseData

KEY = Key.root(0).fold("mask", 0)
WORDS, LENGTH = 60, 20
ARCHITECTURE: dict[str, Any] = {
    "model": "roberta",
    "vocab_size": WORDS,
    "special_ids": [0, 1, 2, 3, 59],
    "mask_id": 59,
    "pad_id": 1,
    "bos_id": 0,
    "eos_id": 2,
    "length": LENGTH,
    "hidden_size": 16,
    "layers": 2,
    "heads": 2,
    "intermediate_size": 24,
    "dropout": 0.1,
    "corruption": "80-10-10",
    "exact": True,
}
RATIOS = SchemeDefaults(ratio=0.15, low=0.15, high=0.4)


def task(**options: Any) -> TokenTask:
    return TokenTask.from_architecture({**ARCHITECTURE, **options})


def model() -> MaskedLanguageModel:
    torch.manual_seed(0)
    return MaskedLanguageModel.from_architecture(ARCHITECTURE)


def batch(rows: int = 6, seed: int = 0) -> torch.Tensor:
    """Make rows of a packed stream: some have separators in them."""
    ids = torch.randint(4, 59, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))
    ids[0, 7:9] = torch.tensor([2, 0])
    ids[1, 0] = 0
    return ids.int()


def test_it_is_a_task() -> None:
    assert isinstance(task(), Task)
    assert isinstance(task().corrupt(batch(), 0.3, KEY), MaskedBatch)
    assert task().width == 16


def test_an_unknown_corruption(unchecked: None) -> None:
    with pytest.raises(ValueError, match=r"corruption is one of 80-10-10, mask, not '70-30'"):
        task(corruption="70-30")


@given(
    st.lists(st.lists(st.integers(0, WORDS - 1), min_size=LENGTH, max_size=LENGTH), min_size=1, max_size=5),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from(["80-10-10", "mask"]),
)
def test_what_is_hidden(rows: list[list[int]], ratio: float, exact: bool, corruption: str) -> None:
    clean = torch.tensor(rows)
    one = task(corruption=corruption, exact=exact)
    corrupted = one.corrupt(clean.int(), ratio, KEY)
    special = torch.isin(clean, torch.tensor(ARCHITECTURE["special_ids"]))
    assert not (corrupted.hidden & special).any()
    assert torch.equal(corrupted.inputs[~corrupted.hidden], clean[~corrupted.hidden])
    put_in = corrupted.inputs[corrupted.hidden]
    assert not torch.isin(put_in, torch.tensor([0, 1, 2, 3])).any()
    assert corruption == "80-10-10" or bool((put_in == 59).all())
    # The real units are the hidden tokens, row by row.
    real = corrupted.real.bool()
    assert torch.equal(corrupted.targets[real], clean[corrupted.hidden])
    assert int(real.sum()) == int(corrupted.count) == int(corrupted.hidden.sum())
    hidden = torch.zeros_like(corrupted.hidden)
    hidden[corrupted.loss_rows()[real], corrupted.columns.flatten()[real]] = True
    assert torch.equal(hidden, corrupted.hidden)
    assert corrupted.entries == int((~special).sum())


def test_exact_is_read_from_the_run_folder() -> None:
    counts = {exact: task(exact=exact).corrupt(batch(40), 0.3, KEY).hidden.sum(1) for exact in (True, False)}
    assert set(counts[True][2:].tolist()) == {6}
    assert len(set(counts[False][2:].tolist())) > 2


def test_masks_depend_on_the_place_in_the_global_batch_alone() -> None:
    whole = task().corrupt(batch(6), 0.3, KEY)
    part = task().corrupt(batch(6)[2:5], 0.3, KEY.rows(2))
    assert torch.equal(part.hidden, whole.hidden[2:5])
    assert torch.equal(part.inputs, whole.inputs[2:5])
    assert not torch.equal(task().corrupt(batch(6), 0.3, KEY.fold(1)).hidden, whole.hidden)


def test_one_ratio_for_every_sample() -> None:
    ratios = np.array([0.1, 0.9, 0.5, 0.25, 0.75, 0.4])
    corrupted = task().corrupt(batch(), ratios, KEY)
    lengths = corrupted.candidates.sum(1).tolist()
    assert corrupted.hidden.sum(1).tolist() == [hidden_count(n, p) for n, p in zip(lengths, ratios, strict=True)]


@pytest.mark.parametrize("exact", [True, False])
def test_losses_are_those_of_stock_roberta(exact: bool) -> None:
    one, ours = task(exact=exact), model().eval()
    stock = RobertaForMaskedLM(ours.config)
    stock.load_state_dict(ours.stock().state_dict())
    stock.eval()
    corrupted = one.corrupt(batch(), 0.3, KEY)
    output = one.forward(ours, corrupted)
    losses = one.losses(output, corrupted)
    real = corrupted.real.bool()
    assert not losses[~real].any()
    labels = batch().long().masked_fill(~corrupted.hidden, -100)
    expected = stock(input_ids=corrupted.inputs, attention_mask=torch.ones_like(labels), labels=labels)
    torch.testing.assert_close(losses.sum() / corrupted.count, expected.loss, rtol=1e-6, atol=1e-6)
    logits = output.prediction
    torch.testing.assert_close(logits[real], expected.logits[corrupted.hidden], rtol=1e-5, atol=1e-5)
    each = cross_entropy(logits, corrupted.targets, reduction="none")
    torch.testing.assert_close(losses[real], each[real], rtol=1e-5, atol=1e-5)
    assert output.representation.shape == (len(real), 16)


def padded(corrupted: HiddenTokens) -> HiddenTokens:
    """Give the form that a batch has on a device, where rows are filled up to a bound and not to the longest."""
    most = hidden_count(LENGTH, 0.3) + 1
    columns = torch.sort(corrupted.hidden.byte(), dim=1, stable=True, descending=True).indices[:, :most]
    return HiddenTokens(
        inputs=corrupted.inputs,
        hidden=corrupted.hidden,
        candidates=corrupted.candidates,
        columns=columns,
        targets=batch().long().gather(1, columns).flatten(),
        real=corrupted.hidden.gather(1, columns).flatten().float(),
    )


def test_rows_that_are_filled_up_give_the_same_losses_and_weights() -> None:
    one, ours = task(), model().eval()
    short = one.corrupt(batch(), 0.3, KEY)
    filled = padded(short)
    own, real = short.real.bool(), filled.real.bool()
    assert len(own) < len(real)
    outputs = [one.forward(ours, corrupted) for corrupted in (short, filled)]
    losses = [one.losses(output, c) for output, c in zip(outputs, (short, filled), strict=True)]
    assert (losses[1][~real] == 0).all()
    torch.testing.assert_close(losses[1][real], losses[0][own])
    curriculum = make_scheme("r2mae-cl", RATIOS).curriculum
    assert curriculum is not None
    network = one.weight_network(curriculum)
    weights = [one.learned_weights(network, c, o) for c, o in zip((short, filled), outputs, strict=True)]
    torch.testing.assert_close(weights[0][own].mean(0), torch.ones(len(curriculum.grid.values)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights[1][real], weights[0][own])
    assert (weights[1][~real] == 0).all()


def test_embedding_is_the_mean_over_ordinary_tokens() -> None:
    one, ours = task(), model().eval()
    found = one.embed(ours, batch())
    states = ours.stock()(batch().long(), output_hidden_states=True).hidden_states[-1]
    for row, ids in enumerate(batch()):
        ordinary = ~torch.isin(ids, torch.tensor(ARCHITECTURE["special_ids"]))
        torch.testing.assert_close(found[row], states[row, ordinary].mean(0).detach(), rtol=1e-4, atol=1e-5)
    longer = torch.cat([batch(), torch.ones(6, 5, dtype=torch.int32)], 1)
    torch.testing.assert_close(one.embed(ours, longer), found, rtol=1e-4, atol=1e-5)
    assert torch.equal(one.embed(ours, torch.ones(2, 4, dtype=torch.int32)), torch.zeros(2, 16))


class Rows(Batches):
    """A packed corpus of which the next token follows from the one before."""

    def __len__(self) -> int:
        return 64

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> torch.Tensor:
        first = torch.as_tensor(np.asarray(indices))[:, None]
        return (first + torch.arange(LENGTH)) % 55 + 4


class Data(BaseData):
    train, validation, architecture = Rows(), Rows(), ARCHITECTURE


class Domain(BaseDomain):
    """The domain without files."""

    name, config, ratios = "text", TextConfig, RATIOS

    def fingerprint(self, config: Any) -> str:
        return "synthetic"

    def load(self, config: Any) -> Any:
        return Data()

    def build(self, architecture: Mapping[str, Any]) -> tuple[Task, nn.Module]:
        return TokenTask.from_architecture(architecture), MaskedLanguageModel.from_architecture(architecture)

    def evaluate(self, *given: Any, **options: Any) -> dict[str, float]:
        raise NotImplementedError


def config(**options: Any) -> TextConfig:
    given = {"steps": 8, "batch_size": 16, "save_every": 100, "validation": 0.0, "lr": 3e-3, **options}
    return TextConfig.make(data="synthetic", **given)


def losses(folder: Path) -> list[float]:
    return [float(value) for value in pd.read_csv(folder / "metrics.csv")["loss"]]


@pytest.mark.slow
def test_training_learns(tmp_path: Path) -> None:
    fit(config(steps=120, lr=1e-2), Domain(), tmp_path)
    found = losses(tmp_path)
    assert found[0] == pytest.approx(np.log(WORDS), rel=0.1)
    assert np.mean(found[-20:]) < 0.9 * found[0]


@pytest.mark.slow
def test_micro_batches_make_the_step_of_the_whole_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHITECTURE, "dropout", 0.0)
    fit(config(), Domain(), tmp_path / "whole")
    fit(config(accumulate=4), Domain(), tmp_path / "parts")
    np.testing.assert_allclose(losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=1e-4)


@pytest.mark.slow
def test_validation_reads_large_batches_in_blocks(tmp_path: Path) -> None:
    fit(config(validation=0.1, validate_every=4, per="sample"), Domain(), tmp_path)
    assert pd.read_csv(tmp_path / "metrics.csv").filter(like="validation").notna().any().any()


def test_the_vocabulary_of_replacements_is_made_once() -> None:
    task_module._ordinary_tokens.cache_clear()
    for _ in range(3):
        task().corrupt(batch(), 0.3, KEY)
    assert task_module._ordinary_tokens.cache_info().misses == 1


def test_outputs_are_outputs() -> None:
    one = task()
    assert isinstance(one.forward(model().eval(), one.corrupt(batch(), 0.3, KEY)), Output)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_however_the_ratio_varies_it_is_compiled_twice_at_most() -> None:
    counters: Any = torch._dynamo.utils.counters
    torch._dynamo.reset()
    counters.clear()
    task = TokenTask.from_architecture(ARCHITECTURE)
    model = MaskedLanguageModel.from_architecture({**ARCHITECTURE, "dropout": 0.0})
    plain = copy.deepcopy(model)
    model.compile(backend="eager")  # what is counted is graphs, and these are traced alike for any backend
    batch = torch.randint(5, WORDS - 1, (6, LENGTH), generator=torch.Generator().manual_seed(0))
    for step, ratio in enumerate((0.2, 0.35, 0.15, 0.4, 0.27, 0.9, 0.3, 0.18)):
        corrupted = task.corrupt(batch, ratio, Key.root(0).fold(step))
        found = task.losses(task.forward(model, corrupted), corrupted).mean()
        torch.testing.assert_close(found, task.losses(task.forward(plain, corrupted), corrupted).mean())
        found.backward()
    assert 1 <= counters["stats"]["unique_graphs"] <= 2
    torch._dynamo.reset()


@pytest.mark.parametrize("mask", ["whole-word", "span"])
@pytest.mark.parametrize("scheme", ["fixed", "r2mae-per-sample", "dynamic", "cl"])
def test_masks_of_words_and_spans_suit_every_scheme(mask: str, scheme: str) -> None:
    from r2mae.text.batches import architecture
    from r2mae.text.tokenizer import train_bpe

    tokenizer = train_bpe(["the cat sat on the mat with another cat"] * 9, 290)
    config = TextConfig.make(data="x.txt", mask=mask, scheme=scheme, sequence_length=20)
    task = TokenTask.from_architecture(architecture(config, tokenizer))
    made = config.scheme.make().bind(100, 10)
    ids = torch.tensor(
        [[0, *tokenizer.backend.encode("the cat sat on the mat with the other cat", add_special_tokens=False).ids, 2]]
    )
    batch = ids.repeat(6, 1)
    hidden = task.corrupt(batch, made.ratio.draw(3, KEY, len(batch)), KEY).hidden
    assert hidden.any(1).all() and not (hidden & ~task.ordinary(batch)).any()
    starts = torch.tensor([tokenizer.backend.id_to_token(one).startswith("Ġ") for one in ids[0].tolist()])
    if mask == "whole-word":
        inside = ~starts[2:-1]
        assert (hidden[:, 2:-1] == hidden[:, 1:-2])[:, inside].all()
