"""Finished runs in the layouts of other libraries, and their outputs there."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, ViTForImageClassification, ViTModel

from images.weight_conversion.small_vits import config, equal, finished, picture_file
from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae.images.domain import DOMAIN
from r2mae.images.files import to_square
from r2mae.images.models.vit_mae.model import PatchTask, VisionTransformerMAE
from r2mae.images.patches import standardised
from r2mae.images.weights import read_finished, read_weights, to_mae, to_timm, to_transformers
from r2mae.training.loop import fit
from r2mae.training.saving import load_model

pytestmark = pytest.mark.slow
WRITERS: dict[str, tuple[Callable[..., str], bool]] = {
    "timm.safetensors": (to_timm, True),
    "mae.pth": (to_mae, False),
    "folder": (to_transformers, False),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("vit"))


def loaded(run: Path) -> tuple[PatchTask, VisionTransformerMAE]:
    _, task, model = load_model(run, DOMAIN)
    assert isinstance(task, PatchTask)
    assert isinstance(model, VisionTransformerMAE)
    return task, model


def pictures(rows: int = 5) -> torch.Tensor:
    return torch.randint(0, 256, (rows, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", WRITERS)
def test_there_and_back_is_nothing(run: Path, name: str, tmp_path: Path) -> None:
    write, always_encoder = WRITERS[name]
    whole = dict(loaded(run)[1].state_dict())
    encoder = {name: value for name, value in whole.items() if not name.startswith(("decoder_", "mask_token"))}
    write(run, tmp_path / name)
    read = read_weights(tmp_path / name)
    assert equal(read.state, encoder if always_encoder else whole)
    assert not list(tmp_path.glob(".*"))
    assert equal(read_weights(run).state, whole)


def test_transformers_encodes_the_same(run: Path, tmp_path: Path) -> None:
    assert "ViTModel its encoder" in to_transformers(run, tmp_path / "out")
    stock, found = ViTModel.from_pretrained(tmp_path / "out", add_pooling_layer=False, output_loading_info=True)
    assert not found["missing_keys"]
    assert all("decoder" in name for name in found["unexpected_keys"])
    images = standardised(pictures())
    expected = loaded(run)[1].encode(images)
    mine = stock(images.movedim(3, 1)).last_hidden_state
    torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-5)
    classifier, found = ViTForImageClassification.from_pretrained(
        tmp_path / "out", num_labels=3, output_loading_info=True
    )
    assert found["missing_keys"] == {"classifier.weight", "classifier.bias"}
    inner = classifier.vit(images.movedim(3, 1)).last_hidden_state
    torch.testing.assert_close(inner, expected, rtol=1e-5, atol=1e-5)


def test_the_preprocessing_is_ours(run: Path, tmp_path: Path) -> None:
    to_transformers(run, tmp_path / "out")
    processor = AutoImageProcessor.from_pretrained(tmp_path / "out")
    pixels = pictures(1)
    made = processor(images=Image.fromarray(pixels[0].numpy()), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(made.movedim(1, 3), standardised(pixels), rtol=1e-5, atol=1e-5)
    written = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())  # other readers, other defaults
    assert all(written[f"do_{step}"] for step in ("resize", "center_crop", "rescale", "normalize"))


def test_the_configuration_says_what_the_model_is(run: Path, tmp_path: Path) -> None:
    to_transformers(run, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["layer_norm_eps"] == 1e-6
    assert (config["image_size"], config["patch_size"], config["num_channels"]) == (16, 4, 3)
    assert (config["mask_ratio"], config["norm_pix_loss"]) == (0.75, True)
    assert (config["num_attention_heads"], config["decoder_num_attention_heads"]) == (4, 2)


@pytest.mark.parametrize(
    ("fields", "mean"),
    [
        ({"scheme": "fixed", "ratio": 0.5}, 0.5),
        ({"scheme": "r2mae", "low": 0.6, "high": 0.9, "ratio": None}, 0.75),
        ({"scheme": "mdlm", "ratio": None}, 0.5),
        ({"scheme": "dynamic", "low": 0.6, "high": 0.8, "ratio": None, "steps": 9, "decay_in": "steps"}, 0.7),
        # Steps at 0.9, then at 0.6: of a longer run the mean would be nearer to 0.6.
        ({"scheme": "dynamic", "ratio": None, "steps": 4, "decay_end": 0.3, "decay_in": "steps"}, 2.7 / 4),
        ({"scheme": "dynamic", "ratio": None, "steps": None, "epochs": 1.0}, 0.9),
    ],
)
def test_the_ratio_is_the_mean_of_the_run(fields: dict[str, object], mean: float, tmp_path: Path) -> None:
    run = finished(tmp_path, **fields)
    assert read_finished(run)[1]["ratio"] == pytest.approx(mean, abs=0.06)


def test_images_that_were_cut_off_are_cut_off(tmp_path: Path) -> None:
    """As the run did with images that are not square; and not squashed."""
    (tmp_path / "photos").mkdir()
    photos = [np.random.default_rng(n).integers(0, 256, (24, 40, 3), dtype=np.uint8) for n in range(8)]
    photos = [
        np.repeat(np.repeat(photo[::4, ::4], 4, 0), 4, 1) for photo in photos
    ]  # smooth, so that edges differ little
    for number, photo in enumerate(photos):
        Image.fromarray(photo).save(tmp_path / "photos" / f"{number}.png")
    made = config(tmp_path / "photos", resize=16, batch_size=4)
    run = fit(made, DOMAIN, tmp_path / "run").folder.path
    to_transformers(run, tmp_path / "out")
    processor = AutoImageProcessor.from_pretrained(tmp_path / "out")
    theirs = processor(images=Image.fromarray(photos[0]), return_tensors="pt")["pixel_values"][0].movedim(0, 2)
    mine = standardised(torch.from_numpy(np.asarray(to_square(Image.fromarray(photos[0]), 16)).copy()))
    assert theirs.shape == mine.shape
    assert float((theirs - mine).abs().mean()) < 0.1
    squashed = standardised(torch.from_numpy(np.asarray(Image.fromarray(photos[0]).resize((16, 16))).copy()))
    assert float((squashed - mine).abs().mean()) > 0.5


def test_grey_rectangles(tmp_path: Path) -> None:
    """transformers' model takes squares alone."""
    np.save(tmp_path / "grey.npy", np.random.default_rng(0).integers(0, 256, (24, 8, 16), dtype=np.uint8))
    run = fit(config(tmp_path / "grey.npy"), DOMAIN, tmp_path / "run").folder.path
    with pytest.raises(UserError, match="square images, not 8 x 16: use --to timm"):
        to_transformers(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "img_size=(8, 16)" in to_timm(run, tmp_path / "vit.safetensors")


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(line: str) -> tuple[int, str]:
        code = main(["export", *line.split()])
        return code, "".join(capsys.readouterr())

    code, said = told(f"{run} --to mae -o {tmp_path / 'mae.pth'}")
    assert (code, "is in" in said) == (0, True), said
    for line, words in {
        f"{run} --to mae -o {tmp_path / 'mae.pth'}": "exists already: name a new one",
        f"{run} --to mae -o {tmp_path / 'mae.safetensors'}": "should end in .pth: -o mae.pth",
        f"{run} --to timm -o {tmp_path / 'out.pth'}": "should end in .safetensors: -o out.safetensors",
        f"{run} --to timm": "name the output: r2mae export",
        f"{run} -o x.pth": "name the layout:",
        f"{run} --to torchvision -o x.pth": "torchvision",
        f"{tmp_path / 'none'} --to timm -o x.pth": "no run folder",
    }.items():
        code, said = told(line)
        assert (code, words in said, said.count("\n")) == (2, True, 1), said


def test_a_model_of_ours_alone_is_refused(tmp_path: Path) -> None:
    from r2mae.images.config import ImagesConfig

    small = ImagesConfig.make(data=str(picture_file(tmp_path)), hidden=4, latent=2, steps=1, threads=1, device="cpu")
    run = fit(small, DOMAIN, tmp_path / "mlp").folder.path
    with pytest.raises(
        UserError, match="a run of the model 'mlp', which timm, transformers and MAE have not: name one"
    ):
        to_timm(run, tmp_path / "out.safetensors")
