"""Frozen numbers of short runs: the losses of 20 steps and the final norms of every domain × model × scheme.

A change that is not meant to change numbers leaves references.json as it is. A change that is meant to is marked
*numeric* in the changelog with the reason, and writes the file again: ``python -m frozen.references`` from ``tests/``.
Data and sizes are those of tests/contract/conftest.py.
"""

import json
import math
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contract.conftest import Case, by_two_processes, cases, made
from r2mae.domains.base import Domain
from r2mae.masking.schemes import scheme_kind, scheme_names
from r2mae.training.loop import fit
from r2mae.training.saving import load_model

FILE = Path(__file__).with_name("references.json")
STEPS = 20
# Adam moves a bias whose exact gradient is zero by its full rate, in the direction of rounding errors: such numbers
# differ between processors. So domains that take SGD are trained with it: slowly where few pixels share a batch norm.
PLAIN = {"steps": STEPS, "accumulate": 1, "optimizer": "sgd", "lr": 0.003}
ADAM = {**PLAIN, "optimizer": "adamw", "lr": 1e-3}
SLOW = {"unet": {"lr": 3e-4}}
ROUNDING_ALONE = re.compile(r"key\.bias$")
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "loop": {
        "weight_decay": 0.05, "accumulate": 2, "clip": 1.0, "ema": 0.9,
        "schedule": "cosine", "warmup": 0.2, "validation": 0.2, "validate_every": 5, "keep": "best",
        "batch_size": 8,
    },
    "sum": {"weighting": "sum", "lr": 3e-4},
    "inverse-ratio": {"weighting": "inverse-ratio"},
}  # fmt: skip


def scheme_fields(scheme: str) -> dict[str, Any]:
    """Fields with which a scheme does within 20 steps what it does in a long run."""
    takes = scheme_kind(scheme).options
    learned = {"cl_warmup": 0.1, "cl_start": 0.2, "cl_end": 0.9} if "cl_warmup" in takes else {}
    return {"scheme": scheme, **{name: value for name, value in learned.items() if name in takes}}


def variants(domain: Domain, model: str) -> dict[str, dict[str, Any]]:
    """Configuration fields of each frozen run of a model, by name: one a scheme, then further settings of the loop."""
    takes_sgd = domain.config.optimizer.name != "adamw"  # the references of text and genomes are of AdamW
    plain = {**(PLAIN if takes_sgd else ADAM), **SLOW.get(model, {})}
    schemes = {name: {**plain, **scheme_fields(name)} for name in scheme_names()}
    return schemes | {name: {**plain, "scheme": "r2mae", **fields} for name, fields in SETTINGS.items()}


def measure(folder: Path) -> dict[str, Any]:
    """Train every run with one process and with two, and return its losses, validation losses, norms and scores."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        models = {}
        for domain, model in cases():
            name = " ".join((domain, model)).strip()
            (folder / name).mkdir()
            with made(domain, model, folder / name) as case:
                models[name] = case, variants(case.domain, model)
                case.config()  # makes what the model begins with, with torch's global generator, before any training
        pool = stack.enter_context(ThreadPoolExecutor(1))
        by_two = pool.submit(train_by_two, folder, models)
        for name, (frozen, fields_of) in models.items():
            with made(frozen.domain.name, frozen.model, folder / name) as case:
                for variant, fields in fields_of.items():
                    out = folder / name / variant
                    fit(case.config(**fields), case.domain, out, data=None if "validation" in fields else case.data)
                    found[f"{name} | {variant}"] = of_run(out, case.domain)
                config, task, trained = load_model(folder / name / "r2mae", case.domain, unmasked=True)
                scores = case.domain.evaluate(config, task, trained, case.data)
                found[f"{name} | scores"] = {key: value for key, value in scores.items() if is_number(value)}
        for name, variant in by_two.result():
            out = folder / name / f"{variant}-2"
            found[f"{name} | {variant} | two processes"] = of_run(out, models[name][0].domain)
    return found


def train_by_two(folder: Path, models: Mapping[str, tuple[Case, Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """Train the variants of every model with two processes into folders that end in -2; return model and variant."""
    runs, trained = [], []
    for name, (case, fields_of) in models.items():
        for variant in [*scheme_names(), "loop"]:
            if (case.model, variant) == ("unet", "loop"):
                continue  # batch norm over two samples of a micro-batch multiplies rounding errors by thousands
            config = case.config(**fields_of[variant], devices=2).to_dict()
            here = folder / name
            runs.append(
                {
                    "domain": case.domain.name,
                    "cache": str(here / "cache-2"),
                    "out": f"{here / variant}-2",
                    "config": config,
                }
            )
            trained.append((name, variant))
    done = by_two_processes(folder, runs, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return trained


def of_run(out: Path, domain: Domain) -> dict[str, Any]:
    """Losses, ratios and validation losses by step, and the norm of every final tensor, of a finished run."""
    metrics = pd.read_csv(out / "metrics.csv")
    series = {name: metrics[name].dropna().tolist() for name in ("loss", "ratio", "validation_loss")}
    config, _, model = load_model(out, domain)
    tensors = dict(model.named_parameters()) if config.optimizer.ema is None else {}
    return {name: values for name, values in series.items() if values} | {
        "norms": {
            name: float(value.detach().double().norm())
            for name, value in tensors.items()
            if not ROUNDING_ALONE.search(name)
        }
    }


def is_number(value: Any) -> bool:
    """Whether a score is one finite number."""
    return isinstance(value, int | float | np.floating) and math.isfinite(value)


def differences(expected: Any, found: Any, *, relative: float = 1e-4, place: str = "") -> Iterator[str]:
    """Yield a line for every number, key or length that is not as expected; small norms have an absolute tolerance."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys([*expected, *found]):
            if key not in expected or key not in found:
                yield f"{place} / {key}: only {'found' if key in found else 'expected'}"
                continue
            tolerance = 2e-3 if "| loop" in key else relative
            yield from differences(expected[key], found[key], relative=tolerance, place=f"{place} / {key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, relative=relative, place=f"{place}[{index}]")
    elif isinstance(expected, list) or isinstance(found, list):
        yield f"{place}: a list of {expected} expected, {found} found"
    elif not math.isclose(expected, found, rel_tol=relative, abs_tol=2e-4 if "/ norms /" in place else 1e-6):
        yield f"{place}: {expected} expected, {found} found"


def rounded(value: Any) -> Any:
    """The same with seven significant digits."""
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.7g}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    pd.set_option("mode.string_storage", "python")
    with tempfile.TemporaryDirectory() as temporary:
        measured = rounded(measure(Path(temporary)))
    if "--compare" in sys.argv:
        lines = list(differences(json.loads(FILE.read_text(encoding="utf-8")), measured))
        print("\n".join(lines[:40]), f"{len(lines)} differences", sep="\n")
        sys.exit(bool(lines))
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(measured[name])}" for name in measured)
    FILE.write_text("{\n" + text + "\n}\n", encoding="utf-8")
