"""Parses command lines. Options come from typed dataclasses, and errors are single lines."""

import argparse
import dataclasses
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import jsonargparse
import yaml

from r2mae.cli.examples import help_of_each_domain, several_words_error, unknown_data_message, usage
from r2mae.cli.lists import expand_home
from r2mae.cli.model_options import add_settings, as_typed, fields_of_models, written_as
from r2mae.domains.lookup import (
    check_preset,
    defaults_of,
    domain_of,
    get_domain,
    is_domain,
    preset_name,
)
from r2mae.errors import UserError, nearest
from r2mae.masking.schemes import SCHEME_OPTIONS, check_option, resolve_options, scheme_names
from r2mae.registry import DOMAINS
from r2mae.training.config import DEFAULT_SCHEME, SCHEME_OWN, RunConfig, describe_type, own_options, read_config
from r2mae.training.folder import RunFolder
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.domains.base import Domain


_OF_SCHEMES = ("scheme", SCHEME_OWN, *SCHEME_OPTIONS)


class _Formatter(jsonargparse.DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Formats the help: examples stay as they are written, and "(default: null)" is left out."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = super()._get_help_string(action)
        if action.default is not None:
            return text
        return re.sub(r" \(default: %\(default\)s\)|, default: %\(default\)s(?=\))", "", text)


class Parser(jsonargparse.ArgumentParser):
    """A parser whose options are written with dashes, and whose errors are single lines."""

    _asked = False  # whether `read` raises the parser to `parser_of` instead of parsing

    def __init__(self, prog: str, description: str, *examples: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog="\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples]),
            formatter_class=_Formatter,
            exit_on_error=False,
            allow_abbrev=False,
        )
        self.examples = examples
        self.aliases: dict[str, str] = {}  # options as people type them, by names that the parser does not take

    def format_help(self, formatter: argparse.HelpFormatter | None = None) -> str:
        """Return the help, with options as people type them: `--batch-size`, and `--labels NAME [...]` for lists."""
        text = as_typed(super().format_help(formatter))
        dashed = re.sub(r"--[a-z_.]+", lambda match: match[0].replace("_", "-"), text)
        return dashed.replace("[ITEM,...]", "NAME [...]")  # of the same length, so that columns stay aligned

    def describe(self, name: str, text: str) -> None:
        """Replace the help of an option."""
        self._option_string_actions[f"--{name}"].help = text

    def append(self, name: str, sentence: str) -> None:
        """Add a sentence to the help of an option that has no default."""
        action = self._option_string_actions[f"--{name}"]
        if action.default is None:
            action.help = f"{str(action.help).rstrip('.')}. {sentence}"

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Parse, or raise a :class:`UserError`."""
        if Parser._asked:
            raise _FoundError(self)
        # jsonargparse reserves the name --print_config.
        asked = [word for word in words if word in ("--print_config", "--print-config")]
        try:
            values = self.parse_args(self._spelled([word for word in words if word not in asked])).as_dict()
            return {**values, "print_config": bool(asked)}
        except SystemExit:
            raise
        except (argparse.ArgumentError, jsonargparse.ArgumentError, TypeError, ValueError) as error:
            raise UserError(self._one_line(str(error))) from None

    def _spelled(self, words: Sequence[str]) -> list[str]:
        """Rewrite options for jsonargparse: `--batch-size` as `--batch_size`, `--exact` alone as `--exact=true`."""
        written: dict[str, str] = {}  # how each option was first typed
        spelled = []
        skip = 0
        for index, word in enumerate(words):
            if skip:
                skip -= 1
                continue
            if not word.startswith("--") or word == "--":
                spelled.append(word)
                continue
            name, equals, value = word.partition("=")
            field = "--" + name[2:].replace("-", "_")
            action = self._option_string_actions.get(name) or self._option_string_actions.get(
                self.aliases.get(field, field)
            )
            if action is None:
                typed = map(as_typed, self._option_string_actions)
                known = sorted({*(option for option in typed if option.startswith("--")), *self.aliases})
                hint = nearest(name.replace("-", "_").replace("__", "--", 1), known).replace("_", "-")
                raise UserError(f"unknown option {name!r} of {self.prog!r}: {_short(hint)}")
            option = max(action.option_strings, key=len)
            before = written.setdefault(option, field)
            if before != field and self.aliases.keys() & {before, field}:
                raise UserError(f"{before.replace('_', '-')} and {name} are the same option: give one of them")
            kind = getattr(action, "_typehint", None)
            if get_origin(kind) is tuple and not equals:  # --labels a b, as people type lists
                lists = list(takewhile(lambda later: not later.startswith("-"), words[index + 1 :]))
                spelled.append(f"{option}={json.dumps(lists)}")
                skip = len(lists)
                continue
            bare = not equals and (index + 1 == len(words) or words[index + 1].startswith("-"))
            given = value if equals or bare else words[index + 1]
            if {kind, *get_args(kind)} & {int, float} and (":" in given or not given.isascii()):  # 1:30 is 90 to YAML
                raise UserError(f"{name} takes {describe_type(kind)}, not {given!r}")
            is_flag = bare and kind is bool
            spelled.append(f"{option}=true" if is_flag else f"{option}{equals}{value}")
        return spelled

    def _one_line(self, message: str) -> str:
        key = re.search(r'Parser key "([^"]+)"', message)
        value = re.search(r"(?:Given value|Got value): (.*)", message)
        if key and value:
            action = self._option_string_actions.get(f"--{key[1]}")
            kind = getattr(action, "_typehint", None)
            return f"{as_typed(f'--{key[1]}').replace('_', '-')} takes {describe_type(kind)}, not {value[1]!r}"
        if missing := re.search(r"the following arguments are required: (.+)", message):
            names = ", ".join(map(self._named, missing[1].split(", ")))
            return f"the following arguments are required: {names}; for example: {self.examples[0]}"
        return " ".join(message.split())

    def _named(self, name: str) -> str:
        """Return an argument as the help names it, an option as it is typed."""
        action = next((one for one in self._actions if one.dest == name), None)
        if action is None:
            return name
        return min(action.option_strings, key=len) if action.option_strings else str(action.metavar or name)


class _FoundError(Exception):
    """Raised by :meth:`Parser.read` to hand the parser to :func:`parser_of`."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser


def parser_of(command: Callable[[Sequence[str]], int], words: Sequence[str]) -> Parser:
    """Return the parser that a command makes for these words, without running the command."""
    Parser._asked = True
    try:
        command(words)
    except _FoundError as found:
        return found.parser
    finally:
        Parser._asked = False
    raise AssertionError(f"{command.__module__} reads no command line")


def _short(hint: str) -> str:
    return hint if hint.startswith("did you mean") else "see --help"


@dataclasses.dataclass(frozen=True)
class Subject:
    """The domain and the data of a command, and the rest of its words.

    `command` is its name where neither domain nor data were said: the help is then that of the first domain.
    """

    domain: "Domain"
    data: str | None
    words: list[str]
    given: dict[str, Any]
    command: str = ""


def read_subject(command: str, words: Sequence[str]) -> Subject:
    """Read `[DOMAIN] DATA` at the beginning of a command line, or both from `--config FILE`.

    A named set implies its domain.

    Raises
    ------
    UserError
        If the domain or the data are missing.
    """
    rest = list(words)
    leading = []
    while rest and not rest[0].startswith("-"):
        leading.append(rest.pop(0))
    given = _config_of(rest)
    domain_name = given.get("domain")
    if leading and is_domain(leading[0]):
        domain_name = leading.pop(0)
    if len(leading) > 1:
        raise several_words_error(command, domain_name if isinstance(domain_name, str) else None, leading)
    data = leading[0] if leading else given.get("data")
    if domain_name is None and data is not None:
        domain_name = domain_of(data)
    unsaid = domain_name is None
    if domain_name is None:
        if data is None:
            if any(word in ("-h", "--help") for word in rest):
                domain_name = next(iter(DOMAINS))
            else:
                where = "name the data before the options" if rest else usage(command)
                raise UserError(f"{command} what? {where}")
        else:
            raise UserError(unknown_data_message(command, data))
    domain = get_domain(domain_name)
    if "preset" in given:
        given = {**given, "preset": preset_name(domain, given["preset"], given.get("model"))}
    return Subject(domain, data, _with_full_preset(domain, rest), given, command if unsaid else "")


def _with_full_preset(domain: "Domain", words: Sequence[str]) -> list[str]:
    """Write `--preset vit-mae-tiny` for `--model vit-mae --preset tiny`."""
    said, model = _said(words, "--preset"), _said(words, "--model")
    full = preset_name(domain, said, model)
    check_preset(domain, full, model)
    if said is None or full is None or full == said:
        return list(words)
    place = next(index for index, word in enumerate(words) if word.partition("=")[0] == "--preset")
    return [*words[:place], f"--preset={full}", *words[place + (1 if "=" in words[place] else 2) :]]


def _config_of(words: Sequence[str]) -> dict[str, Any]:
    file = config_file(words)
    written = {} if file is None else read_config(Path(file), linked=True)
    given = {name: expand_home(value) if isinstance(value, str) else value for name, value in written.items()}
    for field in ("domain", "data", "preset"):  # these are read before the options are known
        if not isinstance(given.get(field), str | None):
            raise UserError(f"{file}: {field} takes text, not {str(given[field])[:80]!r}")
    return given


def config_file(words: Sequence[str]) -> str | None:
    """Return the file of `--config`, or None."""
    return _said(words, "--config")


def _preset_of(subject: Subject) -> str | None:
    return _said(subject.words, "--preset")


def describe(subject: Subject) -> str:
    """Return the part of the help text about DATA, presets and schemes."""
    domain = subject.domain
    sets = (
        f", or a named set ({', '.join(domain.sets)}), which needs no {domain.name!r} before it" if domain.sets else ""
    )
    presets = f"Presets: {', '.join(domain.presets)}.\n" if domain.presets else ""
    more = help_of_each_domain(subject.command, domain) if subject.command else ""
    return f"{domain.title}.\n\nDATA is a path{sets}.\n{presets}Schemes: {', '.join(scheme_names())}.{more}"


def example_data(subject: Subject) -> str:
    """Return data for an example: a set of the domain, or a path if it has none."""
    domain = subject.domain
    return next(iter(domain.sets), f"{domain.name} path/to/data")


def add_config(parser: Parser, subject: Subject, *, skip: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> None:
    """Add the options of the domain's configuration to a parser.

    Defaults come from four sources: the named set, the preset of the file, the file, and the preset of the command
    line. Each overrides those before it.

    Parameters
    ----------
    parser, subject
        The parser of the command, and its domain and data.
    skip : tuple of str
        Fields that the command does not use.
    more : tuple of str
        Options of the command itself, which its file may hold next to the domain's fields.
    """
    kind = subject.domain.config
    if "scheme" not in kind.omitted_fields:
        _add_scheme(parser, kind, named="scheme" not in skip)
    parser.add_class_arguments(kind, None, skip={"data", "scheme", *fields_of_models(kind), *skip})
    parser.describe("preset", "Name of a preset; other options override it. By default the domain's own settings.")
    parser.add_argument(
        "--config",
        type=str,
        help="YAML file with any of these options, such as a run's config.yaml; --print-config prints one.",
    )
    scheme = {name: value for name, value in _scheme_of_file(subject)[1].items() if name not in skip}
    own = {name: value for name, value in subject.given.items() if name not in (*more, *_OF_SCHEMES)}
    given = _fields_of(kind, {"data": "", **own}, subject.words)
    # The file of a run describes that run completely. Fields that it lacks (as an older version wrote it) must not come
    # from the named set.
    own = given if _of_a_run(config_file(subject.words)) else own
    preset = subject.given.get("preset")
    defaults = defaults_of(subject.domain, subject.data, preset if isinstance(preset, str) else None)
    defaults = _over(kind, defaults, {name: given[name] for name in map(partial(written_as, kind, given), own)})
    defaults = _over(kind, defaults, defaults_of(subject.domain, None, _preset_of(subject)))
    defaults = _over(kind, defaults, {}, _said_fields(subject.words)) | scheme
    defaults = add_settings(parser, kind, defaults, _said(subject.words, "--model"))
    parser.set_defaults(**{name: value for name, value in defaults.items() if name not in ("domain", "data", *skip)})


def _over(
    kind: type[RunConfig], before: Mapping[str, Any], later: Mapping[str, Any], said: Collection[str] = ()
) -> dict[str, Any]:
    """Put later defaults in the place of earlier ones; of two fields for one thing, what is said later counts.

    `said` are further fields that the command line names.
    """
    default = {one.name: one.default for one in dataclasses.fields(kind)}
    spoken = {name for name, value in later.items() if name in default and value != default[name]}.union(said)
    lost = set()
    for pair in kind.alternatives.items():
        for one, other in (pair, pair[::-1]):
            if one in spoken and other not in spoken:
                lost.add(other)
    return {**{name: value for name, value in before.items() if name not in lost}, **later}


def _said_fields(words: Sequence[str]) -> set[str]:
    """Return the options of a command line as fields."""
    return {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}


def _of_a_run(file: str | None) -> bool:
    """Return whether a file is the config.yaml of a run folder."""
    if file is None:
        return False
    folder = RunFolder(Path(file).parent)
    return folder.config_file == Path(file) and folder.environment_file.is_file()


def _add_scheme(parser: Parser, kind: type[RunConfig], *, named: bool) -> None:
    """Add `--scheme` and the options of schemes, with the domain's defaults in their help."""
    if named:
        parser.add_argument("--scheme", type=str, default=kind.scheme.name, help="Masking scheme.")
    defaults = kind.ratios
    whose = " (ours: the paper gives none)" if defaults.not_in_paper else " (the paper's)"
    values: dict[str, dict[Any, list[str]]] = {}  # the schemes of each default, by option
    for scheme in scheme_names():
        for name, value in resolve_options(scheme, {}, defaults).items():
            values.setdefault(name, {}).setdefault(value, []).append(scheme)
    for name, option in SCHEME_OPTIONS.items():
        ordered = sorted(values.get(name, {}).items(), key=lambda item: -len(item[1]))
        texts = [value if isinstance(value, str) else f"{value:.3g}" for value, _ in ordered]
        said = [text + (f" of {', '.join(ordered[place][1])}" if place else "") for place, text in enumerate(texts)]
        more = f" By default {', '.join(said)}{whose if name in ('ratio', 'low', 'high') else ''}." if said else ""
        parser.add_argument(f"--{name}", type=option.kind, default=None, help=option.help + more)
    parser.add_argument(
        f"--{SCHEME_OWN}", type=tuple[str, ...], default=(), help="Further options of a scheme, as NAME=NUMBER."
    )


def _scheme_of_file(subject: Subject) -> tuple[SchemeSpec | None, dict[str, Any], dict[str, float]]:
    """Return what a file says of schemes: the scheme of a run, name and common options, and options of one scheme only.

    Of a run's scheme, the options are those that the run was given.
    """
    file, given = config_file(subject.words) or "--config", subject.given
    name = given.get("scheme")
    options = {option: given[option] for option in SCHEME_OPTIONS if given.get(option) is not None}
    try:
        own = own_options(given.get(SCHEME_OWN))
        for option, value in options.items():
            check_option(option, value)
    except (UserError, ValueError) as error:
        raise UserError(f"{file}: {error}") from None
    if not isinstance(name, Mapping):
        if not isinstance(name, str | None):
            raise UserError(f"{file}: scheme takes a name, not {str(name)[:80]!r}")
        return None, {**({} if name is None else {"scheme": name}), **options}, own
    if options or own:
        first = next(iter({**options, **own}))
        raise UserError(f"{file}: {first} is outside of the scheme, whose options are all inside: move it")
    spec = SchemeSpec.from_dict(name, file)
    common = {option: value for option, value in spec.given_options.items() if option in SCHEME_OPTIONS}
    further = {option: value for option, value in spec.given_options.items() if option not in common}
    return spec, {"scheme": spec.name, **common}, further


def _said(words: Sequence[str], option: str) -> str | None:
    """Return the value of an option on the command line."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None


def _fields_of(kind: type[RunConfig], own: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a file, checked; errors name the file."""
    file = config_file(words) or "--config"
    try:
        fields = kind.from_dict(own, source=file).to_dict()
        return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    except UserError as error:
        message = str(error)
        raise UserError(message if message.startswith(f"{file}: ") else f"{file}: {message}") from None


def options_of(subject: Subject, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of schemes that the command line and its file give."""
    common = {name: values[name] for name in SCHEME_OPTIONS if values.get(name) is not None}
    return {**common, **_scheme_of_file(subject)[2], **own_options(values.get(SCHEME_OWN))}


def make_config(subject: Subject, values: dict[str, Any]) -> RunConfig:
    """Return the configuration of a parsed command line.

    Raises
    ------
    UserError
        For values that are refused, and for typed options that have no effect.
    """
    kind: type[RunConfig] = subject.domain.config
    fields = {field.name for field in dataclasses.fields(kind)}
    if subject.data is None:
        raise UserError("name the data: a set of `r2mae data list`, or a path")
    # The path is made absolute, so that the run folder can be used from any working directory.
    path = Path(subject.data)
    named = subject.data in subject.domain.sets or not path.exists()
    data = subject.data if named else str(path.absolute())
    own = {name: value for name, value in values.items() if name in fields - {"data", "scheme"}}
    # A single run has its scheme, typed or not; a comparison has one in every row, and none among the values.
    config = kind.make(data=data, **own)
    if "scheme" in values:
        config = _with_scheme(subject, config, values["scheme"], options_of(subject, values))
    typed = fields & (_said_fields(subject.words) | {"scheme"})
    config.check_given({name: value for name, value in values.items() if name in typed})
    return config


def _with_scheme(subject: Subject, config: RunConfig, name: str, options: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with a scheme: that of the file of a run as it is, where nothing else was said."""
    spec = _scheme_of_file(subject)[0]
    if spec is not None and spec.name == name and spec.given_options == options:
        fields = {field.name for field in dataclasses.fields(config)} - {"scheme"}
        filed = type(config).from_dict(
            {**{key: value for key, value in subject.given.items() if key in fields}, "data": ""}
        )
        if filed.scheme_defaults == config.scheme_defaults:
            return dataclasses.replace(config, scheme=spec)
    common = {option: value for option, value in options.items() if option in SCHEME_OPTIONS}
    own = {option: value for option, value in options.items() if option not in common}
    return config.replace(scheme=DEFAULT_SCHEME).replace(**{"scheme": name, SCHEME_OWN: own, **common})


def print_config(config: RunConfig, skip: Sequence[str] = (), **more: Any) -> None:
    """Print a configuration without some fields, and a command's own options, in the form that `--config` reads."""
    fields = {name: value for name, value in config.to_dict().items() if name not in skip}
    print(yaml.safe_dump({**fields, **more}, sort_keys=False), end="")
