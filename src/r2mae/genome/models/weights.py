"""Start with the weights of a run or of the original GPN-MSA, and write a run in its layout.

The original is a RoFormer of transformers, of the type GPNRoFormer. Its vocabulary is - A C G T ?; ours are the bases.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from r2mae.cache import create_once
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError, reading
from r2mae.files import write_json
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.training.folder import RunFolder, read_json
from r2mae.training.initial import Origin
from r2mae.training.saving import load_model

_LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "norm": "output.LayerNorm",
}
_SIZES = {  # its names of our sizes
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
}
_FILES = ("model.safetensors", "pytorch_model.bin")  # of the second, plain tensors are read, and no code is run
_HEAD = {"transform": "transform.dense", "transform_norm": "transform.LayerNorm"}
_DECODER, _BIAS = "cls.predictions.decoder.weight", "cls.predictions.bias"
_BASE_ROWS = slice(1, 5)  # the bases in its vocabulary
_NEVER = -1e4  # logit of what is no base
_FIXED: dict[str, Any] = {  # what is the same in every config.json
    "architectures": ["GPNRoFormerForMaskedLM"],
    "model_type": "GPNRoFormer",
    "vocab_size": 6,
    "aux_features_vocab_size": 5,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "rotary_value": False,
    "tie_word_embeddings": False,
}


def load_initial_weights(path: str | Path, model: nn.Module) -> Origin:
    """Let a fresh model start with the weights of a folder, of the same sizes and species.

    It is a finished run, or has config.json and model.safetensors or pytorch_model.bin of the original.
    """
    assert isinstance(model, AlignmentTransformer)
    folder = Path(path)
    if (run := RunFolder(folder)).config_file.is_file():
        _, _, other = load_model(folder, get_domain("genome"))
        _check_sizes(folder, {**other.sizes, "species": list(other.species)}, model)
        model.load_state_dict(other.state_dict())
        return Origin(folder, (run.weights,), "r2mae")
    config = read_json(folder / "config.json", linked=True)
    for name in ("model_type", "vocab_size", "aux_features_vocab_size"):
        if config.get(name) != _FIXED[name]:
            raise UserError(
                f"{folder / 'config.json'}: {name} is {str(config.get(name))[:40]!r}, and {_FIXED[name]!r} in GPN-MSA: "
                "name a run, or a folder with the weights of GPN-MSA"
            )
    count = config.get("n_aux_features")
    sizes = {mine: config.get(theirs) for mine, theirs in _SIZES.items()}
    species = count // 5 if isinstance(count, int) else count
    _check_sizes(folder, {**sizes, "one_hot": True, "species": species}, model)
    file = next((place for name in _FILES if (place := folder / name).is_file()), None)
    if file is None:
        raise UserError(f"{folder} holds neither {' nor '.join(_FILES)}: fetch them")
    with reading(f"{file} as weights of GPN-MSA", "fetch it again, as safetensors if it can be had"):
        found = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
        state = {mine: found[theirs] for mine, theirs in _weight_names(len(model.layers)).items()}
        state |= {"decoder.weight": found[_DECODER][_BASE_ROWS], "decoder.bias": found[_BIAS][_BASE_ROWS]}
        if not all(values.isfinite().all() for values in state.values()):
            raise UserError(f"{file}: a weight is not finite (NaN or infinite): fetch it again")
        model.load_state_dict(state)
    return Origin(folder, (file,), "gpn", ("its species have to be those of the store, in the same order",))


def _check_sizes(folder: Path, sizes: dict[str, Any], model: AlignmentTransformer) -> None:
    """Refuse weights of other sizes or species than the model's; species are names, or their number."""
    named = isinstance(sizes["species"], list)
    own = {**model.sizes, "species": list(model.species) if named else model.embedding.others}
    differ = [name for name, size in sizes.items() if size != own[name]]
    if differ:
        name = differ[0]
        raise UserError(
            f"{folder} (init) has other {', '.join(differ)} than the run ({name}: {str(sizes[name])[:60]}, here "
            f"{str(own[name])[:60]}): give the run those of the weights (--{name.replace('_', '-')})"
        )


def _weight_names(layers: int) -> dict[str, str]:
    """Return their name of each of our weights, apart from the decoder's."""
    modules = {
        f"layers.{number}.{mine}": f"model.encoder.layer.{number}.{theirs}"
        for number in range(layers)
        for mine, theirs in _LAYER.items()
    } | {mine: f"cls.predictions.{theirs}" for mine, theirs in _HEAD.items()}
    return {f"{mine}.{kind}": f"{theirs}.{kind}" for mine, theirs in modules.items() for kind in ("weight", "bias")}


def export(run: Path, output: Path) -> str:
    """Write a finished run that begins with one-hot vectors as a folder that the original opens."""
    _, _, model = load_model(run, get_domain("genome"))
    assert isinstance(model, AlignmentTransformer)
    if not model.embedding.one_hot:
        raise UserError(f"{run} begins with a learned matrix, which GPN-MSA lacks: pretrain with --one-hot")
    own, width = model.state_dict(), model.decoder.in_features
    weight, bias = torch.zeros(6, width), torch.full((6,), _NEVER)
    weight[_BASE_ROWS], bias[_BASE_ROWS] = own["decoder.weight"], own["decoder.bias"]
    state = {theirs: own[mine].contiguous() for mine, theirs in _weight_names(len(model.layers)).items()}
    state |= {_DECODER: weight, _BIAS: bias, "cls.predictions.decoder.bias": bias.clone()}
    state["model.encoder.embed_positions.weight"] = torch.cat([model.sin, model.cos], 1)
    sizes = {theirs: model.sizes[mine] for mine, theirs in _SIZES.items()} | {
        "n_aux_features": 5 * model.embedding.others,
        "embedding_size": width,
        "max_position_embeddings": model.length,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.dropout,
    }
    with create_once(output) as unfinished:
        if unfinished is None:
            raise UserError(f"{output} exists already: name a new folder, or remove this one")
        save_file(state, unfinished / "model.safetensors", metadata={"format": "pt"})
        write_json(unfinished / "config.json", {**_FIXED, **sizes})
    return "GPNRoFormerForMaskedLM of gpn loads it with from_pretrained; species are in the order of the store"
