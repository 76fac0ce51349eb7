"""The model card of an exported run, and its way to the Hugging Face Hub."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae import __version__
from r2mae.errors import UserError, brief
from r2mae.files import atomic_write
from r2mae.screen import visible
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder

if TYPE_CHECKING:
    from r2mae.domains.base import Domain


def command_of(config: RunConfig) -> str:
    """Return the command that pretrains with a configuration: what differs from the defaults of data, model, preset.

    Data are named without their folders: a card is made public.
    """
    names = ("init",) if config.flat().get("init") is not None else ("model", "preset")
    named = {name: value for name in (*names, "scheme") if (value := config.flat().get(name)) is not None}
    base = type(config).make(data=config.data.source, **named).flat()
    given = {name: value for name, value in config.flat().items() if base.get(name, value) != value}
    given |= {name: config.scheme.options[name] for name in config.scheme.given}
    words = ["r2mae", "pretrain", config.domain, Path(config.data.source).name]
    for name, value in {**named, **given}.items():
        values = value if isinstance(value, tuple) else (value,)
        plain = ["null" if one is None else str(one).lower() if isinstance(one, bool) else str(one) for one in values]
        words += [f"--{name.replace('_', '-')}", *plain]
    return visible(shlex.join(words))


def model_card(path: Path, domain: "Domain", config: RunConfig, title: str, library: str, opened: str) -> str:
    """Return the card of an exported run as Markdown: data, scheme, ratio, steps, scores, and the command."""
    folder, metrics = RunFolder(path), {metric.name: metric.label for metric in domain.metrics_of(config)}
    scheme = ", ".join(f"{name} {value}" for name, value in config.scheme.options.items())
    rows: dict[str, Any] = {
        "data": Path(config.data.source).name,
        "model": config.model.name,
        "scheme": f"{config.scheme.name} ({scheme})" if scheme else config.scheme.name,
        "steps": f"{folder.description.steps:,} of {config.optimizer.batch_size:,} samples, seed {config.seed}",
        "loaded by": opened,
    }
    scores = {metrics.get(name, name): value for name, value in (folder.results or {}).get("scores", {}).items()}
    tables = [
        "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in table.items())
        for table in (rows, {name: "-" if value is None else f"{value:.4g}" for name, value in scores.items()})
    ]
    measured = f"\n## Scores of the run\n\n| score | |\n|---|---|\n{tables[1]}\n" if scores else ""
    return f"""---
library_name: {library}
tags: [r2mae, masked-pretraining, {config.domain}]
---

# {visible(title)}

Pretrained by masking with r2mae {__version__} ([paper](https://arxiv.org/abs/2509.21650)).

| | |
|---|---|
{tables[0]}
{measured}
## The command

    {command_of(config)}
"""


def write_card(card: str, output: Path) -> Path:
    """Write a card into an exported folder, or next to an exported file, and return its path."""
    place = output / "README.md" if output.is_dir() else output.with_name(f"{output.name}.md")
    with atomic_write(place) as file:
        file.write(card)
    return place


def check_hub_name(name: str) -> None:
    """Refuse what is no name of a repository of the Hub, or a missing library, before anything is written."""
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", name, re.ASCII):
        raise UserError(f"--push takes USER/NAME, a repository of the Hugging Face Hub, not {name!r}")
    import huggingface_hub  # noqa: F401


def push(output: Path, card: Path, name: str) -> str:
    """Upload an exported folder, or a file and its card, to a repository of the Hub, and return its address."""
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        address = api.create_repo(name, exist_ok=True)
        if output.is_dir():
            api.upload_folder(repo_id=name, folder_path=output)
        else:
            for file, place in ((output, output.name), (card, "README.md")):
                api.upload_file(repo_id=name, path_or_fileobj=file, path_in_repo=place)
    except Exception as error:  # of the network, the library, the login
        raise UserError(
            f"{output} is written, and is not pushed to {name} ({brief(error)}): log in by `hf auth login`, then "
            f"`hf upload {name} {output}`"
        ) from None
    return str(address)


def _cell(value: object) -> str:
    return visible(str(value)).replace("|", r"\|").replace("\n", " ")
