"""Tokenizers of strangers: their code is never run, and rules that do not end are refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from r2mae.errors import UserError
from r2mae.text.models.pretrained import config_of
from r2mae.text.tokenizer import load_tokenizer, train_bpe

TWICE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
NESTED: dict[str, Any] = {"type": "Sequence", "normalizers": [TWICE] * 40}


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        (
            "pre_tokenizer",
            {"type": "Split", "pattern": {"Regex": r"(a+)+$|(\w+\s?)+$X"}, "behavior": "Isolated", "invert": False},
        ),
        ("normalizer", {"type": "Replace", "pattern": {"String": " "}, "content": "a" * 26000}),
        ("normalizer", NESTED),
    ],
)
def test_rules_that_do_not_end_are_refused(tmp_path: Path, part: str, rule: dict[str, Any]) -> None:
    rules = json.loads(train_bpe(["the cat sat"] * 9, 270).to_json())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**rules, part: rule}))
    with pytest.raises(UserError, match="its rules fail on a short text"):
        load_tokenizer(tmp_path)


def test_ordinary_rules_are_read(tmp_path: Path) -> None:
    rules = json.loads(train_bpe(["the cat sat"] * 9, 270).to_json())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**rules, "normalizer": {"type": "NFKC"}}))
    assert load_tokenizer(tmp_path).vocab_size <= 270


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_code_of_a_folder_is_never_run(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *words: "y")
    kinds = {"AutoConfig": "evil.Conf", "AutoTokenizer": ["evil.Tok", "evil.Tok"]}
    (tmp_path / file).write_text(json.dumps({"model_type": "evil", "tokenizer_class": "Tok", "auto_map": kinds}))
    (tmp_path / "vocab.txt").write_text("<s>\n<pad>\n</s>\n<unk>\n<mask>\nthe\n")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(UserError, match="asks to run its own code, which is never run"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="never run"):
        config_of(json.dumps({"model_type": "bert", "auto_map": {"AutoModelForMaskedLM": "evil.Model"}}))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("limit", "broken"), [("ulimit -v 6000000", ""), (":", "os.environ['PYTHONHOME'] = '/nowhere'; ")]
)
def test_a_trial_that_cannot_have_its_memory_or_begin_refuses_nothing(tmp_path: Path, limit: str, broken: str) -> None:
    rules = json.loads(train_bpe(["the cat sat"] * 9, 270).to_json())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**rules, "normalizer": {"type": "NFKC"}}))
    code = f"import os, sys; from r2mae.text.tokenizer import load_tokenizer; {broken}load_tokenizer(sys.argv[1])"
    command = ["bash", "-c", f'{limit}; exec "$0" -c "$1" "$2"', sys.executable, code, str(tmp_path)]
    subprocess.run(command, check=True, timeout=300)
