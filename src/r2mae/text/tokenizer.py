"""Tokenizers: a byte-level BPE of one's own, the files of GPT-2 and RoBERTa, or any of Hugging Face."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError
from r2mae.files import atomic_write, write_json
from r2mae.text.config import PAPER_VOCABULARY, ROBERTA
from r2mae.text.merges import heard
from r2mae.text.pretokens import cut_words
from r2mae.text.tokenizer_files import ROLES, pair_of, plain_or_packed, read_object, read_roles, read_words, reason_of
from r2mae.text.vocabulary import roberta_here

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special tokens of a tokenizer that is trained here, in the order of their numbers; the first four are RoBERTa's."""
# What tokenizers call their special tokens, where no configuration beside them says so.
_NAMES = {
    "bos": ("<s>", "[CLS]", "<cls>", "<bos>"),
    "eos": ("</s>", "[SEP]", "<sep>", "<eos>"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
_PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
_WHERE = "a tokenizer.json, a folder with a tokenizer's files, or a Hugging Face name"


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
        """Wrap a tokenizer.

        Parameters
        ----------
        backend : tokenizers.Tokenizer
            Copied, so that it stays as it is.
        roles : mapping
            Special tokens by role (bos, eos, pad, unk, mask), as far as they are known; others go by their usual names.
        source : str
            For messages.

        Raises
        ------
        UserError
            If there is no token to hide others with, to pad, or to open and close documents.
        """
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(backend.to_str())
        backend.no_truncation()
        backend.no_padding()
        found: dict[str, int | None] = {}
        for role, names in _NAMES.items():
            known = [backend.token_to_id(name) for name in ((roles[role],) if role in roles else names)]
            found[role] = next((number for number in known if number is not None), None)
        for role, use in (("mask", "hide"), ("bos", "begin"), ("eos", "end"), ("pad", "pad")):
            if found[role] is None:
                raise UserError(
                    f"tokenizer {source}: has no {role} token ({' or '.join(_NAMES[role][:2])}) to {use} text with: "
                    "add one, or take a tokenizer of a masked language model, such as RoBERTa's"
                )
        return cls(backend, **{f"{role}_id": number for role, number in found.items()})  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, text: str, roles: Mapping[str, str] | None = None, source: str = "") -> "TextTokenizer":
        """Read what :meth:`to_json` wrote, or the text of any tokenizer.json.

        Raises
        ------
        UserError
            If it is no tokenizer, or one without the special tokens that are needed.
        """
        from tokenizers import Tokenizer

        try:
            backend = Tokenizer.from_str(text)
        except Exception as error:  # tokenizers raises plain Exception
            raise UserError(
                f"tokenizer {source}: is no tokenizer.json ({reason_of(error)}): expected {_WHERE}"
            ) from None
        return cls.of(backend, roles or {}, source)

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
        return {role: getattr(self, f"{role}_id") for role in _NAMES}

    def to_json(self) -> str:
        """Return the tokenizer as the text of a tokenizer.json."""
        return str(self.backend.to_str())

    def save(self, folder: str | Path, *, max_length: int | None = None) -> None:
        """Write the files that ``transformers.AutoTokenizer`` opens.

        Parameters
        ----------
        folder : path
            Made where missing.
        max_length : int, optional
            The longest sequence that the model takes.
        """
        folder = Path(folder)
        roles = self.roles
        tokens = {name: roles[role] for role, names in ROLES.items() if role in roles for name in names}
        like_roberta = '"RobertaProcessing"' in self.to_json() and '"byte_fallback":false' in self.to_json()
        config: dict[str, Any] = {
            # PreTrainedTokenizerFast takes the rules from tokenizer.json, whatever they are.
            "tokenizer_class": "RobertaTokenizer" if like_roberta else "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **tokens,
        }
        if max_length is not None:
            config["model_max_length"] = max_length
        with atomic_write(folder / "tokenizer.json") as file:
            file.write(self.to_json())
        write_json(folder / "tokenizer_config.json", config)
        write_json(folder / "special_tokens_map.json", tokens)


def train_bpe(
    documents: Iterable[str], vocab_size: int, *, merging: Callable[[int, int], None] | None = None
) -> TextTokenizer:
    """Train a byte-level BPE, as GPT-2 and RoBERTa have it, on documents.

    Every text can be encoded and comes back exactly, as the 256 bytes are part of the vocabulary. A word of more than
    :data:`r2mae.text.pretokens.LONGEST_WORD` characters is trained on in pieces.

    Parameters
    ----------
    documents : iterable of str
    vocab_size : int
        With the 5 special tokens and the 256 bytes; a small corpus may give fewer.
    merging : callable, optional
        Called, in another thread, with merges done and merges in all, after the documents have been read. What is
        written to standard error meanwhile passes through.

    Returns
    -------
    TextTokenizer
        With <s>, <pad>, </s>, <unk> and <mask> as 0 to 4; a pure function of documents and size.

    Raises
    ------
    UserError
        If the vocabulary is too small.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(SPECIALS) + len(alphabet)
    if vocab_size < least:
        raise UserError(f"vocab_size {vocab_size}: expected at least {least} (256 bytes and {len(SPECIALS)} specials)")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # Older versions of the library cannot tell how far they are.
    tells = merging is not None and hasattr(trainers.BpeTrainer, "progress_format")
    form: dict[str, Any] = {"progress_format": "json"} if tells else {}
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[_special(name, AddedToken) for name in SPECIALS],
        initial_alphabet=alphabet,
        show_progress=tells,
        **form,
    )
    words = cut_words(documents)
    with heard(merging if tells else None) as hearing:
        backend.train_from_iterator(hearing.after(words) if hearing else words, trainer)
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", SPECIALS.index("</s>")), ("<s>", SPECIALS.index("<s>")), trim_offsets=True, add_prefix_space=False
    )
    return TextTokenizer.of(backend, {}, "of this corpus")


def load_tokenizer(source: str | Path) -> TextTokenizer:
    """Load a tokenizer.

    Parameters
    ----------
    source : str or Path
        A tokenizer.json; a folder with one, or with the BPE of GPT-2 and RoBERTa (encoder.json and vocab.bpe, or
        vocab.json and merges.txt, plain or .gz), or any of these files; or a name on the Hugging Face Hub. A dict.txt
        (.gz) beside the BPE gives the numbers that fairseq's RoBERTa has; without one, special tokens that the
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
            return TextTokenizer.from_json(read_words(path / "tokenizer.json"), read_roles(path), str(path))
        pairs = (pair_of(path, encoder, merges) for encoder, merges in _PAIRS)
        if files := next((found for found in pairs if found), None):
            return _from_bpe(*files, plain_or_packed(path, "dict.txt"))
        if not any(path.glob("*.json")) and not (path / "vocab.txt").is_file():
            raise UserError(f"tokenizer {path}: the folder holds no tokenizer's files: name {_WHERE}")
        return _from_hugging_face(str(path))
    if path.is_file():
        bare = path.name.removesuffix(".gz")
        for encoder, merges in _PAIRS:
            if bare in (encoder, merges):
                if files := pair_of(path.parent, encoder, merges):
                    return _from_bpe(*files, plain_or_packed(path.parent, "dict.txt"))
                raise UserError(f"tokenizer {path}: {merges if bare == encoder else encoder} is missing beside it")
        roles = read_roles(path.parent) if path.name == "tokenizer.json" else {}
        return TextTokenizer.from_json(read_words(path), roles, str(path))
    name = str(source)
    if path.suffix in (".json", ".gz") or path.is_absolute() or name.startswith((".", "~")):
        raise UserError(f"tokenizer {path} does not exist: name {_WHERE}")
    return _from_hugging_face(name)


def _roberta() -> TextTokenizer:
    where = roberta_here()
    found = _from_place(where)
    if found.vocab_size != PAPER_VOCABULARY:
        raise UserError(
            f"tokenizer {ROBERTA}: {where} has {found.vocab_size:,} tokens, expected RoBERTa's {PAPER_VOCABULARY:,}: "
            "fetch it anew"
        )
    return found


def tokenizer_of(architecture: Mapping[str, Any]) -> TextTokenizer:
    """Return the tokenizer that a run folder's architecture holds."""
    return TextTokenizer.from_json(architecture["tokenizer"], architecture.get("roles"), "of the run")


def _from_bpe(encoder: Path, merges: Path, order: Path | None) -> TextTokenizer:
    """The files of GPT-2, whose numbers fairseq's dict.txt rearranges for RoBERTa."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    numbers = read_object(encoder)
    if not all(isinstance(number, int) for number in numbers.values()):
        raise UserError(f"tokenizer {encoder}: expected token to number")
    rules = [line for line in read_words(merges).splitlines() if line and not line.startswith("#version")]
    if bad := next((line for line in rules if len(line.split(" ")) != 2), None):
        raise UserError(f"tokenizer {merges}: expected two tokens a line, not {bad[:40]!r}")
    pairs = [(first, second) for first, second in (line.split(" ") for line in rules)]
    if order is not None:
        numbers = _fairseq(numbers, order)
    try:
        backend = Tokenizer(models.BPE(vocab=numbers, merges=pairs))
    except Exception as error:  # tokenizers raises plain Exception
        raise UserError(f"tokenizer {merges}: does not belong to {encoder} ({reason_of(error)})") from None
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # To GPT-2 it is a special token, to RoBERTa it is none.
    own = ("<|endoftext|>",) if "<mask>" not in numbers and "<|endoftext|>" in numbers else ()
    specials = (*SPECIALS, *own)
    backend.add_special_tokens([_special(name, AddedToken) for name in specials])
    ids = backend.get_vocab()
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    return TextTokenizer.of(backend, {}, str(encoder.parent))


def _fairseq(numbers: Mapping[str, int], order: Path) -> dict[str, int]:
    """RoBERTa's numbers: <s>, <pad>, </s>, <unk>, then GPT-2's tokens in the order of dict.txt, then <mask>."""
    names = {number: token for token, number in numbers.items()}
    made = {token: number for number, token in enumerate(SPECIALS[:4])}
    for line, entry in enumerate(read_words(order).splitlines(), 1):
        word = entry.split(" ")[0]
        if word.isdigit() and int(word) not in names:
            raise UserError(f"tokenizer {order}, line {line}: token {word} is not in the vocabulary beside it")
        made[names[int(word)] if word.isdigit() else word] = len(made)
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
        raise UserError(f"tokenizer {name}: cannot be loaded ({reason_of(error)}): name {_WHERE}") from None
    if not getattr(loaded, "is_fast", False):
        raise UserError(f"tokenizer {name}: is one of the slow ones, in Python: take one that has a tokenizer.json")
    roles = {}
    for role, names in ROLES.items():
        if token := next((getattr(loaded, key) for key in names if getattr(loaded, key, None)), None):
            roles[role] = str(token)
    return TextTokenizer.of(loaded.backend_tokenizer, roles, name)


def _special(name: str, kind: Any) -> Any:
    """A special token; a mask takes the space before it along, as in RoBERTa."""
    return kind(name, special=True, normalized=False, lstrip=name == "<mask>")
