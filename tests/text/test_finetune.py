"""Fine-tuning is what a plain loop over the stock model does, and it learns."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.text import finetune as module
from r2mae.text.finetune import build_classifier, encode, finetune, padded
from r2mae.text.glue import TASKS, GlueScores, read_glue
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.tokenizer import train_bpe
from r2mae.training.order import BatchOrder
from r2mae.training.step import learning_rate_factor

pytestmark = pytest.mark.slow

WORDS = ["the", "film", "is", "a", "very", "long", "and", "quiet", "story", "of", "some", "people", "at", "sea"]


TOKENIZER = train_bpe([f"{' '.join(WORDS)} good bad"] * 3, 320)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films that are called good or bad, among other words; and similarities that say the same."""
    root, rng = tmp_path_factory.mktemp("glue"), np.random.default_rng(0)
    heads = {"SST-2": "sentence\tlabel", "STS-B": "sentence1\tsentence2\tscore"}
    for name, head in heads.items():
        for file, rows in (("train.tsv", 192), ("dev.tsv", 64)):
            lines = [head]
            for _ in range(rows):
                label = int(rng.integers(2))
                words = rng.choice(WORDS, size=rng.integers(1, 12)).tolist()
                words.insert(int(rng.integers(len(words) + 1)), ("bad", "good")[label])
                text = " ".join(words)
                lines.append(f"{text}\t{label}" if name == "SST-2" else f"{text}\tthe film\t{4.5 * label:g}")
            (root / name).mkdir(exist_ok=True)
            (root / name / file).write_text("".join(f"{line}\n" for line in lines))
    return root


def tiny(dropout: float = 0.1, **sizes: int) -> MaskedLanguageModel:
    torch.manual_seed(0)
    given = {"vocab_size": 320, "hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, **sizes}
    special = {"pad_id": 1, "bos_id": 0, "eos_id": 2}
    model = MaskedLanguageModel.from_architecture({**given, **special, "length": 64, "dropout": dropout})
    model.tokenizer = TOKENIZER
    return model


def test_it_learns_and_leaves_everything_as_it_was(folder: Path) -> None:
    model = tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, threads, seen = torch.get_rng_state(), torch.get_num_threads(), []
    found = finetune(
        model, "sst2", folder, seeds=(0, 1), epochs=12, lr=2e-3,
        progress=lambda *counts: seen.append(counts),
    )  # fmt: skip
    assert min(run["accuracy"] for run in found.runs) > 0.95
    assert found.score == pytest.approx(np.mean([run["accuracy"] for run in found.runs]))
    assert str(found).startswith("sst2: 192 examples of train.tsv, 64 of dev.tsv, 2 seeds; the commonest label")
    assert seen == [(step, 144) for step in range(1, 145)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_similarities(folder: Path) -> None:
    found = finetune(tiny(), "stsb", folder, seeds=(0,), epochs=12, lr=2e-3)
    assert found.score > 0.8  # the truth has ties: 1 is out of reach
    assert found.by_name() == {"stsb_spearman": found.score}


def outputs(monkeypatch: pytest.MonkeyPatch, *given: object, **options: object) -> list[np.ndarray]:
    """What the classifiers say of the test examples, one array a seed."""
    found: list[np.ndarray] = []
    whole = module.score
    monkeypatch.setattr(module, "score", lambda task, truth, made: (found.append(made), whole(task, truth, made))[1])
    finetune(*given, **options)  # type: ignore[arg-type]
    monkeypatch.undo()
    return found


def test_seeds_decide_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = (tiny(), "sst2", folder)
    first, second = outputs(monkeypatch, *given, seeds=(3, 4), epochs=1)
    torch.manual_seed(99)
    (again,) = outputs(monkeypatch, *given, seeds=(4,), epochs=1)
    np.testing.assert_array_equal(second, again)
    assert np.abs(first - second).max() > 1e-4


def test_equal_to_a_plain_loop_over_the_stock_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, lr, steps = tiny(dropout=0.0), 1e-3, 12
    torch.manual_seed(7)
    start = build_classifier(encoder, 2)
    mine = copy.deepcopy(start)
    monkeypatch.setattr(module, "build_classifier", lambda *_: mine)
    # So strong that the outputs would show it if either were left out.
    monkeypatch.setattr(module, "WEIGHT_DECAY", 30.0)
    monkeypatch.setattr(module, "CLIP", 0.05)
    (found,) = outputs(monkeypatch, encoder, "sst2", folder, seeds=(5,), epochs=2, lr=lr)

    examples = read_glue(TASKS["sst2"], folder)
    train, test = (encode(TOKENIZER, part.texts, 128) for part in examples)
    labels = torch.from_numpy(examples[0].labels)
    decayed = [p for p in start.parameters() if p.ndim > 1]
    plain = [p for p in start.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 30.0}, {"params": plain, "weight_decay": 0.0}])
    start.train()
    for step, (rows, _, _) in enumerate(BatchOrder(192, 32, steps, Key.root(5).fold("glue", "sst2"))):
        for group in optimizer.param_groups:
            group["lr"] = lr * learning_rate_factor(step, steps, "linear", 0.06)
        batch = padded([train[row] for row in rows], 1, torch.device("cpu"))
        optimizer.zero_grad()
        start(**batch, labels=labels[torch.from_numpy(rows)]).loss.backward()
        nn.utils.clip_grad_norm_(start.parameters(), 0.05)
        optimizer.step()
    start.eval()
    with torch.no_grad():
        expected = start(**padded(test, 1, torch.device("cpu"))).logits
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-4)
    assert expected.std() > 1e-3


