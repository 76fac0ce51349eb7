"""Write a run in the layout of the original GPN-MSA (``r2mae export --to gpn``)."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from r2mae.errors import UserError
from r2mae.genome.domain import DOMAIN
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.models.weights import BASE_ROWS, BIAS, DECODER, FIXED, SIZES, sizes_of, weight_names
from r2mae.training.saving import load_model

_NEVER = -1e4  # logit of what is no base


def export(run: Path, output: Path) -> str:
    """Write the layout `gpn` of ``r2mae export``: a folder that the original opens."""
    _, _, model = load_model(run, DOMAIN)
    assert isinstance(model, AlignmentTransformer)
    if not model.embedding.one_hot:
        raise UserError(f"{run} begins with a learned matrix, which GPN-MSA lacks: pretrain with --one-hot")
    if output.exists():
        raise UserError(f"{output} exists already: name a new folder, or remove this one")
    own, width = model.state_dict(), model.decoder.in_features
    weight, bias = torch.zeros(6, width), torch.full((6,), _NEVER)
    weight[BASE_ROWS], bias[BASE_ROWS] = own["decoder.weight"], own["decoder.bias"]
    state = {theirs: own[mine].contiguous() for mine, theirs in weight_names(len(model.layers)).items()}
    state |= {DECODER: weight, BIAS: bias, "cls.predictions.decoder.bias": bias.clone()}
    state["model.encoder.embed_positions.weight"] = torch.cat([model.sin, model.cos], 1)
    sizes = {theirs: sizes_of(model)[mine] for mine, theirs in SIZES.items()} | {
        "n_aux_features": 5 * model.embedding.others,
        "embedding_size": width,
        "max_position_embeddings": model.length,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.dropout,
    }
    unfinished = output.with_name(f".{output.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        save_file(state, unfinished / "model.safetensors", metadata={"format": "pt"})
        (unfinished / "config.json").write_text(json.dumps({**FIXED, **sizes}, indent=2) + "\n", encoding="utf-8")
        unfinished.rename(output)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return "GPNRoFormerForMaskedLM of gpn loads it with from_pretrained; species are in the order of the store"
