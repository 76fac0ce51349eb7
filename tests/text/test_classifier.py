"""Any encoder, of a run or of transformers, can be put under a classification head."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from r2mae.domains.lookup import load
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.text.batches import load_data
from r2mae.text.classifier import build_classifier, load_pretrained
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN as TEXT
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.tokenizer import TextTokenizer, train_bpe
from r2mae.training.loop import fit


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_bpe(["the cat sat on the mat"] * 3, 270)


def tiny(**changes: int) -> MaskedLanguageModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 270, "hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 32}
    return MaskedLanguageModel(**{**sizes, **changes})


def tiny_bert(**changes: int) -> BertForMaskedLM:
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForMaskedLM(BertConfig(vocab_size=270, hidden_size=16, **sizes, **changes))


def test_the_encoder_is_copied() -> None:
    encoder = tiny()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    made = build_classifier(encoder.stock().base_model, 2)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(1)
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_new_head_for_every_seed_with_stock_statistics() -> None:
    encoder = tiny(hidden_size=64)
    heads = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        heads.append(build_classifier(encoder.stock().base_model, 2).classifier.dense)
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert not torch.equal(heads[0].weight, heads[2].weight)
    assert heads[0].weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not heads[0].bias.any()


def test_other_models_of_transformers(tokenizer: TextTokenizer) -> None:
    bert = tiny_bert()
    found = load_pretrained(bert, tokenizer)
    made = build_classifier(found.model, 2)
    assert torch.equal(made.bert.embeddings.word_embeddings.weight, bert.bert.embeddings.word_embeddings.weight)
    assert made(torch.ones(2, 5, dtype=torch.long)).logits.shape == (2, 2)


def test_length(tokenizer: TextTokenizer) -> None:
    ours = tiny()
    found = load_pretrained(ours, tokenizer)
    assert (found.length, found.positions) == (128, 512)
    assert load_pretrained(ours.stock(), tokenizer).positions == 512
    assert load_pretrained(tiny_bert(max_position_embeddings=40), tokenizer).length == 40


def test_a_hugging_face_folder_brings_its_tokenizer(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    ours = tiny()
    ours.stock().save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    found = load_pretrained(tmp_path)
    words = found.model.embeddings.word_embeddings.weight
    torch.testing.assert_close(words, ours.roberta.embeddings.word_embeddings.weight)
    assert found.tokenizer("cat")["input_ids"] == tokenizer.backend.encode("cat").ids


def test_what_is_no_encoder(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    with pytest.raises(UserError, match="is neither a run folder nor a model of Hugging Face"):
        load_pretrained(tmp_path)
    with pytest.raises(UserError, match="needs its tokenizer"):
        load_pretrained(tiny())
    with pytest.raises(UserError, match="needs a run of text or a model of transformers, not a Linear"):
        load_pretrained(nn.Linear(1, 1), tokenizer)


@pytest.mark.slow
def test_a_run_folder_brings_its_tokenizer_and_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("\n\n".join(["the cat sat on the mat, the dog was there too"] * 40))
    sizes = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16, "sequence_length": 12}
    config = TextConfig.make(
        data=str(tmp_path / "a.txt"), vocab_size=300, steps=2, batch_size=4, validation=0.2, device="cpu", **sizes
    )
    fit(config, TEXT, tmp_path / "run")
    found = load_pretrained(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert found.length == 12
    assert isinstance(found.tokenizer, TextTokenizer)
    assert found.tokenizer.fingerprint == load_data(config).tokenizer.fingerprint
    assert load_pretrained(loaded.model).tokenizer.fingerprint == found.tokenizer.fingerprint
    ids = torch.tensor([[0, 5, 9, 2]])
    with torch.no_grad():
        states = found.model.eval()(ids).last_hidden_state
        torch.testing.assert_close(states, loaded.model.eval().encode(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_run_of_another_domain(tmp_path: Path) -> None:
    fit(ImagesConfig.make(data="digits", hidden=4, latent=2, steps=1, device="cpu"), IMAGES, tmp_path / "run")
    with pytest.raises(UserError, match="is a run of the domain 'images': fine-tuning on GLUE needs one of text"):
        load_pretrained(tmp_path / "run")


def test_an_encoder_that_lacks_weights(tokenizer: TextTokenizer) -> None:
    whole = GPT2LMHeadModel(GPT2Config(vocab_size=270, n_embd=8, n_layer=1, n_head=1)).base_model
    del whole.ln_f.weight
    with pytest.raises(UserError, match=r"the encoder lacks weights \(ln_f.weight\)"):
        build_classifier(whole, 2)
