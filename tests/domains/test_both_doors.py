"""`make` in Python, the command line and YAML files make equal configurations, of every preset on every named set."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from r2mae.cells.config import CellsConfig
from r2mae.cli.configs import config_parser
from r2mae.cli.pretrain import Options
from r2mae.domains.lookup import all_domains, get_domain
from r2mae.domains.sources import Sources, find_layers, make_config
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.text.config import TextConfig
from r2mae.training.config import RunConfig

MINE = "/path/of/mine"
SETS = [(domain.name, data) for domain in all_domains() for data in (*domain.sets, MINE)]


def typed(*words: str) -> RunConfig:
    """Return the configuration that a command line makes."""
    made: list[RunConfig] = []

    def run(sources: Sources, options: Any, given: dict[str, Any]) -> int:
        made.append(make_config(sources, given))
        return 0

    parser = config_parser("pretrain", Options, "", run, words)
    assert parser.run is not None
    parser.run(parser.read(words))
    return made[0]


def layered(name: str, data: str, written: dict[str, Any] | None = None, **given: str) -> RunConfig:
    """Return the configuration that the layers of a command line make, with or without a file, and no parser."""
    domain, file = get_domain(name), None if written is None else "given.yaml"
    layers = find_layers(domain, data, file, written or {}, given.get("preset"), given.get("model"))
    return make_config(Sources(domain, data, layers), given)


def presets_of(kind: type[RunConfig], *, models: bool) -> Iterator[dict[str, str]]:
    yield {}
    for preset in kind.presets:
        yield {"preset": preset}
        if models:
            yield {"preset": preset, "model": kind.model_of(preset) or kind.model.name}


@pytest.mark.parametrize(("name", "data"), SETS)
def test_python_the_command_line_and_files_make_equal_configurations(name: str, data: str, tmp_path: Path) -> None:
    kind: type[RunConfig] = get_domain(name).config
    for given in presets_of(kind, models=data == MINE):
        made = kind.make(data=data, **given)
        assert made.preset == given.get("preset")
        assert made == layered(name, data, **given)
        assert made == layered(name, data, {"domain": name, "data": data, **given})
        assert made == kind.from_dict({"data": {"source": data}, **given})
        # What is saved has all values, and loads as it is, whatever its preset says.
        changed = kind.make(data=data, **given, lr=0.5, seed=3)
        assert made.replace(lr=0.5, seed=3) == changed
        saved = yaml.safe_load(yaml.safe_dump(changed.to_dict()))
        assert kind.from_dict(saved) == changed == layered(name, data, saved)
        assert kind.from_dict({**saved, "preset": "of-another-version"}).differences(changed).keys() == {"preset"}
    given = {"preset": list(kind.presets)[-1], "seed": "3"}  # the parser itself, of words and of a file
    made = kind.make(data=data, **given)
    assert made == typed(name, data, *[word for option, value in given.items() for word in (f"--{option}", value)])
    (tmp_path / "given.yaml").write_text(yaml.safe_dump({"domain": name, "data": data, **given}), encoding="utf-8")
    assert made == typed("--config", str(tmp_path / "given.yaml"))


def test_the_calls_that_made_other_models_than_they_said() -> None:
    tiny = ImagesConfig.make(data="x", model="vit-mae", preset="vit-mae-tiny")
    assert (tiny.model.width, tiny.model.layers, tiny.optimizer.base_lr) == (192, 6, 1.5e-4)
    assert TextConfig.make(data="x", preset="tiny").model.hidden_size == 128
    csle = CellsConfig.make(data="csle", labels=("condition",))
    assert (csle.data.donor_key, csle.data.labels, csle.data.regress) == ("donor", ("condition",), ("age",))
    assert ImagesConfig.make(data="digits").optimizer.epochs == 100
    assert ImagesConfig.make(data="digits", preset="mlp-16-64", epochs=3, latent=5).model.latent == 5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"preset": "nonsense"}, "unknown preset 'nonsense': choose from: mlp-512-16"),
        ({"preset": "tiny", "model": "vit-mae"}, "unknown preset 'tiny': did you mean 'vit-mae-tiny'?"),
        ({"preset": "base"}, "unknown preset 'base': did you mean 'vit-mae-base'?"),
        ({"preset": "unet-5", "model": {"name": "unet"}}, "unknown preset 'unet-5': "),
        ({"preset": "mlp-16-16", "model": "vit-mae"}, "the model 'vit-mae' has no preset 'mlp-16-16': "),
        ({"preset": 3}, "preset takes text, not 3"),
        ({"preset": "unet-4", "model": "unett"}, "unknown model 'unett': did you mean 'unet'?"),
    ],
)
def test_unknown_presets_and_those_of_other_models_are_refused(given: dict[str, Any], words: str) -> None:
    base = ImagesConfig.make(data="x")
    for make in (lambda: ImagesConfig.make(data="x", **given), lambda: base.replace(**given)):
        with pytest.raises(UserError) as refused:
            make()
        assert str(refused.value).startswith(words)
    with pytest.raises(UserError) as refused:
        ImagesConfig.from_dict({"data": "x", **given}, source="mine.yaml")
    assert str(refused.value).startswith(f"mine.yaml: {words}")
    if all(isinstance(value, str) for value in given.values()):
        with pytest.raises(UserError) as refused:
            typed("images", "x", *[word for name, value in given.items() for word in (f"--{name}", value)])
        assert str(refused.value).startswith(words)


def test_replace() -> None:
    base = ImagesConfig.make(data="digits", lr=0.5, seed=3)
    for preset in ImagesConfig.presets:  # as --preset beside --config of a run
        changed = base.replace(preset=preset)
        values = ImagesConfig.presets[preset]
        assert (changed.preset, changed.seed) == (preset, 3)
        assert {name: changed[name.removeprefix("model.")] for name in values} == {**values}
    narrow = base.replace(preset="mlp-16-64")
    assert narrow.replace(lr=0.1).preset == "mlp-16-64"
    assert narrow.replace(preset=None).model == narrow.model
    assert narrow.replace(model="unet") == base.replace(model="unet")  # the preset of another model is gone
    assert narrow.replace(preset="unet-4", lr=0.2) == base.replace(
        **{**ImagesConfig.presets["unet-4"], "lr": 0.2, "preset": "unet-4"}
    )
    cells = CellsConfig.make(data="csle").replace(data="onek1k")
    assert cells.data.labels == ("cell_type", "condition")  # as given before; those of the other set are below


def test_a_checkpoint_brings_its_tokenizer_whatever_the_set_has() -> None:
    assert TextConfig.make(data="fineweb").data.tokenizer is not None
    config = TextConfig.make(data="fineweb", init="bert")
    assert (config.data.tokenizer, config.model.name) == (None, "pretrained")
    assert config == typed("text", "fineweb", "--init", "bert")
    with pytest.raises(UserError, match="omit preset and tokenizer"):
        TextConfig.make(data="x", init="bert", preset="tiny")
