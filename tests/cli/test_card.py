import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from r2mae.cli.card import command_of, model_card, push, write_card
from r2mae.cli.main import main
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.training.folder import RunFolder


@pytest.mark.parametrize(
    "values",
    [
        {"data": "digits"},
        {"data": "digits", "model": "vit-mae", "scheme": "fixed", "ratio": 0.3, "epochs": 3.0, "lr": 1e-3},
        {
            "data": "digits",
            "scheme": "r2mae-per-sample",
            "low": 0.05,
            "high": 0.95,
            "fill": "mean",
            "model.norm": "layer",
        },
        {"data": "mnist", "steps": 70, "betas": (0.9, 0.95), "exact": True, "clip": 1.0, "resize": 14},
    ],
)
def test_the_command_makes_the_same_configuration(
    values: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    config_class = get_domain("images").config
    config = config_class.make(**values)
    assert main([*shlex.split(command_of(config))[1:], "--print-config"]) == 0
    printed = config_class.from_dict(yaml.safe_load(capsys.readouterr().out))
    assert {**printed.flat(), "preset": None} == {**config.flat(), "preset": None}


class Hub:
    """Notes what is uploaded."""

    calls: list[tuple[str, Any]] = []  # noqa: RUF012

    def create_repo(self, name: str, exist_ok: bool) -> str:
        if name == "me/none":
            raise ConnectionError("Name or service not known")
        return f"https://huggingface.co/{name}"

    def upload_folder(self, *, repo_id: str, folder_path: Path) -> None:
        self.calls.append((repo_id, sorted(one.name for one in folder_path.iterdir())))

    def upload_file(self, *, repo_id: str, path_or_fileobj: Path, path_in_repo: str) -> None:
        self.calls.append((path_in_repo, path_or_fileobj.read_text()))


def test_a_card_says_what_was_trained_and_is_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = get_domain("images")
    config = domain.config.make(data=str(tmp_path / "secret" / "x.npz"), scheme="fixed", ratio=0.3, steps=70)
    monkeypatch.setattr(RunFolder, "description", type("D", (), {"steps": 70}))
    monkeypatch.setattr(RunFolder, "results", {"scores": {"probe_accuracy": 0.97531, "other|one": None}})
    card = model_card(tmp_path, domain, config, "vit", "timm", "timm opens it")
    for words in ("| scheme | fixed (ratio 0.3) |", "70 of 128 samples, seed 0", "0.9753", r"other\|one", "--steps 70"):
        assert words in card
    assert "secret" not in card and "library_name: timm" in card

    (folder := tmp_path / "out").mkdir()
    (file := tmp_path / "vit.pth").write_text("weights")
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert push(folder, write_card(card, folder), "me/vit") == "https://huggingface.co/me/vit"
    push(file, write_card(card, file), "me/vit")
    assert Hub.calls == [("me/vit", ["README.md"]), ("vit.pth", "weights"), ("README.md", card)]
    with pytest.raises(UserError, match=r"vit.pth is written, and is not pushed to me/none \(Name or service"):
        push(file, tmp_path / "vit.pth.md", "me/none")


def test_push_takes_a_name_of_the_hub() -> None:
    from r2mae.cli.card import check_hub_name

    check_hub_name("me/my-model_1.0")
    for name in ("me", "me/", "../x/y", "me/a b"):
        with pytest.raises(UserError, match="--push takes USER/NAME"):
            check_hub_name(name)
