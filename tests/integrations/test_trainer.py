"""The one-line example of the README, against the real ``transformers.Trainer``."""

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM, Trainer, TrainingArguments

from r2mae.integrations.transformers import FixedMasks, MaskCallback, MaskCollator, hidden_logits
from r2mae.masking import Uniform
from r2mae.text.tokenizer import train_bpe

pytestmark = pytest.mark.slow

TEXTS = [f"the {one} fox jumps over the {two} dog and runs" for one in ("red", "old", "big") for two in ("lazy", "sad")]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=train_bpe(TEXTS, 300).backend,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


@pytest.fixture(scope="module")
def data(tokenizer: PreTrainedTokenizerFast) -> datasets.Dataset:
    ids = [tokenizer(text)["input_ids"] for text in TEXTS * 4]
    return datasets.Dataset.from_dict({"input_ids": ids})


def model(tokenizer: PreTrainedTokenizerFast) -> RobertaForMaskedLM:
    torch.manual_seed(0)
    return RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=64,
        )
    )


class Hidden(Trainer):
    """A Trainer that computes logits at labels alone, as in the documentation."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        logits, labels = hidden_logits(model, inputs)
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / num_items_in_batch


class Recording(Hidden):
    """The same; what its model sees is written down."""

    def training_step(self, model: Any, inputs: Any, *others: Any) -> Any:
        self.seen = [*getattr(self, "seen", []), {name: value.clone() for name, value in inputs.items()}]
        return super().training_step(model, inputs, *others)


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    given = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "logging_steps": 2, "save_steps": 4, **options}
    return TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to=[], disable_tqdm=True, dataloader_pin_memory=False, **given
    )


def test_the_one_line_example(tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, tmp_path: Path) -> None:
    args, train_dataset = arguments(tmp_path), data
    trainer = Trainer(
        model(tokenizer), args, train_dataset=train_dataset, data_collator=MaskCollator(tokenizer, Uniform(0.15, 0.4))
    )
    before = trainer.model.lm_head.dense.weight.clone()
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 6
    assert not torch.equal(trainer.model.lm_head.dense.weight, before)


def run(
    tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, folder: Path, *, resume: bool = False, **options: Any
) -> Recording:
    collator = MaskCollator(tokenizer, Uniform(0.15, 0.4))
    trainer = Recording(
        model(tokenizer),
        arguments(folder, **options),
        train_dataset=data,
        data_collator=collator,
        callbacks=[MaskCallback(collator)],
    )
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-8") if resume else None)
    return trainer


def same(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> bool:
    assert len(one) == len(two)
    return all(torch.equal(a[name], b[name]) for a, b in zip(one, two, strict=True) for name in ("input_ids", "labels"))


def test_a_resumed_run_sees_the_same_masks(
    tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, tmp_path: Path
) -> None:
    whole = run(tokenizer, data, tmp_path)
    assert len(whole.seen) == 12
    # Step 8 is in the middle of the second epoch, whose batches before it Trainer makes again and skips.
    resumed = run(tokenizer, data, tmp_path, resume=True)
    assert same(resumed.seen, whole.seen[8:])
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value)
    workers = run(tokenizer, data, tmp_path / "workers", dataloader_num_workers=2, dataloader_persistent_workers=True)
    assert same(workers.seen, whole.seen)


def test_each_epoch_has_masks_of_its_own(
    tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, tmp_path: Path
) -> None:
    trainer = run(tokenizer, data, tmp_path, train_sampling_strategy="sequential")
    first, second = trainer.seen[:6], trainer.seen[6:]
    clean = [torch.where(one["labels"] >= 0, one["labels"], one["input_ids"]) for one in trainer.seen]
    assert all(torch.equal(a, b) for a, b in zip(clean[:6], clean[6:], strict=True)), "the same tokens in both epochs"
    assert not any(torch.equal(a["labels"], b["labels"]) for a, b in zip(first, second, strict=True))


def test_without_the_callback_a_warning_tells(
    tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, tmp_path: Path
) -> None:
    trainer = Recording(
        model(tokenizer),
        arguments(tmp_path, train_sampling_strategy="sequential"),
        train_dataset=data,
        data_collator=MaskCollator(tokenizer, 0.15),
    )
    with pytest.warns(UserWarning, match="received a batch again without a new epoch"):
        trainer.train()
    assert same(trainer.seen[:6], trainer.seen[6:])


def test_accumulation_equals_a_large_batch_where_stock_does_not(
    tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, tmp_path: Path
) -> None:
    class Fixed(MaskCollator):
        """Masks by the row alone, so that large and small batches hide the same tokens."""

        def __call__(self, examples: Any) -> dict[str, torch.Tensor]:
            made = [super(Fixed, self).__call__([one]) for one in examples]
            length = max(one["labels"].shape[1] for one in made)
            pads = {"input_ids": 1, "labels": -100, "attention_mask": 0}
            return {
                name: torch.cat(
                    [torch.nn.functional.pad(one[name], (0, length - one[name].shape[1]), value=pad) for one in made]
                )
                for name, pad in pads.items()
            }

    def trained(kind: type[Trainer], name: str, size: int, parts: int) -> Any:
        fresh = model(tokenizer)
        for module in fresh.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        collator = Fixed(tokenizer, Uniform(0.1, 0.6))
        collator.set_epoch(0)  # some rows come twice, and each is masked by itself
        trainer = kind(
            fresh,
            arguments(
                tmp_path / name,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=parts,
                max_steps=1,
                optim="sgd",
                learning_rate=0.5,
                lr_scheduler_type="constant",
                max_grad_norm=0.0,
                train_sampling_strategy="sequential",
            ),
            train_dataset=data,
            data_collator=collator,
        )
        trainer.train()
        return trainer.model.lm_head.dense.weight.detach() - model(tokenizer).lm_head.dense.weight.detach()

    large = trained(Hidden, "large", 12, 1)
    torch.testing.assert_close(trained(Hidden, "parts", 3, 4), large, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(trained(Trainer, "stock", 12, 1), large, rtol=1e-3, atol=1e-6)
    too_large = trained(Trainer, "stock parts", 3, 4)
    assert too_large.norm() > 3 * large.norm()


class Streamed(torch.utils.data.IterableDataset[Any]):
    """Rows without a length, as they are streamed."""

    def __init__(self, rows: datasets.Dataset) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


def test_each_pass_over_a_stream_has_masks_of_its_own(
    tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, tmp_path: Path
) -> None:
    trainer = run(tokenizer, Streamed(data), tmp_path, max_steps=14, save_steps=100)  # type: ignore[arg-type]
    passes = [trainer.seen[:6], trainer.seen[6:12]]
    clean = [[torch.where(one["labels"] >= 0, one["labels"], one["input_ids"]) for one in part] for part in passes]
    assert all(torch.equal(a, b) for a, b in zip(*clean, strict=True)), "the same tokens in both passes"
    assert not any(torch.equal(a["labels"], b["labels"]) for a, b in zip(*passes, strict=True))
    assert trainer.data_collator.epoch == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_fixed_masks_are_those_of_every_evaluation(
    tokenizer: PreTrainedTokenizerFast, data: datasets.Dataset, tmp_path: Path, workers: int
) -> None:
    collator, fixed = MaskCollator(tokenizer, Uniform(0.15, 0.4)), FixedMasks(data.select(range(9)), tokenizer, 0.5)
    options: dict[str, Any] = {"eval_strategy": "epoch", "learning_rate": 0.0, "dataloader_num_workers": workers}
    trainer = Trainer(
        model(tokenizer),
        arguments(tmp_path, per_device_eval_batch_size=4, **options),
        train_dataset=data,
        eval_dataset=fixed,
        data_collator=collator,
        callbacks=[MaskCallback(collator)],
    )
    trainer.train()
    losses = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row]
    assert len(losses) == 2
    assert losses[0] == losses[1] == trainer.evaluate()["eval_loss"], "the same masks, and nothing was learned"
    for batch in trainer.get_eval_dataloader():
        hidden, ordinary = (batch["labels"] >= 0).sum(1), batch["attention_mask"].sum(1) - 2
        assert torch.equal(hidden, (ordinary * 0.5 + 0.5).floor().long())
