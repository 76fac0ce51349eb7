"""The curve of loss against ratio is the stock model's, on masks that nothing moves; GLUE joins it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.text import evaluate as module
from r2mae.text.batches import TextData, load_data
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.evaluate import RATIOS, evaluate, ratio_curve
from r2mae.text.finetune import finetune
from r2mae.text.models.roberta import MaskedLanguageModel, build
from r2mae.text.task import TokenTask
from r2mae.training.task import Batches

pytestmark = pytest.mark.slow

WORDS = ["the", "film", "is", "a", "long", "quiet", "story", "of", "some", "people", "at", "sea", "good", "bad"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TextConfig:
    """Documents of eleven words each."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "films.txt"
    path.write_text("\n\n".join(" ".join(rng.choice(WORDS, size=11)) for _ in range(400)))
    sizes = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64}
    return TextConfig.make(data=str(path), vocab_size=320, sequence_length=24, validation=0.3, **sizes)


@pytest.fixture(scope="module")
def data(config: TextConfig, tmp_path_factory: pytest.TempPathFactory) -> TextData:
    return load_data(config)


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "glue"
    for folder, head, row in (
        ("SST-2", "sentence\tlabel", "a {} film\t{}"),
        ("QNLI", "index\tquestion\tsentence\tlabel", "0\tis it {}\tthe film is {}\t{}"),
    ):
        (root / folder).mkdir(parents=True)
        for name in ("train.tsv", "dev.tsv"):
            labels = ("not_entailment", "entailment") if folder == "QNLI" else ("0", "1")
            words = [("bad", labels[0]), ("good", labels[1])] * 6
            lines = [row.format(*[word] * (row.count("{}") - 1), label) for word, label in words]
            (root / folder / name).write_text("\n".join([head, *lines]) + "\n")
    return root


def built(data: TextData) -> tuple[TokenTask, MaskedLanguageModel]:
    torch.manual_seed(0)
    return build(data.architecture)


def rows(data: TextData) -> Tensor:
    assert data.validation is not None
    return data.validation.batch(np.arange(len(data.validation)), Key.root(0))


def test_curve(config: TextConfig, data: TextData) -> None:
    task, model = built(data)
    model.train()
    scores = evaluate(config, task, model, data)
    assert model.training
    assert list(scores) == [
        *("loss", *(f"loss_{ratio:g}" for ratio in RATIOS)),
        *("accuracy", *(f"accuracy_{ratio:g}" for ratio in RATIOS)),
    ]
    for title in ("loss", "accuracy"):
        assert scores[title] == pytest.approx(np.mean([scores[f"{title}_{ratio:g}"] for ratio in RATIOS]))
    assert scores["loss"] == pytest.approx(np.log(data.tokenizer.vocab_size), rel=0.05)
    assert evaluate(config, task, model, data) == scores


@pytest.mark.parametrize("corruption", ["mask", "80-10-10"])
def test_the_numbers_are_those_of_the_stock_model(corruption: str, data: TextData) -> None:
    task, model = built(data)
    task = replace(task, corruption=corruption)
    with torch.no_grad():
        for parameter in model.parameters():  # far from where all logits are alike
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    assert data.validation is not None
    losses, accuracies = ratio_curve(task, model, data.validation, (0.2, 0.7))
    clean = rows(data)
    for place, ratio in enumerate((0.2, 0.7)):
        hidden = task.corrupt(clean, ratio, Key.root(0).fold("ratio curve").fold(round(ratio * 10_000)))
        with torch.no_grad():
            stock = model.eval().stock()(hidden.inputs, labels=clean.masked_fill(~hidden.hidden, -100))
        right = stock.logits.argmax(-1) == clean
        assert losses[place] == pytest.approx(float(stock.loss), rel=1e-5)
        assert accuracies[place] == pytest.approx(float(right[hidden.hidden].double().mean()))
    assert losses[0] != losses[1]


def test_masks_depend_on_place_and_ratio_alone(data: TextData, monkeypatch: pytest.MonkeyPatch) -> None:
    task, model = built(data)
    assert data.validation is not None
    whole = ratio_curve(task, model, data.validation)
    some = ratio_curve(task, model, data.validation, RATIOS[2:])
    monkeypatch.setattr(module, "_ROWS", 7)
    monkeypatch.setattr(module, "_LOGITS", 5 * data.tokenizer.vocab_size)
    small = ratio_curve(task, model, data.validation)
    for all_ratios, fewer, pieces in zip(whole, some, small, strict=True):
        np.testing.assert_allclose(all_ratios[2:], fewer, rtol=1e-12)
        np.testing.assert_allclose(all_ratios, pieces, rtol=1e-5)


