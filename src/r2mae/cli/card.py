"""The model card of an exported run, and its way to the Hugging Face Hub."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae import __version__
from r2mae.errors import UserError, brief
from r2mae.evaluation.metrics import label_of
from r2mae.files import atomic_write
from r2mae.screen import visible
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder

if TYPE_CHECKING:
    from r2mae.domains.base import Domain


def command_of(config: RunConfig) -> str:
    """Return the command that pretrains with a configuration: what differs from the defaults of data, model, preset.

    Files and folders are named without the folders above them: a card is made public.
    """
    names = ("init",) if config.flat().get("init") is not None else ("model", "preset")
    named = {name: value for name in (*names, "scheme") if (value := config.flat().get(name)) is not None}
    base = type(config).make(data=config.data.source, **named).flat()
    given = {name: value for name, value in config.flat().items() if base.get(name, value) != value}
    given |= {name: config.scheme.options[name] for name in config.scheme.given}
    words = ["r2mae", "pretrain", config.domain, _public("data", config.data.source)]
    for name, value in {**named, **given}.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", *(_public(name, one) for one in values)]
    return visible(shlex.join(words))


def model_card(path: Path, domain: "Domain", config: RunConfig, title: str, library: str, opened: str) -> str:
    """Return the card of an exported run as Markdown: data, scheme, ratio, steps, scores, and the command."""
    folder, metrics = RunFolder(path), domain.metrics_of(config)
    scheme = ", ".join(f"{name} {_public(name, value)}" for name, value in config.scheme.options.items())
    rows: dict[str, Any] = {
        "data": _public("data", config.data.source),
        "model": config.model.name,
        "scheme": f"{config.scheme.name} ({scheme})" if scheme else config.scheme.name,
        "steps": f"{folder.description.steps:,} of {config.optimizer.batch_size:,} samples, seed {config.seed}",
        "loaded by": opened,
    }
    scores = {label_of(name, metrics): value for name, value in (folder.results or {}).get("scores", {}).items()}
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


def check_output(output: Path) -> None:
    """Refuse an output that exists, or whose card would replace a file next to it, before anything is written."""
    place = output if output.exists() else _card_beside(output)
    if place.exists():
        raise UserError(f"{place} exists already: name a new one by -o, or move it")


def write_card(card: str, output: Path) -> Path:
    """Write a card into an exported folder, or next to an exported file, and return its path."""
    place = output / "README.md" if output.is_dir() else _card_beside(output)
    with atomic_write(place) as file:
        file.write(card)
    return place


def check_hub(name: str) -> None:
    """Refuse what is no name of a repository of the Hub, or a missing library or login, before anything is written."""
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", name, re.ASCII):
        raise UserError(f"--push takes USER/NAME, a repository of the Hugging Face Hub, not {name!r}")
    from huggingface_hub import HfApi

    try:
        HfApi().whoami()
    except Exception as error:  # of the network, the library, the login
        raise UserError(
            f"--push cannot log in to the Hugging Face Hub ({brief(error)}): run `hf auth login`, or omit --push"
        ) from None


def push(output: Path, card: Path, name: str, public: bool = False) -> str:
    """Upload an exported folder, or a file and its card, to a repository of the Hub, and return its address.

    A new repository is private unless `public` is true; one that exists stays as it is.
    """
    from huggingface_hub import HfApi

    files = [(output, ".")] if output.is_dir() else [(output, output.name), (card, "README.md")]
    try:
        api = HfApi()
        address = api.create_repo(name, private=not public, exist_ok=True)
        for file, place in files:
            if file.is_dir():
                api.upload_folder(repo_id=name, folder_path=file)
            else:
                api.upload_file(repo_id=name, path_or_fileobj=file, path_in_repo=place)
    except Exception as error:  # of the network, the library, the login
        private = [] if public else ["--private"]
        again = [shlex.join(["hf", "upload", name, str(file), place, *private]) for file, place in files]
        raise UserError(
            f"{output} is written, and is not pushed to {name} ({brief(error)}): try again by `{' && '.join(again)}`"
        ) from None
    return str(address)


def _card_beside(output: Path) -> Path:
    return output.with_name(f"{output.name}.md")


def _public(name: str, value: object) -> str:
    """Return the value of an option as a word, and of a path its last part.

    Neither contrasts of classes nor column=value, such as cell=B/T, are paths.
    """
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    word = str(value)
    if name == "contrasts" or re.match("[^/=]+=[^/~.]", word):
        return word
    return Path(word).name or word


def _cell(value: object) -> str:
    return visible(str(value)).replace("|", r"\|").replace("\n", " ")
