"""`play --ckpt_path`: a trained policy lives through a pack, and every episode is shown with the context beside it."""

from collections.abc import Sequence

from cod_lightning.commands.deploy import setting_of
from cod_lightning.commands.parser import Options
from cod_lightning.commands.play import Audience
from cod_lightning.commands.train import SAMPLED, built, model_of
from cod_lightning.envs.checks import check_num_tasks
from cod_lightning.ranges import Natural
from cod_lightning.rollout.group import run_groups
from cod_lightning.terminal import Screen
from cod_lightning.types import Split

_OPTIONS: Options = SAMPLED | {
    "num_tasks": (int | None, None, "N; null: data.pack_size."),
    "index": (Natural, 0, "Which pack, from 0 on."),
}


def run(argv: Sequence[str]) -> int:
    """Play one pack."""
    cli = built("play", _OPTIONS, argv)
    data, options = cli.datamodule, cli.config
    num_tasks = data.pack_size if options.num_tasks is None else options.num_tasks
    check_num_tasks("--num_tasks", num_tasks)
    pack = data.env.sample_pack(split=Split.TEST, index=options.index, num_tasks=num_tasks)
    audience = Audience(Screen())
    setting = setting_of(cli, model_of(cli, options.ckpt_path), audience)
    audience.console.print(f"Pack {pack.id}: {len(pack)} tasks that share what is hidden.")
    run_groups([pack], 1, setting)
    return audience.finish()
