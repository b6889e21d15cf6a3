"""The evaluation at the end of `fit` and of `test`: the trained policy, then what it started from, then the table."""

import copy
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from cod_lightning.adapters import adapter_weights, trained_weights
from cod_lightning.callbacks import Evaluation
from cod_lightning.commands import report
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.evaluation.controls import Weights
from cod_lightning.terminal import Screen


def evaluate(cli: Any, *, trained_done: bool) -> None:
    """Play every suite with the trained weights (unless that is done; then with each further checkpoint's), by the world's
    references, by `data.baseline` and, where there was one, with the warm start's weights; print the table, and write the report.

    All ranks play; rank 0 writes and prints. `cli` is the `TrainCLI`.
    """
    trainer, module, data = cli.trainer, cli.model, cli.datamodule
    if data.suites:
        if not trained_done:
            trainer.test(module, data, verbose=False)
        for checkpoint in cli.checkpoints[1:]:
            trainer.test(module, data, ckpt_path=checkpoint, verbose=False)
        _pass(trainer, module, data, "none")
        if cli.warm_start_folder is not None:
            _play_warm_start(trainer, module, data, cli.warm_start_folder)
        if trainer.is_global_zero:
            _show(cli)
    if trainer.is_global_zero:
        report.run([str(cli.root)])


def _play_warm_start(trainer: Any, module: Any, data: Any, folder: Path) -> None:
    trained = copy.deepcopy(trained_weights(module.model))
    # with an adapter the base is still there, and an adapter of zeros adds nothing to it
    zeros = {name: weight.detach() * 0 for name, weight in adapter_weights(module.model).items()}
    if zeros:
        module.model.load_state_dict(zeros, strict=False)
    else:
        from cod_lightning.models.sharded import load_whole  # FSDP, which few runs need

        load_whole(module.model, load_file(folder / "model.safetensors"))
    try:
        _pass(trainer, module, data, "warm_start")
    finally:
        module.model.load_state_dict(trained, strict=False)


def _show(cli: Any) -> None:
    """Print the table, with what the demonstrations already contained and what training did, and what engines and judges say."""
    from cod_lightning.diagnosis.evidence import Evidence
    from cod_lightning.evaluation.results import results_of
    from cod_lightning.evaluation.table import print_table
    from cod_lightning.reports.curves import read_metrics

    data, console = cli.datamodule, Screen()
    begun = cli.demonstrations.described() if isinstance(cli.demonstrations, TeacherDials) else ""
    note = "\n".join(filter(None, (begun, Evidence(folder=cli.root, metrics=read_metrics(cli.root)[0]).in_training())))
    evaluation = next(one for one in cli.trainer.callbacks if isinstance(one, Evaluation))
    print_table(results_of(evaluation.played, by_checkpoint=evaluation.by_checkpoint), console, note=note)
    console.print(f"\nWritten to {cli.root / 'evaluation.json'}")
    baseline = "" if data.baseline is None else data.baseline.report()
    for line in (data.engine.report(), baseline, *(part.report() for part in data.rewards.values())):
        if line:
            console.print(line)
    evaluation.played.clear()


def _pass(trainer: Any, module: Any, data: Any, weights: Weights) -> None:
    """One more pass of `test`, of other conditions."""
    data.test_weights = (weights,)
    try:
        if data.test_conditions():
            trainer.test(module, data, verbose=False)
    finally:
        data.test_weights = ("trained",)
