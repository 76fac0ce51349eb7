"""``r2mae completion bash|zsh``: completion of commands, options, schemes and data sets for a shell."""

from collections.abc import Sequence

from r2mae.cli.parsing import Parser, Subject, add_config
from r2mae.errors import unknown
from r2mae.experiments.wings import get_wing, public_sets
from r2mae.masking.schemes import scheme_names
from r2mae.registry import WINGS

_SHELLS = ("bash", "zsh")

_BASH = """_r2mae() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" choices
    case "$before" in
        --scheme|--schemes) choices="{schemes}" ;;
        --preset) choices="{presets}" ;;
        --model) choices="{models}" ;;
        theory) choices="{theory}" ;;
        *)
            if [ "$COMP_CWORD" -eq 1 ]; then
                choices="{commands}"
            elif [[ "$word" == -* ]]; then
                choices="{options}"
            else
                choices="{names}"
            fi ;;
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word") $(compgen -f -- "$word"))
}}
complete -o filenames -F _r2mae r2mae
"""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae completion",
        "Print completion for a shell: commands, options, schemes, presets and data sets.",
        'r2mae completion bash >> ~/.bashrc      (zsh: eval "$(r2mae completion zsh)" in ~/.zshrc)',
    )
    parser.add_argument("shell", metavar="SHELL", type=str, help="bash or zsh.")
    shell = parser.read(words)["shell"]
    if shell not in _SHELLS:
        raise unknown("shell", shell, _SHELLS)

    from r2mae.cli.main import COMMANDS
    from r2mae.cli.theory import SUBCOMMANDS
    from r2mae.cli.theory_model import MODELS, add_model

    wings = [get_wing(name) for name in WINGS]
    options: set[str] = {
        "--out",
        "--seeds",
        "--schemes",
        "--ratios",
        "--jobs",
        "--json",
        "--probe",
        "--repetitions",
        "--design",
        "--help",
    }
    inners = [Parser("r2mae", "", "") for _ in range(len(wings) + 1)]
    for wing, inner in zip(wings, inners, strict=False):
        add_config(inner, Subject(wing, None, [], {}))
    add_model(inners[-1])
    for inner in inners:
        options |= {o.replace("_", "-") for o in inner._option_string_actions if o.startswith("--")}
    text = _BASH.format(
        commands=" ".join(COMMANDS),
        schemes=" ".join(scheme_names()),
        theory=" ".join(SUBCOMMANDS),
        models=" ".join(MODELS),
        presets=" ".join(preset for wing in wings for preset in wing.presets),
        options=" ".join(sorted(options)),
        names=" ".join([*WINGS, *public_sets()]),
    )
    print(("autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" if shell == "zsh" else "") + text, end="")
    return 0
