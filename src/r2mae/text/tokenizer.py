"""Tokenizers: a byte-level BPE of one's own, RoBERTa's files of fairseq, or any of Hugging Face. No torch."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.catalogue import data_root
from r2mae.errors import UserError, reading
from r2mae.files import atomic_write, ordinary
from r2mae.text.config import ROBERTA
from r2mae.text.documents import unpacked

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special tokens of a tokenizer that is trained here, in the order of their numbers; the first four are RoBERTa's."""
EXPECTED = "a tokenizer.json, a folder with a tokenizer's files, or a Hugging Face name"
_ROLES = {
    "bos": (("cls_token", "bos_token"), ("<s>", "[CLS]", "<cls>", "<bos>")),
    "eos": (("sep_token", "eos_token"), ("</s>", "[SEP]", "<sep>", "<eos>")),
    "pad": (("pad_token",), ("<pad>", "[PAD]")),
    "unk": (("unk_token",), ("<unk>", "[UNK]")),
    "mask": (("mask_token",), ("<mask>", "[MASK]")),
}
"""The names of roles in configurations of Hugging Face, and the default tokens without a configuration.

BERT's [CLS] and [SEP] open and close a sequence.
"""
_MAX_NUMBER = 1 << 24  # of a token; the largest vocabularies have a million
LONGEST_WORD = 256
"""Bytes of a word (a run of letters, digits, other signs or spaces) after which training takes it for two words.

The time of training grows with the square of a word's length. In 30 MB of Wikipedia no word is half as long.
"""
_LARGEST = 1 << 28  # bytes of a tokenizer's file; those in use have up to 40 MB
_VOCABULARIES = ("tokenizer.*", "*vocab*", "*.model", "*.tiktoken")  # without any, transformers makes an empty one
_SECONDS = 30  # in which rules must encode 8,000 characters, which takes those in use less than a tenth of a second
_GROWTH = 32  # most tokens of a character on average; Unicode's own rules make up to 18 characters of one
_TRIAL = f"""
import json, sys
try:
    import resource
    limits = resource.getrlimit(resource.RLIMIT_AS)
    soft = min(limit for limit in (*limits, 8 << 30) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (soft, limits[1]))
except (ImportError, AttributeError, ValueError, OSError):  # not on Windows, nor on macOS
    pass
from tokenizers import Tokenizer
rules = sys.stdin.buffer.read().decode()
text = "".join(chr(number) * 60 + "! " for number in range(33, 127)) + "The fox, 3.14 caf\u00e9 \u4e2d\u6587 " * 90
print("begun", flush=True)
try:
    made = len(Tokenizer.from_str(rules).encode(text, add_special_tokens=False).ids)
except Exception:  # the tokenizer is read again, for the message; or it does not know these signs
    made = 0
sys.exit(f"{{made:,}} tokens for {{len(text):,}} characters" if made > {_GROWTH} * len(text) else 0)
"""
_FAIRSEQ = ("encoder.json", "vocab.bpe", "dict.txt")


