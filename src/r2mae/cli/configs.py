"""The configuration of ``pretrain`` and ``compare``: from named set, presets, file and options, in this order."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.lists import words_of
from r2mae.cli.parsing import HELP, Parser
from r2mae.domains.lookup import (
    all_domains,
    check_preset,
    defaults_of,
    domain_of,
    get_domain,
    is_domain,
    preset_name,
    public_sets,
)
from r2mae.errors import UserError, nearest
from r2mae.masking.schemes import SCHEME_OPTIONS, check_option, scheme_names
from r2mae.registry import DOMAINS
from r2mae.training.config import PREFIX, SCHEME_OWN, RunConfig, fields_of, flat_names, own_options
from r2mae.training.config_options import config_options
from r2mae.training.fields import ConfigOption, docstring_part, options_of
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.domains.base import Domain

_PRESETS = 6  # at most this many in the short help
_FEW = 4  # an error repeats at most this many words


@dataclass(frozen=True)
class Subject:
    """The domain and the data of a command, and what it says of them before its options are known.

    Attributes
    ----------
    domain : Domain, optional
        None if the help of a command is asked for without a domain.
    data : str, optional
        Name of a set, or a path; None without data.
    preset, model : str, optional
        As given on the command line, the preset by its full name.
    file : str, optional
        The file of ``--config``.
    written : mapping
        Its fields by flat names.
    own : mapping
        Its options of the command itself.
    skip : tuple of str
        Fields of configurations that the command does not use.
    """

    domain: "Domain | None"
    data: str | None = None
    preset: str | None = None
    model: str | None = None
    file: str | None = None
    written: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    skip: tuple[str, ...] = ()

    @property
    def known_domain(self) -> "Domain":
        """The domain, once it is known."""
        assert self.domain is not None
        return self.domain


def read_subject(
    command: str, words: Sequence[str], skip: tuple[str, ...] = (), in_file: Sequence[str] = ()
) -> Subject:
    """Find domain, data and configuration file: ``images digits``, a named set alone, or ``--config FILE``.

    Parameters
    ----------
    command : str
        Name of the command.
    words : sequence of str
        Words of the command line.
    skip : tuple of str
        Fields of configurations that the command does not use.
    in_file : sequence of str
        Options of the command itself that a file may hold, too.

    Raises
    ------
    UserError
        If the domain or the data are missing, unless help is asked for.
    """
    leading = _leading(words)
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("config", "model", "preset"):
        first.add_argument(f"--{name}", nargs="?")  # the parser of the command refuses it without a value
    said = first.parse_known_args(words)[0]
    file, model = _at_home(said.config), said.model
    written = {} if file is None else _read_file(file)
    name = written.get("domain")
    if leading and is_domain(leading[0]):
        name = leading.pop(0)
    if len(leading) > 1:
        raise _several_words_error(command, name, leading)
    data = leading[0] if leading else written.get("data")
    if name is None and data is not None:
        name = domain_of(data)
    if name is None:
        if any(word in HELP for word in words):
            return Subject(None)
        if data is not None:
            raise UserError(_unknown_data(command, data))
        hint = "name the data before the options" if words else f"for example: {_examples(command)}"
        raise UserError(f"{command} what? {hint}")
    domain = get_domain(name)
    if written.get("preset") is not None:
        written["preset"] = preset_name(domain, written["preset"], written.get("model"))
    preset = preset_name(domain, said.preset, model)
    check_preset(domain, preset, model)
    own = {name: _listed(file, name, written.pop(name)) for name in in_file if name in written}
    return Subject(domain, data, preset, model, file, written, own, skip)


def _listed(file: str | None, name: str, value: object) -> tuple[str, ...] | None:
    """Return the words of a list in a file."""
    try:
        return None if value is None else tuple(words_of(value))
    except UserError as error:
        raise UserError(f"{file}: {name}: {error}") from None


def _leading(words: Sequence[str]) -> list[str]:
    """Return the words before the options, with ``~`` expanded."""
    end = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    return list(map(_at_home, words[:end]))


def _at_home(value: Any) -> Any:
    """Return a text with ``~`` at its start expanded; other values as they are."""
    return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~") else value  # noqa: PTH111 (no path)


def _read_file(file: str) -> dict[str, Any]:
    """Return the fields of a YAML file by flat names; the groups of a configuration may be nested."""
    from r2mae.training.records import read_yaml

    read = read_yaml(Path(file), linked=True)
    written = {name: _at_home(value) for name, value in flat_names(read).items()}
    for name in ("domain", "data", "preset", "model"):  # which are read before the options are known
        if not isinstance(written.get(name), str | None):
            raise UserError(f"{file}: {name} takes text, not {str(written[name])[:80]!r}")
    return written


def config_parser(
    command: str, options: type, subject: Subject, example: str, run: Callable[..., int], words: Sequence[str]
) -> Parser:
    """Return a parser with the options of a command, and those of the domain's configuration, whose defaults it shows.

    Parameters
    ----------
    command : str
        Its name.
    options : type
        Dataclass with the options of the command itself.
    subject : Subject
    example : str
        Example of options.
    run : callable
        ``run(subject, options, given)`` runs the command, with its own options and all that were given.
    words : sequence of str
        Words of the command line.
    """
    own, domain = options_of(options), subject.domain
    about = docstring_part(options)

    def call(given: dict[str, Any]) -> int:
        values = {**subject.own, **given}
        return run(subject, options(**{one.name: values[one.name] for one in own if one.name in values}), given)

    of_all = () if domain is not None else (*DOMAINS, *(public_sets() if "--help-all" in words else ()))
    sets = of_all if domain is None else tuple(domain.sets)
    data = ConfigOption("data", tuple[str, ...], (), group="", positional=True, metavar="DATA", words=sets)
    if domain is None:
        lines = "\n".join(f"  r2mae {command} {one.name} {_example(one)}" for one in all_domains())
        about += f"\n\nEach domain has its own options: r2mae {command} DOMAIN --help. For example:\n\n{lines}"
        parser = Parser(f"r2mae {command} DOMAIN", about, f"r2mae {command} digits {example}", run=call)
        parser.add([data, *own])
        return parser
    named = f", or a named set, without {domain.name!r} before it: {', '.join(sets)}" if sets else ""
    about += f" {domain.title}. DATA is a path{named}."
    source = next(iter(sets), f"{domain.name} path/to/data")
    everything = "--help-all" in words
    parser = Parser(
        f"r2mae {command} {domain.name}", about, f"r2mae {command} {source} {example}", run=call, everything=everything
    )
    known = merge(subject, {})
    parser.add([data, *(_suggested(replace(one, **_known(one, subject.own)), domain, everything) for one in own)])
    for one in config_options(domain.config, subject.model or known.get("model")):
        if one.name not in subject.skip:
            parser.add([_suggested(replace(one, **_known(one, known)), domain, everything)])
    return parser


def _known(option: ConfigOption, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default that named set, file and preset give an option."""
    return {"default": known[option.name]} if option.name in known else {}


