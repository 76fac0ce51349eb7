import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from r2mae.errors import UserError
from r2mae.training.checkpoint import BEST, SECONDS, STEP, WAITED, read_checkpoint, write_checkpoint


class Payload:
    """Runs code when unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("open('executed', 'w').close()",))


WHOLE = {
    STEP: 3,
    SECONDS: 1.0,
    BEST: 0.5,
    WAITED: 0,
    "state_dict": {"w": torch.arange(3.0)},
    "optimizer": {},
}


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "last.ckpt"
    write_checkpoint(path, WHOLE)
    back = read_checkpoint(path)
    assert back[STEP] == 3
    assert torch.equal(back["state_dict"]["w"], torch.arange(3.0))
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    write_checkpoint(path, {STEP: 3})
    before = path.read_bytes()
    with pytest.raises(Exception, match=r"pickle|local object"):
        write_checkpoint(path, {STEP: 4, "bad": lambda: None})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("kind", ["torch", "pickle"])
def test_payloads_are_refused_and_not_run(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "last.ckpt"
    if kind == "torch":
        torch.save({STEP: 1, "x": Payload()}, path)
    else:
        path.write_bytes(pickle.dumps({STEP: 1, "x": Payload()}))
    with pytest.raises(UserError, match="never unpickled"):
        read_checkpoint(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_files_are_named_with_the_remedy(tmp_path: Path, share: float) -> None:
    path = tmp_path / "last.ckpt"
    write_checkpoint(path, {STEP: 3, "state_dict": {"w": torch.rand(1000)}})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UserError, match=r"last\.ckpt cannot be read: .*delete it"):
        read_checkpoint(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    for missing in WHOLE:
        torch.save({key: value for key, value in WHOLE.items() if key != missing}, path)
        with pytest.raises(UserError, match="not a checkpoint of r2mae"):
            read_checkpoint(path)
    torch.save({**WHOLE, STEP: -5}, path)
    with pytest.raises(UserError, match="not a checkpoint of r2mae"):
        read_checkpoint(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="it is truncated or damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("CUDA error: an illegal memory access was encountered", False),
        ("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0", True),
        ("PytorchStreamWriter failed writing file data/0: file write failed", True),
    ],
)
def test_only_the_archive_writer_tells_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, full: bool
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError if full else RuntimeError, match="No space left" if full else "illegal memory access"):
        write_checkpoint(tmp_path / "last.ckpt", WHOLE)
    assert not [*tmp_path.iterdir()]


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(torch.arange(3.0).numpy().tobytes()) + 6] ^= 1
    path.write_bytes(content)


def _edit(path: Path, change: Any) -> None:
    saved = torch.load(path, weights_only=True)
    change(saved)
    torch.save(saved, path)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_bit,
        lambda path: _edit(path, lambda saved: saved["state_dict"]["w"].mul_(0.5)),
        lambda path: _edit(path, lambda saved: saved["state_dict"]["w"].fill_(float("nan"))),
        lambda path: _edit(path, lambda saved: saved["optimizer"]["state"][0]["m"].zero_()),
        lambda path: _edit(path, lambda saved: saved.update({STEP: 2})),
    ],
)
def test_a_checkpoint_that_was_changed_is_refused(tmp_path: Path, damage: Any, mapped: bool) -> None:
    path = tmp_path / "checkpoints" / "last.ckpt"
    state = {0: {"m": torch.ones(2, dtype=torch.bfloat16), "step": torch.tensor(3)}}
    moments = {"state": state, "param_groups": [{"lr": 0.1}]}
    write_checkpoint(path, {**WHOLE, "optimizer": moments})
    assert read_checkpoint(path, mapped=mapped).keys() == WHOLE.keys()
    damage(path)
    with pytest.raises(UserError, match=r"last\.ckpt (has changed|cannot be read)"):
        read_checkpoint(path, mapped=mapped)
