"""Ratios that trainers of other libraries set on models that mask themselves."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from r2mae.errors import UserError
from r2mae.integrations.ratios import RatioSetter
from r2mae.masking import Fixed, LinearDecay, Uniform

transformers = pytest.importorskip("transformers")


class Images(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.full((3, 16, 16), index / 16)}


def vit_mae() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    decoder = {f"decoder_{name}": value for name, value in sizes.items()}
    return transformers.ViTMAEForPreTraining(
        transformers.ViTMAEConfig(image_size=16, patch_size=4, mask_ratio=0.75, **sizes, **decoder)
    )


class Recorded(nn.Module):
    """Stands for a model with a ratio; notes the ratio of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.mask_ratio, self.weight = 0.75, nn.Parameter(torch.ones(1))
        self.seen: list[tuple[bool, float]] = []

    def forward(self, pixel_values: torch.Tensor, labels: Any = None, return_loss: bool = True) -> dict[str, Any]:
        self.seen.append((self.training, self.mask_ratio))
        return {"loss": self.weight.sum() * pixel_values.mean()}


def fit(model: Any, out: Path, callback: Any, **given: Any) -> Any:
    settings = {"max_steps": 3, "per_device_train_batch_size": 2, "logging_steps": 1, "save_strategy": "no", **given}
    args = transformers.TrainingArguments(str(out), report_to=[], use_cpu=True, disable_tqdm=True, **settings)
    trainer = transformers.Trainer(
        model=model, args=args, train_dataset=Images(), eval_dataset=Images(), callbacks=[callback]
    )
    trainer.train(resume_from_checkpoint=given.get("resume"))
    return trainer


def test_trainer_sets_one_ratio_for_each_optimiser_step(tmp_path: Path) -> None:
    from r2mae.integrations.transformers import MaskRatioCallback

    model = Recorded()
    trainer = fit(
        model, tmp_path, MaskRatioCallback((0.5, 0.9), seed=3), gradient_accumulation_steps=2, eval_strategy="steps",
        eval_steps=1,
    )  # fmt: skip
    trained = [ratio for training, ratio in model.seen if training]
    step = RatioSetter((0.5, 0.9), seed=3)
    step.begin(model, 3)
    expected = [step.set(number) for number in range(3)]
    assert trained == [ratio for ratio in expected for _ in range(2)]  # both micro-batches
    assert {ratio for training, ratio in model.seen if not training} == {0.75}
    logged = [entry["mask_ratio"] for entry in trainer.state.log_history if "mask_ratio" in entry]
    assert logged == pytest.approx(expected)


def test_vit_mae_of_transformers_hides_that_share(tmp_path: Path) -> None:
    from r2mae.integrations.transformers import MaskRatioCallback

    model, shares = vit_mae(), []
    model.register_forward_hook(lambda _, inputs, output: shares.append(float(output.mask.mean())))
    fit(model, tmp_path, MaskRatioCallback(LinearDecay(0.75, 0.25)))
    assert shares == [0.75, 0.5, 0.25]
    assert model.config.mask_ratio == 0.75


def test_a_model_without_a_ratio_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"of Linear has a number called mask_ratio: set self\.mask_ratio in"):
        RatioSetter(0.5).begin(nn.Linear(2, 2), 10)


def test_ratios_of_samples_are_refused() -> None:
    with pytest.raises(UserError, match="one number for all samples"):
        RatioSetter(Uniform(0.1, 0.9, per="sample"))


def test_every_part_of_a_model_gets_the_ratio() -> None:
    model = nn.ModuleList([Recorded(), Recorded()])
    step = RatioSetter(Fixed(0.3))
    step.begin(model, 1)
    assert step.set(0) == 0.3
    assert [part.mask_ratio for part in model] == [0.3, 0.3]
    step.restore()
    assert [part.mask_ratio for part in model] == [0.75, 0.75]
    model[0].mask_ratio = 0.5  # of the user, after training
    step.restore()
    assert [part.mask_ratio for part in model] == [0.5, 0.75]


def test_a_wrapper_that_passes_attributes_on_gets_none_of_its_own() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Recorded()

        def __getattr__(self, name: str) -> Any:
            return super().__getattr__(name) if name == "inner" else getattr(self.inner, name)

    model, step = Wrapper(), RatioSetter(Fixed(0.3))
    step.begin(model, 1)
    step.set(0)
    assert (model.inner.mask_ratio, "mask_ratio" in vars(model)) == (0.3, False)
    step.begin(model, 1)  # after an interrupted training
    assert model.mask_ratio == 0.75
    compiled = torch.compile(Recorded())
    step.begin(compiled, 1)
    step.set(0)
    assert compiled._orig_mod.mask_ratio == 0.3
    step.restore()
    assert compiled.mask_ratio == compiled._orig_mod.mask_ratio == 0.75


