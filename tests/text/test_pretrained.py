"""Any masked language model of transformers is continued as it is: its tokens, its losses, and its files."""

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertOnlyMLMHead

from checkpoints import KINDS, WORDS, checkpoint, corpus
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.text.batches import load_data
from r2mae.text.checkpoint import load_checkpoint, save_pretrained
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.finetune import build_classifier, encode
from r2mae.text.models.pretrained import PretrainedModel
from r2mae.training.loop import fit
from r2mae.training.saving import load_model

pytestmark = pytest.mark.slow


def config_for(folder: Path, kind: str, **options: Any) -> TextConfig:
    given = {"sequence_length": 16, "validation": 0.1, "batch_size": 8, "steps": 2, "device": "cpu", "threads": 1}
    return TextConfig.make(data=str(corpus(kind, folder)), init=str(folder / kind), **{**given, **options})


def started(config: TextConfig) -> tuple[Any, PretrainedModel, torch.Tensor]:
    """The task, the model with the checkpoint's weights, without dropout, and a batch."""
    data = load_data(config)
    task, model = DOMAIN.build(data.architecture)
    assert isinstance(model, PretrainedModel)
    load_checkpoint(str(config.init), model)
    return task, model.eval(), data.train.batch(np.arange(16), Key.root(0))


@pytest.mark.parametrize("kind", KINDS)
def test_losses_gradients_tokens_and_files_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    source = checkpoint(kind, tmp_path / kind)
    task, model, batch = started(config := config_for(tmp_path, kind))
    assert model.positionwise
    theirs, tokenizer = AutoModelForMaskedLM.from_pretrained(source).eval(), AutoTokenizer.from_pretrained(source)
    assert {name for name, _ in model.named_parameters()} == {name for name, _ in theirs.named_parameters()}
    assert len(model.units()) == 2
    assert model.tokenizer is not None
    frame = {tokenizer.cls_token_id, model.tokenizer.eos_id}
    assert set(batch.flatten().tolist()) & set(task.special_ids) == frame

    hidden = task.corrupt(batch, 0.4, Key.root(1))
    assert task.mask_id == tokenizer.mask_token_id and (hidden.inputs == task.mask_id).any()
    losses = task.losses(task.forward(model, hidden), hidden)
    labels = batch.masked_fill(~hidden.hidden, -100)
    logits = theirs(hidden.inputs).logits
    expected = cross_entropy(logits[hidden.hidden], batch[hidden.hidden], reduction="none")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    losses.mean().backward()
    theirs(hidden.inputs, labels=labels).loss.backward()
    for name, one in theirs.named_parameters():
        own = model.get_parameter(name).grad
        assert (own is None) == (one.grad is None), name
        if own is not None:
            torch.testing.assert_close(own, one.grad, rtol=1e-3, atol=1e-6)

    fit(config, DOMAIN, tmp_path / "run")
    save_pretrained(tmp_path / "run", tmp_path / "export")
    finished: Any = load_model(tmp_path / "run", DOMAIN)[2]
    for folder in (tmp_path / "run", tmp_path / "export"):
        again = AutoModelForMaskedLM.from_pretrained(folder).eval()
        assert type(again) is type(theirs)
        torch.testing.assert_close(again(hidden.inputs).logits, finished.stock()(hidden.inputs).logits)
        assert not torch.equal(again(hidden.inputs).logits, logits)
        text = "MKVLAGXQ" if kind == "Esm" else f"{WORDS[0]} {WORDS[1]} x"
        with_mask = text + tokenizer.mask_token
        loaded = AutoTokenizer.from_pretrained(folder)
        assert loaded(with_mask)["input_ids"] == tokenizer(with_mask)["input_ids"]
        assert loaded.mask_token == tokenizer.mask_token
        again(**loaded(text, return_tensors="pt"))
    # A run is a checkpoint, too.
    task, model, _ = started(config.replace(init=str(tmp_path / "run")))
    again = model.stock()
    torch.testing.assert_close(again(hidden.inputs).logits, finished.stock()(hidden.inputs).logits)
    assert task.special_ids


def headless(source: Path, prefix: str = "") -> dict[str, torch.Tensor]:
    """Take the head from a checkpoint, as AutoModel saves it; return the weights left, by their names in the whole."""
    whole = AutoModelForMaskedLM.from_pretrained(source)
    whole.base_model.save_pretrained(source)
    weights = load_file(source / "model.safetensors")
    save_file({prefix + name: value for name, value in weights.items()}, source / "model.safetensors", {"format": "pt"})
    return {f"{whole.base_model_prefix}.{name}": value for name, value in weights.items()}


