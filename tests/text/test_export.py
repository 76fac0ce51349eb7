from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)

from r2mae import load
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.text.checkpoint import save_pretrained
from r2mae.text.config import TextConfig
from r2mae.text.models.roberta import MaskedLanguageModel
from r2mae.text.tokenizer import TextTokenizer, train_bpe
from r2mae.training import saving
from r2mae.training.folder import RunFolder
from r2mae.training.saving import save_model

TOKENIZER = train_bpe(["the quick brown fox jumps over the lazy dog"] * 3, 300)


def architecture(tokenizer: TextTokenizer = TOKENIZER) -> dict[str, Any]:
    return {
        "model": "roberta",
        "vocab_size": tokenizer.vocab_size,
        "special_ids": list(tokenizer.special_ids),
        "mask_id": tokenizer.mask_id,
        "pad_id": tokenizer.pad_id,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "length": 16,
        "hidden_size": 16,
        "layers": 2,
        "heads": 2,
        "intermediate_size": 24,
        "dropout": 0.1,
        "corruption": "mask",
        "exact": True,
        "roles": tokenizer.roles,
        "tokenizer": tokenizer.to_json(),
    }


def model() -> MaskedLanguageModel:
    torch.manual_seed(0)
    return MaskedLanguageModel.from_architecture(architecture()).eval()


def ids() -> torch.Tensor:
    return torch.randint(5, TOKENIZER.vocab_size, (3, 16), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Finish a run of the untrained model."""
    folder = RunFolder(tmp_path / "run")
    folder.claim(TextConfig.make(data="corpus.txt", sequence_length=16), "fingerprint")
    save_model(folder, architecture(), model(), {"domain": "text", "steps": 1, "seconds": 1.0})
    return folder


def test_the_folder_opens_as_stock_roberta(run: RunFolder, tmp_path: Path) -> None:
    ours = model()
    save_pretrained(run.path, tmp_path / "hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "run"], "nothing is left next to it"
    stock = AutoModelForMaskedLM.from_pretrained(tmp_path / "hf")
    assert type(stock) is RobertaForMaskedLM
    assert stock.lm_head.decoder.weight is stock.roberta.embeddings.word_embeddings.weight
    assert stock.lm_head.decoder.bias is stock.lm_head.bias
    torch.testing.assert_close(stock.eval()(ids()).logits, ours.logits(ours.encode(ids())), rtol=1e-5, atol=1e-6)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf", num_labels=3)
    assert type(classifier) is RobertaForSequenceClassification
    for name, one in classifier.roberta.named_parameters():
        assert torch.equal(one, ours.get_parameter(f"roberta.{name}"))


def test_the_tokenizer_comes_along(run: RunFolder, tmp_path: Path) -> None:
    save_pretrained(run.path, tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "the quick lazy dog"
    assert tokenizer(text)["input_ids"] == [0, *TOKENIZER.backend.encode(text, add_special_tokens=False).ids, 2]
    assert (tokenizer.mask_token_id, tokenizer.pad_token_id) == (TOKENIZER.mask_id, TOKENIZER.pad_id)
    assert tokenizer.model_max_length == 512
    longest = torch.full((1, tokenizer.model_max_length), 7)
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "hf")(longest).logits.shape[1] == 512


def test_a_finished_run_is_saved(tmp_path: Path) -> None:
    run, ours = RunFolder(tmp_path / "run"), model()
    run.claim(TextConfig.make(data="corpus.txt"), "fingerprint")
    with pytest.raises(UserError, match="is not finished"):
        save_pretrained(run.path, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    save_model(run, architecture(), ours, {"domain": "text", "steps": 1, "seconds": 1.0})
    save_pretrained(run.path, tmp_path / "hf")
    stock = RobertaForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    torch.testing.assert_close(stock(ids()).logits, ours.logits(ours.encode(ids())), rtol=1e-5, atol=1e-6)


def test_the_command(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.path), "--to", "transformers", "-o", str(tmp_path / "hf")]) == 0
    assert "AutoModelForMaskedLM" in capsys.readouterr().out
    stock = RobertaForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    torch.testing.assert_close(stock(ids()).logits, model().logits(model().encode(ids())), rtol=1e-5, atol=1e-6)
    for words, told in {
        "--to timm": "unknown layout of the domain text 'timm': choose from: transformers",
    }.items():
        assert main(["export", str(run.path), *words.split(), "-o", str(tmp_path / "other")]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_the_run_folder_itself_opens_in_transformers(run: RunFolder) -> None:
    for kind in (AutoConfig, RobertaConfig):
        config = kind.from_pretrained(run.path)
        assert (config.model_type, config.num_hidden_layers, config.vocab_size) == (
            "roberta",
            2,
            TOKENIZER.vocab_size,
        )
    text = "the quick lazy dog"
    expected = [0, *TOKENIZER.backend.encode(text, add_special_tokens=False).ids, 2]
    assert PreTrainedTokenizerFast(tokenizer_file=str(run.path / "tokenizer.json"))(text)["input_ids"] == expected
    tokenizer = AutoTokenizer.from_pretrained(run.path)
    assert tokenizer(text)["input_ids"] == expected
    assert (tokenizer.mask_token_id, tokenizer.model_max_length) == (TOKENIZER.mask_id, 512)
    stock, ours = AutoModelForMaskedLM.from_pretrained(run.path).eval(), model()
    assert type(stock) is RobertaForMaskedLM
    torch.testing.assert_close(stock(ids()).logits, ours.logits(ours.encode(ids())), rtol=1e-5, atol=1e-6)


def test_the_description_holds_the_tokenizer_of_the_model(run: RunFolder) -> None:
    assert (run.path / "tokenizer.json").read_text(encoding="utf-8") == TOKENIZER.to_json()
    (run.path / "tokenizer.json").write_text("{}")  # for other programs
    assert run.description.architecture == architecture()
    assert load(run.path).model.tokenizer.fingerprint == TOKENIZER.fingerprint  # type: ignore[union-attr]


def test_without_the_description_nothing_counts(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.model_file.unlink()

    def full(path: Path, content: object) -> None:
        assert (run.path / "tokenizer.json").is_file() and (run.path / "config.json").is_file()
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(saving, "write_json", full)
        save_model(run, architecture(), model(), {"domain": "text", "steps": 1, "seconds": 1.0})
    assert not run.trained
    save_model(run, architecture(), model(), {"domain": "text", "steps": 1, "seconds": 1.0})
    assert load(run.path).config.domain == "text"


def test_an_existing_folder_is_left_alone(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="exists already: name a new folder"):
        save_pretrained(run.path, tmp_path / "mine")
    with pytest.raises(UserError, match=r"notes\.txt exists already: name a new folder"):
        save_pretrained(run.path, tmp_path / "mine" / "notes.txt")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_nothing_is_left_of_what_fails(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> dict[str, str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MaskedLanguageModel, "side_files", full)
    with pytest.raises(UserError, match="No space left"):
        save_pretrained(run.path, tmp_path / "hf")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]
