"""Refuse a training step on a CPU whose memory would make the kernel kill the process."""

from pathlib import Path

from r2mae.cores import available_memory
from r2mae.errors import UserError
from r2mae.text.config import PRETRAINED, TextConfig

_MARGIN = 0.95  # for steps of five shapes, the estimate was 0.95 to 1.1 of the memory used
_UNREAD_VOCABULARY = 50_265  # assumed vocabulary of a tokenizer that is not loaded yet
_MEASURED = 0.4  # ratio at which the estimate was compared with steps; lower ratios are estimated as this one
_GPU = Path("/dev/nvidiactl")  # exists with a GPU driver; checked without torch


def step_bytes(config: TextConfig, vocab_size: int, ratio: float = _MEASURED) -> int:
    """Return the estimated memory of a micro-batch's forward and backward pass in bytes, without weights and gradients.

    Logits and the last layer are computed only at the largest share of tokens that is hidden, `ratio`.
    """
    width, heads = config.model.hidden_size, config.model.heads
    tokens = config.optimizer.batch_size // config.optimizer.accumulate * config.data.sequence_length
    # Per layer: inputs, queries, keys, values (twice), context, norms, dropout; the inner layer twice; and attention
    # scores, their softmax, and both before and after dropout. The logits are there as such and as their softmax.
    layer = 15 * width + 2 * config.model.intermediate_size + 4 * heads * config.data.sequence_length
    return int(4 * tokens * ((config.model.layers - 1 + ratio) * layer + 4 * width + 2 * ratio * vocab_size))


def check_memory(config: TextConfig, ratio: float = _MEASURED) -> None:
    """Refuse a step on a CPU that does not fit into the free memory; if that is unknown, accept all.

    Raises
    ------
    UserError
        If the step does not fit; the message gives the number of micro-batches that would.
    """
    on_gpu = config.machine.device == "auto" and _GPU.exists()
    if config.model.name == PRETRAINED or on_gpu or config.machine.device not in ("cpu", "auto"):
        return  # the sizes of a checkpoint are not read yet
    known = config.data.vocab_size if config.data.tokenizer is None else _UNREAD_VOCABULARY
    free, needed = available_memory(), step_bytes(config, known, max(ratio, _MEASURED))
    if free is None or _MARGIN * needed < free:
        return
    parts, size = config.optimizer.accumulate, config.optimizer.batch_size
    fits = next((n for n in range(2, size + 1) if size % n == 0 and needed * parts < n * free / 2), None)
    hint = "take a smaller --preset, such as mini or tiny, or a shorter --sequence-length"
    if fits:
        hint = f"give --accumulate {fits} ({size // fits} at a time, the same optimiser step)"
    sizes = f"need about {needed / 1e9:,.0f} GB, and {free / 1e9:,.1f} GB are free"
    raise UserError(f"{size // parts:,} sequences at a time {sizes}: {hint}")
