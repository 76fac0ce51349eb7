"""Small masked language models of transformers, and a batch with padding for them."""

from typing import Any

import torch
import transformers

SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
KINDS: dict[str, dict[str, Any]] = {
    "Roberta": {},
    "XLMRoberta": {},
    "Camembert": {},
    "Bert": {},
    "Electra": {"embedding_size": 16},
    "Albert": {"embedding_size": 16},
    "MPNet": {},
    "Deberta": {},
    "DebertaV2": {},
    "ModernBert": {"pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0, "eos_token_id": 2},
    "Esm": {"pad_token_id": 1, "mask_token_id": 4},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
}


def stock(kind: str = "Roberta", attention: str = "eager", **options: Any) -> Any:
    sizes = SIZES if kind != "DistilBert" else {"vocab_size": 61, "max_position_embeddings": 40}
    config = getattr(transformers, f"{kind}Config")(**sizes, **KINDS[kind], **options)
    config._attn_implementation = attention
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    torch.manual_seed(0)
    return getattr(transformers, f"{kind}ForMaskedLM")(config).train()


def batch(rows: int = 4, length: int = 12) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 61, (rows, length), generator=generator)
    attention = torch.ones_like(ids)
    attention[0, -3:] = 0
    ids[0, -3:] = 1
    labels = ids.masked_fill(torch.rand(ids.shape, generator=generator) > 0.3, -100)
    labels[0, -3:] = -100
    return {"input_ids": ids, "attention_mask": attention, "labels": labels}


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
