"""Export finished runs as Hugging Face folders: a ``*ForMaskedLM`` and its tokenizer, ready for fine-tuning."""

import shutil
import tempfile
from pathlib import Path

from r2mae.errors import UserError
from r2mae.files import UNFINISHED
from r2mae.text.models.pretrained import PretrainedModel
from r2mae.training.folder import RunFolder


def save_pretrained(run: str | Path, folder: str | Path) -> Path:
    """Write a finished run as a folder that ``AutoModelForMaskedLM``, ``AutoModel`` and similar classes load.

    The folder appears when it is complete.

    Parameters
    ----------
    run : path
        A run folder of ``r2mae pretrain text``.
    folder : path
        Folder to write: config.json, model.safetensors and the tokenizer's files.

    Returns
    -------
    Path
        `folder`.

    Raises
    ------
    UserError
        If the run is not finished, damaged or of another domain, or the folder is not empty.
    """
    from r2mae.text.domain import DOMAIN
    from r2mae.training.saving import load_model

    _, _, model = load_model(run, DOMAIN)
    assert isinstance(model, PretrainedModel)
    found, folder = RunFolder(run), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already: name a new folder, or remove this one")
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=UNFINISHED, dir=folder.parent))
    try:
        shutil.copyfile(found.weights, place / found.weights.name)
        for name, text in model.side_files(found.description.architecture).items():
            (place / name).write_text(text, encoding="utf-8")
        place.chmod(0o755)
        place.replace(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return folder


def export(run: Path, output: Path) -> str:
    """Write the layout `transformers` of ``r2mae export``; see :func:`save_pretrained`."""
    save_pretrained(run, output)
    return "AutoModelForMaskedLM and AutoTokenizer load it with from_pretrained"
