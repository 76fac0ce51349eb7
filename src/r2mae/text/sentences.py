"""Sentences and pairs of sentences as inputs of an encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int64, Num
from torch import Tensor

from r2mae.text.glue import GlueExamples
from r2mae.text.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Encoded:
    """Examples as tokens, of different lengths.

    Attributes
    ----------
    ids : list of ndarray
        Token numbers with special tokens.
    types : list of ndarray, optional
        Token types, for encoders that distinguish the sentences by them.
    labels : tensor, shape (n,)
        Class numbers (int64) or similarities (float32).
    pad : int
        Number of the padding token.
    """

    ids: list[Int64[np.ndarray, " _"]]
    types: list[Int64[np.ndarray, " _"]] | None
    labels: Num[Tensor, " n"]
    pad: int

    def parts(self, rows: Int64[np.ndarray, " m"], count: int) -> list[Int64[np.ndarray, " _"]]:
        """Return the rows in `count` parts of about equal size and similar lengths, so that there is little padding."""
        lengths = [len(self.ids[row]) for row in rows]
        return np.array_split(rows[np.argsort(lengths, kind="stable")], min(count, len(rows)))

    def batch(self, rows: Int64[np.ndarray, " m"], device: torch.device) -> dict[str, Tensor]:
        """Return the inputs of a model, padded to the longest row; no attention mask without padding."""
        lengths = np.array([len(self.ids[row]) for row in rows])
        real = np.arange(lengths.max()) < lengths[:, None]
        made = {"input_ids": _padded([self.ids[row] for row in rows], real, self.pad)}
        if self.types is not None:
            made["token_type_ids"] = _padded([self.types[row] for row in rows], real, 0)
        if not real.all():
            made["attention_mask"] = real.astype(np.int64)
        return {name: torch.from_numpy(value).to(device) for name, value in made.items()}


def encode(tokenizer: "TextTokenizer | PreTrainedTokenizerBase", examples: GlueExamples, length: int) -> Encoded:
    """Tokenise sentences or pairs of sentences.

    Parameters
    ----------
    tokenizer : TextTokenizer or a tokenizer of transformers
        The first gives RoBERTa's form, ``<s> A </s>`` or ``<s> A </s></s> B </s>``. The second gives its own form, with
        token types if it has any.
    examples : GlueExamples
    length : int
        Most tokens; the longer sentence is cut first ("longest_first" in transformers).
    """
    from tokenizers.processors import TemplateProcessing

    labels = torch.from_numpy(examples.labels)
    labels = labels.float() if labels.is_floating_point() else labels
    if not isinstance(tokenizer, TextTokenizer):
        made = tokenizer(*(list(column) for column in examples.texts), truncation=True, max_length=length)
        types = made.get("token_type_ids")
        return Encoded(_arrays(made["input_ids"]), types and _arrays(types), labels, int(tokenizer.pad_token_id))
    backend = tokenizer.literal()
    names = {"open": (tokenizer.roles["bos"], tokenizer.bos_id), "close": (tokenizer.roles["eos"], tokenizer.eos_id)}
    backend.post_processor = TemplateProcessing(
        single="open $A close",
        pair="open $A close close $B close",
        special_tokens=[{"id": role, "ids": [number], "tokens": [name]} for role, (name, number) in names.items()],
    )
    backend.enable_truncation(length)
    ids = [backend.encode(*row).ids for row in zip(*examples.texts, strict=True)]
    return Encoded(_arrays(ids), None, labels, tokenizer.pad_id)


def _padded(rows: list[np.ndarray], real: np.ndarray, pad: int) -> Int64[np.ndarray, "m longest"]:
    made = np.full(real.shape, pad, dtype=np.int64)
    made[real] = np.concatenate(rows)
    return made


def _arrays(rows: Sequence[Sequence[int]]) -> list[Int64[np.ndarray, " _"]]:
    return [np.array(row, dtype=np.int64) for row in rows]