@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "Albert", "MPNet"])
def test_an_encoder_gets_a_fresh_head_of_the_seed(kind: str, prefixed: bool, tmp_path: Path) -> None:
    source = checkpoint(kind, tmp_path / kind)
    whole = AutoModelForMaskedLM.from_pretrained(source)
    weights = headless(source, f"{whole.base_model_prefix}." if prefixed else "")
    data = load_data(config_for(tmp_path, kind))
    heads = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        _, model = DOMAIN.build(data.architecture)
        torch.manual_seed(seed + 7)  # transformers draws a head, too
        origin = load_checkpoint(str(source), model)
        assert f"without the head of {kind}ForMaskedLM, which begins with random weights" in " ".join(origin.notes)
        own = dict(model.named_parameters(remove_duplicate=False))
        for name, value in weights.items():
            assert torch.equal(own.get(name, value), value), name
        stock: Any = model.stock()
        assert stock.get_output_embeddings().weight is stock.get_input_embeddings().weight
        heads.append([value for name, value in own.items() if name not in weights and value.ndim == 2])
    assert all(map(torch.equal, heads[0], heads[1]))
    assert heads[0] and not all(map(torch.equal, heads[0], heads[2]))


def test_weights_that_a_fresh_head_leaves_unused_are_named(tmp_path: Path) -> None:
    source = checkpoint("Bert", tmp_path / "Bert")
    weights = headless(source, "bert.")
    more = {f"other_head.{name}": torch.ones(2) for name in "abcd"}
    save_file(
        {name: value.clone() for name, value in weights.items()} | more, source / "model.safetensors", {"format": "pt"}
    )
    _, model = DOMAIN.build(load_data(config_for(tmp_path, "Bert")).architecture)
    (note,) = load_checkpoint(str(source), model).notes
    assert note.endswith("random weights (unused: other_head.a, other_head.b, other_head.c, …)")


