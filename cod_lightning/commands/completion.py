"""`completion`: what a shell needs to complete commands, configs, choices and keys with the tab key."""

from argparse import SUPPRESS
from collections.abc import Sequence
from typing import Any

from cod_lightning.commands import COMMANDS
from cod_lightning.commands.lightning_cli import start
from cod_lightning.commands.parser import OneLine, program
from cod_lightning.commands.shipped import choices_of, choosable, config_names
from cod_lightning.commands.train import TrainCLI
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.modules import GRPOModule

_SCRIPT = """# Tab completion of cod-lightning for bash; zsh reads it after: autoload -U +X bashcompinit && bashcompinit
_cod_lightning() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}" words=""
    if [ "$word" = "=" ]; then word=""; elif [ "$before" = "=" ]; then before="${{COMP_WORDS[COMP_CWORD - 2]}}"; fi
    if [ "$COMP_CWORD" = 1 ]; then words="{commands}"
    else case "$before" in
        --config) words="{configs}"; COMPREPLY=($(compgen -f -- "$word")) ;;
{choices}
        *) case "${{COMP_WORDS[1]}}:$word" in
            fit:-* | validate:-* | test:-* | predict:-*) words="{keys}" ;;
            *) words="{groups}" ;;
        esac ;;
    esac; fi
    COMPREPLY+=($(compgen -W "$words" -- "$word"))
    [ "${{#COMPREPLY[@]}}" = 1 ] && [[ "${{COMPREPLY[0]}}" = *= ]] && compopt -o nospace
}}
complete -F _cod_lightning cod-lightning
"""


class _Keys(TrainCLI):
    """Knows the keys of `fit` without running it."""

    def parse_arguments(self, parser: Any, args: Any) -> None:
        hidden = (action for action in self._parser("fit")._actions if action.help != SUPPRESS)
        raise _Found([name for action in hidden for name in action.option_strings if name.startswith("--")])


class _Found(Exception):
    """The keys, on their way out."""


def run(argv: Sequence[str]) -> int:
    """Print the script."""
    parser = OneLine(
        prog=f"{program()} completion",
        description="Print what completes `cod-lightning COMMAND --KEY` with the tab key, for bash and zsh: "
        "cod-lightning completion > ~/.cod_lightning_completion, and source that file in ~/.bashrc.",
    )
    parser.parse_args(list(argv))
    keys: list[str] = []
    try:
        start(_Keys, GRPOModule, RolloutDataModule, ["fit"])
    except _Found as found:
        (keys,) = found.args
    choices = [f'        {group}) words="{" ".join(choices_of(group))}" ;;' for group in choosable()]
    words = {"commands": COMMANDS, "configs": config_names(), "keys": keys, "groups": [f"{g}=" for g in choosable()]}
    print(_SCRIPT.format(choices="\n".join(choices), **{name: " ".join(each) for name, each in words.items()}), end="")
    return 0
