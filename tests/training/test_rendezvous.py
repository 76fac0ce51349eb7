"""What the processes of a run tell each other, with several of them in one process."""

import json
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch import Trainer
from torch.distributed import HashStore  # type: ignore[attr-defined]

from r2mae.cli.early import loading
from r2mae.errors import UserError
from r2mae.training import checkpoint_keeper, rendezvous
from r2mae.training.checkpoint_keeper import CheckpointKeeper
from r2mae.training.interrupt import StoppedBySignal, StopRequest, signal_code
from r2mae.training.ranks import LEADER, is_first
from r2mae.training.rendezvous import JOIN_TIMEOUT, LostProcessError, Rendezvous
from r2mae.training.step import Pretraining

from .conftest import ToyConfig


def process_of_torchrun(monkeypatch: pytest.MonkeyPatch, rank: int, ranks: int = 2) -> None:
    told = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))


def met(monkeypatch: pytest.MonkeyPatch, rank: int) -> tuple[Rendezvous, Any]:
    """Return one of two processes that have met, and the store between them."""
    process_of_torchrun(monkeypatch, rank)
    store = HashStore()
    monkeypatch.setattr(Rendezvous, "_meet", lambda self, environment: setattr(self, "store", store))
    monkeypatch.setattr(Rendezvous, "_watch", lambda self, signs: None)
    monkeypatch.setattr(Rendezvous, "agree", lambda *ignored: None)
    return Rendezvous(), store


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (KeyboardInterrupt(), "stopped; "),
        (SystemExit(143), "stopped; "),
        (StoppedBySignal(2), "stopped; "),
        (OSError(28, "full"), "OSError: "),
        (SystemExit(0), None),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_who_leaves_alone_leaves_word(
    rank: int, error: BaseException, word: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, store = met(monkeypatch, rank)
    store.set("heard/1", "1")
    with pytest.raises(type(error)), one.together(ToyConfig(nodes=2)):
        raise error
    assert store.check(["failed"]) is (word is not None)
    assert word is None or store.get("failed").decode().startswith(f"process {rank + 1} of 2 (rank {rank}): {word}")
    assert store.check(["told"]) is (rank == 0 and word is not None), "process 0 tells it"


def test_a_stop_of_all_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    one, store = met(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt), one.together(ToyConfig(nodes=2)):
        one.part()
        raise KeyboardInterrupt
    assert store.check(["left/1"])
    assert not store.check(["failed"])


def test_what_process_0_has_told_is_not_told_again_when_its_store_has_gone() -> None:
    one, store = Rendezvous(), HashStore()
    one.rank, one.ranks, one.nodes = 1, 2, 2
    signs = one._signs = rendezvous._Signs(store, 1, 2, threading.Event())
    one.store = Mock(compare_set=Mock(side_effect=RuntimeError))
    assert isinstance(one._told(LostProcessError("lost")), UserError)
    store.set("told", "1")
    store.set("failed", "process 1 of 2 (rank 0): OSError")
    signs.look()
    assert store.check(["heard/1"])
    assert isinstance(one._told(LostProcessError("lost")), SystemExit)


def test_one_line_says_who_has_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier start that nobody joined, in the store of torchrun, ends nothing now."""
    process_of_torchrun(monkeypatch, 0, 3)
    monkeypatch.setenv(JOIN_TIMEOUT, "1")
    store, raised = HashStore(), {}
    store.set("r2mae/start", "earlier")
    store.set("r2mae/earlier/late", json.dumps(["another"]))
    monkeypatch.setattr(Rendezvous, "_connect", lambda *ignored: store)

    def meet(rank: int) -> None:
        one = Rendezvous()
        one.rank, one.ranks, one.nodes = rank, 3, 3
        try:
            one._meet(TorchElasticEnvironment())
        except BaseException as error:
            raised[rank] = error

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in (1, 0)]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
        assert not raised
    for thread in threads:
        thread.join(30)
    assert str(raised[0]).startswith("only 2 of 3 processes have come within 1 seconds (rank 2 is missing)")
    assert isinstance(raised[1], SystemExit)


class Clock:
    """Passes no time but that of the waits; some of them are longer than they should be."""

    def __init__(self, *held: float) -> None:
        self.now, self.held, self.ends = 0.0, list(held), 1000.0
        self.meanwhile: Callable[[float], Any] = lambda seconds: None

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds + (self.held.pop(0) if self.held else 0.0)
        self.meanwhile(seconds)
        return self.now >= self.ends


def watching(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.setattr(rendezvous, "time", clock)
    over, store = Mock(spec=threading.Event()), HashStore()
    over.wait = clock.wait
    return rendezvous._Signs(store, 1, 2, over), store


def test_silence_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    signs, _ = watching(clock := Clock(), monkeypatch)
    assert "process 1 of 2 (rank 0) or its machine has ended" in signs.awaited()
    assert clock.now < 60


@pytest.mark.parametrize("held", [(500.0,), (0.0, 500.0), (*[0.0] * 41, 500.0)])
def test_a_pause_of_this_process_is_no_silence_of_the_others(
    held: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last pause comes while it waits for its own end."""
    signs, _ = watching(clock := Clock(*held), monkeypatch)
    clock.ends = 500 + 45
    assert signs.awaited() == ""


def test_who_is_late_with_a_sign_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    signs, store = watching(clock := Clock(), monkeypatch)

    def look(seconds: float) -> None:
        if seconds > 1:
            store.set("alive/0", str(clock.now))
            signs.look()

    clock.meanwhile = look
    assert signs.awaited() == ""
    assert clock.now >= clock.ends


def test_a_second_signal_stops_process_0_at_once_where_another_has_heard_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper: Any = object.__new__(CheckpointKeeper)
    stop = StopRequest()
    stop.__enter__()
    stop.__exit__()
    monkeypatch.setattr(checkpoint_keeper, "all_finite", lambda state: True)
    keeper.__dict__.update(stop=stop, step=0, total_steps=9, validation=None, _losses=[], _pending=[], _latest={})
    keeper.__dict__.update(folder=Mock(), metrics=Mock(), _flush=lambda module, validate: False)
    keeper.run = SimpleNamespace(config=SimpleNamespace(save_every=5, keep_every=None))
    module = Mock(spec=Pretraining, ratio=0.5, summed_signal_codes=signal_code(signal.SIGTERM))
    module.end_step.return_value = torch.ones(())
    trainer = Mock(spec=Trainer, global_step=1, world_size=2, loggers=[])
    trainer.optimizers = [Mock(param_groups=[{"lr": 0.1}])]
    trainer.strategy = Mock(broadcast=lambda value: value)
    trainer.save_checkpoint.side_effect = lambda path: stop._handle(signal.SIGINT, None)
    with pytest.raises(StoppedBySignal) as stopped:
        keeper.on_train_batch_end(trainer, module, None, None, 0)
    assert stopped.value.number == signal.SIGINT


@pytest.mark.parametrize(
    ("around", "first"),
    [
        ({}, True),
        ({"RANK": "0", "WORLD_SIZE": "2"}, True),
        ({"RANK": "1", "WORLD_SIZE": "2"}, False),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, True),
        ({LEADER: "7"}, False),
    ],
)
def test_the_first_of_several_processes_says_that_libraries_are_loaded(
    around: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    console = Mock()
    console.return_value.status.side_effect = lambda text: loading_nothing()
    monkeypatch.setattr("r2mae.terminal.Terminal", console)
    assert is_first() is first
    with loading():
        assert console.called is first


def loading_nothing() -> Any:
    return threading.Lock()  # some context
