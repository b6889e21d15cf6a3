"""`warm_start`: the first phase of a run alone, on the devices of the run."""

from collections.abc import Sequence

from cod_lightning.commands.phase import config_of, save_policy, started
from cod_lightning.commands.train import built
from cod_lightning.errors import ConfigError

_OF_THE_MACHINE = ("accelerator", "strategy", "devices", "num_nodes", "precision", "default_root_dir")
"""Keys of `trainer` that a warm start by itself has from its run."""


def run(argv: Sequence[str]) -> int:
    """`python -m cod_lightning warm_start --config RUN`: train the warm start of a run; its policy in Hugging Face form."""
    asked = built("warm_start", {}, argv)
    if asked.asked["warm_start"] is None:
        raise ConfigError("warm_start", "null", "keys of a warm start", "Add --warm_start.num_updates 1500, say.")
    words = asked.datamodule.words_for(asked.model.policy)
    trainer = {key: asked.asked["trainer"][key] for key in _OF_THE_MACHINE} | {"max_epochs": 1}
    config = config_of(asked.asked, words) | {"trainer": trainer, "overwrite": asked.asked["overwrite"]}
    cli = started(config, action="fit", name=f"{asked.run_name}_warm_start")
    save_policy(cli, folder := cli.root / "policy")
    if cli.trainer.is_global_zero:
        print(f"wrote {folder}")
    return 0
