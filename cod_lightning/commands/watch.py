"""`play --ckpt_path`: a trained policy lives through a pack, and every episode is shown with the context beside it."""

from collections.abc import Sequence

from jsonargparse.typing import NonNegativeInt
from lightning.pytorch.cli import LightningArgumentParser
from rich.console import Console
from rich.table import Table

from cod_lightning.commands.deploy import played, setting_of
from cod_lightning.commands.from_run import SamplingCLI, built
from cod_lightning.commands.parser import SplitName
from cod_lightning.commands.play import rewards
from cod_lightning.commands.shown import panel
from cod_lightning.envs.checks import check_num_tasks
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import RolloutMonitor
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, Split


class WatchCLI(SamplingCLI):
    """`SamplingCLI`, with the pack to be played."""

    command = "play"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        super().add_arguments_to_parser(parser)
        parser.add_argument("--num_tasks", type=int | None, default=None, help="N; null: data.pack_size.")
        parser.add_argument(
            "--split", type=SplitName, default="test", help="Share of the worlds the pack is drawn from."
        )
        parser.add_argument("--index", type=NonNegativeInt, default=0, help="Which pack, from 0 on.")


def run(argv: Sequence[str]) -> int:
    """Play one pack."""
    cli = built(WatchCLI, argv)
    data, options = cli.datamodule, cli.config
    num_tasks = data.pack_size if options.num_tasks is None else options.num_tasks
    check_num_tasks("--num_tasks", num_tasks)
    pack = data.env.sample_pack(split=Split(options.split), index=options.index, num_tasks=num_tasks)
    audience = Audience(Screen())
    setting = setting_of(cli, played(cli), audience)
    audience.console.print(f"Pack {pack.id}: {len(pack)} tasks that share what is hidden.")
    run_groups([pack], 1, setting)
    if audience.solved:
        audience.console.print(rewards(audience.solved))
    return 0


class Audience(RolloutMonitor):
    """Shows a policy's episodes, each with the context that it had, or that came of it, beside the dialogue."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.solved: list[Episode] = []

    def episode(self, episode: Episode) -> None:
        solving = episode.kind is EpisodeKind.SOLVE
        lines: list[str] = []
        for turn in episode.turns:
            lines += [turn.observation, f"policy> {turn.response}"]
        lines += [episode.feedback] if solving and episode.feedback else []
        lines += [f"error: {episode.error}"] if episode.error else []
        reward = "missing" if episode.reward is None else f"{episode.reward:.3f}"
        updating = episode.kind is EpisodeKind.UPDATE
        title = f"task {episode.position + 1}: reward {reward}" if solving else "writes a text for the task that comes"
        title = "rewrites its context" if updating else title
        context = episode.context_after if updating else episode.context_before
        beside = Table.grid(expand=True)
        beside.add_column(ratio=3)
        beside.add_column(ratio=2)
        colour = ("green" if episode.success else "red") if solving else "dim"
        shown = panel("context from now on" if updating else "context", context or "(empty)")
        beside.add_row(panel(title, "\n".join(lines), colour), shown)
        self.console.print(beside)
        if solving and episode.reward is not None:
            self.solved.append(episode)
