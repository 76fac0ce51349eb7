"""Probes of frozen features: the features are those of single sentences, and a linear model on them is scored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from r2mae import cores
from r2mae.errors import UserError
from r2mae.evaluation.probes import LinearProbe
from r2mae.text import evaluate as module
from r2mae.text import finetune as finetuning
from r2mae.text.batches import architecture
from r2mae.text.config import TextConfig
from r2mae.text.evaluate import evaluate, probe_glue
from r2mae.text.finetune import encode
from r2mae.text.glue import TASKS, GlueExamples, read_glue
from r2mae.text.models.roberta import MaskedLanguageModel, build
from r2mae.text.task import TokenTask
from r2mae.text.tokenizer import train_bpe

pytestmark = pytest.mark.slow

WORDS = ["the", "film", "is", "a", "very", "long", "and", "quiet", "story", "of", "some", "people", "at", "sea"]
HEADS = {"SST-2": "sentence\tlabel", "STS-B": "sentence1\tsentence2\tscore", "MNLI": "sentence1\tsentence2\tgold_label"}
ANSWERS, NAMES = ("contradiction", "entailment"), ("bad", "good")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films that are called good or bad, among other words; pairs that agree or do not, and similarities."""
    root, rng = tmp_path_factory.mktemp("data") / "glue", np.random.default_rng(0)
    for name, head in HEADS.items():
        (root / name).mkdir(parents=True)
        for file, rows in (("train.tsv", 200), ("dev_matched.tsv" if name == "MNLI" else "dev.tsv", 61)):
            lines = [head]
            for _ in range(rows):
                label, other = (int(one) for one in rng.integers(2, size=2))
                words, alike = rng.choice(WORDS, size=rng.integers(1, 12)).tolist(), label
                words.insert(int(rng.integers(len(words) + 1)), NAMES[label])
                text, second = " ".join(words), f"{rng.choice(WORDS)} {NAMES[other]}"
                ends = {"SST-2": [text, str(label)], "STS-B": [text, second, f"{4.5 * alike:g}"]}
                lines.append("\t".join(ends.get(name, [text, second, ANSWERS[alike]])))
            (root / name / file).write_text("".join(f"{line}\n" for line in lines))
    return root


@pytest.fixture(scope="module")
def built() -> tuple[TokenTask, MaskedLanguageModel]:
    tokenizer = train_bpe([f"{' '.join(WORDS)} good bad"] * 3, 320)
    sizes = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64}
    made = architecture(TextConfig.make(data="x.txt", sequence_length=24, **sizes), tokenizer)
    torch.manual_seed(0)
    return build(made)


def alone(built: tuple[TokenTask, MaskedLanguageModel], part: GlueExamples, column: int) -> np.ndarray:
    """Embeddings of sentences one by one, so that nothing is padded."""
    task, model = built
    model.eval()
    with torch.no_grad():
        found = [task.embed(model, ids[None]) for ids in encode(model.tokenizer, (part.texts[column],), 24)]
    return torch.cat(found).numpy()


def test_single_sentences(
    built: tuple[TokenTask, MaskedLanguageModel], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = read_glue(TASKS["sst2"], folder)
    features = [alone(built, part, 0) for part in (train, test)]
    built[1].train()
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "_EMBEDDED_ROWS", 100)
    found = probe_glue(*built, "SST-2", folder, length=24, progress=lambda *counts: seen.append(counts))
    assert built[1].training, "left as it was"
    assert seen == [(100, 261), (200, 261), (261, 261)]
    features = StandardScaler().fit(features[0]).transform(np.concatenate(features))
    expected = LinearProbe(module.CS, scoring="accuracy").fit(features[:200], train.labels)
    assert found.score == pytest.approx(expected.score(features[200:], test.labels), abs=0.02)
    assert found.score > 0.9
    share = max(np.mean(test.labels), 1 - np.mean(test.labels))
    told = "sst2, linear probe: 200 examples of train.tsv, 61 of dev.tsv; the commonest label is right in"
    assert str(found) == f"{told} {share:.3f}"
    assert found.by_name() == {"sst2_probe_accuracy": found.score}


def test_pairs_and_a_class_that_nobody_has(built: tuple[TokenTask, MaskedLanguageModel], folder: Path) -> None:
    train, test = read_glue(TASKS["mnli"], folder)
    assert set(train.labels) == {0, 2}, "neutral is missing"
    found = probe_glue(*built, "mnli", folder, length=24)
    u, v = (alone(built, train, column) for column in (0, 1))
    features = np.concatenate([u, v, abs(u - v), u * v], axis=1)
    scale = features.std(0)
    stock = LogisticRegression(C=0.1, max_iter=2000).fit(features / scale, train.labels)
    u, v = (alone(built, test, column) for column in (0, 1))
    held_out = np.concatenate([u, v, abs(u - v), u * v], axis=1)
    assert found.score == pytest.approx(stock.score(held_out / scale, test.labels), abs=0.06)
    assert found.score > 0.7


