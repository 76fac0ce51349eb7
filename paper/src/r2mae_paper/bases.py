"""Configurations of the domains on named data, which studies share, and parts of the named sets of images.

The parts are what two cores can afford. Each is an archive of the same files.
"""

import csv
import io
import itertools
import lzma
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.catalogue import data_root, locate
from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.compare.runs import SweepRun, Variant, runs_of
from r2mae.errors import UserError
from r2mae.files import atomic_path, atomic_write
from r2mae.images.files import File, Folder, is_archive, list_archive
from r2mae.images.sets import SETS
from r2mae.text.config import TextConfig
from r2mae.text.sets import SET_DEFAULTS as TEXT_SETS
from r2mae.training.config import RunConfig
from r2mae_paper.studies import Size

Fields = Mapping[str, Any]
"""Fields of a configuration."""

CELL_SETS: Mapping[str, Fields] = {**SET_DEFAULTS, "sea-ad": {**SET_DEFAULTS["sea-ad"], "regress": ("age",)}}
"""What is known of the named sets of cells; :mod:`r2mae_paper.ages` writes the ages of SEA-AD."""

_CLASSES = 10


def faces(name: str) -> str:
    """Return the data of a study of faces: a name, or else the folder `celeba-aligned` of the data folder."""
    return name or str(data_root() / "celeba-aligned")


def image_presets(names: list[str], settings: Fields) -> dict[str, Fields]:
    """Return the fields of presets of images, by name; settings take the place of a preset's."""
    return {name: {"preset": name, **settings} for name in names}


def cells(name: str, settings: Fields) -> CellsConfig:
    """Return the configuration of a named set of cells; settings take the place of what is known of the set."""
    return CellsConfig.make(**{"data": name, **CELL_SETS[name], **settings})


def text(name: str, preset: str, settings: Fields) -> TextConfig:
    """Return the configuration of a preset on a corpus; settings take the place of what is known of both."""
    return TextConfig.make(data=name, **of_corpus(name, settings)).replace(preset=preset, **settings)


def of_corpus(name: str, settings: Fields) -> Fields:
    """Return what is known of a corpus. A copy of yours is read as FineWeb, unless a vocabulary is trained on it."""
    known: Fields = TEXT_SETS.get(name, {} if "vocab_size" in settings else TEXT_SETS["fineweb"])
    return known


def fixed(ratios: Iterable[float]) -> dict[str, Fields]:
    """Return the points of a grid over fixed ratios."""
    return {f"{ratio:.2f}" if round(ratio, 2) == ratio else f"{ratio:g}": {"ratio": ratio} for ratio in ratios}


def grid(base: RunConfig, parameters: Mapping[str, Mapping[str, Fields]]) -> list[Variant]:
    """Return a variant for each combination of the parameters' points, the last parameter changing fastest.

    A parameter has the name of its column in the table of runs. Its points, by their labels, set fields of the
    configuration, no two parameters the same ones.
    """
    variants = []
    for labels in itertools.product(*parameters.values()):
        values = dict(zip(parameters, labels, strict=True))
        config = base
        for name, label in values.items():
            config = config.replace(**parameters[name][label])
        variants.append(Variant(" ".join(labels), config, values))
    return variants


def runs_of_groups(groups: Mapping[str, Sequence[Variant]], seeds: Sequence[int], out: Path) -> list[SweepRun]:
    """Return the runs of several groups of variants, such as one for each data set, each in a folder of its name."""
    return [run for name, variants in groups.items() for run in runs_of(variants, seeds, out / name)]


def runs_by_ratio(base: RunConfig, name: str, models: Mapping[str, Fields], size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each model, fixed ratio and seed of a size; a size without `seeds` has one.

    `base` is what all runs share, `name` that of the column of models, and `models` has the fields of each by its name.
    """
    seeds = size.fields.get("seeds", (0,))
    rows = grid(base, {name: models, "ratio": fixed(size.ratios)})
    return runs_of(rows, range(seeds) if isinstance(seeds, int) else seeds, out)


def first_faces(count: int, folder: Path) -> Path:
    """Write the first faces of the set `celeba` and their attributes to a folder, and return it.

    A folder that is there already is taken as it is.
    """
    table = folder / "list_attr.csv"
    if table.is_file():
        return folder
    files = locate(SETS["celeba"])
    chosen = _images(_archive(files.values()))[:count]
    packed = next(path for path in files.values() if path.name.endswith(".csv.xz"))
    with lzma.open(packed, "rt", encoding="utf-8", newline="") as opened:
        head, *rows = csv.reader(opened)
    if len(chosen) < count:
        raise UserError(f"celeba has {len(chosen):,} faces here, not {count:,}: take fewer")
    _pack(folder / "faces.tar", chosen)
    wanted = {name for name, _ in chosen}
    with atomic_write(table) as written:  # last: its presence says that the faces are whole
        csv.writer(written, lineterminator="\n").writerows([head, *(row for row in rows if row[0] in wanted)])
    return folder


def few_classes(out: Path, count: int = _CLASSES) -> str:
    """Write evenly spaced classes of the set `tiny-imagenet`, with both official parts, to a .tar in a folder.

    Returned is the archive; one that is there already is taken as it is.
    """
    path = out.absolute() / f"classes-{count}.tar"
    if path.is_file():
        return str(path)
    (complete,) = _archive(locate(SETS["tiny-imagenet"]).values()).folders().values()
    parts = {part: folder.folders() for part, folder in complete.folders().items() if part in ("train", "val")}
    names = sorted(parts["train"])
    if len(names) < count:
        raise UserError(f"tiny-imagenet has {len(names):,} classes here, not {count:,}: take fewer")
    chosen = [names[place] for place in np.linspace(0, len(names), count, endpoint=False).astype(int)]
    members = (
        (f"{part}/{name}/{image}", file)
        for part in ("train", "val")
        for name in chosen
        for image, file in _images(parts[part][name])
    )
    _pack(path, members)
    return str(path)


def _archive(files: Iterable[Path]) -> Folder:
    return list_archive(next(path for path in files if is_archive(path.name)))


def _images(folder: Folder) -> list[tuple[str, File]]:
    """Return the images of a folder by their names, in their order."""
    named = {path.rpartition("/")[2]: folder.files[path] for path in folder.images()}
    return [(name, named[name]) for name in sorted(named)]


def _pack(path: Path, members: Iterable[tuple[str, File]]) -> None:
    """Write an archive whose bytes depend on its members alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, tarfile.open(temporary, "w") as archive:
        for name, file in members:
            with file.open() as opened:
                content = opened.read()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