@dataclass(frozen=True, eq=False)
class TextTokenizer:
    """A tokenizer and the numbers of its special tokens.

    Parameters
    ----------
    backend : tokenizers.Tokenizer
        Neither truncates nor pads.
    bos_id, eos_id : int
        Open and close a document: <s> and </s>, or [CLS] and [SEP].
    pad_id, mask_id : int
        Of padding, and of hidden tokens.
    unk_id : int or None
        Of what the vocabulary cannot express; byte-level tokenizers never need it.
    """

    backend: "Tokenizer"
    bos_id: int
    eos_id: int
    pad_id: int
    mask_id: int
    unk_id: int | None = None

    @classmethod
    def of(cls, backend: "Tokenizer", roles: Mapping[str, str], source: str) -> "TextTokenizer":
        """Wrap a copy of a tokenizer.

        `roles` are special tokens by role (bos, eos, pad, unk, mask), as far as they are known; others go by their
        default names. A UserError is raised if there is no token to hide others with, to pad, or to open and close
        documents; or if numbers of tokens are beyond any vocabulary. `source` is for messages.
        """
        from tokenizers import Tokenizer

        largest = max(backend.get_vocab(with_added_tokens=True).values(), default=0)
        if largest > _MAX_NUMBER:  # the library walks through all numbers up to it
            raise UserError(f"tokenizer {source}: numbers a token {largest:,}, and {_MAX_NUMBER:,} is the most: fix it")
        backend = Tokenizer.from_str(backend.to_str())
        backend.no_truncation()
        backend.no_padding()
        found: dict[str, int | None] = {}
        for role, (_, names) in _ROLES.items():
            known = [backend.token_to_id(name) for name in ((roles[role],) if role in roles else names)]
            found[role] = next((number for number in known if number is not None), None)
        for role, use in (("mask", "hide"), ("bos", "begin"), ("eos", "end"), ("pad", "pad")):
            if found[role] is None:
                raise UserError(
                    f"tokenizer {source}: has no {role} token ({' or '.join(_ROLES[role][1][:2])}) to {use} text with: "
                    "add one, or take a tokenizer of a masked language model, such as RoBERTa's"
                )
        return cls(backend, **{f"{role}_id": number for role, number in found.items()})  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, text: str, roles: Mapping[str, str] | None = None, source: str = "") -> "TextTokenizer":
        """Read what :meth:`to_json` wrote, or the text of any tokenizer.json."""
        from tokenizers import Tokenizer

        with reading(f"tokenizer {source}", f"expected {EXPECTED}"):
            _check_rules(text, source)
            return cls.of(Tokenizer.from_str(text), roles or {}, source)

    @cached_property
    def vocab_size(self) -> int:
        """Return one more than the largest token number: the rows of an embedding."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """Return the numbers of all special tokens, in increasing order; no text is encoded to them, none is hidden."""
        added = self.backend.get_added_tokens_decoder()
        ids = {number for number, token in added.items() if token.special}
        ids |= {number for number in self._ids.values() if number is not None}
        return tuple(sorted(ids))

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of vocabulary, rules and special tokens, whatever files they came from."""
        content = [json.loads(self.backend.to_str()), self._ids]
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def roles(self) -> dict[str, str]:
        """Return the special tokens by role, from which :meth:`from_json` makes the same tokenizer again."""
        return {role: str(self.backend.id_to_token(number)) for role, number in self._ids.items() if number is not None}

    @property
    def _ids(self) -> dict[str, int | None]:
        return {role: getattr(self, f"{role}_id") for role in _ROLES}

    def to_json(self) -> str:
        """Return the tokenizer as the text of a tokenizer.json."""
        return str(self.backend.to_str())

    def literal(self) -> "Tokenizer":
        """Return a copy of the backend that encodes text that looks like a special token as text."""
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(self.to_json())
        backend.encode_special_tokens = True
        return backend

    def files(self, *, max_length: int | None = None, token_types: bool = False) -> dict[str, str]:
        """Return the texts of the files that ``transformers.AutoTokenizer`` opens, by name.

        `max_length` is the longest sequence that the model takes, and `token_types` says whether it takes the sentence
        of each token (`token_type_ids`).
        """
        roles, rules = self.roles, self.to_json()
        tokens = {name: roles[role] for role, (names, _) in _ROLES.items() if role in roles for name in names}
        like_roberta = '"RobertaProcessing"' in rules and '"byte_fallback":false' in rules
        config: dict[str, Any] = {
            # PreTrainedTokenizerFast takes the rules from tokenizer.json, whatever they are.
            "tokenizer_class": "RobertaTokenizer" if like_roberta else "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", *(["token_type_ids"] if token_types else []), "attention_mask"],
            **tokens,
        }
        if max_length is not None:
            config["model_max_length"] = max_length
        return {
            "tokenizer.json": rules,
            "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
            "special_tokens_map.json": json.dumps(tokens, indent=2) + "\n",
        }

    def save(self, folder: str | Path, *, max_length: int | None = None) -> None:
        """Write :meth:`files` into a folder, which is made where missing."""
        for name, text in self.files(max_length=max_length).items():
            with atomic_write(Path(folder) / name) as file:
                file.write(text)


def tokenizer_of(architecture: Mapping[str, Any]) -> TextTokenizer:
    """Return the tokenizer that a run folder's architecture holds."""
    return TextTokenizer.from_json(architecture["tokenizer"], architecture.get("roles"), "of the run")


