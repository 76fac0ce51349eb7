"""Checkpoints of transformers: those that a run continues (`init`), and finished runs that are written as one.

A checkpoint is a folder or a name of the Hugging Face Hub. Nothing is unpickled.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from r2mae.cache import create_once
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError, reading
from r2mae.text.models.pretrained import PretrainedModel, config_of, config_text
from r2mae.training.folder import RunFolder
from r2mae.training.initial import Origin
from r2mae.training.saving import load_model

if TYPE_CHECKING:
    from r2mae.text.tokenizer import TextTokenizer

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""Files with weights; the second kind is read only where the first is missing, by torch's reader of plain tensors."""
_UNUSED_ROWS = 1024  # an embedding may be padded by; mDeBERTa's has 900 more rows than its tokenizer has tokens
_HINT = "name a folder or a model of the Hub that AutoModelForMaskedLM opens"


def checkpoint_folder(init: str) -> Path:
    """Return the folder of a checkpoint; one of the Hub is fetched, unless that was done before."""
    folder = Path(init)
    if not folder.is_dir():
        with reading(f"checkpoint {init}", _HINT):
            from huggingface_hub import snapshot_download

            folder = Path(snapshot_download(init, allow_patterns=["*.json", "*.txt", "*.model", WEIGHTS[0]]))
            if not _weight_files(folder):
                folder = Path(snapshot_download(init, allow_patterns=["*.json", "*.txt", "*.model", WEIGHTS[1]]))
    if not (folder / "config.json").is_file():
        raise UserError(f"checkpoint {init}: holds no config.json: {_HINT}")
    if not _weight_files(folder):
        raise UserError(f"checkpoint {init}: holds no weights ({' or '.join(WEIGHTS)}): {_HINT}")
    return folder


def checkpoint_architecture(init: str, tokenizer: "TextTokenizer", length: int) -> dict[str, Any]:
    """Return what a run's architecture holds of a checkpoint, whose weights are not read.

    A UserError is raised if it is no masked language model, larger than its files, too short for `length` tokens, or of
    another tokenizer.
    """
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForMaskedLM

    folder = checkpoint_folder(init)
    with reading(f"checkpoint {init}", _HINT):
        config: Any = config_of((folder / "config.json").read_text("utf-8"))
        for file in folder.glob(WEIGHTS[0]):
            with safe_open(file, "pt") as opened:
                if getattr(config, "legacy", False) and "lm_predictions.lm_head.bias" in opened.keys():  # noqa: SIM118
                    config.legacy = False  # the layout of DeBERTa's own checkpoints
        with torch.device("meta"):
            kinds: Any = AutoModelForMaskedLM
            model = PretrainedModel(kinds.from_config(config, dtype=torch.float32, trust_remote_code=False))
        table: Any = model.stock().get_input_embeddings()
        rows, size = len(table.weight), sum(file.stat().st_size for file in _weight_files(folder))
        if tokenizer.vocab_size > rows or tokenizer.vocab_size < rows - _UNUSED_ROWS:
            raise UserError(
                f"checkpoint {init}: its tokenizer has {tokenizer.vocab_size:,} tokens, and its embedding {rows:,} "
                "rows: they are of different models, put the right tokenizer into the folder"
            )
        if (least := sum(value.numel() for value in model.base_model.parameters())) > size:  # a byte a weight
            raise ValueError(f"an encoder of {least:,} weights, and the files have {size:,} bytes")
    if model.positions is not None and length > model.positions:
        raise UserError(f"sequence_length {length}: {init} has {model.positions} positions: give at most these")
    return {"config": config_text(model.stock()), "hidden_size": int(config.hidden_size)}


def load_checkpoint(init: str, model: nn.Module) -> Origin:
    """Load the weights of a checkpoint into its fresh model, which keeps its own head if the files have none.

    A UserError is raised if files are damaged, lack weights of the encoder or a part of the head, or have others in
    their place.
    """
    import torch
    from transformers import AutoModelForMaskedLM
    from transformers.utils import logging

    assert isinstance(model, PretrainedModel)
    folder = checkpoint_folder(init)
    with reading(f"checkpoint {init}", "fetch it again, or name another"):
        shown: Any = logging
        shown.set_verbosity_error()  # what does not fit is reported below
        shown.disable_progress_bar()
        kinds: Any = AutoModelForMaskedLM
        how = {
            "trust_remote_code": False,
            "weights_only": True,
            "output_loading_info": True,
            "ignore_mismatched_sizes": True,
        }
        read, found = kinds.from_pretrained(
            folder, config=model.config, dtype=torch.float32, local_files_only=True, **how
        )
    name, missing, notes = type(read).__name__, {*found["missing_keys"]}, []
    encoder = {id(value) for value in read.base_model.parameters()}
    head = {one: value for one, value in read.named_parameters() if id(value) not in encoder}  # none that is tied to it
    if head and head.keys() <= missing:
        for one, value in head.items():
            value.data = model.get_parameter(one).data  # of the run's seed
        missing = {one for one in missing if one.startswith(f"{read.base_model_prefix}.")}
        unused = sorted(found["unexpected_keys"])
        rest = f" (unused: {', '.join(unused[:3])}{', …' * (len(unused) > 3)})" if unused else ""
        notes.append(f"it is an encoder without the head of {name}, which begins with random weights{rest}")
    if unfit := sorted([*missing, *(one for one, *_ in found["mismatched_keys"])]):
        names = ", ".join(unfit[:3]) + ", …" * (len(unfit) > 3)
        raise UserError(f"checkpoint {init}: has no weights that fit for {names}: {_HINT}")
    bad = next((one for one, value in read.state_dict().items() if not value.isfinite().all()), None)
    if bad is not None:
        raise UserError(f"checkpoint {init}: {bad} is not finite (NaN or infinite): fetch it again")
    model.load_state_dict(read.state_dict())
    if not model.positionwise:
        notes.append(
            f"the head of {name} needs all tokens: logits are computed at all of them, and a step takes longer"
        )
    return Origin(Path(init), tuple(_weight_files(folder)), name, tuple(notes))


def _weight_files(folder: Path) -> list[Path]:
    return next((files for pattern in WEIGHTS if (files := sorted(folder.glob(pattern)))), [])


def save_pretrained(run: str | Path, output: str | Path) -> str:
    """Write a finished run as a folder that ``AutoModelForMaskedLM``, ``AutoModel`` and similar classes load.

    The folder has config.json, model.safetensors and the tokenizer's files; it appears when it is complete. A UserError
    is raised if the run is not finished, damaged or of another domain, or the folder exists.
    """
    _, _, model = load_model(run, get_domain("text"))
    assert isinstance(model, PretrainedModel)
    found = RunFolder(run)
    with create_once(Path(output)) as unfinished:
        if unfinished is None:
            raise UserError(f"{output} exists already: name a new folder, or remove this one")
        shutil.copyfile(found.weights, unfinished / found.weights.name)
        for name, text in model.side_files(found.description.architecture).items():
            (unfinished / name).write_text(text, encoding="utf-8")
    return "AutoModelForMaskedLM and AutoTokenizer load it with from_pretrained"
