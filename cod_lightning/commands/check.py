"""`check`: play a world, and rewrite a context, by policies without a model, and say what breaks a rule of the contract."""

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from cod_lightning.commands.parser import Options
from cod_lightning.commands.worlds import parse_world
from cod_lightning.contexts import default_mechanism
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.checks import check_num_tasks
from cod_lightning.envs.dataset import DatasetWorld
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.evaluation.conformance_context import check_context
from cod_lightning.evaluation.conformance_data import check_data
from cod_lightning.evaluation.verdicts import Verdict
from cod_lightning.ranges import Several
from cod_lightning.terminal import Screen

_OPTIONS: Options = {
    "num_packs": (Several, 100, "Packs that each reference plays."),
    "pack_size": (Several, 4, "N, tasks of a pack."),
}


def run(argv: Sequence[str]) -> int:
    """Print a verdict on each rule; 1 if one is broken."""
    about = "Play a world, or rewrite a context, and say what breaks a rule of its contract."
    options = parse_world("check", about, argv, _OPTIONS, required=False)
    check_num_tasks("--pack_size", options.pack_size)
    if options.env is None and options.context is None:
        raise ConfigError("--env", "missing", "a world, or a --context", "See `worlds`.")
    screen, found = Screen(), list[Verdict]()
    if options.env is not None:
        try:
            compact = bool(beside(options.env, Vocabulary).words())
        except Exception:  # the first verdict names it
            compact = False
        if isinstance(options.env, DatasetWorld):
            found += _shown(screen, f"data {options.env.path}", check_data(options.env))
        mechanism = options.context or default_mechanism(compact=compact)
        verdicts = check_world(options.env, mechanism, options.num_packs, options.pack_size)
        found += _shown(screen, f"world {getattr(options.env, 'name', type(options.env).__name__)}", verdicts)
    if options.context is not None:
        found += _shown(screen, f"context {type(options.context).__name__}", check_context(options.context))
    num_broken, num_looks = sum(bool(one.broken) for one in found), sum(one.look and not one.broken for one in found)
    broken = {0: "No rule is broken.", 1: "1 rule is broken."}.get(num_broken, f"{num_broken} rules are broken.")
    looks = {0: "", 1: " Look at 1 remark: it may be a mistake."}
    screen.print(broken + looks.get(num_looks, f" Look at {num_looks} remarks: they may be mistakes."))
    return min(1, num_broken)


def _shown(screen: Screen, title: str, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """The verdicts, each printed as it comes."""
    screen.print(Text(title, style="bold"))
    for one in verdicts:
        table = Table.grid(padding=(0, 1))
        mark = ("broken", "red") if one.broken else ("look  ", "yellow") if one.look else ("ok    ", "green")
        table.add_row(Text(*mark), Text(one.rule).append(f": {one.remark}" if one.remark else "", "dim"))
        for example in one.broken:
            table.add_row("", Text(example, style="red", overflow="fold"))
        screen.print(table)
        yield one
