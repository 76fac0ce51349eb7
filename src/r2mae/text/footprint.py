"""The memory that a training step needs on a CPU, told before the kernel ends the process without a word."""

from math import isqrt
from pathlib import Path

from r2mae.errors import UserError
from r2mae.text.config import TextConfig
from r2mae.training.memory import available_memory

_SURE = 0.85  # the estimate was 0 to 25 % above what steps of five shapes took
_USUAL = 50_265  # words of a tokenizer that is not opened yet
_MEASURED = 0.4  # ratio at which the estimate was compared with steps: less is not trusted to need less
_GPU = Path("/dev/nvidiactl")  # tells of a driver without torch


def step_bytes(config: TextConfig, vocab_size: int, ratio: float = _MEASURED) -> int:
    """Estimate what forward and backward pass of a micro-batch keep, in bytes; without weights and their gradients.

    Parameters
    ----------
    config : TextConfig
    vocab_size : int
    ratio : float
        Largest mask ratio: the logits of hidden tokens are kept, and the last layer is computed at these alone.
    """
    width, heads = config.hidden_size, config.heads
    tokens = config.batch_size // config.accumulate * config.sequence_length
    # Of a layer: inputs, queries, keys, values (twice), context, norms, dropout factors; the inner layer twice; and the
    # probabilities of attention before, in and after dropout.
    layer = 15 * width + 2 * config.intermediate_size + 3 * heads * config.sequence_length
    return round(4 * tokens * ((config.layers - 1 + ratio) * layer + 4 * width + ratio * vocab_size))


def check_memory(config: TextConfig, ratio: float = _MEASURED) -> None:
    """Refuse a step on a CPU that does not fit into its free memory; where that cannot be known, nothing is refused.

    Parameters
    ----------
    config : TextConfig
    ratio : float
        Largest mask ratio of the run.

    Raises
    ------
    UserError
        With the number of micro-batches that would fit.
    """
    if config.device not in ("cpu", "auto") or (config.device == "auto" and _GPU.exists()):
        return
    free, vocab_size = available_memory(), config.vocab_size if config.tokenizer is None else _USUAL
    needed = step_bytes(config, vocab_size, max(ratio, _MEASURED))
    if free is None or _SURE * needed < free:
        return
    whole = needed * config.accumulate
    small = [part for part in range(1, isqrt(config.batch_size) + 1) if config.batch_size % part == 0]
    divisors = sorted({*small, *(config.batch_size // part for part in small)} - {1})
    fits = [parts for parts in divisors if whole < parts * free / 2]
    rows = config.batch_size // config.accumulate
    hint = "take a smaller --preset, such as mini or tiny, or a shorter --sequence-length"
    if fits:
        hint = f"give --accumulate {fits[0]} ({config.batch_size // fits[0]} at a time, the same optimiser step)"
    raise UserError(
        f"{rows:,} sequences at a time need about {needed / 1e9:,.0f} GB, and {free / 1e9:,.1f} GB are free: {hint}"
    )
