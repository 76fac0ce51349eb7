import pytest

from r2mae.errors import UserError
from r2mae.images.config import FinetuneConfig, recipe

GIVEN = {"data": "digits", "run": "runs/vit"}


def test_what_speaks_to_a_scheme_is_refused_and_not_written() -> None:
    for name, value in {"scheme": "mdlm", "low": 0.2, "weighting": "sum", "preset": "vit"}.items():
        with pytest.raises(UserError, match=name):
            FinetuneConfig.make(**GIVEN, **{name: value})
        with pytest.raises(UserError, match=name):
            FinetuneConfig.from_dict({**GIVEN, name: value})
    written = FinetuneConfig.make(**GIVEN).to_dict()
    assert not {"scheme", "ratio", "low", "high", "preset", "weighting"} & written.keys()
    assert FinetuneConfig.from_dict(written) == FinetuneConfig.make(**GIVEN)


def test_the_rate_grows_with_the_batch() -> None:
    config = FinetuneConfig.make(**GIVEN, base_lr=5e-4, batch_size=1024)
    assert config.optimizer.peak_lr == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (192, (1e-3, 0.75, 100, 0.1)),
        (768, (5e-4, 0.65, 100, 0.1)),
        (1024, (1e-3, 0.75, 50, 0.2)),
        (1280, (1e-3, 0.75, 50, 0.3)),
    ],
)
def test_recipes_of_mae_by_size(width: int, expected: tuple[float, ...]) -> None:
    made = FinetuneConfig.make(**GIVEN, **recipe(width))
    assert tuple(made[name] for name in ("base_lr", "layer_decay", "epochs", "drop_path")) == expected
    theirs = (256, 1, "resized") if width < 768 else (1024, 16, "original")
    assert (made.optimizer.batch_size, made.optimizer.accumulate, made.crop_from) == theirs


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"smoothing": 1.0}, "smoothing"),
        ({"mixup": -1.0}, "mixup"),
        ({"crop": 0.0}, "crop"),
        ({"layer_decay": 1.5}, "layer_decay"),
        ({"randaugment": 11.0}, "randaugment must be 0 to 10"),
        ({"resize": 0}, "resize"),
        ({"batch_size": 6, "accumulate": 2}, "pairs"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        FinetuneConfig.make(**GIVEN, **options)
