"""The configuration of a run on text. Neither torch nor transformers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from r2mae.errors import UserError
from r2mae.fields import PartialFraction, Range, Size
from r2mae.masking.defaults import DNA_CURRICULUM, SchemeDefaults
from r2mae.text.sets import SET_DEFAULTS
from r2mae.training.config import DataConfig, EvaluationConfig, Layer, OptimizerConfig, RunConfig, TaskConfig
from r2mae.training.models import Layers, ModelSettings

PAPER_VOCABULARY = 50_265
Split = Literal["train", "validation", "test", "all"]
"""Parts of a corpus."""
MOST_SEQUENCES = 2000
"""Default of the most held-out sequences that a model is measured on."""
PRETRAINED = "pretrained"
"""The model that begins with a checkpoint."""
CONTINUED: Mapping[str, Any] = {"lr": 1e-4, "batch_size": 256}
"""Defaults of continued pretraining."""
ROBERTA = "roberta-50265"
"""The value of `tokenizer` for RoBERTa's own byte-level BPE: of files of the data folder, or of the Hub."""
MODELS = {"roberta": "r2mae.text.models.roberta", "pretrained": "r2mae.text.models.pretrained"}
"""The modules of models by name; see :mod:`r2mae.text.models`."""


# 256 of the paper's 2,048 sequences at a time: all would take more than 80 GB.
_PAPER = {"accumulate": 8, "tokenizer": ROBERTA, "vocab_size": PAPER_VOCABULARY}


def _sizes(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"hidden_size": width, "layers": layers, "heads": heads, "intermediate_size": 4 * width}


@dataclass(frozen=True, kw_only=True)
class RobertaSettings(ModelSettings):
    """Settings of the default model.

    Parameters
    ----------
    hidden_size : int
        Width of the encoder (RoBERTa-medium: 512).
    layers : int
        Layers of the encoder (RoBERTa-medium: 8).
    heads : int
        Attention heads (RoBERTa-medium: 8).
    intermediate_size : int
        Inner width of a layer (RoBERTa-medium: 2048).
    dropout : float
        Dropout of hidden states and attention.
    """

    mask_tokens: ClassVar[bool] = True

    name: str = "roberta"
    hidden_size: Size = 512
    layers: Layers = 8
    heads: Size = 8
    intermediate_size: Size = 2048
    dropout: PartialFraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of heads {self.heads}: give another size or number"
            )


@dataclass(frozen=True, kw_only=True)
class PretrainedSettings(ModelSettings):
    """A masked language model of transformers, with the sizes and weights of the checkpoint `init`."""

    mask_tokens: ClassVar[bool] = True

    name: str = "pretrained"


@dataclass(frozen=True, kw_only=True)
class TextDataConfig(DataConfig):
    """The corpus of a run, and its tokens.

    Parameters
    ----------
    text_column : str
        Column of JSON lines, Parquet and Hugging Face data sets that holds the text.
    split : {"train", "validation", "test", "all"}
        Part of a corpus whose files, folders or data set are divided into parts by name. With train (the default)
        files named after validation or test are not read.
    tokenizer : str, optional
        A tokenizer.json, a folder with a tokenizer's files, a Hugging Face name, or roberta-50265, which is RoBERTa's
        own (that of the presets roberta-medium and roberta-base); by default, or with null, a byte-level BPE that is
        trained on the corpus.
    vocab_size : int
        Vocabulary of a trained tokenizer (50,265 with roberta-medium and roberta-base).
    sequence_length : int
        Tokens of a sequence (paper: 128).
    """

    validation: PartialFraction = 0.01
    text_column: str = "text"
    split: Split = "train"
    tokenizer: str | None = None
    vocab_size: Annotated[int, Range(300)] = 8000  # 256 bytes and 5 special tokens at least
    sequence_length: Annotated[int, Range(4)] = 128


@dataclass(frozen=True, kw_only=True)
class TextTaskConfig(TaskConfig):
    """How tokens are hidden.

    Parameters
    ----------
    mask : {"tokens", "whole-word", "span"}
        What is hidden: single tokens, whole words, or spans of 3.8 tokens on average. Counts are of tokens.
    corruption : {"80-10-10", "mask"}
        Replacement of hidden tokens: 80 % <mask>, 10 % a random token, 10 % unchanged; or all <mask>.
    exact : bool
        Hide exactly the rounded count of every sequence's tokens (true, the default), or each token independently with
        the ratio as its probability (false).
    """

    mask: Literal["tokens", "whole-word", "span"] = "tokens"
    corruption: Literal["80-10-10", "mask"] = "80-10-10"
    exact: bool = True


