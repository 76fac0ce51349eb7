"""Tiny random checkpoints of transformers, each with a tokenizer of its own kind."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from r2mae.text.tokenizer import train_bpe

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
AMINO_ACIDS = "LAGVSERTIDPKQNFYMHWC"
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
KINDS: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Roberta": {},
    "XLMRoberta": {},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "Electra": {"embedding_size": 8},
    "ModernBert": {"global_attn_every_n_layers": 2, "local_attention": 8},
    "Esm": {"position_embedding_type": "rotary", "token_dropout": True, "emb_layer_norm_before": False},
}
FRAMES = {"Roberta": ("<s>", "</s>"), "XLMRoberta": ("<s>", "</s>"), "Esm": ("<cls>", "<eos>")}


def checkpoint(kind: str, folder: Path, **options: Any) -> Path:
    """Write a random ``*ForMaskedLM`` and its tokenizer; skip the test if transformers has no such model."""
    if not hasattr(transformers, f"{kind}ForMaskedLM"):
        import pytest

        pytest.skip(f"transformers {transformers.__version__} has no {kind}ForMaskedLM")
    folder.mkdir(parents=True, exist_ok=True)
    made = _tokenizer(kind, folder)
    sizes = {name: value for name, value in SIZES.items() if kind != "DistilBert" or name.startswith("max")}
    ids = {f"{role}_token_id": getattr(made, f"{role}_token_id") for role in ("pad", "cls", "sep", "mask")}
    ids = {name: value for name, value in ids.items() if value is not None}
    special = {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids.get("sep_token_id", 2), **ids}
    config = getattr(transformers, f"{kind}Config")(
        **{"vocab_size": len(made), **sizes, **special, **KINDS.get(kind, {}), **options}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        getattr(transformers, f"{kind}ForMaskedLM")(config).save_pretrained(folder)
    return folder


def corpus(kind: str, folder: Path, documents: int = 60) -> Path:
    """Write text whose words follow each other, or proteins in FASTA."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "Esm":
        rows = ["".join(AMINO_ACIDS[(start + 3 * i) % 20] for i in range(40)) for start in range(documents)]
        file = folder / "proteins.fasta"
        file.write_text("".join(f">p{number}\n{row[:25]}\n{row[25:]}\n" for number, row in enumerate(rows)))
        return file
    rows = [" ".join(WORDS[(start + i) % 10] for i in range(30)) for start in range(documents)]
    file = folder / "corpus.txt"
    file.write_text("\n\n".join(rows))
    return file


def _tokenizer(kind: str, folder: Path) -> Any:
    kinds: Any = transformers
    letters = "abcdefghijklmnopqrstuvwxyz"
    if kind == "Esm":
        (folder / "vocab.txt").write_text("\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *AMINO_ACIDS, "-", "<mask>"]))
        made: Any = kinds.EsmTokenizer(str(folder / "vocab.txt"))
    elif kind == "Roberta":
        train_bpe([" ".join(WORDS)] * 3, 300).save(folder)
        return transformers.AutoTokenizer.from_pretrained(folder)
    elif kind in ("Bert", "DistilBert", "Electra"):
        words = [*BERT, *WORDS[:6], *letters, *(f"##{letter}" for letter in letters)]
        made = kinds.BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
    else:
        made = _fast(kind, [*WORDS[:8], *letters])
    made.save_pretrained(folder)
    return made


def _fast(kind: str, words: list[str]) -> Any:
    """A unigram tokenizer (XLM-R, DeBERTa) or a BPE (ModernBERT)."""
    names = ("<pad>", "<unk>", "<s>", "</s>", "<mask>") if kind == "XLMRoberta" else BERT
    if kind == "ModernBert":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = Tokenizer(models.BPE({token: number for number, token in enumerate([*names, *alphabet])}, []))
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    else:
        pieces = [*names, *(f"▁{word}" for word in words), *words]
        backend = Tokenizer(models.Unigram([(piece, -float(number)) for number, piece in enumerate(pieces)], 1, False))
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    opens, closes = names[2], names[3]
    second = f"{closes} $B {closes}" if kind == "XLMRoberta" else f"$B:1 {closes}:1"
    backend.post_processor = processors.TemplateProcessing(
        single=f"{opens} $A {closes}", pair=f"{opens} $A {closes} {second}",
        special_tokens=[(name, backend.token_to_id(name)) for name in (opens, closes)],
    )  # fmt: skip
    kinds: Any = transformers
    return kinds.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=names[0], unk_token=names[1], cls_token=opens, sep_token=closes,
        mask_token=names[4],
    )  # fmt: skip
