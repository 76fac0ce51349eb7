"""A classifier from a pretrained encoder, of a run or of transformers, and a new classification head."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from torch import nn

from r2mae.errors import UserError
from r2mae.text.models.roberta import MaskedLanguageModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from r2mae.text.tokenizer import TextTokenizer

LENGTH = 128  # tokens of an example, the paper's sequence length


@dataclass(frozen=True, eq=False)
class Pretrained:
    """An encoder of transformers without its head, its tokenizer, and its longest example.

    Parameters
    ----------
    model : PreTrainedModel
    tokenizer : TextTokenizer or a tokenizer of transformers
    length : int
        Tokens: 128, or fewer if the sequences of pretraining were shorter or the model has fewer positions.
    """

    model: "PreTrainedModel"
    tokenizer: "TextTokenizer | PreTrainedTokenizerBase"
    length: int

    @property
    def positions(self) -> int:
        """The longest sequence that the model has positions for (RoBERTa's begin after the padding's number)."""
        config = self.model.config
        places = int(getattr(config, "max_position_embeddings", None) or LENGTH)
        return places - int(config.pad_token_id) - 1 if "roberta" in config.model_type else places


def load_pretrained(
    source: str | Path | nn.Module, tokenizer: "TextTokenizer | PreTrainedTokenizerBase | None" = None
) -> Pretrained:
    """Return the encoder of a run folder, a Hugging Face folder or name, or a model in memory.

    Raises
    ------
    UserError
        For a folder that is neither, a run of another domain, a module that is not a model of transformers, or a model
        in memory without a tokenizer (those of run folders have one).
    """
    from transformers import AutoModel, AutoTokenizer, PreTrainedModel

    longest = LENGTH
    model: nn.Module
    if isinstance(source, nn.Module):
        model = source
    elif (Path(source) / "config.yaml").is_file():
        model, longest = _from_run(Path(source))
    else:
        try:
            model = AutoModel.from_pretrained(str(source))
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(str(source))
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{source} is neither a run folder nor a model of Hugging Face ({reason})") from None
    if tokenizer is None:
        tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise UserError("fine-tuning a model in memory needs its tokenizer: give the one that it was pretrained with")
    if isinstance(model, MaskedLanguageModel):
        model = model.stock()
    if not isinstance(model, PreTrainedModel):
        raise UserError(f"fine-tuning needs a run of text or a model of transformers, not a {type(model).__name__}")
    found = Pretrained(cast("PreTrainedModel", model.base_model), tokenizer, longest)
    return replace(found, length=min(longest, found.positions))


def build_classifier(encoder: "PreTrainedModel", outputs: int) -> "PreTrainedModel":
    """Return a copy of an encoder with a new head, drawn by torch's generator as in transformers.

    Parameters
    ----------
    encoder : PreTrainedModel
        Is not changed.
    outputs : int
        Number of classes, or 1 for regression.

    Returns
    -------
    PreTrainedModel
        The model of ``AutoModelForSequenceClassification``.
    """
    from transformers import AutoModelForSequenceClassification

    config = copy.deepcopy(encoder.config)
    config.num_labels, config.problem_type = outputs, None
    try:
        made = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    except ValueError:
        raise UserError(f"transformers has no classifier for models of type {config.model_type!r}") from None
    model = cast("PreTrainedModel", made.float())
    # Some heads use a pooler, which masked language models do not train.
    missing = model.base_model.load_state_dict(encoder.state_dict(), strict=False).missing_keys
    if any("pooler" not in name for name in missing):
        raise UserError(f"the encoder lacks weights ({', '.join(missing[:3])}): it is of another configuration")
    return model


def _from_run(folder: Path) -> tuple[MaskedLanguageModel, int]:
    from r2mae.domains.lookup import load
    from r2mae.text.config import TextConfig

    loaded = load(folder)
    if not isinstance(loaded.config, TextConfig) or not isinstance(loaded.model, MaskedLanguageModel):
        raise UserError(
            f"{folder} is a run of the domain {loaded.config.domain!r}: fine-tuning on GLUE needs one of text"
        )
    # Positions beyond the sequences of pretraining are untrained.
    return loaded.model, min(LENGTH, loaded.config.data.sequence_length)
