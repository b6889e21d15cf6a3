"""A checkpoint that is written because a validation is given up."""

from typing import Any

_PROGRESS = "epoch_loop.val_loop.batch_progress"


def to_be_done_again(checkpoint: dict[str, Any]) -> None:
    """Have the run that goes on from this checkpoint begin with the validation.

    Lightning goes back to a validation whose counts say that a batch was begun and not finished; where the counts say that
    none was begun it takes the validation for done (`_EvaluationLoop.update_restart_stage`, Lightning 2.6).
    """
    counts = checkpoint["loops"]["fit_loop"][_PROGRESS]
    total = counts["total"]
    total["ready"] = total["started"] = total["processed"] + 1
    total["completed"] = total["processed"]
    counts["current"] = dict.fromkeys(counts["current"], 0)
    counts["is_last_batch"] = False
