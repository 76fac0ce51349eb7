"""Find domains by name, open runs, and check what commands are given before torch is loaded.

A domain and its libraries are imported only when needed.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from r2mae import cores
from r2mae.domains.base import REQUIRED, Domain
from r2mae.errors import UserError, unknown, warn_once
from r2mae.files import check_output_is_not_source
from r2mae.registry import DOMAIN_COMMANDS, DOMAINS, package_of
from r2mae.training.config import RunConfig

if TYPE_CHECKING:
    from r2mae.catalogue import PublicSet

_GPU = Path("/dev/nvidiactl")  # exists with a GPU driver; checked without torch
_MOST_PARTS = 4096  # of a batch, that are advised


def get_domain(name: str) -> "Domain":
    """Return a domain.

    Raises
    ------
    UserError
        If the domain is unknown, or a library that it needs is not installed (the message names the extra), or it comes
        from another package and is broken.
    """
    if name not in DOMAINS:
        raise unknown("domain", name, DOMAINS)
    domain = import_object(name, DOMAINS[name])
    return cast("Domain", domain) if package_of(name) is None else _check_external_domain(name, domain)


def import_object(domain: str, target: str) -> Any:
    """Import an object of a domain, named as ``module:object``.

    Raises
    ------
    UserError
        If a library that it needs is not installed, or it comes from another package and is broken.
    """
    if package := package_of(domain):
        return load_foreign(f"the domain {domain!r}", package, target)
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("r2mae"):
            raise
        raise UserError(
            f"the domain {domain!r} needs {error.name!r}, which is not installed: pip install 'r2mae[{domain}]'"
        ) from None


def load_foreign(what: str, package: str, target: str) -> Any:
    """Import an object of another package; if it cannot be imported, for whatever reason, the error names `what`."""
    module, _, attribute = target.partition(":")
    if not attribute:
        raise UserError(f"{what} of {package}: its entry point names a module alone: write {module}:OBJECT")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # foreign code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise UserError(f"{what} of {package} cannot be loaded ({reason}): repair or uninstall {package}") from None


def _check_external_domain(name: str, domain: Any) -> "Domain":
    """Return a domain of another package, or raise a UserError if it lacks a part that this version requires."""
    package = package_of(name)
    if not isinstance(domain, Domain):
        raise UserError(
            f"the domain {name!r} of {package} is no object of a class that inherits "
            "from r2mae.domains.base.Domain: it was written for another version"
        )
    if missing := [part for part in REQUIRED if not hasattr(domain, part)]:
        lacks = f"the domain {name!r} of {package} has no {', '.join(missing)}"
        raise UserError(f"{lacks}: it was written for another version")
    if domain.name != name or domain.config.domain != name:
        raise UserError(
            f"the domain {name!r} of {package} has several names: its entry point, `name` and "
            "`config.domain` must be the same"
        )
    if moved := [part for part in ("presets", "set_defaults") if part in vars(type(domain))]:
        raise UserError(f"the domain {name!r} of {package}: {moved[0]} belong to the class of its configuration")
    if own := sorted(set(domain.command_line.commands) - set(DOMAIN_COMMANDS)):
        lacks = f"the domain {name!r} of {package} declares the command {own[0]!r}"
        raise UserError(f"{lacks}: commands of other packages are entry points r2mae.commands")
    return domain


def all_domains() -> "Iterator[Domain]":
    """Yield the domains that can be loaded, built-in ones first; for each other domain, one line is logged once."""
    for name in DOMAINS:
        try:
            yield get_domain(name)
        except UserError as error:
            warn_once(str(error))


def public_sets() -> "dict[str, PublicSet]":
    """Return the named sets of all domains that can be loaded."""
    return {name: entry for domain in all_domains() for name, entry in domain.sets.items()}


def domain_of(data: Any) -> str | None:
    """Return the domain that a named set belongs to, or that alone recognises a path or data in memory; else None."""
    if isinstance(data, str):
        if (named := next((domain.name for domain in all_domains() if data in domain.sets), None)) is not None:
            return named
        data = path if (path := Path(data)).exists() else data
    found = [domain.name for domain in all_domains() if domain.recognises(data)]
    return found[0] if len(found) == 1 else None


def domain_of_run(config: Mapping[str, Any], path: Path) -> "Domain":
    """Return the domain of a run's configuration, as it opens such a run."""
    name = config.get("domain")
    if not isinstance(name, str) or name not in DOMAINS:
        raise UserError(f"{path}: config.yaml names no domain of this version (domain: {name!r})")
    return get_domain(name).of_run(config)


