"""``r2mae completion bash|zsh``: prints a script with which a shell completes commands, options and their values.

The words come from the parsers of the commands, so new options, schemes, sets and commands are included.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

from r2mae.cli.parsing import Parser, parser_of
from r2mae.domains.lookup import all_domains, get_domain, public_sets
from r2mae.errors import UserError, unknown
from r2mae.masking.schemes import scheme_names
from r2mae.registry import external_commands

_SHELLS = ("bash", "zsh")
_OF_DATA = ("pretrain", "compare")  # commands whose options depend on the domain, and so on the data
_FILES, _NUMBER = "files", "number"
_MARKS = (_FILES, _NUMBER)  # marks for values that are not one of a list of words

_BASH = """_r2mae() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" typed=() each choices="" files="" option="" i
    [ "$word" = "=" ] && word=""
    for each in "${{COMP_WORDS[@]:0:COMP_CWORD}}"; do [ "$each" = "=" ] || typed+=("$each"); done
    local key="${{typed[1]-}}" position=$((${{#typed[@]}} - 1)) last=$((${{#typed[@]}} - 1))
    if [ "$last" -gt 1 ]; then
        case "${{typed[1]}} ${{typed[2]}}" in
{keys}
        esac
    fi
    for ((i = last; i > 0; i--)); do
        case "${{typed[i]}}" in --* | -[a-z]) option="${{typed[i]}}"; break ;; esac
    done
    option="${{option//_/-}}"
    case "$key $option" in
{many}
        *" ") option="" ;;
        *) [ "$i" -eq "$last" ] || option="" ;;
    esac
    if [[ "$word" == -* ]]; then
        case "$key" in
{options}
        esac
    else
        case "$key ${{option:-@$position}}" in
{values}
        esac
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    [ -z "$files" ] || COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -o filenames -F _r2mae r2mae
"""


@dataclass
class _Entry:
    """The completions of a command: the values of its options, and of each positional argument in order."""

    options: dict[str, str] = field(default_factory=dict)
    many: list[str] = field(default_factory=list)
    positionals: list[str] = field(default_factory=list)
    repeats: bool = False


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae completion",
        "Print completion for a shell: commands, and each one's options, schemes, presets, data sets and other values.",
        'r2mae completion bash >> ~/.bashrc      (zsh: eval "$(r2mae completion zsh)" in ~/.zshrc)',
    )
    parser.add_argument("shell", metavar="SHELL", type=str, help="bash or zsh.")
    shell = parser.read(words)["shell"]
    if shell not in _SHELLS:
        raise unknown("shell", shell, _SHELLS)
    text = _script(_entries())
    print(("autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" if shell == "zsh" else "") + text, end="")
    return 0


def _entries() -> dict[str, _Entry]:
    """Return the completions of every command, and of pairs such as ``pretrain images`` and ``theory risk``."""
    from r2mae.cli.data_alignment import ACTIONS as ALIGNMENT_ACTIONS
    from r2mae.cli.main import SEPARATE, all_commands, command_of
    from r2mae.cli.theory import SUBCOMMANDS
    from r2mae.cli.theory_data import NAMED

    sets = " ".join(public_sets())
    entries = {"": _Entry({"--help": "", "--version": ""}, positionals=[" ".join(all_commands())])}
    for command in all_commands():
        if command in SEPARATE or command in external_commands():  # other packages may parse words in their own way
            entries[command] = _Entry({"--help": ""})
            continue
        run_it = command_of(command)
        if command in _OF_DATA:
            entries |= _of_data(command, run_it)
        elif command == "theory":
            entries[command] = _Entry({"--help": ""}, positionals=[" ".join(SUBCOMMANDS)])
            for name in SUBCOMMANDS:
                entries[f"theory {name}"] = _entry(import_module(f"r2mae.cli.theory_{name}").run, ["x"])
            entries["theory advise"].positionals = [_join(NAMED, _FILES)]
        elif command == "data":
            entries[command] = _entry(run_it, ["list"])
            for action in entries[command].positionals[0].split():
                entries[f"data {action}"] = _Entry({"--help": ""}, positionals=["" if action == "list" else sets])
            entries[command].positionals[0] += " alignment"
            files = [f"@{_FILES}"] * 4
            entries["data alignment"] = _Entry({"--help": ""}, positionals=[" ".join(ALIGNMENT_ACTIONS), *files])
        else:
            entries[command] = _entry(run_it, ["x"])
    return entries


def _of_data(command: str, run_it: Any) -> dict[str, _Entry]:
    """Return the entries of a command whose options depend on the domain; if no domain is typed, the common options."""
    entries = {}
    for domain in all_domains():
        name = domain.name
        named = next(iter(domain.sets), "x")
        models = getattr(domain.config, "models", ())
        entry = _entry(run_it, [name, named], presets=domain.presets, models=models)
        entries[f"{command} {name}"] = entry
        entry.positionals = [_join(domain.sets, _FILES)]
    first, *others = entries.values()
    shared = [option for option in first.options if all(option in other.options for other in others)]
    presets = " ".join(entry.options["--preset"] for entry in entries.values())
    options = {option: presets if option == "--preset" else first.options[option] for option in shared}
    everything = _join([*(domain.name for domain in all_domains()), *public_sets()], _FILES)
    entries[command] = _Entry(options, [option for option in first.many if option in options], [everything])
    return entries


def _entry(
    run_it: Any, words: Sequence[str], presets: Iterable[str] = (), models: Iterable[str] | None = None
) -> _Entry:
    """Return the completions of a command, from its parser."""
    try:
        parser = parser_of(run_it, words)
    except UserError:  # if a library of the domain is not installed
        return _Entry({"--help": ""})
    named = _named(presets, models)
    entry = _Entry()
    if "--config" in parser._option_string_actions:
        entry.options["--print-config"] = ""
    for action in parser._actions:
        value = _values(action, named)
        if not action.option_strings:
            entry.positionals.append(value)
            entry.repeats = action.nargs in ("*", "+")
            continue
        options = sorted({option.replace("_", "-") for option in action.option_strings})
        entry.options |= dict.fromkeys(options, value)
        if action.nargs in ("*", "+") or get_origin(getattr(action, "_typehint", None)) is tuple:
            entry.many += options
    return entry


def _named(presets: Iterable[str], models: Iterable[str] | None) -> Mapping[str, str]:
    """Return the words that options and arguments take, by name, for those whose type does not show it."""
    from r2mae.cli.data import ACTIONS
    from r2mae.cli.theory_model import MODELS

    schemes, domains = " ".join(scheme_names()), all_domains()
    evaluations = [one.name for domain in domains for one in domain.command_line.evaluations]
    own = {name: " ".join(words()) for domain in domains for name, words in domain.command_line.words.items()}
    return own | {
        "scheme": schemes,
        "schemes": schemes,
        "preset": " ".join(presets),
        "model": " ".join(MODELS if models is None else models),
        "data": _join(public_sets(), _FILES),
        "what": " ".join([*(domain.name for domain in domains), *evaluations]),
        "device": "auto cpu cuda",
        "shell": " ".join(_SHELLS),
        "action": " ".join(ACTIONS),
        "baselines": "",
    }


def _values(action: argparse.Action, named: Mapping[str, str]) -> str:
    """Return the words for an option or argument, or :data:`_FILES` or :data:`_NUMBER`, or nothing for a flag."""
    kind = getattr(action, "_typehint", None) or action.type
    if action.option_strings and action.nargs == 0:
        return ""
    if action.dest in named:
        return named[action.dest]
    if action.choices:
        return " ".join(map(str, action.choices))
    kinds = [kind, *get_args(kind)]
    literals = [str(value) for one in kinds if get_origin(one) is Literal for value in get_args(one)]
    if literals:
        return " ".join(literals)
    if bool in kinds:
        return "true false"
    return _NUMBER if (int in kinds or float in kinds) and str not in kinds else _FILES


def _join(words: Iterable[str], mark: str) -> str:
    return " ".join([*words, f"@{mark}"])


def _script(entries: Mapping[str, _Entry]) -> str:
    return _BASH.format(
        keys="\n".join(_keys(entries)),
        many="\n".join(
            f'            "{key} {option}") ;;' for key, entry in entries.items() for option in entry.many if key
        ),
        options="\n".join(
            f'            "{key}") choices="{" ".join(sorted(entry.options))}" ;;' for key, entry in entries.items()
        ),
        values="\n".join(_cases(entries)),
    )


def _keys(entries: Mapping[str, _Entry]) -> Iterator[str]:
    """Yield the cases that make a key of the first two words, such as ``theory risk``; for a set, of its domain."""
    for key in entries:
        if key.count(" ") != 1:
            continue
        command, second = key.split()
        yield f'            "{key}") key="{key}"; position=$((position - 1)) ;;'
        if command in _OF_DATA:
            own = " | ".join(f'"{command} {name}"' for name in get_domain(second).sets)
            if own:
                yield f'            {own}) key="{key}"; position=0 ;;'


def _cases(entries: Mapping[str, _Entry]) -> Iterator[str]:
    for key, entry in entries.items():
        for option, value in entry.options.items():
            if value:
                yield _case(f'"{key} {option}"', value)
        start = 0 if not key else 1
        for position, value in enumerate(entry.positionals, start):
            yield _case(f'"{key} @{position}"' + (f' | "{key} @"*' if entry.repeats else ""), value)


def _case(pattern: str, value: str) -> str:
    words = [word for word in value.split() if word.removeprefix("@") not in _MARKS]
    files = " files=1" if _FILES in [word.removeprefix("@") for word in value.split()] else ""
    return f'            {pattern}) choices="{" ".join(words)}"{";" if files else ""}{files} ;;'
