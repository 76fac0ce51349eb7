"""A tokenizer and the numbers of its special tokens."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.text.formats import reading

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special tokens of a tokenizer that is trained here, in the order of their numbers; the first four are RoBERTa's."""
EXPECTED = "a tokenizer.json, a folder with a tokenizer's files, or a Hugging Face name"
ROLES = {
    "bos": ("cls_token", "bos_token"),
    "eos": ("sep_token", "eos_token"),
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}
"""The names of roles in configurations of Hugging Face; BERT's [CLS] and [SEP] open and close a sequence."""
_MAX_NUMBER = 1 << 24  # of a token; the largest vocabularies have a million
# The special tokens of tokenizers without a configuration.
_NAMES = {
    "bos": ("<s>", "[CLS]", "<cls>", "<bos>"),
    "eos": ("</s>", "[SEP]", "<sep>", "<eos>"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}


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
            Special tokens by role (bos, eos, pad, unk, mask), as far as they are known; others go by their default
            names.
        source : str
            For messages.

        Raises
        ------
        UserError
            If there is no token to hide others with, to pad, or to open and close documents; or if numbers of tokens
            are beyond any vocabulary.
        """
        from tokenizers import Tokenizer

        largest = max(backend.get_vocab(with_added_tokens=True).values(), default=0)
        if largest > _MAX_NUMBER:  # the library walks through all numbers up to it
            raise UserError(f"tokenizer {source}: numbers a token {largest:,}, and {_MAX_NUMBER:,} is the most: fix it")
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

        with reading(f"tokenizer {source}", f"expected {EXPECTED}"):
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
        return {role: getattr(self, f"{role}_id") for role in _NAMES}

    def to_json(self) -> str:
        """Return the tokenizer as the text of a tokenizer.json."""
        return str(self.backend.to_str())

    def literal(self) -> "Tokenizer":
        """Return a copy of the backend that encodes text that looks like a special token as text."""
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(self.to_json())
        backend.encode_special_tokens = True
        return backend

    def files(self, *, max_length: int | None = None) -> dict[str, str]:
        """Return the texts of the files that ``transformers.AutoTokenizer`` opens, by name.

        Parameters
        ----------
        max_length : int, optional
            The longest sequence that the model takes.
        """
        roles, rules = self.roles, self.to_json()
        tokens = {name: roles[role] for role, names in ROLES.items() if role in roles for name in names}
        like_roberta = '"RobertaProcessing"' in rules and '"byte_fallback":false' in rules
        config: dict[str, Any] = {
            # PreTrainedTokenizerFast takes the rules from tokenizer.json, whatever they are.
            "tokenizer_class": "RobertaTokenizer" if like_roberta else "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
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


def special_token(name: str, kind: Any) -> Any:
    """Make a special token; a mask takes the space before it along, as in RoBERTa."""
    return kind(name, special=True, normalized=False, lstrip=name == "<mask>")
