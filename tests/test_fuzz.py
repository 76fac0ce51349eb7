"""Damaged files of every kind: hundreds of each, and never a traceback, a hang, or code that runs."""

import json
import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.folder import RunFolder
from r2mae.training.folder import read_yaml as read_config
from r2mae.training.loop import fit
from r2mae.training.metrics import MetricsFile
from r2mae.training.saving import load_model

pytestmark = pytest.mark.slow

CASES = settings(max_examples=250, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, whose files the tests damage in copies."""
    path = tmp_path_factory.mktemp("fuzz") / "run"
    fit(ImagesConfig.make(data="digits", steps=6, save_every=3, hidden=8, latent=4, threads=1), DOMAIN, path)
    return path


@st.composite
def damage(draw: st.DrawFn) -> Any:
    """Return a function from bytes to damaged bytes."""
    kind = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "noise"]))
    seed = draw(st.integers(0, 2**32))

    def apply(content: bytes) -> bytes:
        rng = random.Random(seed)
        place = rng.randrange(len(content) + 1)
        if kind == "cut":
            return content[:place]
        if kind == "insert":
            return content[:place] + rng.randbytes(rng.randrange(1, 40)) + content[place:]
        if kind == "repeat":
            return content[:place] + content[rng.randrange(len(content)) :]
        if kind == "noise":
            return rng.randbytes(rng.randrange(300))
        changed = bytearray(content)
        for _ in range(rng.randrange(1, 20)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)

    return apply


@contextmanager
def in_a_line() -> Iterator[None]:
    """Let a user's mistake pass, if it is told in one line."""
    try:
        yield
    except UserError as error:
        assert "\n" not in str(error)


@contextmanager
def restored(file: Path) -> Iterator[bytes | None]:
    """Give a file's bytes, None where there is none, and bring it back to them in the end."""
    whole = file.read_bytes() if file.exists() else None
    try:
        yield whole
    finally:
        if whole is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(whole)


class Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.mark,))


@CASES
@given(change=damage())
def test_checkpoints(run: Path, tmp_path_factory: pytest.TempPathFactory, change: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.ckpt"
    path.write_bytes(change((run / "checkpoints" / "last.ckpt").read_bytes()))
    with in_a_line():
        assert isinstance(read_checkpoint(path)["r2mae_step"], int)


@settings(CASES, max_examples=60)
@given(protocol=st.integers(0, 5), zipped=st.booleans(), depth=st.integers(0, 3))
def test_payloads_never_run(tmp_path_factory: pytest.TempPathFactory, protocol: int, zipped: bool, depth: int) -> None:
    base = tmp_path_factory.getbasetemp()
    value: Any = Payload(base / "executed")
    for _ in range(depth):
        value = {"state_dict": [value]}
    path = base / "payload.ckpt"
    if zipped:
        torch.save(value, path, pickle_protocol=max(protocol, 2))
    else:
        path.write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(UserError):
        read_checkpoint(path)
    assert not (base / "executed").exists()


@CASES
@given(change=damage())
def test_configurations_as_bytes(run: Path, tmp_path_factory: pytest.TempPathFactory, change: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_bytes(change((run / "config.yaml").read_bytes()))
    with in_a_line():
        ImagesConfig.from_dict(read_config(path)).scheme.make()


FILES = ["config.yaml", "model.json", "model.safetensors", "results.json", "metrics.csv"]
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
FIELDS = sorted({**ImagesConfig.make(data="x").to_dict(), **ImagesConfig.make(data="x").flat()})


@settings(CASES, max_examples=100)
@given(st.dictionaries(st.sampled_from([*FIELDS, "wng"]), values, max_size=6))
def test_configurations_as_values(changes: dict[str, Any]) -> None:
    text = yaml.safe_dump({**ImagesConfig.make(data="digits").to_dict(), **changes}, allow_unicode=True)
    try:
        config = ImagesConfig.from_dict(yaml.safe_load(text))
        config.scheme.make().bind(10)
        config.optimizer.total_steps(1000)
    except UserError:
        pass


@CASES
@given(
    name=st.sampled_from(FILES),
    change=damage(),
)
def test_run_folders(run: Path, name: str, change: Any) -> None:
    file = run / name if (run / name).exists() else run / "results.json"
    with restored(file) as whole:
        file.write_bytes(change(whole or b'{"scores": {"probe_accuracy": 0.5}}'))
        results = RunFolder(run).results
        assert results is None or isinstance(results["scores"], dict)
        for read in (
            lambda: load_model(run, domain_of_run(RunFolder(run).read_config(), run)),
            lambda: MetricsFile(run / "metrics.csv", keep=6).__exit__(None, None, None),
        ):
            with in_a_line():
                read()


RECORDS = {
    "model.json": ["format", "domain", "steps", "seconds", "architecture", "r2mae"],
    "results.json": ["scores", "steps", "seconds", "samples_per_second"],
    "data.json": ["fingerprint", "data"],
}
huge = st.sampled_from([10**400, -(10**30), float("inf"), "1e400", "²", [[]], {"probe_accuracy": "1"}])


@settings(CASES, max_examples=100)
@given(
    name=st.sampled_from(sorted(RECORDS)),
    changes=st.dictionaries(st.integers(0, 5), values | huge, min_size=1, max_size=3),
    inner=st.dictionaries(st.sampled_from(["model", "shape", "hidden", "latent", "exact"]), values | huge, max_size=2),
)
def test_values_in_files_of_run_folders(run: Path, name: str, changes: dict[int, Any], inner: dict[str, Any]) -> None:
    file = run / name
    with restored(file) as whole:
        content = json.loads(whole or b'{"scores": {"probe_accuracy": 0.5}, "seconds": 1}')
        if "architecture" in content:
            content["architecture"] |= inner
        fields = RECORDS[name]
        content |= {fields[place % len(fields)]: value for place, value in changes.items()}
        file.write_text(json.dumps(content), encoding="utf-8")
        folder = RunFolder(run)
        assert folder.results is None or all(
            value is None or isinstance(value, int | float) for value in folder.results["scores"].values()
        )
        for read in (
            lambda: load_model(run, DOMAIN),
            lambda: folder.description,
            lambda: folder.check_data("digits", "x"),
        ):
            with in_a_line():
                read()
