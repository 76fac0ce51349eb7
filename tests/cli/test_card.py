import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from r2mae.cli import export
from r2mae.cli.card import check_hub, check_output, command_of, model_card, push, write_card
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

    def whoami(self) -> dict[str, str]:
        return {"name": "me"}

    def create_repo(self, name: str, private: bool, exist_ok: bool) -> str:
        self.calls.append((name, "private" if private else "public"))
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
    scores = {"spectral_entropy": 0.97531, "masked_mse_0.1": 2.0, "other|one": None}
    monkeypatch.setattr(RunFolder, "results", {"scores": scores})
    card = model_card(tmp_path, domain, config, "vit", "timm", "timm opens it")
    assert "| spectral entropy | 0.9753 |" in card and "| masked reconstruction error at 0.1 | 2 |" in card
    for words in ("| scheme | fixed (ratio 0.3) |", "70 of 128 samples, seed 0", r"other\|one", "--steps 70"):
        assert words in card
    assert "secret" not in card and "library_name: timm" in card

    (folder := tmp_path / "out").mkdir()
    (file := tmp_path / "vit.pth").write_text("weights")
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    assert push(folder, write_card(card, folder), "me/vit") == "https://huggingface.co/me/vit"
    push(file, write_card(card, file), "me/vit", public=True)
    assert Hub.calls[:2] == [("me/vit", "private"), ("me/vit", ["README.md"])]
    assert Hub.calls[2:] == [("me/vit", "public"), ("vit.pth", "weights"), ("README.md", card)]
    with pytest.raises(UserError, match=r"pth is written, and is not pushed to me/none \(Name or service") as refused:
        push(file, tmp_path / "vit.pth.md", "me/none")
    assert f"hf upload me/none {file} vit.pth --private && hf upload me/none {file}.md README.md" in str(refused.value)


@pytest.mark.parametrize(
    ("domain", "values", "words"),
    [
        ("text", {"data": "/secret/x.txt", "init": "secret/run/"}, "x.txt --init run"),
        ("text", {"data": "/secret/a=b/x.txt", "tokenizer": "../secret/my tok"}, "--tokenizer 'my tok'"),
        (
            "genome",
            {"data": "x", "variants": "/secret/v.vcf", "label": "c", "exclude": ["chr1", "/secret/x.bed"]},
            "chr1 x.bed",
        ),
        (
            "genome",
            {"data": "x", "variants": "v.vcf", "label": "c", "classes": "c", "contrasts": ["stop/sense"]},
            "stop/sense",
        ),
        ("cells", {"data": "x", "labels": ["cell"], "only": ["cell=B/T", "age:cell=/secret/x"]}, "cell=B/T x"),
    ],
)
def test_the_command_has_no_folders(domain: str, values: Mapping[str, Any], words: str) -> None:
    command = command_of(get_domain(domain).config.make(**values))
    assert words in command and "secret" not in command


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    check_output(tmp_path / "vit.pth")
    (tmp_path / "vit.pth.md").write_text("mine")
    for output, named in ((tmp_path / "vit.pth", "vit.pth.md"), (tmp_path, tmp_path.name), (Path(), r"\.")):
        with pytest.raises(UserError, match=f"{named} exists already: name a new one by -o"):
            check_output(output)


def test_the_export_begins_after_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr(export, "import_object", lambda *_: pytest.fail("the export began"))

    def refusal(**options: Any) -> str:
        given = {"to": "timm", "output": str(tmp_path / "vit.pth"), **options}
        with pytest.raises(UserError) as refused:
            export.run(tmp_path, get_domain("images"), export.Options("run", **given), given)
        return str(refused.value)

    def unknown(_: Hub) -> None:
        raise OSError("Token is required,\nbut no token found")

    assert refusal(public=True).startswith("--public is about --push USER/NAME")
    monkeypatch.setattr(Hub, "whoami", unknown)
    said = "--push cannot log in to the Hugging Face Hub (Token is required, but no token found): run `hf auth login`"
    assert refusal(push="me/vit").startswith(said)
    (tmp_path / "vit.pth.md").touch()
    assert "vit.pth.md exists already" in refusal()


def test_push_takes_a_name_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    check_hub("me/my-model_1.0")
    for name in ("me", "me/", "../x/y", "me/a b"):
        with pytest.raises(UserError, match="--push takes USER/NAME"):
            check_hub(name)
