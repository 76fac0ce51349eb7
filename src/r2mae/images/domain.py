"""The domain `images`: its interface for the layers above. torch is imported only for data or models."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import r2mae.images.registered_baselines  # noqa: F401 (it registers them)
from r2mae.domains.base import Domain
from r2mae.domains.options import Evaluation, ModelFormat, Offered, as_in_run
from r2mae.errors import UserError
from r2mae.evaluation.bn_statistics import add_as_trained
from r2mae.evaluation.metrics import FEATURES, FILLING_IN, Metric
from r2mae.files import holds, ordinary
from r2mae.images.config import GAUSSIAN, ImagesConfig, ImagesEvaluationConfig
from r2mae.images.finetune import FINETUNE, FINETUNED, ImagesBase, finetune_scores
from r2mae.images.models import MODELS
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from r2mae.evaluation.examples import Examples
    from r2mae.images.batches import ImageData
    from r2mae.images.task import ImageTask
    from r2mae.training.initial import Origin


_FORMATS = (
    ModelFormat(
        name="transformers",
        help="a folder for ViTMAEForPreTraining and ViTModel",
        write="r2mae.images.weights:to_transformers",
        examples=("runs/vit --to transformers -o vit_mae",),
    ),
    ModelFormat(
        name="timm",
        help="the encoder for timm's VisionTransformer, .safetensors",
        write="r2mae.images.weights:to_timm",
        examples=("runs/vit --to timm -o vit.safetensors",),
    ),
    ModelFormat(
        name="mae",
        help="a checkpoint of the original MAE, .pth",
        write="r2mae.images.weights:to_mae",
        examples=("runs/vit --to mae -o mae.pth",),
    ),
)


class ImagesDomain(ImagesBase):
    """Images: scikit-learn's digits, MNIST, folders and arrays, with the paper's MLP autoencoder."""

    title = "Images: digits, MNIST, folders of images, .npy, .npz"
    config = ImagesConfig
    metrics = (
        Metric("probe_accuracy", "linear probe accuracy", bounds=(0, 1), question=FEATURES),
        Metric(
            "attribute_accuracy", "attribute probe, scaled accuracy", bounds=(-inf, 1), optional=True, question=FEATURES
        ),
        Metric("attribute_accuracy_raw", "attribute probe accuracy", bounds=(0, 1), ranked=False, optional=True),
        Metric("attribute_auroc", "attribute probe AUROC", bounds=(0, 1), ranked=False, optional=True),
        Metric("masked_mse", "masked reconstruction error", higher_is_better=False, bounds=(0, 1), question=FILLING_IN),
        Metric("clean_mse", "unmasked reconstruction error", higher_is_better=False, bounds=(0, 1)),
        Metric("effective_rank", "effective rank", higher_is_better=None, bounds=(1, inf)),
        # Not ranked: it measures the same embeddings as the probe.
        Metric("knn_accuracy", "k-NN accuracy", bounds=(0, 1), ranked=False, optional=True),
    )
    finetuned_metrics = (
        Metric("finetune_top1", "fine-tuned top-1 accuracy", bounds=(0, 1)),
        Metric("finetune_top5", "fine-tuned top-5 accuracy", bounds=(0, 1), ranked=False, optional=True),
    )
    command_line = replace(
        ImagesBase.command_line,
        evaluation=Evaluation(
            "linear probe, reconstruction on frozen masks, effective rank",
            options=as_in_run(ImagesEvaluationConfig, "bn_statistics"),
            examples=("runs/digits --data mnist --resize 8",),
        ),
        embedding=Offered(
            "`index`, the place of each image in the input, whose order the rows have (files are sorted by path; "
            "official parts follow one another); `files`, their names; `split` (0 training, 1 test, 2 official "
            "validation: the run's own division for the run's data, else an official one); `labels`, and the names of "
            "their `classes`, where the data have them",
            examples=("runs/digits digits -o digits.npz",),
        ),
        model_formats=_FORMATS,
        commands={"finetune": FINETUNE},
        example="digits",
    )

    def of_run(self, fields: Mapping[str, Any]) -> Domain:
        """Return the object that opens fine-tuning runs, which have the field `run`; the domain for all others."""
        return FINETUNED if "run" in fields else self

    def recognises(self, data: Any) -> bool:
        """Whether data are a file or folder of images, arrays (with labels), or a data set with a column of images."""
        if isinstance(data, Path):
            from r2mae.images.files import SUFFIXES, is_archive

            named = data.suffix.lower() in (".npy", ".npz") or is_archive(data.name)
            return (named and data.is_file()) or holds(data, lambda file: file.suffix.lower() in SUFFIXES)
        array = data[0] if isinstance(data, tuple) and len(data) == 2 else data
        return len(getattr(array, "shape", ())) in (3, 4) or bool(_columns_of(data, "Image"))

    def write_data(self, data: Any, folder: Path, config: Any = None) -> Path:
        """Write an array of images, a pair of images and labels, or a data set of Hugging Face."""
        import numpy as np

        if columns := _columns_of(data, "Image"):
            return _write_images(data, columns, folder / "images", labelled=config is None)
        pair = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
        if not hasattr(pair[0], "shape"):
            return super().write_data(data, folder)
        images, labels = np.asarray(pair[0]), pair[1]
        if labels is None:
            np.save(path := folder / "images.npy", images, allow_pickle=False)
        else:
            labels = np.asarray(labels)
            labels = np.array(labels.tolist()) if labels.dtype == object else labels  # of pandas: words, say
            if object in (images.dtype, labels.dtype):
                raise UserError("images or labels are an array of objects: give numbers (labels may be words)")
            np.savez(path := folder / "images.npz", images=images, labels=labels)
        return path

    def metrics_of(self, config: ImagesConfig) -> tuple[Metric, ...]:
        """Return the metrics of :attr:`metrics` that the model has; for "both" also those as trained.

        With fine-tuning, its metrics come last.
        """
        settings = config.model
        found = list(self.metrics)
        if not settings.reconstructs:  # nor are hidden patches between 0 and 1
            found = [replace(one, bounds=(0, inf)) if one.name == "masked_mse" else one for one in found]
            found = [one for one in found if one.name != "clean_mse"]
        default = add_as_trained(found, config.evaluation.bn_statistics)
        return (*default, *self.finetuned_metrics) if config.evaluation.finetune_epochs else default

    def check(self, config: ImagesConfig) -> None:
        """Refuse data and weights that do not exist, without importing torch."""
        self.check_source(config)
        if config.init is not None and not ordinary(Path(config.init)).exists():
            raise UserError(f"{config.init} (init): no such file or folder: name the weights to start from")

    def load_initial_weights(self, config: ImagesConfig, model: "nn.Module") -> "Origin | None":
        """Load the weights that `init` names into a fresh model."""
        if config.init is None:
            return None
        from r2mae.images.weights import load_initial_weights

        return load_initial_weights(config.init, model)

    def load(self, config: ImagesConfig) -> "ImageData":
        """Read the images of a run."""
        from r2mae.images.batches import load_data

        return load_data(config)

    def build(self, architecture: Mapping[str, Any]) -> "tuple[ImageTask, nn.Module]":
        """Make the task and a fresh model."""
        task, model = build_model(MODELS, {key: value for key, value in architecture.items() if value != GAUSSIAN})
        if architecture.get("fill") != GAUSSIAN:
            return task, model
        if not hasattr(model, "begin_at_zero"):
            raise UserError(f"the model {architecture['model']} does not take fill={GAUSSIAN}: choose zero or mean")
        from r2mae.images.models.on_gaussian import on_gaussian

        return on_gaussian(task, model)

    evaluation_support = ("items", "kept", "progress")

    def evaluate(
        self,
        config: ImagesConfig,
        task: "ImageTask",
        model: "nn.Module",
        data: "ImageData",
        *,
        kept: Path | None = None,
        **options: Any,
    ) -> dict[str, float]:
        """Measure a pretrained model on the test images; with fine-tuning, in a run folder next to `kept`."""
        from r2mae.images.evaluate import evaluate

        scores, epochs = evaluate(config, task, model, data, **options), config.evaluation.finetune_epochs
        return scores | (finetune_scores(config, data.splits, epochs, kept) if epochs else {})

    def load_other_data(
        self, config: ImagesConfig, source: str, architecture: Mapping[str, Any], **reading: Any
    ) -> "tuple[ImagesConfig, ImageData]":
        """Read other images for :meth:`evaluate`, by default as the run's. The probe takes their training part."""
        from r2mae.images.task import check_images

        config = _read_as(config, source, reading).replace(finetune_epochs=0.0)
        data = self.load(config)
        check_images(source, data.splits.train.shape, architecture["shape"])
        return config, replace(data, architecture=dict(architecture))

    has_examples = True

    def examples(
        self,
        config: ImagesConfig,
        task: "ImageTask",
        model: "nn.Module",
        data: "ImageData",
        *,
        ratio: float | None = None,
    ) -> "Examples | None":
        """Complete a few masked test images; by default at the fixed ratio of the model's defaults."""
        from r2mae.images.evaluate import complete

        hidden = config.scheme_defaults.ratio if ratio is None else ratio
        return complete(task, model, data, hidden, bn_statistics=config.re_estimates_statistics)

    def embed(
        self, config: ImagesConfig, task: "ImageTask", model: "nn.Module", source: str, **reading: Any
    ) -> "dict[str, np.ndarray]":
        """Embed a set of images, read as :meth:`load_other_data` does; the arrays are those of :attr:`command_line`."""
        import numpy as np

        from r2mae.images.batches import reading_of
        from r2mae.images.data import TEST_FRACTION, held_out_rows, load_images
        from r2mae.images.evaluate import embed_set

        there = _read_as(config, source, reading)
        parts = [part for part in load_images(source, **reading_of(there)) if part is not None]
        whole = parts[0]
        arrays: dict[str, np.ndarray] = {"embedding": np.concatenate([embed_set(task, model, part) for part in parts])}
        for name in ("index", "labels"):
            if getattr(whole, name) is not None:
                arrays[name] = np.concatenate([getattr(part, name) for part in parts])
        if len(parts) > 1:
            arrays["split"] = np.repeat(range(len(parts)), [len(part) for part in parts])
        elif self.fingerprint(there) == self.fingerprint(config):
            test = held_out_rows(len(whole), whole.labels, TEST_FRACTION, config.seed)
            arrays["split"] = np.isin(np.arange(len(whole)), test).astype(np.int64)
        order = np.argsort(arrays["index"])  # a table may mix the parts
        arrays = {name: values[order] for name, values in arrays.items()}
        if whole.files is not None:
            base = Path(source).expanduser()
            arrays["files"] = np.array([whole.files[row].name_in(base) for row in arrays["index"].tolist()])
        if whole.classes is not None:
            arrays["classes"] = np.array(whole.classes)
        return arrays


