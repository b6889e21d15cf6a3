"""The evaluation at the end of `fit` and of `test`: the trained policy, then what it started from, then the table."""

import copy
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text
from safetensors.torch import load_file

from cod_lightning.adapters import adapter_weights, trained_weights
from cod_lightning.callbacks import Evaluation
from cod_lightning.evaluation.suite import OF_TRAINED, REFERENCES, ConditionKind
from cod_lightning.terminal import Screen

if TYPE_CHECKING:
    from cod_lightning.evaluation.schema import Results


def evaluate(
    trainer: Any,
    module: Any,
    data: Any,
    warm_start: Path | None,
    *,
    trained_done: bool,
    checkpoints: Sequence[str] = (),
    note: str = "",
) -> None:
    """Play every suite with the trained weights (then with each further checkpoint's), by the world's references, by
    `data.baseline` and, where there was one, with the warm start's weights; print the table and the note.

    All ranks play; rank 0 writes and prints.
    """
    if not data.suites:
        return
    evaluation = next(c for c in trainer.callbacks if isinstance(c, Evaluation))
    if not trained_done:
        trainer.test(module, data, verbose=False)
    for checkpoint in checkpoints:
        trainer.test(module, data, ckpt_path=checkpoint, verbose=False)
    _pass(trainer, module, data, (ConditionKind.ENDPOINT, *REFERENCES))
    if warm_start is not None:
        trained = copy.deepcopy(trained_weights(module.model))
        # with an adapter the base is still there, and an adapter of zeros adds nothing to it
        zeros = {name: weight.detach() * 0 for name, weight in adapter_weights(module.model).items()}
        if zeros:
            module.model.load_state_dict(zeros, strict=False)
        else:
            from cod_lightning.models.sharded import load_whole  # FSDP, which few runs need

            load_whole(module.model, load_file(warm_start / "model.safetensors"))
        try:
            _pass(trainer, module, data, (ConditionKind.WARM_START, ConditionKind.WARM_START_BLANKED))
        finally:
            module.model.load_state_dict(trained, strict=False)
    if trainer.is_global_zero:
        from cod_lightning.evaluation.results import read_results
        from cod_lightning.evaluation.table import print_table

        path, console = Path(trainer.default_root_dir) / "evaluation.json", Screen()
        print_table(_of(read_results(path), evaluation), console, note=note)
        console.print(f"Written to {path}")
        baseline = "" if data.baseline is None else data.baseline.report()
        for line in (data.engine.report(), baseline, *(part.report() for part in data.rewards.values())):
            if line:
                console.print(Text(line))
    evaluation.played.clear()


def _pass(trainer: Any, module: Any, data: Any, kinds: Collection[ConditionKind]) -> None:
    """One more pass of `test`, of other conditions."""
    data.test_kinds = kinds
    try:
        if data.test_conditions():
            trainer.test(module, data, verbose=False)
    finally:
        data.test_kinds = OF_TRAINED


def _of(results: "Results", evaluation: Evaluation) -> "Results":
    """What was played now, of all that the file holds."""
    from cod_lightning.evaluation.schema import Results

    suites = {one.suite.name for one in evaluation.played}
    if not evaluation.by_checkpoint:
        return Results(suites={name: record for name, record in results["suites"].items() if name in suites})
    paths = dict.fromkeys(one.checkpoint for one in evaluation.played if one.checkpoint is not None)
    found = {path: results.get("checkpoints", {})[path] for path in paths}
    chosen = {path: {n: r for n, r in of.items() if n in suites} for path, of in found.items()}
    return Results(suites={}, checkpoints=chosen)
