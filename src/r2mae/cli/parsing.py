"""Command lines: typed options from dataclasses, with errors of one line."""

import argparse
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import jsonargparse
import yaml

from r2mae.errors import UserError, nearest
from r2mae.masking.schemes import SCHEME_OPTIONS, effective, scheme_names
from r2mae.registry import WINGS
from r2mae.training.config import RunConfig, in_words, read_config
from r2mae.training.folder import RunFolder
from r2mae.training.numbers import ratios_of
from r2mae.training.scheme_options import OPTION_FIELDS, OWN_OPTIONS, chosen_options
from r2mae.wings.lookup import defaults_of, get_wing, public_sets, wing_of

if TYPE_CHECKING:
    from r2mae.wings.contract import Wing


_FEW = 4  # words that an error repeats


class _Formatter(jsonargparse.DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps examples as they are written, and leaves out that a default is null: the help says what happens then."""

    def _get_help_string(self, action: argparse.Action) -> str:
        told = super()._get_help_string(action)
        if action.default is not None:
            return told
        return re.sub(r" \(default: %\(default\)s\)|, default: %\(default\)s(?=\))", "", told)


class Parser(jsonargparse.ArgumentParser):
    """A parser whose options are written with dashes, and whose errors are single lines."""

    _asked = False  # whether parsers are wanted for themselves: see parser_of

    def __init__(self, prog: str, description: str, *examples: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog="\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples]),
            formatter_class=_Formatter,
            exit_on_error=False,
            allow_abbrev=False,
        )

    def format_help(self, formatter: argparse.HelpFormatter | None = None) -> str:
        """Return the help, with `--batch_size` and `--labels a b` written as people type them."""
        dashed = re.sub(r"--[a-z_]+", lambda match: match[0].replace("_", "-"), super().format_help(formatter))
        return dashed.replace("[ITEM,...]", "NAME [...]")  # of one length, so that columns stay

    def describe(self, name: str, told: str) -> None:
        """Say in the help of an option what holds here."""
        self._option_string_actions[f"--{name}"].help = told

    def append(self, name: str, told: str) -> None:
        """Add a sentence to the help of an option that has no default."""
        action = self._option_string_actions[f"--{name}"]
        if action.default is None:
            action.help = f"{str(action.help).rstrip('.')}. {told}"

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Parse, or raise a :class:`UserError`."""
        if Parser._asked:
            raise _FoundError(self)
        # jsonargparse keeps the name --print_config for itself.
        asked = [word for word in words if word in ("--print_config", "--print-config")]
        try:
            values = dict(vars(self.parse_args(self._spelled([word for word in words if word not in asked]))))
            return {**values, "print_config": bool(asked)}
        except SystemExit:
            raise
        except (argparse.ArgumentError, jsonargparse.ArgumentError, TypeError, ValueError) as error:
            raise UserError(self._one_line(str(error))) from None

    def _spelled(self, words: Sequence[str]) -> list[str]:
        """Write `--batch-size` as the field's name, and `--exact` alone as `--exact=true`."""
        spelled = []
        skip = 0
        for place, word in enumerate(words):
            if skip:
                skip -= 1
                continue
            if not word.startswith("--") or word == "--":
                spelled.append(word)
                continue
            name, equals, value = word.partition("=")
            action = self._option_string_actions.get(name) or self._option_string_actions.get(
                "--" + name[2:].replace("-", "_")
            )
            if action is None:
                known = sorted(o for o in self._option_string_actions if o.startswith("--"))
                hint = nearest(name.replace("-", "_").replace("__", "--", 1), known).replace("_", "-")
                raise UserError(f"unknown option {name!r} of {self.prog!r}: {_short(hint)}")
            option = max(action.option_strings, key=len)
            kind = getattr(action, "_typehint", None)
            if get_origin(kind) is tuple and not equals:  # --labels a b, as people type lists
                lists = list(takewhile(lambda later: not later.startswith("-"), words[place + 1 :]))
                spelled.append(f"{option}={json.dumps(lists)}")
                skip = len(lists)
                continue
            bare = not equals and (place + 1 == len(words) or words[place + 1].startswith("-"))
            is_flag = bare and kind is bool
            spelled.append(f"{option}=true" if is_flag else f"{option}{equals}{value}")
        return spelled

    def _one_line(self, message: str) -> str:
        key = re.search(r'Parser key "([^"]+)"', message)
        value = re.search(r"(?:Given value|Got value): (.*)", message)
        if key and value:
            action = self._option_string_actions.get(f"--{key[1]}")
            kind = getattr(action, "_typehint", None)
            return f"--{key[1].replace('_', '-')} takes {in_words(kind)}, not {value[1]!r}"
        return " ".join(message.split())


class _FoundError(Exception):
    """Carries a parser out of the command that made it."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser


def parser_of(command: Callable[[Sequence[str]], int], words: Sequence[str]) -> Parser:
    """Return the parser that a command makes for such words, and do not run the command."""
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
    """What a command is about: a wing and its data, and the options that are left."""

    wing: "Wing"
    data: str | None
    words: list[str]
    given: dict[str, Any]


def read_subject(command: str, words: Sequence[str]) -> Subject:
    """Read `[WING] DATA` at the beginning of a command line, or both from `--config FILE`.

    A named set implies its wing.

    Raises
    ------
    UserError
        If neither wing nor data can be told.
    """
    rest = list(words)
    leading = []
    while rest and not rest[0].startswith("-"):
        leading.append(rest.pop(0))
    given = _config_of(rest)
    wing_name = given.get("wing")
    if leading and leading[0] in WINGS:
        wing_name = leading.pop(0)
    if len(leading) > 1:
        raise _several(command, wing_name if isinstance(wing_name, str) else None, leading)
    data = leading[0] if leading else given.get("data")
    if wing_name is None and data is not None:
        wing_name = wing_of(data)
    if wing_name is None:
        if data is None:
            if any(word in ("-h", "--help") for word in rest):
                wing_name = next(iter(WINGS))
            else:
                where = "name the data before the options" if rest else _usage(command)
                raise UserError(f"{command} what? {where}")
        else:
            raise UserError(_cannot_tell(command, data))
    return Subject(get_wing(wing_name), data, rest, given)


def _usage(command: str) -> str:
    return f"for example: r2mae {command} images digits, or r2mae {command} text notes.txt"


def _several(command: str, wing: str | None, words: Sequence[str]) -> UserError:
    """Build the error for several words where one data set is wanted."""
    first = words[0]
    if wing is None and wing_of(first) is None and not Path(first).suffix and not Path(first).exists():
        hint = nearest(first, WINGS)
        if hint.startswith("did you mean"):
            return UserError(f"unknown wing {first!r}: {hint}")
    some = " ".join(words) if len(words) <= _FEW else f"{' '.join(words[:2])} … {words[-1]}"
    example = {"images": "images folder/", "cells": "cells all.h5ad", "text": f"text {_pattern(words)!r}"}
    remedy = {
        "images": "give a folder that holds them all",
        "cells": "join the files first (anndata.concat)",
        "text": "give a folder, or a pattern in quotes",
    }
    if wing not in remedy:
        return UserError(f"{command} takes one data set, not {len(words)} ({some}); {_usage(command)}")
    return UserError(
        f"{command} takes one data set, not {len(words)} ({some}): {remedy[wing]}, for example: "
        f"r2mae {command} {example[wing]}"
    )


def _pattern(words: Sequence[str]) -> str:
    """Return the pattern that a shell may have spread, or an example of one."""
    places = {(str(Path(word).parent), Path(word).suffix) for word in words}
    if len(places) > 1 or not (only := places.pop())[1]:
        return "folder/*.txt"
    return str(Path(only[0]) / f"*{only[1]}")


def _cannot_tell(command: str, data: str) -> str:
    if Path(data).exists():
        return f"name the wing of {data}: r2mae {command} {'|'.join(WINGS)} {data}"
    return f"unknown wing or data set {data!r}: {nearest(data, [*WINGS, *public_sets()])}"


def _config_of(words: Sequence[str]) -> dict[str, Any]:
    file = config_file(words)
    given = {} if file is None else read_config(Path(file))
    for field in ("wing", "data", "preset"):  # which say what the command is about
        if not isinstance(given.get(field), str | None):
            raise UserError(f"{file}: {field} takes text, not {str(given[field])[:80]!r}")
    return given


def config_file(words: Sequence[str]) -> str | None:
    """Return the file of `--config`, where one is given."""
    return _said(words, "--config")


def _preset_of(subject: Subject) -> str | None:
    return _said(subject.words, "--preset")


def describe(subject: Subject) -> str:
    """Say what DATA may be, and which presets there are."""
    wing = subject.wing
    sets = f", or a named set ({', '.join(wing.sets)}), which needs no {wing.name!r} before it" if wing.sets else ""
    presets = f"Presets: {', '.join(wing.presets)}.\n" if wing.presets else ""
    return f"{wing.title}.\n\nDATA is a path{sets}.\n{presets}Schemes: {', '.join(scheme_names())}."


def example_data(subject: Subject) -> str:
    """Return what an example may name: a set of the wing, or a path where it has none."""
    wing = subject.wing
    return next(iter(wing.sets), f"{wing.name} path/to/data")


def add_config(parser: Parser, subject: Subject, *, skip: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> None:
    """Add the wing's options.

    Their defaults come from the named set, the file's preset, the file, and the command line's preset; the later wins.

    Parameters
    ----------
    parser, subject
        Of the command.
    skip : tuple of str
        Fields that the command has no use for.
    more : tuple of str
        Options of the command itself that its file may hold beside the wing's fields.
    """
    kind = subject.wing.config
    parser.add_class_arguments(kind, None, skip={"data", *skip})
    parser.describe("preset", "Name of a preset; options given beside it win. By default the wing's own settings.")
    parser.add_argument(
        "--config",
        type=str,
        help="YAML file with any of these options, such as a run's config.yaml; --print-config prints one.",
    )
    own = {name: value for name, value in subject.given.items() if name not in more}
    given = _fields_of(kind, {"data": "", **own}, subject.words)
    # A run's file says all that its run was, even where an older version had no word yet for what a set now brings.
    own = given if _of_a_run(config_file(subject.words)) else own
    own = {name: value for name, value in own.items() if name not in _numbers_of_another(subject, given, skip)}
    preset = subject.given.get("preset")
    defaults = defaults_of(subject.wing, subject.data, preset if isinstance(preset, str) else None)
    defaults |= {name: given[name] for name in own}
    defaults |= defaults_of(subject.wing, None, _preset_of(subject))
    parser.set_defaults(**{name: value for name, value in defaults.items() if name not in ("wing", "data", *skip)})
    _tell_numbers(parser, subject.wing)


def _of_a_run(file: str | None) -> bool:
    """Return whether a file is the config.yaml of a run folder."""
    if file is None:
        return False
    folder = RunFolder(Path(file).parent)
    return folder.config_file == Path(file) and folder.environment_file.is_file()


def _numbers_of_another(subject: Subject, given: Mapping[str, Any], skip: Sequence[str]) -> list[str]:
    """Return the options that a file holds only because a run of its own scheme used them, where another one runs."""
    scheme = given["scheme"]
    if "scheme" not in skip and _said(subject.words, "--scheme") in (None, scheme):
        return []
    config = subject.wing.config.from_dict({**given, "data": ""})
    chosen = chosen_options(config, ratios_of(subject.wing, config))
    fields = {name if name in SCHEME_OPTIONS else OWN_OPTIONS for name in chosen}
    return [name for name in OPTION_FIELDS if name not in fields]


def _said(words: Sequence[str], option: str) -> str | None:
    """Return what stands behind an option on the command line."""
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None


def _fields_of(kind: type[RunConfig], own: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a file, checked; what is wrong with them names the file."""
    file = config_file(words) or "--config"
    try:
        return {"wing": kind.wing, **dataclasses.asdict(kind.from_dict(own, source=file))}
    except UserError as error:
        told = str(error)
        raise UserError(told if told.startswith(f"{file}: ") else f"{file}: {told}") from None


def _tell_numbers(parser: Parser, wing: "Wing") -> None:
    """Say in the help which numbers the wing has for what is left open."""
    numbers = wing.ratios
    whose = "ours: the paper gives none" if numbers.ours else "the paper's"
    ends = {"low": numbers.low, "high": numbers.high}
    told = {"ratio": f"{numbers.fixed:g}", **{name: f"{value:g}" for name, value in ends.items()}}
    for scheme in scheme_names():
        used = effective(scheme, numbers, {}, 1000)
        for name, usual in ends.items():
            told[name] += f", of {scheme} {used[name]:g}" if used.get(name, usual) != usual else ""
    for name, said in told.items():
        parser.append(name, f"By default {said} ({whose}).")
    parser.append("cl_iterations", f"By default {numbers.curriculum.iterations}.")


def add_reading(parser: Parser, when: str = "") -> None:
    """Add the options that say how new data are read, for a run of any wing."""
    images, cells = (f"{when}{'for' if when else 'For'} {wing}: " for wing in ("images", "cells"))
    parser.add_argument(
        "--resize", type=int, help=f"{images}bring them to this many pixels a side; by default as in the run."
    )
    parser.add_argument(
        "--resize_mode",
        choices=["squash", "crop"],
        help=f"{images}what becomes of those that are not square; by default as in the run.",
    )
    parser.add_argument(
        "--transform_batch", type=str, help=f"{cells}the training batch to take for cells whose own is new."
    )
    parser.add_argument(
        "--layer", type=str, help=f"{cells}where this file's raw counts are (X for X); by default as in the run."
    )


def make_config(subject: Subject, values: dict[str, Any]) -> RunConfig:
    """Return the configuration that a command line means."""
    kind = subject.wing.config
    fields = {field.name for field in dataclasses.fields(kind)}
    if subject.data is None:
        raise UserError("name the data: a set of `r2mae data list`, or a path")
    # A run folder must know its data from wherever it is used.
    path = Path(subject.data)
    named = subject.data in subject.wing.sets or not path.exists()
    data = subject.data if named else str(path.absolute())
    return kind(data=data, **{name: value for name, value in values.items() if name in fields - {"data"}})


def print_config(config: RunConfig, skip: Sequence[str] = (), **more: Any) -> None:
    """Print a configuration without some fields, and a command's own options, in the form that `--config` reads."""
    fields = {name: value for name, value in config.to_dict().items() if name not in skip}
    print(yaml.safe_dump({**fields, **more}, sort_keys=False), end="")
