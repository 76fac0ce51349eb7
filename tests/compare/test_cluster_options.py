"""Options of a cluster that go together, and those that do not; the engines here are stand-ins."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from r2mae.compare.cluster_options import ENGINES, ClusterFlags, engine_class
from r2mae.errors import UserError

ADDRESS = "tcp://127.0.0.1:8786"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for dask-jobqueue."""
    module = ModuleType("dask_jobqueue")
    module.__spec__ = ModuleSpec("dask_jobqueue", None)
    module.SLURMCluster = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_jobqueue", module)


def test_no_cluster_is_processes_of_this_machine() -> None:
    assert ClusterFlags(jobs=2).read() is None


def test_an_address() -> None:
    options = ClusterFlags(
        cluster=ADDRESS,
    ).read()
    assert options is not None
    assert (options.where, dict(options.settings)) == (ADDRESS, {})


@pytest.mark.parametrize(
    ("where", "more", "expected"),
    [
        (None, {"cluster_config": "slurm.yaml"}, "--cluster-config belongs to --cluster"),
        (ADDRESS, {"jobs": 2}, "omit --jobs"),
        (ADDRESS, {"cluster_config": "slurm.yaml"}, "--cluster-config is for slurm and kubernetes"),
        ("127.0.0.1:8786", {}, "neither the address of a scheduler"),
        ("slrm", {}, "did you mean 'slurm'"),
        ("slurm", {}, "needs --cluster-config FILE"),
    ],
)
def test_what_does_not_go_together(where: str | None, more: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        ClusterFlags(cluster=where, **more).read()


@pytest.mark.parametrize(("where", "extra"), [("slurm", "slurm"), ("kubernetes", "kubernetes"), (ADDRESS, "cluster")])
def test_a_missing_library_is_named(where: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ENGINES[where][0].split(".")[0] if where in ENGINES else "distributed"
    monkeypatch.setattr("r2mae.compare.cluster_options.find_spec", lambda name: None if name == missing else object())
    with pytest.raises(UserError, match=rf"pip install 'r2mae\[{extra}\]'"):
        ClusterFlags(cluster=where, cluster_config=None if where == ADDRESS else "some.yaml").read()


@pytest.mark.usefixtures("slurm")
def test_settings_are_the_librarys_arguments(tmp_path: Path) -> None:
    file = tmp_path / "slurm.yaml"
    file.write_text("n_workers: 4\ncores: 1\nmemory: 8GB\n", encoding="utf-8")
    options = ClusterFlags(cluster="slurm", cluster_config=str(file)).read()
    assert options is not None
    assert options.settings == {"n_workers": 4, "cores": 1, "memory": "8GB"}
    assert engine_class("slurm") is object


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cores: 1\n", "say how many workers"),
        ("n_workers: 0\n", "say how many workers"),
        ("n_workers: true\n", "say how many workers"),
        ("- 1\n", "is not a configuration"),
    ],
)
def test_settings_that_are_wrong(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "slurm.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=expected):
        ClusterFlags(cluster="slurm", cluster_config=str(file)).read()


def test_a_file_that_is_not_there(slurm: None) -> None:
    with pytest.raises(UserError, match="there is no configuration"):
        ClusterFlags(cluster="slurm", cluster_config="nowhere.yaml").read()
