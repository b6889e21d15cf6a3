"""The evaluation at the end of `fit` and of `test`: the trained policy, then what it started from, then the table."""

import copy
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import load_file

from callbacks import Evaluation
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.evaluation.results import read_results
from cod_lightning.evaluation.table import print_table


def evaluate(trainer: Any, module: Any, data: Any, warm_start: Path | None, *, trained_done: bool) -> None:
    """Play every suite with the trained weights and, where there was one, with the warm start's; print the table."""
    if not data.suites or not trainer.is_global_zero:
        return
    evaluation = next(c for c in trainer.callbacks if isinstance(c, Evaluation))
    if not trained_done:
        trainer.test(module, data, verbose=False)
    if warm_start is not None:
        trained = copy.deepcopy(module.model.state_dict())
        module.model.load_state_dict(load_file(warm_start / "model.safetensors"), strict=False)
        data.policy_label = "warm_start"
        try:
            trainer.test(module, data, verbose=False)
        finally:
            module.model.load_state_dict(trained)
            data.policy_label = "trained"
    path = Path(trainer.default_root_dir) / "evaluation.json"
    console = Console()
    teacher = getattr(data.env, "teacher", None)
    told = teacher.described() if warm_start is not None and isinstance(teacher, TeacherDials) else ""
    print_table(read_results(path), console, note=told)
    console.print(f"Written to {path}", highlight=False)
    evaluation.played.clear()