def train_bpe(documents: Iterable[str], vocab_size: int) -> TextTokenizer:
    """Train a byte-level BPE, as that of GPT-2 and RoBERTa, on documents; on a terminal the library shows progress.

    Every text can be encoded and decoded exactly, as the 256 bytes are part of the vocabulary. A word of more than
    :data:`LONGEST_WORD` bytes is trained on in pieces. The numbers of <s>, <pad>, </s>, <unk> and <mask> are 0 to 4.

    `vocab_size` includes these five and the bytes; a small corpus may give fewer, and a smaller size is refused. The
    tokenizer is a pure function of documents and size.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(SPECIALS) + len(alphabet)
    if vocab_size < least:
        raise UserError(f"vocab_size {vocab_size}: expected at least {least} (256 bytes and {len(SPECIALS)} specials)")
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.FixedLength(LONGEST_WORD)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=_special_tokens(),
        initial_alphabet=alphabet,
        show_progress=sys.stderr.isatty(),
    )
    backend.train_from_iterator(documents, trainer)
    return _like_roberta(backend, "of this corpus")


def _like_roberta(backend: "Tokenizer", source: str) -> TextTokenizer:
    """Complete a BPE over bytes: how text is cut into words, decoded and framed, and the special tokens."""
    from tokenizers import decoders, pre_tokenizers, processors

    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(_special_tokens())
    ids = backend.get_vocab()
    opens, closes = ("<s>", ids["<s>"]), ("</s>", ids["</s>"])
    backend.post_processor = processors.RobertaProcessing(closes, opens, trim_offsets=True, add_prefix_space=False)
    return TextTokenizer.of(backend, {}, source)


def _special_tokens() -> list[Any]:
    """Return the tokens :data:`SPECIALS`; a mask takes the space before it along, as in RoBERTa."""
    from tokenizers import AddedToken

    return [AddedToken(name, special=True, normalized=False, lstrip=name == "<mask>") for name in SPECIALS]


def load_tokenizer(source: str | Path) -> TextTokenizer:
    """Load a tokenizer, or raise a UserError if there is none, it is damaged, or it has no mask token.

    Parameters
    ----------
    source : str or Path
        A tokenizer.json; a folder with a tokenizer's files, also fairseq's of RoBERTa (encoder.json, vocab.bpe and
        dict.txt, each plain or .gz); or a name on the Hugging Face Hub. "roberta-50265" is RoBERTa's own, of fairseq's
        files in ``bpe/`` of the data folder, or else of the Hub.
    """
    if str(source) == ROBERTA:
        folder = data_root() / "bpe"
        return _from_fairseq(folder) if _is_fairseq(folder) else _from_hugging_face("FacebookAI/roberta-base")
    path, name = ordinary(Path(source).expanduser()), str(source)
    if _is_fairseq(path):
        return _from_fairseq(path)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        roles = _roles(file.parent) if file.name == "tokenizer.json" else {}
        return TextTokenizer.from_json(_read(file), roles, str(path))
    if path.is_dir() and not any(any(path.glob(pattern)) for pattern in _VOCABULARIES):
        kind = "checkpoint" if (path / "config.json").is_file() else "folder"
        raise UserError(f"{path}: the {kind} has no tokenizer: put tokenizer.json or vocab.txt there")
    if not path.is_dir() and (path.suffix in (".json", ".gz") or path.is_absolute() or name.startswith((".", "~"))):
        raise UserError(f"tokenizer {path} does not exist: name {EXPECTED}")
    return _from_hugging_face(str(path) if path.is_dir() else name)


def _is_fairseq(folder: Path) -> bool:
    return all((folder / name).is_file() or (folder / f"{name}.gz").is_file() for name in _FAIRSEQ)


def _from_fairseq(folder: Path) -> TextTokenizer:
    """Load the files of GPT-2, whose tokens fairseq's dict.txt renumbers for RoBERTa."""
    from tokenizers import Tokenizer, models

    plain = (folder / name for name in _FAIRSEQ)
    encoder, merges, order = (file if file.is_file() else file.with_name(f"{file.name}.gz") for file in plain)
    with reading(f"tokenizer {folder}", f"fetch {', '.join(_FAIRSEQ)} again"):
        names = {str(number): token for token, number in _read_object(encoder).items()}
        words = [line.split(" ")[0] for line in _read(order).splitlines()]
        tokens = [*SPECIALS[:4], *(names.get(word, word) for word in words), "<mask>"]
        rules = [line.split(" ") for line in _read(merges).splitlines() if line and not line.startswith("#version")]
        numbers = {token: number for number, token in enumerate(tokens)}
        backend = Tokenizer(models.BPE(vocab=numbers, merges=[(first, second) for first, second in rules]))
    if lacking := next((token for token in names.values() if token not in numbers), None):
        raise UserError(f"tokenizer {order}: lacks the token {lacking!r}: fetch it again")
    return _like_roberta(backend, str(folder))