def test_long_sentences_are_read_in_pieces(built: tuple[TokenTask, MaskedLanguageModel], folder: Path) -> None:
    train, _ = read_glue(TASKS["sst2"], folder)
    task, model = built
    rows = np.array([0, 1, 2])
    few = train.take(rows)
    texts = (("", "sea", " ".join(["the quiet film"] * 30)),)
    found = module._features(task, model, replace(few, texts=texts), 24, lambda more: None)
    assert not found[0].any(), "a sentence without a token"
    model.eval()
    with torch.no_grad():
        whole = encode(model.tokenizer, texts, module.LENGTH)[2]
        inner = whole[1:-1]
        starts = range(0, len(inner), 22)
        parts = [torch.cat([whole[:1], inner[start : start + 22], whole[-1:]]) for start in starts]
        means = torch.stack([task.embed(model, part[None])[0] for part in parts])
        sizes = torch.tensor([len(part) - 2.0 for part in parts])
    assert len(sizes) > 3
    assert sizes[-1] < 22, "the last piece counts less"
    np.testing.assert_allclose(found[2], ((sizes / len(inner)) @ means).numpy(), atol=1e-5)


def test_similarities(built: tuple[TokenTask, MaskedLanguageModel], folder: Path) -> None:
    found = probe_glue(*built, "stsb", folder, length=24)
    assert found.score > 0.4
    assert str(found).endswith("61 of dev.tsv")


def test_the_limit_takes_those_that_fine_tuning_takes(
    built: tuple[TokenTask, MaskedLanguageModel], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[tuple[str, ...], ...]] = []

    def noted(tokenizer: object, texts: tuple[tuple[str, ...], ...], length: int) -> object:
        taken.append(texts)
        return encode(tokenizer, texts, length)  # type: ignore[arg-type]

    for where in (module, finetuning):
        monkeypatch.setattr(where, "encode", noted)
    found = probe_glue(*built, "sst2", folder, limit=40, length=24)
    assert (len(found.train), len(found.test)) == (40, 61)
    finetuning.finetune(built[1], "sst2", folder, seeds=(0,), epochs=0.1, limit=40, length=24)
    probed, _, learned, _ = taken
    assert probed == learned
    assert probed[0] != read_glue(TASKS["sst2"], folder)[0].texts[0][:40], "not the first ones"


@pytest.mark.parametrize("limit", [2, 3, 5, 8])
def test_few_examples_have_fewer_folds_or_are_refused(
    limit: int, built: tuple[TokenTask, MaskedLanguageModel], folder: Path
) -> None:
    try:
        least = read_glue(TASKS["sst2"], folder, limit)[0].rarest_class
    except UserError:
        least = 0
    if least >= 2:
        assert probe_glue(*built, "sst2", folder, limit=limit, length=24).train.labels.size == limit
    else:
        with pytest.raises(UserError, match=r"raise the limit|nothing to learn"):
            probe_glue(*built, "sst2", folder, limit=limit, length=24)


def test_features_that_memory_cannot_hold(
    built: tuple[TokenTask, MaskedLanguageModel], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "available_memory", lambda: 100_000)
    with pytest.raises(UserError, match=r"MNLI: features of 261 examples take about 0.000802 GB, .* --limit 10000"):
        probe_glue(*built, "mnli", folder)


def test_evaluate_has_probes_and_their_mean(
    built: tuple[TokenTask, MaskedLanguageModel], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(folder.parent))
    config = TextConfig.make(data="x.txt", sequence_length=24, vocab_size=320)
    one = evaluate(config.replace(glue_probes=("sst2",)), *built, None)
    assert set(one) == {"sst2_probe_accuracy"}
    both = evaluate(config.replace(glue_probes=("sst2", "MNLI")), *built, None)
    assert both["sst2_probe_accuracy"] == one["sst2_probe_accuracy"], "nothing is drawn"
    assert both["glue_probe"] == pytest.approx((both["sst2_probe_accuracy"] + both["mnli_probe_accuracy"]) / 2)
    with pytest.raises(UserError, match="unknown GLUE task 'nli'"):
        config.replace(glue_probes=("nli",))
