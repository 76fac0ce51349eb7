"""Any masked language model of transformers, with its logits at hidden tokens alone where its head allows that."""

import copy
import json
from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from r2mae.text.config import PretrainedSettings as Settings
from r2mae.text.task import Columns, Logits, TokenModel, Tokens, TokenTask
from r2mae.text.tokenizer import tokenizer_of
from r2mae.training.models import MAX_LAYERS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["PretrainedModel", "Settings", "build", "config_of"]


class PretrainedModel(TokenModel):
    """A ``*ForMaskedLM`` of transformers, with its parameters and their names.

    Parameters
    ----------
    stock : transformers.PreTrainedModel
        An encoder with a head. It shares all parameters with this model.
    """

    positions: int | None
    """The longest sequence that the model has positions for; None for relative positions."""
    positionwise = True
    """Whether the head maps each hidden state by itself; otherwise logits are computed at all tokens."""

    def __init__(self, stock: "PreTrainedModel") -> None:
        super().__init__()
        if taken := {name for name, _ in stock.named_children()} & {*dir(type(self))}:
            raise ValueError(f"a part of {type(stock).__name__} is called {', '.join(sorted(taken))}")
        for part in ("_parameters", "_buffers", "_modules"):  # shared, so that moves and sharding reach both
            self.__dict__[part] = stock.__dict__[part]
        self.__dict__["_stock"] = stock
        self.config: Any = stock.config
        self.positions = _positions(stock)
        first: dict[int, str] = {}
        named = stock.named_parameters(remove_duplicate=False)
        self._tied = {name: one for name, value in named if (one := first.setdefault(id(value), name)) != name}
        self.register_state_dict_post_hook(_leave_out_tied)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_put_in_tied)  # type: ignore[no-untyped-call]

    def stock(self) -> "PreTrainedModel":
        """Return the model of transformers that shares these parameters."""
        found: PreTrainedModel = self.__dict__["_stock"]
        return found

    @property
    def base_model(self) -> nn.Module:
        """The part of the model below its head."""
        found: nn.Module = self.stock().base_model
        return found

    def train(self, mode: bool = True) -> "PretrainedModel":
        """Set the mode of both this model and the stock one."""
        self.training = mode
        self.stock().train(mode)
        return self

    def units(self) -> list[nn.Module]:
        """Return the layers, which are the longest list of modules; see :func:`r2mae.training.task.units_of`."""
        lists = [module for module in self.base_model.modules() if isinstance(module, nn.ModuleList)]
        return [*max(lists, key=len, default=())]

    def side_files(self, architecture: Mapping[str, Any]) -> dict[str, str]:
        """Return the files of configuration and tokenizer that Hugging Face's libraries load with the weights."""
        made = {"config.json": architecture.get("config") or config_text(self.stock())}
        if "tokenizer" not in architecture:
            return made
        tokenizer, taken = tokenizer_of(architecture), signature(self.stock().forward).parameters
        kinds = "token_type_ids" in taken and any(tokenizer.backend.encode("a", "b").type_ids)
        files = tokenizer.files(max_length=self.positions, token_types=kinds)
        rules = architecture["tokenizer"]  # unchanged, independent of the version of the tokenizers library
        return {**made, "tokenizer_config.json": files["tokenizer_config.json"], "tokenizer.json": rules}

    def encode(
        self, input_ids: Tokens, *, columns: Columns | None = None, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "batch places width"]:
        """Return the last hidden states; see :class:`TokenModel`."""
        mask = {} if attention_mask is None else {"attention_mask": attention_mask.long()}
        states: Tensor = self.base_model(input_ids=input_ids, **mask)[0]
        return states if columns is None else _gathered(states, columns)

    def logits(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units words"]:
        """Return logits over the vocabulary, by the stock model with these states in place of its encoder's."""
        from transformers.modeling_outputs import BaseModelOutput

        if not self.positionwise:
            raise ValueError(f"the head of {type(self.stock()).__name__} needs all hidden states")
        base, rows = self.base_model, states.reshape(1, -1, states.shape[-1])
        base.forward = lambda *given, **named: BaseModelOutput(last_hidden_state=rows)
        try:
            found: Tensor = self.stock()(input_ids=torch.zeros(rows.shape[:2], dtype=torch.long)).logits
        finally:
            del base.forward
        return found.reshape(*states.shape[:-1], found.shape[-1])

    def at_hidden(self, input_ids: Tokens, columns: Columns) -> tuple[Float[Tensor, "units width"], Logits]:
        """Return the last hidden states at the units, and their logits; see :class:`TokenModel`."""
        if self.positionwise:
            return super().at_hidden(input_ids, columns)
        states, logits = (_gathered(found, columns).flatten(0, 1) for found in self._everywhere(input_ids))
        return states, lambda part: logits[part]

    def _everywhere(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last hidden states and the logits at all tokens."""
        seen: list[Tensor] = []
        handle = self.base_model.register_forward_hook(lambda module, given, output: seen.append(output[0]))
        try:
            logits: Tensor = self.stock()(input_ids=input_ids).logits
        finally:
            handle.remove()
        return seen[0], logits

    @torch.no_grad()
    def find_positionwise(self) -> None:
        """Set `positionwise`, by the logits of the head at some tokens and those of the stock model."""
        training = self.training
        self.eval()
        try:
            states, logits = self._everywhere(torch.arange(16).view(2, 8) % self.config.vocab_size)
            self.positionwise = torch.allclose(self.logits(states[:, 2:5]), logits[:, 2:5], rtol=1e-3, atol=1e-4)
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError):  # a head of another kind
            self.positionwise = False
        self.train(training)


def _positions(stock: nn.Module) -> int | None:
    for name, module in stock.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa's positions begin after the padding's number
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def config_text(stock: "PreTrainedModel") -> str:
    """Return the text of config.json with which AutoModelForMaskedLM finds the class of a model."""
    config = copy.deepcopy(stock.config)
    config.architectures = [type(stock).__name__]
    return str(config.to_json_string())


def config_of(text: str) -> "PreTrainedConfig":
    """Return the configuration of a model of transformers from the text of its config.json; no code is loaded."""
    from transformers import AutoConfig

    values = dict(json.loads(text))
    if values.get("auto_map"):
        raise ValueError("its auto_map asks to run code of its own, which is never run")
    for name, value in values.items():
        if "layers" in name and isinstance(value, int) and value > MAX_LAYERS:
            raise ValueError(f"{name} is {value:,}, and {MAX_LAYERS:,} is the most")
    return AutoConfig.for_model(values.pop("model_type"), **values)


def build(architecture: Mapping[str, Any]) -> tuple[TokenTask, PretrainedModel]:
    """Return the task and a freshly initialised model; see :mod:`r2mae.text.models`."""
    from transformers import AutoModelForMaskedLM

    kinds: Any = AutoModelForMaskedLM
    config = config_of(architecture["config"])
    model = PretrainedModel(kinds.from_config(config, dtype=torch.float32, trust_remote_code=False))
    if not next(model.parameters()).is_meta:
        model.find_positionwise()
    model.tokenizer = tokenizer_of(architecture)
    return TokenTask.from_architecture(architecture), model


def _gathered(values: Float[Tensor, "batch length size"], columns: Columns) -> Tensor:
    return values.gather(1, columns[..., None].expand(-1, -1, values.shape[-1]))


def _leave_out_tied(module: PretrainedModel, state: dict[str, Any], prefix: str, metadata: object) -> None:
    for second in module._tied:
        state.pop(prefix + second, None)


def _put_in_tied(module: PretrainedModel, state: dict[str, Any], prefix: str, *details: object) -> None:
    for second, first in module._tied.items():
        if prefix + first in state:
            state.setdefault(prefix + second, state[prefix + first])