def _suggested(option: ConfigOption, domain: "Domain", everything: bool) -> ConfigOption:
    """Return an option with the words that complete it."""
    if option.name == "preset":
        names = tuple(domain.presets)
        more = len(names) - _PRESETS
        first = names if everything or more <= 0 else (*names[-_PRESETS:], f"and {more} more")
        return replace(option, words=names, help=f"{', '.join(first) or 'there are none'}.", metavar="NAME")
    words = {"device": ("auto", "cpu", "cuda"), "baselines": ("none", *domain.default_baselines)}
    if option.name == "schemes":
        return replace(option, words=tuple(scheme_names()), help=f"{option.help} Any of: {', '.join(scheme_names())}.")
    suggest = domain.command_line.words.get(option.name) if everything else None
    return replace(option, words=words.get(option.name, option.words) if suggest is None else tuple(suggest()))


def merge(subject: Subject, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration and the options of its scheme, by flat names.

    Each source overrides those before it: the named set, the preset of the file, the file, the preset of the command
    line, and its options. A later model drops the settings of an earlier one, and of two fields that exclude each other
    the later one counts.
    """
    domain, kind = subject.known_domain, subject.known_domain.config
    filed = _file_values(subject)
    # The file of a run describes it completely. Fields that it lacks must not come from the named set.
    data = None if _is_of_run(subject.file) else subject.data
    merged: dict[str, Any] = {}
    first = defaults_of(domain, data, subject.written.get("preset"))
    for layer in (first, filed, defaults_of(domain, None, subject.preset)):
        plain = kind.with_prefixes(layer, merged.get("model"))
        known = {name for name in plain if name in fields_of(kind)}
        merged = _over(kind, merged, plain, {name for name in known if plain[name] != kind.default_of(name)})
    own = {name: value for name, value in given.items() if _is_of_config(kind, name)}
    own |= {"preset": subject.preset} if "preset" in own else {}  # by its full name
    return _over(kind, merged, kind.with_prefixes(own, own.get("model", merged.get("model"))), set(own))


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


def _is_of_config(kind: type[RunConfig], name: str) -> bool:
    known = {*fields_of(kind), *SCHEME_OPTIONS, "scheme", SCHEME_OWN} - {"data"}
    return name in known or name.startswith(PREFIX) or name in type(kind.model).own_fields()


def _is_of_run(file: str | None) -> bool:
    """Return whether a file is the config.yaml of a run folder."""
    if file is None:
        return False
    from r2mae.training.folder import RunFolder

    folder = RunFolder(Path(file).parent)
    return folder.config_file == Path(file) and folder.environment_file.is_file()


def _file_values(subject: Subject) -> dict[str, Any]:
    """Return what the file says, checked; errors name the file."""
    if subject.file is None:
        return {}
    kind, file = subject.known_domain.config, subject.file
    of_schemes = ("scheme", SCHEME_OWN, *SCHEME_OPTIONS)
    own = {name: value for name, value in subject.written.items() if name not in ("domain", *of_schemes)}
    try:
        config = kind.from_dict({"data": "", **own}, source=file)
        scheme = _scheme_of_file(subject)[1]
    except (UserError, ValueError) as error:
        message = str(error)
        raise UserError(message if message.startswith(f"{file}: ") else f"{file}: {message}") from None
    if "scheme" in subject.skip:
        scheme.pop("scheme", None)
    complete = {name: value for name, value in config.flat().items() if name not in ("data", *of_schemes)}
    names = {*kind.with_prefixes(own, config.model.name)} if not _is_of_run(file) else {*complete}
    return {**{name: complete[name] for name in complete if name in names - {*subject.skip}}, **scheme}


def _scheme_of_file(subject: Subject) -> tuple[SchemeSpec | None, dict[str, Any]]:
    """Return the scheme of the run whose file it is, and what the file says: the name, and the options that were given.

    Raises
    ------
    UserError, ValueError
        For options that no scheme has, or that are outside of a run's scheme.
    """
    written = subject.written
    name = written.get("scheme")
    options = {key: check_option(key, written[key]) for key in SCHEME_OPTIONS if written.get(key) is not None}
    own = own_options(written.get(SCHEME_OWN))
    spec = None
    if isinstance(name, Mapping):
        if options or own:
            first = next(iter({**options, **own}))
            raise UserError(f"{first} is outside of the scheme, whose options are all inside: move it")
        spec = SchemeSpec.from_dict(name, str(subject.file))
        name, given = spec.name, spec.given_options
        options = {key: value for key, value in given.items() if key in SCHEME_OPTIONS}
        own = {key: value for key, value in given.items() if key not in options}
    if not isinstance(name, str | None):
        raise UserError(f"scheme takes a name, not {str(name)[:80]!r}")
    named = {} if name is None else {"scheme": name}
    return spec, {**named, **options, **({SCHEME_OWN: own} if own else {})}


def make_config(subject: Subject, given: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """Return the configuration, and the options of schemes that the command line or its file gives.

    If the command does not use the scheme of the configuration, it does not have these options.

    Raises
    ------
    UserError
        For values that are refused, and for options that have no effect.
    """
    kind: type[RunConfig] = subject.known_domain.config
    values = merge(subject, given)
    name = values.pop("scheme", None)
    own = own_options(values.pop(SCHEME_OWN, None))
    options = {key: values.pop(key) for key in SCHEME_OPTIONS if key in values}
    config = kind.make(**{**values, "data": _absolute(subject)})
    scheme = "scheme" not in subject.skip
    if scheme and (name is not None or options or own):
        config = config.replace(scheme=name or config.scheme.name, **{SCHEME_OWN: own}, **options)
    spec = _scheme_of_file(subject)[0]
    if scheme and spec is not None and spec.name == config.scheme.name and spec.given_options == {**options, **own}:
        fields = {key: subject.written[key] for key in subject.written if key not in ("scheme", "domain")}
        if kind.from_dict({**fields, "data": ""}).scheme_defaults == config.scheme_defaults:
            config = config.replace(scheme=spec)  # as it was, whatever today's defaults are
    used = {key: value for key, value in given.items() if _is_of_config(kind, key)}
    config.check_given({**used, **({"scheme": config.scheme.name} if scheme else {})})
    return config, {**options, **own}


def _absolute(subject: Subject) -> str:
    """Return the data; a path is made absolute, so that the run folder can be used from any working directory."""
    if subject.data is None:
        raise UserError("name the data: a set of `r2mae data list`, or a path")
    path = Path(subject.data)
    return subject.data if subject.data in subject.known_domain.sets or not path.exists() else str(path.absolute())


def print_config(config: RunConfig, skip: Sequence[str] = (), **more: Any) -> None:
    """Print a configuration without some fields, and a command's own options, in the form that `--config` reads."""
    import yaml

    fields = {name: value for name, value in config.to_dict().items() if name not in skip}
    print(yaml.safe_dump({**fields, **more}, sort_keys=False), end="")


def _examples(command: str) -> str:
    """Return an example of a command for every domain."""
    return ", or ".join(f"r2mae {command} {one.name} {_example(one)}" for one in all_domains() if _example(one))


def _example(domain: "Domain") -> str:
    return domain.command_line.example or next(iter(domain.sets), "")


def _several_words_error(command: str, name: str | None, words: Sequence[str]) -> UserError:
    """Return the error for several words in place of one data set."""
    first = words[0]
    if name is None and domain_of(first) is None and not Path(first).suffix and not Path(first).exists():
        hint = nearest(first, DOMAINS)
        if hint.startswith("did you mean"):
            return UserError(f"unknown domain {first!r}: {hint}")
    some = " ".join(words) if len(words) <= _FEW else f"{' '.join(words[:2])} … {words[-1]}"
    refusal = f"{command} takes one data set, not {len(words)} ({some})"
    several = None if name is None else get_domain(name).command_line.several
    if several is None:
        return UserError(f"{refusal}; for example: {_examples(command)}")
    example = f"r2mae {command} {name} {several.example(words)}"
    return UserError(f"{refusal}: {several.hint}, for example: {example}")


def _unknown_data(command: str, data: str) -> str:
    if Path(data).exists():
        return f"name the domain of {data}: r2mae {command} {'|'.join(DOMAINS)} {data}"
    return f"unknown domain or data set {data!r}: {nearest(data, [*DOMAINS, *public_sets()])}"