@lru_cache(maxsize=8)
def _check_rules(text: str, source: str) -> None:
    """Refuse rules that do not end, or abort the library: another process tries them, unless they are RoBERTa's.

    Where that process cannot begin, nothing is refused.
    """
    values = json.loads(text)
    if values.get("normalizer") is None and (values.get("pre_tokenizer") or {}).get("type") == "ByteLevel":
        return
    try:
        command, given = [sys.executable, "-P", "-c", _TRIAL], text.encode()
        tried = subprocess.run(command, input=given, capture_output=True, timeout=_SECONDS, check=False)
    except OSError:  # no further process
        return
    except subprocess.TimeoutExpired as error:
        if not error.stdout:
            return
        why = f"{_SECONDS} seconds were not enough"
    else:
        if tried.returncode == 0 or not tried.stdout:
            return
        said = tried.stderr.decode(errors="replace").strip().splitlines()
        why = said[-1].rpartition("PanicException: ")[2][:160] if said else f"exit code {tried.returncode}"
    raise UserError(f"tokenizer {source}: its rules fail on a short text ({why}): take another")


def _from_hugging_face(name: str) -> TextTokenizer:
    with reading(f"tokenizer {name}", f"name {EXPECTED}, or --tokenizer null, which has one trained"):
        from transformers import AutoTokenizer

        settings = [Path(name) / file for file in ("tokenizer_config.json", "config.json")]
        asked = [_read_object(file).get("auto_map") for file in settings if file.is_file()]
        if any(one and (not isinstance(one, dict) or "AutoTokenizer" in one) for one in asked):
            raise UserError(f"tokenizer {name}: asks to run its own code, which is never run: put tokenizer.json there")
        loaded = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        if type(loaded).__name__ == "EsmTokenizer":
            backend = _longest_match(loaded)
        elif getattr(loaded, "is_fast", False):
            backend = loaded.backend_tokenizer
        else:
            raise UserError(f"tokenizer {name}: is one of the slow ones, in Python: take one that has a tokenizer.json")
        _check_rules(backend.to_str(), name)
        return TextTokenizer.of(
            backend, _roles_of({key: str(one) for key, one in loaded.special_tokens_map.items()}), name
        )


def _longest_match(slow: Any) -> "Tokenizer":
    """Return the tokenizer of ESM, which takes the longest token of its vocabulary at every place."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    backend = Tokenizer(models.WordLevel(slow.get_vocab(), unk_token=slow.unk_token))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = set(slow.all_special_tokens)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    backend.add_tokens([AddedToken(token, normalized=False) for token in slow.get_vocab() if token not in special])
    names = {name: slow.convert_tokens_to_ids(name) for name in (slow.cls_token, slow.eos_token)}
    opens, closes = names
    backend.post_processor = processors.TemplateProcessing(
        single=f"{opens} $A {closes}", pair=f"{opens} $A {closes} $B {closes}", special_tokens=[*names.items()]
    )
    return backend


def _roles(folder: Path) -> dict[str, str]:
    """Return special tokens by role, as the configuration files in the folder of a tokenizer.json name them."""
    values: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            values |= {key: value for key, value in _read_object(folder / name).items() if value is not None}
    return _roles_of(values)


def _roles_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return special tokens by role, as a configuration names them."""
    roles = {}
    for role, (names, _) in _ROLES.items():
        token = next((values[name] for name in names if name in values), None)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            roles[role] = token
    return roles


def _read(path: Path) -> str:
    """Read a file of text, plain or .gz, of bounded length."""
    with reading(f"tokenizer {path}", "fetch it again"), unpacked(path) as file:
        data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"it is longer than {_LARGEST >> 20} MiB")
        return data.decode("utf-8")


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with reading(f"tokenizer {path}", "expected a JSON object: fetch it again"):
        found: dict[str, Any] = dict(json.loads(_read(path)).items())
    return found
