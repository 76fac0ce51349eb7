"""Finding and opening tokenizers: their own files, those of GPT-2 and RoBERTa, or any of Hugging Face."""

from collections.abc import Mapping
from pathlib import Path

from r2mae.errors import UserError
from r2mae.text.config import PAPER_VOCABULARY, ROBERTA
from r2mae.text.tokenizer.files import (
    EXPECTED,
    ROLES,
    pair_of,
    plain_or_packed,
    read_object,
    read_roles,
    read_words,
    reason_of,
)
from r2mae.text.tokenizer.text_tokenizer import SPECIALS, TextTokenizer, special_token
from r2mae.text.tokenizer.vocabulary import roberta_here

_PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
_DIGITS = 9  # of a token in dict.txt; a longer word is none of GPT-2's numbers


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
            raise UserError(f"tokenizer {path}: the folder holds no tokenizer's files: name {EXPECTED}")
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
    backend.add_special_tokens([special_token(name, AddedToken) for name in specials])
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
        number = int(word) if word.isascii() and word.isdecimal() and len(word) <= _DIGITS else None
        if number is not None and number not in names:
            raise UserError(f"tokenizer {order}, line {line}: token {word} is not in the vocabulary beside it")
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
        raise UserError(f"tokenizer {name}: cannot be loaded ({reason_of(error)}): name {EXPECTED}") from None
    if not getattr(loaded, "is_fast", False):
        raise UserError(f"tokenizer {name}: is one of the slow ones, in Python: take one that has a tokenizer.json")
    roles = {}
    for role, names in ROLES.items():
        if token := next((getattr(loaded, key) for key in names if getattr(loaded, key, None)), None):
            roles[role] = str(token)
    return TextTokenizer.of(loaded.backend_tokenizer, roles, name)