def test_the_limit_takes_the_same_examples_for_every_seed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[tuple[int, ...]]] = []
    whole = module.encode

    def spy(*given: object) -> object:
        made = whole(*given)  # type: ignore[arg-type]
        taken.append([tuple(ids.tolist()) for ids in made])
        return made

    monkeypatch.setattr(module, "encode", spy)
    for seed in (0, 1):
        found = finetune(tiny(), "sst2", folder, seeds=(seed,), epochs=0.1, limit=40)
        assert (len(found.train), len(found.test)) == (40, 64)
    assert taken[0] == taken[2]
    assert finetune(tiny(), "sst2", folder, seeds=(0,), epochs=0.1, limit=10**6).train.labels.size == 192


def test_long_examples_are_cut(folder: Path) -> None:
    assert finetune(tiny(), "sst2", folder, seeds=(0,), epochs=0.1, length=8).test.labels.size == 64
    with pytest.raises(UserError, match="length 513 is outside 8 to 512, the positions of the encoder"):
        finetune(tiny(), "sst2", folder, length=513)


def test_wrong_options(folder: Path) -> None:
    with pytest.raises(UserError, match=r"unknown GLUE task 'sst3': did you mean 'sst2'\?"):
        finetune(tiny(), "sst3", folder)


def test_one_class_only(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("sentence\tlabel\na\t1\nb\t1\n")
    with pytest.raises(UserError, match="all 2 examples have the same 'label': nothing to learn"):
        finetune(tiny(), "sst2", tmp_path)


def test_divergence_is_said(folder: Path) -> None:
    model = tiny()
    with torch.no_grad():
        model.roberta.encoder.layer[0].output.dense.bias[0] = torch.nan
    with pytest.raises(UserError, match=r"fine-tuning on SST-2 diverged \(seed 2\): lower lr 2e-05"):
        finetune(model, "sst2", folder, seeds=(2,), epochs=0.1)


def test_finished_runs_are_not_done_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    genuine = module._run

    def again(encoder: MaskedLanguageModel, **options: Any) -> GlueScores:
        given: dict[str, Any] = {"seeds": (0, 1), "epochs": 1, "kept": tmp_path / "kept.json", **options}
        return finetune(encoder, "sst2", folder, **given)

    encoder = tiny()
    expected = finetune(encoder, "sst2", folder, seeds=(0, 1), epochs=1).runs
    monkeypatch.setattr(module, "_run", lambda *given: (done.append(given[7]), genuine(*given))[1])
    again(encoder, seeds=(0,))
    assert done == [0]
    steps: list[tuple[int, int]] = []
    assert again(encoder, progress=lambda step, total: steps.append((step, total))).runs == expected
    assert done == [0, 1]
    assert steps[0][0] == steps[0][1] // 2, "the bar begins behind what was done"
    assert again(encoder).runs == expected
    assert done == [0, 1]
    # Another recipe, other examples, other weights and a damaged file.
    for options in ({"lr": 1e-3}, {"limit": 8}, {"epochs": 2}):
        again(encoder, seeds=(0,), **options)
    assert done == [0, 1, 0, 0, 0]
    other = tiny()
    with torch.no_grad():
        other.roberta.embeddings.LayerNorm.bias.add_(1)
    again(other, seeds=(0,))
    assert done[5:] == [0]
    again(tiny(dropout=0.3), seeds=(0,))
    assert done[6:] == [0]
    done.clear()
    whole = (tmp_path / "kept.json").read_text(encoding="utf-8")
    for damaged in ("{", "[]", whole[:-20]):
        (tmp_path / "kept.json").write_text(damaged, encoding="utf-8")
        assert again(encoder).runs == expected
    assert done == [0, 1] * 3


def test_a_new_head_for_every_seed_on_a_copy_of_the_encoder() -> None:
    encoder = tiny(hidden_size=64)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    heads = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made = build_classifier(encoder, 2)
        heads.append(made.classifier.dense.weight.detach().clone())
        ids = torch.tensor([[0, 5, 9, 2]])
        with torch.no_grad():
            torch.testing.assert_close(made.roberta.eval()(ids).last_hidden_state, encoder.eval().encode(ids))
            for parameter in made.parameters():
                parameter.add_(1)
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert heads[0].std().item() == pytest.approx(0.02, rel=0.1)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_another_kind_of_model_is_refused(folder: Path) -> None:
    model = tiny()
    model.tokenizer = None
    with pytest.raises(UserError, match="needs a model with its tokenizer, not a MaskedLanguageModel"):
        finetune(model, "sst2", folder)
