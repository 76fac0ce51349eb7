"""What `make dist` builds holds the whole package, and works in an environment of its own."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import r2mae

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "r2mae"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("make") is None, reason="needs make")]


def call(*words: object, folder: Path, **variables: str) -> str:
    """Run a program as a user would, without the variables that lead to this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build in a copy, with the tools of this environment and without a network."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    stale = copy / "build" / "lib" / "r2mae" / "gone.py"  # of an earlier build
    stale.parent.mkdir(parents=True)
    stale.write_text("", encoding="utf-8")
    tools = Path(sys.executable).parent
    call("make", "--old-file=.venv/.dev", "dist", f"BIN={tools}", folder=copy, PIP_NO_INDEX="1")
    (sdist,) = (copy / "dist").glob("r2mae-*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/r2mae/py.typed"} <= inside
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; the libraries that it needs are lent by this one."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    python = folder / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    place = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(call(python, "-c", place, folder=folder).strip())
    # A .pth file names folders; .pth files that lie there, such as that of an editable r2mae, are not read.
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "lent.pth").write_text("\n".join(sorted(lent)), encoding="utf-8")
    return folder


def test_the_wheel_holds_what_the_package_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {f"r2mae/{path.relative_to(SOURCE).as_posix()}" for path in source}
    assert {"r2mae/py.typed", "r2mae/compare/templates/report.html.j2"} <= wanted
    assert {name for name in names if not name.startswith("r2mae-")} == wanted
    assert any(name.endswith("licenses/LICENSE") for name in names)
    metadata = zipfile.ZipFile(wheel).read(f"r2mae-{r2mae.__version__}.dist-info/METADATA").decode()
    assert f"Version: {r2mae.__version__}\n" in metadata
    for extra in ("all", "cli", "compare", "images", "text", "cells", "scvi", "docs", "cluster", "slurm", "kubernetes"):
        assert f"Provides-Extra: {extra}\n" in metadata


def test_the_installed_package_works(environment: Path, tmp_path: Path) -> None:
    python, command = environment / "bin" / "python", environment / "bin" / "r2mae"
    where = Path(call(python, "-c", "import r2mae; print(r2mae.__file__)", folder=tmp_path).strip())
    assert environment in where.parents
    assert call(command, "--version", folder=tmp_path) == f"r2mae {r2mae.__version__}\n"
    told = call(command, "data", "list", folder=tmp_path)
    assert "digits" in told and "csle" in told and "wiki" in told
    code = (
        "from importlib.resources import files; "
        "print(sorted(one.name for one in (files('r2mae') / 'compare' / 'templates').iterdir()))"
    )
    assert "report.html.j2" in call(python, "-c", code, folder=tmp_path)
    loop = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    call(python, "-c", loop[1] if loop else "", folder=tmp_path)
    options = "--schemes fixed r2mae --ratios 0.5 --seeds 2 --steps 2 --jobs 1 --baselines none --out runs"
    call(command, "compare", "digits", *options.split(), folder=tmp_path)
    assert (tmp_path / "runs" / "report.html").exists()


def test_the_citation_names_this_software_and_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["cff-version"], cited["type"], cited["license"]) == ("1.2.0", "software", "MIT")
    assert cited["version"] == r2mae.__version__
    assert cited["title"] == "r2mae" and cited["message"]
    paper = cited["preferred-citation"]
    assert paper["title"] == "Understanding and Enhancing Mask-Based Pretraining towards Universal Representations"
    assert [author["family-names"] for author in paper["authors"]] == ["Dong", "Wang", "Kluger"]
    assert paper["year"] == 2025
