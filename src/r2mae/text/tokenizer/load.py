"""Finding and opening tokenizers: their own files, those of GPT-2 and RoBERTa, or any of Hugging Face."""

import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.text.config import PAPER_VOCABULARY, ROBERTA
from r2mae.text.formats import reason
from r2mae.text.tokenizer.text_tokenizer import EXPECTED, ROLES, SPECIALS, TextTokenizer, special_token
from r2mae.text.tokenizer.vocabulary import roberta_here

_LARGEST = 1 << 28  # bytes of a tokenizer's file; those in use have up to 40 MB
_PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
_DIGITS = 9  # of a token in dict.txt; a longer word is none of GPT-2's numbers


def load_tokenizer(source: str | Path) -> TextTokenizer:
    """Load a tokenizer.

    Parameters
    ----------
    source : str or Path
        A tokenizer.json; a folder with one, or with the BPE of GPT-2 and RoBERTa (encoder.json and vocab.bpe, or
        vocab.json and merges.txt, plain or .gz), or any of these files; or a name on the Hugging Face Hub. A dict.txt
        (.gz) next to the BPE gives the numbers that fairseq's RoBERTa has; without one, special tokens that the
        vocabulary lacks get the numbers after GPT-2's. "roberta-50265" is RoBERTa's own, wherever it lies here.

    Raises
    ------
    UserError
        No such thing, damaged files, or a tokenizer without a mask token.
    """
    return _roberta() if str(source) == ROBERTA else _from_place(source)


def _from_place(source: str | Path) -> TextTokenizer:
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / "tokenizer.json").is_file():
            return TextTokenizer.from_json(_read(path / "tokenizer.json"), _roles(path), str(path))
        for encoder, merges in _PAIRS:
            if _plain_or_packed(path, encoder) and _plain_or_packed(path, merges):
                return _from_bpe(path, encoder, merges)
        if not any(path.glob("*.json")) and not (path / "vocab.txt").is_file():
            raise UserError(f"tokenizer {path}: the folder holds no tokenizer's files: name {EXPECTED}")
        return _from_hugging_face(str(path))
    if path.is_file():
        bare = path.name.removesuffix(".gz")
        for encoder, merges in _PAIRS:
            if bare in (encoder, merges):
                return _from_bpe(path.parent, encoder, merges)
        roles = _roles(path.parent) if path.name == "tokenizer.json" else {}
        return TextTokenizer.from_json(_read(path), roles, str(path))
    name = str(source)
    if path.suffix in (".json", ".gz") or path.is_absolute() or name.startswith((".", "~")):
        raise UserError(f"tokenizer {path} does not exist: name {EXPECTED}")
    return _from_hugging_face(name)


def _roberta() -> TextTokenizer:
    where = roberta_here()
    found = _from_place(where)
    if found.vocab_size != PAPER_VOCABULARY:
        raise UserError(
            f"tokenizer {ROBERTA}: {where} has {found.vocab_size:,} tokens, expected RoBERTa's {PAPER_VOCABULARY:,}: "
            "fetch it again"
        )
    return found


def _from_bpe(folder: Path, encoder_name: str, merges_name: str) -> TextTokenizer:
    """The files of GPT-2, whose numbers fairseq's dict.txt rearranges for RoBERTa."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    encoder, merges = _plain_or_packed(folder, encoder_name), _plain_or_packed(folder, merges_name)
    if encoder is None or merges is None:
        lacking, other = (encoder_name, merges) if encoder is None else (merges_name, encoder)
        raise UserError(f"tokenizer {other}: {lacking} is missing in its folder")
    numbers = _read_object(encoder)
    if not all(isinstance(number, int) for number in numbers.values()):
        raise UserError(f"tokenizer {encoder}: expected token to number")
    rules = [line.split(" ") for line in _read(merges).splitlines() if line and not line.startswith("#version")]
    if bad := next((rule for rule in rules if len(rule) != 2), None):
        raise UserError(f"tokenizer {merges}: expected two tokens a line, not {' '.join(bad)[:40]!r}")
    pairs = [(first, second) for first, second in rules]
    if order := _plain_or_packed(folder, "dict.txt"):
        numbers = _fairseq(numbers, order)
    try:
        backend = Tokenizer(models.BPE(vocab=numbers, merges=pairs))
    except Exception as error:  # tokenizers raises plain Exception
        raise UserError(f"tokenizer {merges}: does not belong to {encoder} ({reason(error)})") from None
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # To GPT-2 it is a special token, to RoBERTa it is none.
    own = ("<|endoftext|>",) if "<mask>" not in numbers and "<|endoftext|>" in numbers else ()
    specials = (*SPECIALS, *own)
    backend.add_special_tokens([special_token(name, AddedToken) for name in specials])
    ids = backend.get_vocab()
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    return TextTokenizer.of(backend, {}, str(folder))


def _fairseq(numbers: Mapping[str, int], order: Path) -> dict[str, int]:
    """RoBERTa's numbers: <s>, <pad>, </s>, <unk>, then GPT-2's tokens in the order of dict.txt, then <mask>."""
    names = {number: token for token, number in numbers.items()}
    made = {token: number for number, token in enumerate(SPECIALS[:4])}
    for line, entry in enumerate(_read(order).splitlines(), 1):
        word = entry.split(" ")[0]
        number = int(word) if word.isascii() and word.isdecimal() and len(word) <= _DIGITS else None
        if number is not None and number not in names:
            raise UserError(f"tokenizer {order}, line {line}: token {word} is not in the vocabulary next to it")
        made[word if number is None else names[number]] = len(made)
    if lacking := next((token for token in numbers if token not in made), None):
        raise UserError(f"tokenizer {order}: lacks the token {lacking!r} ({numbers[lacking]})")
    return made | {"<mask>": len(made)}


def _from_hugging_face(name: str) -> TextTokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise UserError("tokenizers of Hugging Face need transformers: pip install 'r2mae[text]'") from None
    try:
        loaded = AutoTokenizer.from_pretrained(name)
    except Exception as error:  # of many kinds: the Hub's, the network's, those of damaged files
        raise UserError(f"tokenizer {name}: cannot be loaded ({reason(error)}): name {EXPECTED}") from None
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
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"longer than {_LARGEST >> 20} MiB")
        return data.decode("utf-8")
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"tokenizer {path}: cannot be read ({reason(error)}): fetch it again") from None


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(_read(path)), dict):
            return found
    raise UserError(f"tokenizer {path}: expected a JSON object: fetch it again")