@dataclass(frozen=True, kw_only=True)
class TextEvaluationConfig(EvaluationConfig):
    """How a model of text is measured.

    Parameters
    ----------
    eval_sequences : int
        Most held-out sequences on which loss and accuracy of a finished model are measured, evenly spaced. Fewer take
        less time and give less precise scores.
    glue : list of str
        Tasks of GLUE on which a finished model is fine-tuned and measured, such as sst2 and qnli. Epochs, learning
        rate, batch and seeds are the paper's; warm-up (6 %) and weight decay (0.01) are ours.
    glue_probes : list of str
        Tasks of GLUE on which linear probes of a finished model's frozen features are measured, in any order. They are
        cheap, and also suit models that are too small or too briefly trained to be fine-tuned.
    glue_limit : int, optional
        Most training examples of a task, fine-tuned or probed; by default all.
    """

    eval_sequences: Size = MOST_SEQUENCES
    glue: tuple[str, ...] = ()
    glue_probes: tuple[str, ...] = ()
    glue_limit: Annotated[int, Range(2)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.glue or self.glue_probes):
            return
        from r2mae.text.glue import TASKS, glue_task

        names = {field: [glue_task(name).name for name in getattr(self, field)] for field in ("glue", "glue_probes")}
        # Probes in a fixed order, so that results of the same tasks agree however the tasks were typed.
        object.__setattr__(self, "glue", tuple(dict.fromkeys(names["glue"])))
        object.__setattr__(self, "glue_probes", tuple(name for name in TASKS if name in names["glue_probes"]))

    @property
    def idle(self) -> tuple[str, ...]:
        """The limit, without tasks."""
        return () if self.glue or self.glue_probes else ("glue_limit",)


@dataclass(frozen=True, kw_only=True)
class TextConfig(RunConfig):
    """A masked language model, by default RoBERTa-medium with a vocabulary of 8,000.

    A table in the documentation of text lists which defaults are the paper's and which are our own.

    Parameters
    ----------
    init : str, optional
        Continue a checkpoint of AutoModelForMaskedLM, with defaults of its own: batch 256 and lr 1e-4. It is a folder
        or a name of the Hugging Face Hub, such as a BERT or ESM-2, and brings its tokenizer. An encoder alone gets a
        head.
    """

    domain: ClassVar[str] = "text"
    # The paper has no curricula for text: the defaults are those of its other token models, of DNA.
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(0.15, 0.15, 0.4, options=DNA_CURRICULUM)
    models: ClassVar[Mapping[str, str]] = MODELS
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "roberta-medium": {**_sizes(512, 8, 8), **_PAPER, "lr": 7e-4},
        "roberta-base": {**_sizes(768, 12, 12), **_PAPER, "lr": 3e-4},
        "roberta-large": {**_sizes(1024, 24, 16), **_PAPER, "lr": 2e-4},
        "mini": {**_sizes(256, 4, 4), "batch_size": 256},
        "tiny": {**_sizes(128, 2, 2), "batch_size": 64},
    }
    preset_sizes: ClassVar[Mapping[str, float]] = {
        "roberta-medium": 52,
        "roberta-base": 125,
        "roberta-large": 355,
        "mini": 5.4,
        "tiny": 1.5,
    }
    set_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = SET_DEFAULTS

    common_fields: ClassVar[tuple[str, ...]] = ("sequence_length", "vocab_size", "init", "steps")

    init: str | None = None
    data: TextDataConfig = TextDataConfig()
    model: Any = RobertaSettings()
    task: TextTaskConfig = TextTaskConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        name="adamw", epochs=1, batch_size=2048, lr=7e-4, schedule="linear", warmup=0.03, weight_decay=0.01
    )
    evaluation: TextEvaluationConfig = TextEvaluationConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (init := self.init) is None:
            return
        if self.model.name != PRETRAINED:
            raise UserError(f"init is for the model {PRETRAINED}, not for {self.model.name}: omit the model")
        if self.preset is not None or self.data.tokenizer is not None:
            raise UserError("init brings its own sizes and tokenizer: omit preset and tokenizer")
        path = Path(init).expanduser()
        if path.exists() or init.startswith((".", "~")):  # else a name of the Hub
            object.__setattr__(self, "init", str(path.absolute()))

    @classmethod
    def with_defaults(cls, layers: Sequence[Layer]) -> Sequence[Layer]:
        """Return the layers; if one gives `init`, the defaults of continued pretraining come before all of them."""
        given = next((place for place, layer in enumerate(layers) if layer.values.get("init") is not None), None)
        if given is None:
            return layers
        own = {"model": PRETRAINED, "tokenizer": None}
        return [Layer(CONTINUED), *layers[:given], Layer(own), *layers[given:]]

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Refuse `vocab_size` with another tokenizer, `glue_limit` without tasks, and a text column for plain text."""
        super().check_given(given)
        if "vocab_size" in given and (tokenizer := self.init or self.data.tokenizer) is not None:
            raise UserError(
                f"vocab_size {self.data.vocab_size} is for a tokenizer that is trained, and {tokenizer} has its own: "
                "omit it (without init, --tokenizer null has one trained)"
            )
        if given.get("glue_limit") is not None and self.evaluation.idle:
            raise UserError("glue_limit is for tasks of GLUE: name them, --glue or --glue-probes sst2 qnli, or omit it")
        if "text_column" in given:
            from r2mae.text.documents import check_column

            check_column(self.data.source, self.data.text_column)

    def with_measurement(self, **options: Any) -> "TextConfig":
        """Return the configuration with other options; if any tasks of GLUE are given, only these are measured."""
        if options.get("glue") or options.get("glue_probes"):
            options = {"glue": (), "glue_probes": (), **options}
        return super().with_measurement(**options)

    def measured_in_words(self) -> str:
        """Return a sentence on the number of held-out sequences if it is not the default."""
        if self.evaluation.eval_sequences == MOST_SEQUENCES:
            return ""
        return f"Hidden tokens are measured on at most {self.evaluation.eval_sequences:,} held-out sequences."