def test_an_encoder_is_trained_measured_before_and_after_exported_and_continued(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    headless(checkpoint("Bert", Path("Bert")))
    sizes = ["--sequence-length", "16", "--validation", "0.1", "--batch-size", "8", "--steps", "40", "--lr", "1e-2"]
    line = ["pretrain", "text", str(corpus("Bert", Path())), *sizes, "--device", "cpu", "--init"]
    assert main([*line, "Bert", "--out", "run"]) == 0
    assert "it is an encoder without the head of BertForMaskedLM" in caplog.text
    found = json.loads(Path("run/results.json").read_text())
    assert found["before"].keys() == found["scores"].keys()
    assert found["scores"]["loss"] < found["before"]["loss"] < 1.2 * np.log(63)
    head, loss, *_ = [row.split() for row in capsys.readouterr().out.splitlines()[1:]]
    assert (head, len(loss)) == (["before", "training", "after"], 6)
    assert main(["evaluate", "run"]) == 0
    assert main(["embed", "run", "corpus.txt", "-o", "e.npz"]) == 0
    assert main(["export", "run", "--to", "transformers", "-o", "exported"]) == 0
    assert main([*line, "./exported", "--out", "again"]) == 0
    before = json.loads(Path("again/results.json").read_text())["before"]
    assert before == pytest.approx(found["scores"], rel=1e-6)  # the head is in the export
    encoder = AutoModel.from_pretrained("exported")
    AutoTokenizer.from_pretrained("exported").save_pretrained("encoder")
    encoder.save_pretrained("encoder")
    assert main([*line, "encoder", "--out", "third"]) == 0


def test_a_run_from_scratch_is_exported_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ["--sequence-length", "16", "--validation", "0.1", "--batch-size", "8", "--steps", "2", "--device", "cpu"]
    line = ["pretrain", "text", str(corpus("Roberta", Path())), *sizes]
    assert main([*line, "--preset", "tiny", "--vocab-size", "300", "--out", "run"]) == 0
    assert main(["export", "run", "--to", "transformers", "-o", "exported"]) == 0
    assert main([*line, "--init", "exported", "--out", "whole"]) == 0
    scores = json.loads(Path("run/results.json").read_text())["scores"]
    assert json.loads(Path("whole/results.json").read_text())["before"] == pytest.approx(scores, rel=1e-5)
    headless(Path("exported"))
    assert main([*line, "--init", "exported", "--out", "encoder"]) == 0


def test_a_head_that_needs_all_tokens_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    genuine = BertOnlyMLMHead.forward
    monkeypatch.setattr(BertOnlyMLMHead, "forward", lambda head, x: genuine(head, x + x.mean(1, keepdim=True)))
    source = checkpoint("Bert", tmp_path / "Bert")
    task, model, batch = started(config := config_for(tmp_path, "Bert"))
    assert not model.positionwise
    hidden = task.corrupt(batch, 0.4, Key.root(1))
    output = task.forward(model, hidden)
    logits = AutoModelForMaskedLM.from_pretrained(source).eval()(hidden.inputs).logits[hidden.hidden]
    expected = cross_entropy(logits, batch[hidden.hidden], reduction="none")
    torch.testing.assert_close(task.losses(output, hidden), expected, rtol=1e-4, atol=1e-5)
    assert output.representation.shape == (len(expected), 16)
    fit(config, DOMAIN, tmp_path / "run")
    assert "the head of BertForMaskedLM needs all tokens: logits are computed at all of them" in caplog.text
    scores = DOMAIN.evaluate(config, *load_model(tmp_path / "run", DOMAIN)[1:], load_data(config))
    assert np.isfinite(scores["loss"])


def test_pickled_weights_are_read_as_plain_tensors_alone(tmp_path: Path) -> None:
    source = checkpoint("Bert", tmp_path / "Bert")
    weights = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    torch.save(weights, source / "pytorch_model.bin")
    _, model, _ = started(config := config_for(tmp_path, "Bert"))
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(model.get_parameter(name), weights[name])
    torch.save({**weights, "code": Path("x")}, source / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"Bert cannot be read") as caught:
        started(config)
    assert "\n" not in str(caught.value)


def test_the_layout_of_published_deberta(tmp_path: Path) -> None:
    """Their configuration names none, and transformers takes the older one."""
    source = checkpoint("DebertaV2", tmp_path / "DebertaV2", legacy=False)
    config = json.loads((source / "config.json").read_text())
    del config["legacy"]
    (source / "config.json").write_text(json.dumps(config))
    assert any(name.startswith("lm_predictions") for name in load_file(source / "model.safetensors"))
    started(config_for(tmp_path, "DebertaV2"))


def broken(folder: Path, how: str) -> None:
    weights = load_file(folder / "model.safetensors")
    word, config = "bert.embeddings.word_embeddings.weight", json.loads((folder / "config.json").read_text())
    match how:
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "no weights":
            (folder / "model.safetensors").unlink()
        case "no config":
            (folder / "config.json").unlink()
        case "half a head":
            del weights["cls.predictions.transform.dense.weight"]
            save_file(weights, folder / "model.safetensors", {"format": "pt"})
        case "half an encoder":
            own = {name.removeprefix("bert."): value for name, value in weights.items() if name.startswith("bert.")}
            del own["encoder.layer.1.output.dense.weight"]
            save_file(own, folder / "model.safetensors", {"format": "pt"})
        case "another encoder":
            BertModel(BertConfig(**{**config, "intermediate_size": 32})).save_pretrained(folder)
            (folder / "config.json").write_text(json.dumps(config))
        case "names of another library":
            save_file({f"m.{name}": value for name, value in weights.items()}, folder / "model.safetensors")
        case "another head":
            save_file(
                {**weights, "cls.predictions.bias": torch.zeros(7)}, folder / "model.safetensors", {"format": "pt"}
            )
        case "cut":
            (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-100])
        case "nan":
            weights[word][3, 3] = float("nan")
            save_file(weights, folder / "model.safetensors", {"format": "pt"})
        case "huge":
            (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 2**24}))
        case "layers":
            (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
        case "other tokens":
            (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 50}))
        case "more rows":
            (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 30522}))
        case "no masked language model":
            (folder / "config.json").write_text(json.dumps({"model_type": "vit"}))
        case "unknown":
            (folder / "config.json").write_text(json.dumps({"model_type": "of tomorrow"}))
        case "code":
            (folder / "config.json").write_text(
                json.dumps({**config, "model_type": "own", "auto_map": {"AutoConfig": "x.Y"}})
            )
        case "no mask":
            rules = (folder / "tokenizer.json").read_text().replace("[MASK]", "[HIDE]")
            (folder / "tokenizer.json").write_text(rules)
            settings = json.loads((folder / "tokenizer_config.json").read_text())
            settings.pop("mask_token")
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("no tokenizer", "the checkpoint has no tokenizer: put tokenizer.json or vocab.txt there"),
        ("no weights", "holds no weights"),
        ("no config", "holds no config.json"),
        ("half a head", "has no weights that fit for cls.predictions.transform.dense.weight"),
        ("half an encoder", "has no weights that fit for bert.encoder.layer.1.output.dense.weight"),
        ("another encoder", "has no weights that fit for bert.encoder.layer.0.intermediate.dense.bias"),
        ("names of another library", "has no weights that fit for bert.embeddings"),
        ("another head", "has no weights that fit for cls.predictions.bias"),
        ("cut", "cannot be read"),
        ("nan", "word_embeddings.weight is not finite"),
        ("huge", "and the files have"),
        ("layers", "num_hidden_layers is 1,000,000,000"),
        ("other tokens", "its tokenizer has 63 tokens, and its embedding 50 rows"),
        ("more rows", "its tokenizer has 63 tokens, and its embedding 30,522 rows"),
        ("no masked language model", "cannot be read"),
        ("unknown", "cannot be read"),
        ("code", "cannot be read"),
        ("no mask", "has no mask token"),
    ],
)
def test_what_is_wrong_with_a_checkpoint_is_one_line(how: str, words: str, tmp_path: Path) -> None:
    broken(checkpoint("Bert", tmp_path / "Bert"), how)
    with pytest.raises(UserError, match=words) as caught:
        started(config_for(tmp_path, "Bert"))
    assert "\n" not in str(caught.value)
    assert "Bert" in str(caught.value)


