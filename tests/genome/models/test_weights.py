"""Weights of runs and of the original GPN-MSA: read, and written so that RoFormer's own layers give the same."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import one_hot
from transformers import RoFormerConfig
from transformers.models.roformer.modeling_roformer import RoFormerEncoder, RoFormerOnlyMLMHead

from genome.made import network, windows
from genome.test_data import aligned, config
from genome.test_domain import SMALL
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.genome.domain import DOMAIN
from r2mae.genome.models.weights import export, load_initial_weights
from r2mae.genome.store.tokens import MASK
from r2mae.training.loop import fit
from r2mae.training.pretraining import pretrain
from r2mae.training.saving import load_model

ONE_HOT = {**SMALL, "width": 32, "one_hot": True}
THEIRS = torch.tensor([1, 2, 3, 4, 0, 0, 5])  # their tokens, -ACGT?, of ours, ACGT-N and hidden


class Original(nn.Module):
    """The original, of transformers' parts: one-hot vectors filled up with zeros, RoFormer's layers, and its head."""

    def __init__(self, others: int, width: int, heads: int = 2, layers: int = 1, inner: int = 16) -> None:
        super().__init__()
        self.config = RoFormerConfig(
            vocab_size=6, hidden_size=width, embedding_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=inner, max_position_embeddings=24,
        )  # fmt: skip
        self.model = nn.Module()
        self.model.encoder = RoFormerEncoder(self.config)
        self.cls = RoFormerOnlyMLMHead(self.config)
        self.cls.predictions.decoder.bias = self.cls.predictions.bias  # tied
        self.others = others
        with torch.no_grad():
            positions = self.model.encoder.embed_positions
            positions.weight.copy_(positions.create_weight())

    def forward(self, target: Tensor, aligned: Tensor) -> Tensor:
        flags = one_hot(THEIRS[target], self.config.hidden_size).float()
        flags[:, :, 6 : 6 + 5 * self.others] = one_hot(THEIRS[aligned.long()], 5).flatten(2).float()
        logits: Tensor = self.cls(self.model.encoder(flags).last_hidden_state)
        return logits

    def write(self, folder: Path, **changes: object) -> Path:
        folder.mkdir()
        values = {**self.config.to_dict(), "model_type": "GPNRoFormer", "n_aux_features": 5 * self.others}
        (folder / "config.json").write_text(json.dumps({**values, "aux_features_vocab_size": 5, **changes}))
        state = self.state_dict()
        del state["cls.predictions.decoder.bias"]  # as in the published file
        torch.save(state, folder / "pytorch_model.bin")
        return folder


def original(others: int = 3, width: int = 32) -> Original:
    torch.manual_seed(1)
    model = Original(others, width).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def test_a_checkpoint_in_the_layout_of_the_original(tmp_path: Path) -> None:
    stock = original()
    model = network(width=32, layers=1, inner=16, one_hot=True).eval()
    origin = load_initial_weights(stock.write(tmp_path / "gpn"), model)
    assert (origin.layout, origin.files) == ("gpn", (tmp_path / "gpn" / "pytorch_model.bin",))
    batch = windows()
    target = batch["target"].long()
    target[:, 3] = MASK
    mine = model.head(model.encode(target, batch["aligned"]))
    torch.testing.assert_close(mine, stock(target, batch["aligned"])[:, :, 1:5], atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_a_run_begins_with_the_original_and_is_written_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = aligned(tmp_path)
    folder = original().write(tmp_path / "gpn")
    run = config(store, **ONE_HOT, init=str(folder), steps=1, lr=1e-12)
    pretrain(run, DOMAIN, tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--to", "gpn", "-o", str(tmp_path / "out")]) == 0
    assert "GPNRoFormerForMaskedLM" in capsys.readouterr().out
    _, _, model = load_model(tmp_path / "run", DOMAIN)
    written = Original(3, 32)
    state = load_file(tmp_path / "out" / "model.safetensors")
    positions = written.state_dict()["model.encoder.embed_positions.weight"][:16]
    torch.testing.assert_close(state["model.encoder.embed_positions.weight"], positions, atol=1e-6, rtol=1e-6)
    del state["model.encoder.embed_positions.weight"]  # of another length
    torch.testing.assert_close(state["cls.predictions.decoder.bias"], state["cls.predictions.bias"])
    assert written.load_state_dict(state, strict=False).missing_keys == ["model.encoder.embed_positions.weight"]
    batch = windows(length=16)
    target = batch["target"].long()
    mine = model.head(model.encode(target, batch["aligned"])).log_softmax(-1)
    theirs = written.eval()(target, batch["aligned"]).log_softmax(-1)
    torch.testing.assert_close(mine, theirs[:, :, 1:5], atol=2e-5, rtol=1e-4)
    again = network(width=32, layers=1, inner=16, one_hot=True).eval()
    load_initial_weights(tmp_path / "out", again)
    for name, values in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], values)
    with pytest.raises(UserError, match="exists already"):
        export(tmp_path / "run", tmp_path / "out")


@pytest.mark.slow
def test_a_run_begins_with_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = aligned(tmp_path)
    fit(config(store, **SMALL, steps=1), DOMAIN, tmp_path / "one")
    words = ["pretrain", "genome", str(store.folder), "--init", str(tmp_path / "one"), "--out", str(tmp_path / "two")]
    sizes = ["--width", "16", "--layers", "1", "--heads", "2", "--inner", "16", "--window", "16", "--device", "cpu"]
    assert main([*words, *sizes, "--steps", "1", "--batch-size", "8", "--lr", "1e-30"]) == 0
    states = [load_model(tmp_path / name, DOMAIN)[2].state_dict() for name in ("one", "two")]
    for name, values in states[0].items():
        torch.testing.assert_close(values, states[1][name])
    capsys.readouterr()
    assert main([*words[:-1], str(tmp_path / "three"), "--preset", "tiny", "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert "has other width, layers, heads, inner than the run (width: 16, here 128)" in error
    assert error.count("\n") == 1
    (tmp_path / "two" / "config.yaml").write_text("domain: images\n")
    with pytest.raises(UserError, match="is a run of the domain images"):
        load_initial_weights(tmp_path / "two", network())
    with pytest.raises(UserError, match="begins with a learned matrix"):
        export(tmp_path / "one", tmp_path / "out")


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    model = network(width=32, layers=1, inner=16, one_hot=True)
    folder = original().write(tmp_path / "gpn")
    with pytest.raises(UserError, match=r"has other species than the run \(species: 3, here 2\)"):
        load_initial_weights(folder, network(2, width=32, layers=1, inner=16, one_hot=True))
    with pytest.raises(UserError, match=r"has other one_hot than the run.*\(--one-hot\)"):
        load_initial_weights(folder, network(width=32, layers=1, inner=16))
    with pytest.raises(UserError, match="model_type is 'bert', and 'GPNRoFormer' in GPN-MSA"):
        load_initial_weights(original().write(tmp_path / "other", model_type="bert"), model)
    (folder / "pytorch_model.bin").write_bytes((folder / "pytorch_model.bin").read_bytes()[:-500])
    with pytest.raises(UserError, match=r"pytorch_model\.bin as weights of GPN-MSA cannot be read"):
        load_initial_weights(folder, model)
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="as weights of GPN-MSA cannot be read"):
        load_initial_weights(folder, model)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(UserError, match=r"holds neither model\.safetensors nor"):
        load_initial_weights(folder, model)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="config"):
        load_initial_weights(folder, model)
    with pytest.raises(UserError, match="one-hot vectors of 3 species need a width of 21 or more, not 16"):
        network(one_hot=True)
    with pytest.raises(UserError, match="there is no such folder"):
        DOMAIN.check(config(aligned(tmp_path, 300), init=str(tmp_path / "none")))
