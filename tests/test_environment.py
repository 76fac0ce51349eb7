"""What a run folder says of the machine and the code."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import r2mae.environment as module
from r2mae.environment import CONTINUED, commit, environment, has_fast_bf16, processor, standard_session
from r2mae.training.folder import RunFolder, read_json


def test_the_environment_names_processor_libraries_and_instructions() -> None:
    import torch

    found = environment()
    assert found["processor"]
    assert found["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert found["bf16_instructions"] == has_fast_bf16(torch.device("cpu"))
    assert found["versions"]["torch"] == torch.__version__
    assert found["commit"] == commit()


def test_changes_of_a_resumed_run_are_added_to_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, found = RunFolder(tmp_path), {"processor": "A", "commit": "1"}
    monkeypatch.setattr("r2mae.training.folder.environment", lambda: found)
    folder.record_machine("cpu", 0)
    begun = {**found, "device": "cpu"}
    folder.record_machine("cpu", 5)
    assert read_json(folder.environment_file) == begun
    assert not caplog.messages
    found |= {"processor": "B", "commit": "2"}
    folder.record_machine("cpu", 5)
    assert "resumes from step 5 in a changed environment (processor, commit)" in caplog.messages[-1]
    found["processor"] = "A"
    folder.record_machine("cpu", 9)  # compared with the last place, not the first
    changes = [{"step": 5, "processor": "B", "commit": "2"}, {"step": 9, "processor": "A"}]
    assert read_json(folder.environment_file) == {**begun, CONTINUED: changes}


def test_torch_is_not_imported_for_it() -> None:
    code = "import sys; from r2mae.environment import environment; print('torch' in sys.modules, environment())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False")
    assert "instructions" not in done.stdout


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vendor_id : A\nmodel name\t: Fast CPU 3\nmodel name : B\n", "Fast CPU 3"),
        ("model name :\n", None),
        (None, None),
    ],
)
def test_the_processor_is_named_if_the_system_knows(
    text: str | None, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(module, "_CPUINFO", file)
    assert processor() == (name or module.platform.processor() or module.platform.machine())


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *own, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not of a repository that an installed copy lies in."""
    package = tmp_path / "src" / "pack"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(module, "__file__", str(package / "environment.py"))
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "of something else")
    found = [commit.__wrapped__()]
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "ours")
    found.append(commit.__wrapped__())
    (package / "__init__.py").write_text("changed = True")
    found.append(commit.__wrapped__())
    head = git(tmp_path, "rev-parse", "HEAD")
    assert found == [None, head, head + "+"]
    told = module._git
    monkeypatch.setattr(module, "_git", lambda folder, *words: None if "status" in words else told(folder, *words))
    assert commit.__wrapped__() == head + "?", "not known to be clean"
    monkeypatch.setattr(module, "_git", told)
    monkeypatch.setenv("PATH", "")
    assert commit.__wrapped__() is None, "no git"


def precisions() -> list[str]:
    import torch

    return [place.fp32_precision for place in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)]


@pytest.mark.parametrize("setting", ["legacy", "cuda.matmul", "mkldnn.matmul"])
def test_a_session_takes_either_setting_of_precision_and_restores_it(setting: str) -> None:
    import torch

    before = precisions()
    try:
        if setting == "legacy":
            torch.set_float32_matmul_precision("high")
        else:
            backend = torch.backends.cuda if setting == "cuda.matmul" else torch.backends.mkldnn
            backend.matmul.fp32_precision = "tf32"
        given = precisions()
        assert given != before
        with standard_session():
            assert precisions() == ["ieee", "ieee"]
            assert torch.get_float32_matmul_precision() == "highest"
        assert precisions() == given
        assert setting != "legacy" or torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision = before


def test_overlapping_sessions_of_threads_restore_the_default() -> None:
    import torch

    first, second = standard_session(), standard_session()
    torch.set_default_dtype(torch.float64)
    try:
        first.__enter__()
        with ThreadPoolExecutor(1) as thread:  # the second session begins within the first, and ends after it
            thread.submit(second.__enter__).result()
            first.__exit__(None, None, None)
            assert torch.get_default_dtype() == torch.float32
            thread.submit(second.__exit__, None, None, None).result()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_session_does_not_import_the_compiler_of_torch() -> None:
    code = (
        "import sys, torch\nfrom r2mae.environment import standard_session\n"
        "with standard_session(): pass\nprint('torch._inductor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
