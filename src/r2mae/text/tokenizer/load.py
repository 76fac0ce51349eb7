"""Finding and opening tokenizers: their own files, those of GPT-2 and RoBERTa, or any of Hugging Face."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.text.config import PAPER_VOCABULARY, ROBERTA
from r2mae.text.formats import reading, unpacked
from r2mae.text.tokenizer.text_tokenizer import EXPECTED, ROLES, SPECIALS, TextTokenizer, special_token
from r2mae.text.tokenizer.vocabulary import roberta_here

_LARGEST = 1 << 28  # bytes of a tokenizer's file; those in use have up to 40 MB
_PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))


def load_tokenizer(source: str | Path) -> TextTokenizer:
    """Load a tokenizer.

    Parameters
    ----------
    source : str or Path
        A tokenizer.json; a folder with one, or with the BPE of GPT-2 and RoBERTa (encoder.json and vocab.bpe, or
        vocab.json and merges.txt, plain or .gz), or any of these files; or a name on the Hugging Face Hub. A dict.txt
        (.gz) next to the BPE gives the numbers that fairseq's RoBERTa has; without one, special tokens that the
        vocabulary lacks get the numbers after GPT-2's. "roberta-50265" is RoBERTa's own, as found on this machine.

    Raises
    ------
    UserError
        If there is no such tokenizer, it is damaged, or it has no mask token.
    """
    if str(source) == ROBERTA:
        found = load_tokenizer(where := roberta_here())
        if found.vocab_size != PAPER_VOCABULARY:
            sizes = f"{found.vocab_size:,} tokens, expected RoBERTa's {PAPER_VOCABULARY:,}"
            raise UserError(f"tokenizer {ROBERTA}: {where} has {sizes}: fetch it again")
        return found
    path, name = Path(source).expanduser(), str(source)
    folder = path if path.is_dir() else path.parent
    for encoder, merges in _PAIRS:
        if path.name.removesuffix(".gz") in (encoder, merges) and path.is_file():
            return _from_bpe(folder, encoder, merges)
        if path.is_dir() and not (path / "tokenizer.json").is_file() and _plain_or_packed(path, encoder):
            return _from_bpe(folder, encoder, merges)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        return TextTokenizer.from_json(_read(file), _roles(folder) if file.name == "tokenizer.json" else {}, str(path))
    if path.is_dir() and not any(path.glob("*.json")) and not (path / "vocab.txt").is_file():
        raise UserError(f"tokenizer {path}: the folder holds no tokenizer's files: name {EXPECTED}")
    if not path.is_dir() and (path.suffix in (".json", ".gz") or path.is_absolute() or name.startswith((".", "~"))):
        raise UserError(f"tokenizer {path} does not exist: name {EXPECTED}")
    return _from_hugging_face(str(path) if path.is_dir() else name)


def _from_bpe(folder: Path, encoder_name: str, merges_name: str) -> TextTokenizer:
    """Load the files of GPT-2, whose numbers fairseq's dict.txt rearranges for RoBERTa."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    encoder, merges = _plain_or_packed(folder, encoder_name), _plain_or_packed(folder, merges_name)
    if encoder is None or merges is None:
        lacking, other = (encoder_name, merges) if encoder is None else (merges_name, encoder)
        raise UserError(f"tokenizer {other}: {lacking} is missing in its folder")
    with reading(f"tokenizer {merges}", f"fetch it and {encoder} again"):
        numbers = _read_object(encoder)
        rules = [line.split(" ") for line in _read(merges).splitlines() if line and not line.startswith("#version")]
        if order := _plain_or_packed(folder, "dict.txt"):
            numbers = _fairseq(numbers, order)
        backend = Tokenizer(models.BPE(vocab=numbers, merges=[(first, second) for first, second in rules]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # It is a special token of GPT-2, and none of RoBERTa.
    own = ("<|endoftext|>",) if "<mask>" not in numbers and "<|endoftext|>" in numbers else ()
    backend.add_special_tokens([special_token(name, AddedToken) for name in (*SPECIALS, *own)])
    ids = backend.get_vocab()
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    return TextTokenizer.of(backend, {}, str(folder))


def _fairseq(numbers: Mapping[str, int], order: Path) -> dict[str, int]:
    """Return RoBERTa's numbers: <s>, <pad>, </s>, <unk>, then GPT-2's tokens in the order of dict.txt, then <mask>."""
    names = {str(number): token for token, number in numbers.items()}
    made = {token: number for number, token in enumerate(SPECIALS[:4])}
    for line, entry in enumerate(_read(order).splitlines(), 1):
        word = entry.split(" ")[0]
        if word not in names and word.isdecimal():
            raise UserError(f"tokenizer {order}, line {line}: token {word[:40]} is not in the vocabulary next to it")
        made[names.get(word, word)] = len(made)
    if lacking := next((token for token in numbers if token not in made), None):
        raise UserError(f"tokenizer {order}: lacks the token {lacking!r} ({numbers[lacking]})")
    return made | {"<mask>": len(made)}


def _from_hugging_face(name: str) -> TextTokenizer:
    with reading(f"tokenizer {name}", f"name {EXPECTED}"):
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(name)
        if not getattr(loaded, "is_fast", False):
            raise UserError(f"tokenizer {name}: is one of the slow ones, in Python: take one that has a tokenizer.json")
        roles = {}
        for role, names in ROLES.items():
            if token := next((getattr(loaded, key) for key in names if getattr(loaded, key, None)), None):
                roles[role] = str(token)
        return TextTokenizer.of(loaded.backend_tokenizer, roles, name)


def _roles(folder: Path) -> dict[str, str]:
    """Return special tokens by role, as the configuration files in the folder of a tokenizer.json name them."""
    values: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            values |= {key: value for key, value in _read_object(folder / name).items() if value is not None}
    roles = {}
    for role, names in ROLES.items():
        token = next((values[name] for name in names if name in values), None)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            roles[role] = token
    return roles


def _plain_or_packed(folder: Path, name: str) -> Path | None:
    """Return a file or its .gz, if there is one."""
    return next((folder / entry for entry in (name, f"{name}.gz") if (folder / entry).is_file()), None)


def _read(path: Path) -> str:
    """Read a file of text, plain or .gz, of bounded length."""
    with reading(f"tokenizer {path}", "fetch it again"), unpacked(path) as (file, _):
        data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"it is longer than {_LARGEST >> 20} MiB")
        return data.decode("utf-8")


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with reading(f"tokenizer {path}", "expected a JSON object: fetch it again"):
        found: dict[str, Any] = dict(json.loads(_read(path)).items())
    return found