def test_a_sequence_is_at_most_as_long_as_the_positions(tmp_path: Path) -> None:
    checkpoint("Bert", tmp_path / "Bert")
    with pytest.raises(UserError, match=r"sequence_length 64: .*Bert has 40 positions"):
        started(config_for(tmp_path, "Bert", sequence_length=64))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--init", "./nothing"], "nothing is no folder: name that of a checkpoint"),
        (
            ["--init", "nowhere"],
            "nowhere cannot be read (no folder of that name, and the Hub is not reachable): name",
        ),
        (["--init", "Bert", "--preset", "tiny"], "omit preset"),
        (["--init", "Bert", "--tokenizer", "x.json"], "omit preset and tokenizer"),
        (["--init", "Bert", "--hidden-size", "8"], "belongs to the model 'roberta', not to 'pretrained': omit it"),
        (["--init", "Bert", "--model", "roberta"], "init is for the model pretrained"),
        (["--model", "pretrained"], "the model pretrained is the checkpoint of init, which is missing"),
    ],
)
def test_options_that_do_not_go_with_it(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    checkpoint("Bert", Path("Bert"))
    corpus("Bert", Path())
    assert main(["pretrain", "text", "corpus.txt", *words, "--out", "run"]) == 2
    line = capsys.readouterr().err.strip()
    assert told in line
    assert "\n" not in line


def test_defaults_are_those_of_a_checkpoint(tmp_path: Path) -> None:
    checkpoint("Bert", tmp_path / "Bert")
    made = TextConfig.make(data="x", init=str(tmp_path / "Bert"))
    assert (made.model.name, made.optimizer.lr, made.optimizer.batch_size) == ("pretrained", 1e-4, 256)
    other = TextConfig.make(data="x", init=str(tmp_path / "Bert"), lr=3e-4, batch_size=8)
    assert (other.optimizer.lr, other.optimizer.batch_size) == (3e-4, 8)
    assert TextConfig.from_dict(other.to_dict()) == other
    assert other.replace(seed=1).optimizer.lr == 3e-4


def test_a_run_needs_its_checkpoint_only_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = checkpoint("Bert", Path("Bert"))
    sizes = ["--sequence-length", "16", "--validation", "0", "--batch-size", "8", "--steps", "2", "--device", "cpu"]
    line = ["pretrain", "text", str(corpus("Bert", Path())), "--init", "Bert", *sizes, "--out", "run"]
    assert main(line) == 0
    Path("run/model.json").unlink()
    assert main(line) == 0
    Path("run/model.json").unlink()
    weights = load_file(source / "model.safetensors")
    save_file({name: value + 1 for name, value in weights.items()}, source / "model.safetensors", {"format": "pt"})
    assert main(line) == 2
    assert "has changed since" in capsys.readouterr().err
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    assert main(line) == 0
    source.rename("elsewhere")
    assert main(["embed", "run", "corpus.txt", "-o", "e.npz"]) == 0


def test_a_comparison_continues_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint("Electra", Path("Electra"))
    corpus("Electra", Path())
    sizes = ["--sequence-length", "16", "--validation", "0.1", "--batch-size", "8", "--steps", "2", "--device", "cpu"]
    line = ["compare", "text", "corpus.txt", "--init", "Electra", *sizes, "--schemes", "r2mae", "--seeds", "2"]
    assert main([*line, "--out", "runs"]) == 0
    assert "r2mae" in capsys.readouterr().out


def test_a_classifier_takes_the_encoder_and_the_tokenizer_frames_pairs(tmp_path: Path) -> None:
    checkpoint("Bert", tmp_path / "Bert")
    _, model, _ = started(config_for(tmp_path, "Bert"))
    made = build_classifier(model, 2)
    assert type(made).__name__ == "BertForSequenceClassification"
    word = "embeddings.word_embeddings.weight"
    assert torch.equal(made.base_model.get_parameter(word), model.base_model.get_parameter(word))
    assert model.tokenizer is not None
    assert encode(model.tokenizer, (("alpha",), ("beta",)), 16)[0].tolist() == [2, 5, 3, 6, 3]