_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")


def _columns_of(data: Any, kind: str) -> list[str]:
    """Return the columns of a data set of Hugging Face whose type has this name."""
    features = getattr(data, "features", None)
    return [name for name, of in features.items() if type(of).__name__ == kind] if isinstance(features, dict) else []


def _write_images(data: Any, columns: list[str], folder: Path, *, labelled: bool) -> Path:
    """Write the images of a data set as files that sort in its order; with `labelled`, in a folder for each class."""
    from r2mae.images.folders import HELD_OUT

    labels = _columns_of(data, "ClassLabel") if labelled else []
    for kind, names in (("images", columns), ("classes", labels)):
        if len(names) > 1:
            raise UserError(f"the data set has several columns of {kind} ({', '.join(names)}): remove all but one")
    classes = data.features[labels[0]].names if labels else []
    if labelled and not labels and "int" in str(getattr(data.features.get("label"), "dtype", "")):
        labels = ["label"]
    width = len(str(len(classes)))
    # A class called "test" would be taken for a part.
    safe = ["" if any(word in name.lower() for word in HELD_OUT) else f"-{name[:60]}" for name in classes]
    called = [f"{number:0{width}d}" + re.sub(r"[^\w-]", "_", name) for number, name in enumerate(safe)]
    folder.mkdir()
    for number, row in enumerate(data):
        label, image, place = row[labels[0]] if labels else 0, row[columns[0]], folder
        if label is None or label < 0:
            raise UserError(f"row {number} of the data set has no label: keep labelled rows, or remove {labels[0]}")
        if not hasattr(image, "mode"):
            raise UserError(f"row {number} of the data set has no image in {columns[0]}: keep rows that have one")
        if labels:
            place = folder / (called[label] if classes else f"{label:09d}")
            place.mkdir(exist_ok=True)
        if image.mode not in _PNG_MODES:
            image = image.convert("L" if image.mode in "FI" else "RGB")
        image.save(place / f"{number:09d}.png")
    return folder


def _read_as(config: ImagesConfig, source: str, reading: Mapping[str, Any]) -> ImagesConfig:
    """Return the configuration for other images, which are read as the run's unless options say otherwise."""
    given = {name: value for name, value in reading.items() if value is not None}
    return config.replace(data=source, cache="auto", **given)


DOMAIN = ImagesDomain()
