"""The configuration of a run from what names its fields: the data's defaults, presets, a file, and given options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.domains.lookup import defaults_of
from r2mae.errors import UserError
from r2mae.masking.schemes import SCHEME_OPTIONS, check_option
from r2mae.training.config import PREFIX, SCHEME_OWN, RunConfig, fields_of, flat_names, own_options
from r2mae.training.fields import at_home
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.domains.base import Domain


@dataclass(frozen=True)
class Sources:
    """The domain and the data of a run, and a file and presets that set fields of its configuration.

    Parameters
    ----------
    domain : Domain
    data : str, optional
        Name of a set, or a path.
    preset, model : str, optional
        As given by the user, the preset by its full name; they override the file.
    file : str, optional
        A YAML file.
    written : mapping
        Its fields by flat names, as :func:`read_file` returns them.
    own : mapping
        Its other values, which are for a command.
    skip : tuple of str
        Fields of configurations that are not used.
    """

    domain: "Domain"
    data: str | None = None
    preset: str | None = None
    model: str | None = None
    file: str | None = None
    written: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    skip: tuple[str, ...] = ()


def read_file(file: str) -> dict[str, Any]:
    """Return the fields of a YAML file by flat names; the groups of a configuration may be nested.

    Raises
    ------
    UserError
        If there is no such file, or what is read first (domain, data, preset, model) is no text.
    """
    from r2mae.training.records import read_yaml

    read = read_yaml(Path(file), linked=True)
    written = {name: at_home(value) for name, value in flat_names(read).items()}
    for name in ("domain", "data", "preset", "model"):  # which are read before the options are known
        if not isinstance(written.get(name), str | None):
            raise UserError(f"{file}: {name} takes text, not {str(written[name])[:80]!r}")
    return written


def merge(sources: Sources, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration and the options of its scheme, by flat names.

    Each source overrides those before it: the named set, the preset of the file, the file, the preset of the command
    line, and its options. A later model drops the settings of an earlier one, and of two fields that exclude each other
    the later one counts.
    """
    domain, kind = sources.domain, sources.domain.config
    filed = _file_values(sources)
    # The file of a run describes it completely. Fields that it lacks must not come from the named set.
    data = None if _is_of_run(sources.file) else sources.data
    merged: dict[str, Any] = {}
    pairs = {**kind.alternatives, **{other: one for one, other in kind.alternatives.items()}}
    first = defaults_of(domain, data, sources.written.get("preset"))
    for layer in (first, filed, defaults_of(domain, None, sources.preset)):
        plain = kind.with_prefixes(layer, merged.get("model"))
        known = {name for name in plain if name in fields_of(kind)}
        alone = {name for name in known if name in pairs and pairs[name] not in plain}
        spoken = {name for name in known if plain[name] != kind.default_of(name)}
        merged = _over(kind, merged, plain, spoken | alone)
    model = str(given.get("model") or merged.get("model") or kind.default_model())
    own = {name: value for name, value in given.items() if _is_of_config(kind, name, model)}
    own |= {"preset": sources.preset} if "preset" in own else {}  # by its full name
    return _over(kind, merged, kind.with_prefixes(own, merged.get("model")), set(own))


def _over(
    kind: type[RunConfig], before: Mapping[str, Any], later: Mapping[str, Any], spoken: set[str]
) -> dict[str, Any]:
    """Put later values in the place of earlier ones; `spoken` are those that say something."""
    pairs = [pair for one in kind.alternatives.items() for pair in (one, one[::-1])]
    lost = {other for one, other in pairs if one in spoken and other not in spoken}
    model = before.get("model", kind.default_model())
    if later.get("model", model) != model:
        lost |= {name for name in before if name.startswith(PREFIX)}
    return {**{name: value for name, value in before.items() if name not in lost}, **later}


def _is_of_config(kind: type[RunConfig], name: str, model: str) -> bool:
    """Return whether an option is of a configuration with this model, or of the default model, which refuses it."""
    known = {*fields_of(kind), *SCHEME_OPTIONS, "scheme", SCHEME_OWN} - {"data"}
    settings = {*type(kind.model).own_fields(), *kind.settings_of(model).own_fields()}
    return name in known or name.startswith(PREFIX) or name in settings


def _is_of_run(file: str | None) -> bool:
    """Return whether a file is the config.yaml of a run folder."""
    if file is None:
        return False
    from r2mae.training.folder import RunFolder

    folder = RunFolder(Path(file).parent)
    return folder.config_file == Path(file) and folder.environment_file.is_file()


