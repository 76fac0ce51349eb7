"""``r2mae finetune`` as the domain of images declares it: its arguments and options. No torch."""

from r2mae.domains.options import Command, Option

_PLACES = (
    Option("run", "the folder of a finished run of images, from r2mae pretrain."),
    Option(
        "data",
        "a named set or a path of images with classes; by default what the run was pretrained on.",
        optional=True,
    ),
)

_HOW = (
    Option("out", "run folder; by default `finetune` or `probe` within RUN, with the seed."),
    Option("probe", "train a linear layer on frozen features, instead of all layers.", choices=("none", "linear")),
    Option("cached", "with --probe linear: compute the features once, without augmentation (much faster).", bool),
    Option("pool", "classify the mean over patches (default) or the class token.", choices=("mean", "class")),
)

_RECIPE = (
    Option("epochs", "passes over the training images; by default 100, of large models 50, of a probe 90.", float),
    Option("steps", "optimiser steps; overrides --epochs.", int),
    Option("batch_size", "images of an optimiser step; by default 256 (the rate grows with it).", int),
    Option("base_lr", "learning rate for a batch of 256.", float),
    Option("layer_decay", "factor on the learning rate from each layer to the one below it.", float),
    Option("weight_decay", "weight decay of matrices; not of biases, norms and tokens.", float),
    Option("warmup", "fraction of the run over which the learning rate rises; in place of --warmup-epochs.", float),
    Option("warmup_epochs", "the same in epochs; by default 5, and at most a tenth of the run.", float),
    Option("schedule", "of the learning rate after that.", choices=("constant", "linear", "cosine")),
    Option("min_lr", "learning rate at the end; by default 1e-6, of probes 0.", float),
    Option("optimizer", "by default adamw, of a probe sgd.", choices=("adam", "adamw", "sgd", "lars")),
    Option("clip", "largest gradient norm.", float),
    Option("ema", "decay of a moving average of the weights, which is then measured.", float),
    Option("drop_path", "probability with which the last layer is skipped; it rises over the layers.", float),
    Option("smoothing", "share of each label that is spread over all classes.", float),
)

_IMAGES = (
    Option("crop", "smallest share of an image that a random crop takes; 1 takes complete images.", float),
    Option(
        "crop_from",
        "cut crops from the kept images (default), or from the original files, which are decoded for every batch.",
        choices=("resized", "original"),
    ),
    Option(
        "flip", "flip half of the images left to right: --flip false where that changes the class, as of digits.", bool
    ),
    Option("randaugment", "magnitude of RandAugment, 0 (none) to 10.", float),
    Option("mixup", "Beta parameter of the mixtures of two images; 0 for none.", float),
    Option("cutmix", "Beta parameter of the boxes that are cut from another image; 0 for none.", float),
    Option("erasing", "probability with which a rectangle of an image is erased.", float),
    Option("resize", "bring images to this many pixels a side; by default as in the run.", int),
    Option(
        "resize_mode",
        "what becomes of those that are not square; by default as in the run.",
        choices=("squash", "crop"),
    ),
    Option(
        "cache", "where decoded images are kept; by default as in the run.", choices=("auto", "memory", "mmap", "none")
    ),
    Option("skip_broken", "skip image files that cannot be decoded; by default as in the run.", bool),
    Option("draft", "let the JPEG decoder make large images smaller; by default as in the run.", bool),
)

_MACHINE = (
    Option("validation", "fraction of the training images held out for the validation loss.", float),
    Option("validate_every", "steps between validations; by default once an epoch.", int),
    Option("patience", "stop early after this many validations without improvement.", int),
    Option("keep", "which weights become the finished model.", choices=("last", "best")),
    Option("seed", "of the new layer, the order of the images and their augmentation; by default 0.", int),
    Option("accumulate", "micro-batches that one optimiser step is split into.", int),
    Option("precision", "number format.", choices=("auto", "32", "bf16")),
    Option("device", "auto, cpu, cuda or cuda:N."),
    Option("devices", "processes that train together.", int),
    Option("workers", "processes that load and augment images.", int),
    Option("threads", "CPU threads of the training process.", int),
    Option("save_every", "steps between checkpoints; by default 500.", int),
    Option("json", "print JSON, for scripts.", bool),
)

FINETUNE = Command(
    "finetune",
    "fine-tune a pretrained model of images on labels, or probe its frozen features",
    "r2mae.images.finetune.run:command",
    places=_PLACES,
    options=(*_HOW, *_RECIPE, *_IMAGES, *_MACHINE),
    examples=(
        "runs/vit --epochs 20 --out runs/vit-finetuned",
        "runs/vit path/to/images --probe linear --cached --resize 64",
    ),
)