class Stream(IterableDataset[torch.Tensor]):
    """16 rows, and no length."""

    def __iter__(self) -> Any:
        return iter(torch.rand(16, 2))


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*(num_workers|does not have many workers|IterableDataset)")
@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({"max_epochs": 2}, False),
        ({"max_time": "00:00:00:09"}, False),
        ({"max_epochs": 2, "accumulate_grad_batches": 2}, False),
        ({"max_steps": 5}, True),
        ({"max_epochs": 2, "limit_train_batches": 3}, True),
    ],
)
@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_lightning_without_a_length_is_right_or_refused(
    given: dict[str, Any], known: bool, error: type[BaseException] | None
) -> None:
    pytest.importorskip("lightning")
    from lightning.pytorch import LightningModule, Trainer

    from r2mae.integrations.lightning import MaskRatioCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.mask_ratio, self.layer, self.seen = 0.75, nn.Linear(2, 2), []

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            self.seen.append(self.mask_ratio)
            if error is not None and len(self.seen) == 2:
                raise error
            return self.layer(batch).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    callback = MaskRatioCallback(LinearDecay(0.9, 0.3))
    trainer = Trainer(callbacks=[callback], enable_model_summary=False, **quiet, **given)
    loader = DataLoader(Stream(), batch_size=4)
    before = signal.getsignal(signal.SIGINT)
    try:
        if not known:
            with pytest.raises(UserError, match=r"LinearDecay needs .* unknown: give the Trainer max_steps="):
                trainer.fit(module, loader)
            assert not module.seen
        elif error is None:
            trainer.fit(module, loader)
            steps = trainer.global_step
            assert module.seen == pytest.approx([0.9 - 0.6 * step / (steps - 1) for step in range(steps)])
        else:
            with pytest.raises((RuntimeError, SystemExit)):
                trainer.fit(module, loader)
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it after Ctrl-C
    assert module.mask_ratio == 0.75


def test_trainer_after_an_error_has_its_ratio_back_on_request(tmp_path: Path) -> None:
    from r2mae.integrations.transformers import MaskRatioCallback

    class Failing(Recorded):
        def forward(self, pixel_values: torch.Tensor, labels: Any = None, return_loss: bool = True) -> dict[str, Any]:
            raise RuntimeError("stop")

    model, callback = Failing(), MaskRatioCallback(0.9)
    with pytest.raises(RuntimeError, match="stop"):
        fit(model, tmp_path, callback)
    callback.restore()
    assert model.mask_ratio == 0.75


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # of Lightning's own code
def test_lightning_sets_one_ratio_for_each_optimiser_step(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    from lightning.pytorch import Callback, LightningModule, Trainer

    from r2mae.integrations.lightning import MaskRatioCallback

    class Module(LightningModule):
        mask_ratio = 0.75

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen, self.checked = nn.Linear(2, 2), [], []

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            self.seen.append((self.global_step, self.mask_ratio))
            return self.layer(batch).mean()

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            self.checked.append(self.mask_ratio)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = DataLoader(torch.rand(16, 2), batch_size=2)
    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    Trainer(
        max_epochs=1, accelerator="cpu", accumulate_grad_batches=2, callbacks=[MaskRatioCallback((0.5, 0.9))],
        enable_model_summary=False, **quiet,
    ).fit(module, loader, loader)  # fmt: skip
    step = RatioSetter((0.5, 0.9))
    step.begin(module, 4)
    assert module.seen == [(number, step.set(number)) for number in range(4) for _ in range(2)]
    assert set(module.checked) == {0.75}

    class Saved(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    def seen(ckpt_path: str | None = None) -> list[tuple[int, float]]:
        module, callbacks = Module(), [MaskRatioCallback(LinearDecay(high=0.9, low=0.1)), Saved()]
        trainer = Trainer(max_epochs=2, accelerator="cpu", callbacks=callbacks, enable_model_summary=False, **quiet)
        trainer.fit(module, loader, loader, ckpt_path=ckpt_path)
        return module.seen

    whole = seen()
    assert seen(str(tmp_path / "0.ckpt")) == whole[8:]
    assert whole[-1] == (15, pytest.approx(0.1))