def _file_values(sources: Sources) -> dict[str, Any]:
    """Return what the file says, checked; errors name the file."""
    if sources.file is None:
        return {}
    kind, file = sources.domain.config, sources.file
    of_schemes = ("scheme", SCHEME_OWN, *SCHEME_OPTIONS)
    own = {name: value for name, value in sources.written.items() if name not in ("domain", *of_schemes)}
    try:
        config = kind.from_dict({"data": "", **own}, source=file)
        scheme = _scheme_of_file(sources)[1]
    except (UserError, ValueError) as error:
        message = str(error)
        raise UserError(message if message.startswith(f"{file}: ") else f"{file}: {message}") from None
    if "scheme" in sources.skip:
        scheme.pop("scheme", None)
    complete = {name: value for name, value in config.flat().items() if name not in ("data", *of_schemes)}
    names = {*complete} if _is_of_run(file) else {*kind.with_prefixes(own, config.model.name)}
    return {**{name: complete[name] for name in complete if name in names - {*sources.skip}}, **scheme}


def _scheme_of_file(sources: Sources) -> tuple[SchemeSpec | None, dict[str, Any]]:
    """Return the scheme of the run whose file it is, and what the file says: the name, and the options that were given.

    Raises
    ------
    UserError, ValueError
        For options that no scheme has, or that are outside of a run's scheme.
    """
    written = sources.written
    name = written.get("scheme")
    options = {key: check_option(key, written[key]) for key in SCHEME_OPTIONS if written.get(key) is not None}
    own = own_options(written.get(SCHEME_OWN))
    spec = None
    if isinstance(name, Mapping) and "given" not in name:  # of a user's own file
        inner = {key: value for key, value in name.items() if key != "name"}
        options |= {key: check_option(key, inner.pop(key)) for key in SCHEME_OPTIONS if inner.get(key) is not None}
        own |= own_options(inner)
        name = name.get("name")
    if isinstance(name, Mapping):
        if options or own:
            first = next(iter({**options, **own}))
            raise UserError(f"{first} is outside of the scheme, whose options are all inside: move it")
        spec = SchemeSpec.from_dict(name, str(sources.file))
        name, given = spec.name, spec.given_options
        options = {key: value for key, value in given.items() if key in SCHEME_OPTIONS}
        own = {key: value for key, value in given.items() if key not in options}
    if not isinstance(name, str | None):
        raise UserError(f"scheme takes a name, not {str(name)[:80]!r}")
    named = {} if name is None else {"scheme": name}
    return spec, {**named, **options, **({SCHEME_OWN: own} if own else {})}


def make_config(sources: Sources, given: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """Return the configuration, and the options of schemes that the command line or its file gives.

    If the command does not use the scheme of the configuration, it does not have these options.

    Raises
    ------
    UserError
        For values that are refused, and for options that have no effect.
    """
    kind: type[RunConfig] = sources.domain.config
    values = merge(sources, given)
    name = values.pop("scheme", None)
    own = own_options(values.pop(SCHEME_OWN, None))
    options = {key: values.pop(key) for key in SCHEME_OPTIONS if key in values}
    config = kind.make(**{**values, "data": _absolute(sources)})
    scheme = "scheme" not in sources.skip
    if scheme and (name is not None or options or own):
        config = config.replace(scheme=name or config.scheme.name, **{SCHEME_OWN: own}, **options)
    spec = _scheme_of_file(sources)[0]
    if scheme and spec is not None and spec.name == config.scheme.name and spec.given_options == {**options, **own}:
        fields = {key: sources.written[key] for key in sources.written if key not in ("scheme", "domain")}
        if kind.from_dict({**fields, "data": ""}).scheme_defaults == config.scheme_defaults:
            config = config.replace(scheme=spec)  # as it was, whatever today's defaults are
    used = {key: value for key, value in given.items() if _is_of_config(kind, key, config.model.name)}
    config.check_given({**used, **({"scheme": config.scheme.name} if scheme else {})})
    return config, {**options, **own}


def _absolute(sources: Sources) -> str:
    """Return the data; a path is made absolute, so that the run folder can be used from any working directory."""
    if sources.data is None:
        raise UserError("name the data: a set of `r2mae data list`, or a path")
    path = Path(sources.data)
    return sources.data if sources.data in sources.domain.sets or not path.exists() else str(path.absolute())
