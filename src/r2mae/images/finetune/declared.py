"""``r2mae finetune`` as the domain of images declares it: its arguments and options. No torch."""

from dataclasses import dataclass

from r2mae.domains.options import Command
from r2mae.images.finetune.config import FinetuneConfig
from r2mae.training.fields import argument


@dataclass(frozen=True)
class Finetuning:
    """Fine-tune a pretrained model of images on labels, or probe its frozen features.

    The same command resumes an interrupted run. What is not given is as in MAE's recipes for the model: 100 epochs, of
    large models 50, of a probe 90, in batches of 256; warm-up over 5 epochs, at most a tenth of the run. How images are
    read is by default as in the run.

    Parameters
    ----------
    run : str
        The folder of a finished run of images, from r2mae pretrain.
    data : str, optional
        A named set or a path of images with classes; by default what the run was pretrained on.
    out : str, optional
        Run folder; by default `finetune` or `probe` within RUN, with the seed.
    json : bool
        Print JSON, for scripts.

    Examples
    --------
    r2mae finetune runs/vit --epochs 20 --out runs/vit-finetuned
    r2mae finetune runs/vit path/to/images --probe linear --cached --resize 64
    """

    run: str = argument()
    data: str | None = argument(None)
    out: str | None = None
    json: bool = False


FINETUNE = Command(
    "finetune",
    "fine-tune a pretrained model of images on labels, or probe its frozen features",
    "r2mae.images.finetune.run:command",
    Finetuning,
    config=FinetuneConfig,
    fields=(
        *("probe", "cached", "pool"),
        *("epochs", "steps", "batch_size", "base_lr", "layer_decay", "weight_decay", "warmup", "warmup_epochs"),
        *("schedule", "min_lr", "optimizer", "clip", "ema", "drop_path", "smoothing"),
        *("crop", "crop_from", "flip", "randaugment", "mixup", "cutmix", "erasing", "resize", "resize_mode", "cache"),
        *("skip_broken", "draft", "validation", "validate_every", "patience", "keep", "seed", "accumulate"),
        *("precision", "device", "devices", "workers", "threads", "save_every"),
    ),
)