def check_run(domain: "Domain", config: RunConfig, folders: Iterable[Path]) -> None:
    """Refuse mistakes of runs that can be found without a heavy library.

    Parameters
    ----------
    domain : Domain
        Of the data.
    config : RunConfig
        The fields that the runs share.
    folders : iterable of Path
        Their folders. Runs that have taken steps no longer need their initial weights.
    """
    from r2mae.training.folder import RunFolder
    from r2mae.training.initial import INIT
    from r2mae.training.metrics import check_logger

    check_logger(config.machine.logger)
    runs = [RunFolder(folder) for folder in folders]
    if getattr(config, INIT, None) is not None and all(run.trained or run.checkpoint.exists() for run in runs):
        config = config.replace(**{INIT: None})
    domain.check(config)


def check_output(domain: "Domain", output: str | Path, data: str) -> None:
    """Refuse an output that would overwrite the data. The name of a set is no path, even if such a folder exists."""
    if data not in domain.sets:
        check_output_is_not_source(output, data)


def open_run(path: Path) -> "tuple[Domain, RunConfig]":
    """Return the domain and the configuration of a run folder.

    Raises
    ------
    UserError
        If the folder does not exist, or holds no run.
    """
    from r2mae.training.folder import RunFolder

    folder = RunFolder(path)
    written = folder.read_config()
    domain = domain_of_run(written, path)
    return domain, domain.config.from_dict(written, source=str(folder.config_file))


def check_transformer_step(
    config: RunConfig, *, rows: str, length: str, width: int, inner: int, words: int = 0, ratio: float = 0.0
) -> None:
    """Refuse a transformer's step on a CPU that does not fit into the free memory; if that is unknown, accept all.

    The estimate is of a micro-batch's forward and backward pass, without weights and gradients. For steps of nine
    shapes it was 0.85 to 1.1 of the memory used.

    Parameters
    ----------
    config : RunConfig
        Its model has layers, heads and dropout.
    rows : str
        The word for the rows of a batch.
    length : str
        The field with the positions of a row.
    width, inner : int
        Widths of the hidden states, and within a layer.
    words : int
        Size of the vocabulary whose logits are computed.
    ratio : float
        The largest share of positions that is hidden: only there, the last layer and the logits are computed. Ratios
        below 0.4 are estimated as 0.4.
    """
    on_gpu = config.machine.device == "auto" and _GPU.exists()
    if on_gpu or config.machine.device not in ("cpu", "auto"):
        return
    model: Any = config.model
    size, parts, ratio = config.optimizer.batch_size, config.optimizer.accumulate, max(ratio, 0.4)
    # Per layer: inputs, queries, keys, values (twice), context, norms, dropout; the inner layer twice; and attention
    # scores, their softmax, and both before and after dropout. The logits are there as such and as their softmax.
    layer = 15 * width + 2 * inner + (4 * model.heads * config[length] if model.dropout else 0)
    position = (model.layers - 1 + ratio) * layer + 4 * width + 2 * ratio * words
    row, free = int(4 * config[length] * position), cores.available_memory() or 0
    needed = row * (size // parts)
    counts = range(2, min(size, _MOST_PARTS) + 1)
    fits = next((n for n in counts if size % n == 0 and row * (size // n) < free / 2), None)
    if fits is not None:
        hint = f"give --accumulate {fits} ({size // fits} at a time, the same optimiser step)"
    elif row < free / 2:
        hint = "give a smaller --batch-size"
    else:
        other = "vocab-size" if 4 * ratio * words > position else length.replace("_", "-")
        hint = f"give a smaller --preset, such as mini or tiny, or a smaller --{other}"
    cores.refuse_beyond_memory(needed, f"{size // parts:,} {rows} at a time need", hint)
