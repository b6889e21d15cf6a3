"""Runs of the command line on one rank or several, which tests stop in the middle of a rollout."""

import os
from functools import partial

import cod_lightning.commands.export
import cod_lightning.commands.report
import cod_lightning.commands.train
import cod_lightning.commands.warm_start  # noqa: F401  (ranks are forked from here)
from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.cli import main
from cod_lightning.modules import GRPOModule
from tests.command_line import by_strategy
from tests.forked import on_ranks

SMALL = [
    *("--config", "smoke", "--warm_start", "null", "--torch_threads", "1"),
    *("--data.rollouts_per_epoch", "2", "--data.updates_per_rollout", "2", "--data.packs_per_rollout", "4"),
    *("--data.group_size", "4", "--data.val_packs", "3", "--trainer.max_epochs", "1"),
]
STOPPED_AT = 3
"""Updates after which a run ends early, in the middle of its second rollout."""


def fit(folder, strategy, *more, small=SMALL, killed=False):
    """One rank's part of a run; without a strategy there is one rank."""
    argv = ["fit", *small, "--checkpoint_every", "1", "--trainer.default_root_dir", str(folder), *more]
    if strategy:
        argv += [*by_strategy(strategy), "--trainer.devices", os.environ["WORLD_SIZE"]]
    if killed:
        train = GRPOModule.training_step

        def train_until(self, batch, batch_idx):
            if self.global_step == STOPPED_AT:
                os._exit(0)
            return train(self, batch, batch_idx)

        GRPOModule.training_step = train_until
    return main(argv)


def run(folder, strategy, *more, ranks=2, killed=False, **small):
    """The run on all its ranks."""
    part = partial(fit, folder, strategy, *more, killed=killed, **small)
    codes = on_ranks(ranks if strategy else 1, part, folder.with_suffix(".ranks"), returns=not killed)
    assert killed or set(codes) == {0}


def weights(folder):
    return read_checkpoint(folder / "checkpoints" / "last.ckpt").weights()


def exported(folder):
    """The folder of a policy that a run in this folder exported."""
    run(folder / "run", None, "--data.suites", "null", "--trainer.max_steps", "1")
    argv = ["export", "--ckpt_path", str(folder / "run" / "checkpoints" / "last.ckpt"), "--out", str(folder / "policy")]
    assert on_ranks(1, partial(main, argv), folder / "out") == [0]
    return folder / "policy"