def test_a_model_that_knows_the_answer(data: TextData) -> None:
    task, model = built(data)

    class Same(Batches):
        def __len__(self) -> int:
            return 5

        def batch(self, indices: np.ndarray, key: Key) -> Tensor:
            return torch.full((len(indices), 24), 300)

    with torch.no_grad():
        model.lm_head.bias[300] = 50.0
    losses, accuracies = ratio_curve(task, model, Same())
    np.testing.assert_allclose(losses, 0, atol=1e-6)
    np.testing.assert_array_equal(accuracies, 1)
    with torch.no_grad():
        model.lm_head.bias[300] = -50.0
    np.testing.assert_array_equal(ratio_curve(task, model, Same())[1], 0)


def test_at_most_so_many_sequences_spread_evenly(data: TextData) -> None:
    task, model = built(data)
    asked: list[int] = []

    class Spy(Batches):
        def __len__(self) -> int:
            return 1001

        def batch(self, indices: np.ndarray, key: Key) -> Tensor:
            asked.extend(indices.tolist())
            return rows(data)[: len(indices)]

    ratio_curve(task, model, Spy(), (0.5,), sequences=11)
    assert asked == list(range(0, 1001, 100))


def test_nothing_to_measure_on(data: TextData) -> None:
    task, model = built(data)
    assert data.validation is not None
    with pytest.raises(UserError, match="no held-out sequence to measure on"):
        ratio_curve(task, model, data.validation, sequences=0)

    class Specials(Batches):
        def __len__(self) -> int:
            return 2

        def batch(self, indices: np.ndarray, key: Key) -> Tensor:
            return torch.full((len(indices), 24), data.tokenizer.eos_id)

    with pytest.raises(UserError, match="have no token that can be hidden"):
        ratio_curve(task, model, Specials())


def test_glue(config: TextConfig, data: TextData, glue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(glue.parent))
    task, model = built(data)
    seen: list[tuple[int, int]] = []
    options = {"seeds": (0, 1), "epochs": 4.0, "lr": 1e-3}
    scores = evaluate(
        config.replace(glue=("SST-2", "qnli")), task, model, data, curve=False, **options,
        progress=lambda *counts: seen.append(counts),
    )  # fmt: skip
    assert set(scores) == {"sst2_accuracy", "sst2_accuracy_sd", "qnli_accuracy", "qnli_accuracy_sd", "glue"}
    assert scores["glue"] == pytest.approx((scores["sst2_accuracy"] + scores["qnli_accuracy"]) / 2)
    one = finetune(model, "sst2", glue, length=24, **options)
    assert scores["sst2_accuracy"] == one.score
    assert seen[-1][0] == seen[-1][1] == len(seen) / 2, "each task is counted by itself"


def test_glue_beside_the_curve_and_without_held_out_text(
    config: TextConfig, data: TextData, glue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(glue.parent))
    task, model = built(data)
    options = {"seeds": (0,), "epochs": 1.0}
    few = config.replace(eval_sequences=4)
    both = evaluate(few.replace(glue=("sst2",)), task, model, data, **options)
    alone = evaluate(config.replace(glue=("sst2",)), task, model, replace(data, validation=None), **options)
    assert both == {**evaluate(few, task, model, data), **alone}
    assert set(alone) == {"sst2_accuracy"}


def test_glue_lies_in_the_data_folder(
    config: TextConfig, data: TextData, glue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(glue.parent / "nothing"))
    task, model = built(data)
    with pytest.raises(UserError, match=r"nothing.glue is not a folder: put GLUE there, or set R2MAE_DATA"):
        evaluate(config.replace(glue=("sst2",)), task, model, data, curve=False)


def test_curves_are_on_the_same_masks_whatever_the_run_was_trained_with(data: TextData) -> None:
    task, model = built(data)
    assert data.validation is not None
    curves = [ratio_curve(replace(task, exact=exact), model, data.validation, (0.3,)) for exact in (True, False)]
    for one, other in zip(*curves, strict=True):
        np.testing.assert_array_equal(one, other)


def test_held_out_sequences_are_as_many_as_the_run_or_its_measurement_says(config: TextConfig, data: TextData) -> None:
    task, model = built(data)
    few = evaluate(config.replace(eval_sequences=3), task, model, data)
    assert few != evaluate(config, task, model, data)
    said = config.replace(eval_sequences=3)
    assert DOMAIN.evaluate(said, task, model, data) == few
    assert DOMAIN.evaluate(config.with_measurement(eval_sequences=3), task, model, data) == few
    assert said.measurement_settings() == {"eval_sequences": 3, "glue": (), "glue_probes": ()}
    assert "3 held-out sequences" in said.measured_in_words()
    assert config.measured_in_words() == ""
    with pytest.raises(UserError, match="eval_sequences must be 1 or more"):
        config.replace(eval_sequences=0)
