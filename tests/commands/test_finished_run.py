"""`fit` on a run that is at its end trains nothing, and says so."""

from types import SimpleNamespace

import pytest

from cod_lightning.commands.train import TrainCLI


def ended(began_at, global_step, capsys):
    trainer = {"max_epochs": 3, "max_steps": -1, "max_time": None}
    config = SimpleNamespace(ckpt_path="runs/smoke/checkpoints/last.ckpt", trainer=trainer, sampled_token_budget=None)
    cli = SimpleNamespace(
        trainer=SimpleNamespace(global_step=global_step, is_global_zero=True),
        began_at=began_at,
        memory_plan=None,
        _own=lambda: config,
        _evaluate=lambda **_: None,
    )
    TrainCLI.after_fit(cli)  # pyright: ignore[reportArgumentType]
    return capsys.readouterr().err


def test_a_run_that_had_ended_is_said_to_have_trained_nothing_and_what_to_raise(capsys):
    said = "note: nothing was trained: runs/smoke/checkpoints/last.ckpt is from where trainer.max_epochs=3 ends. Raise it.\n"
    assert ended(12, 12, capsys) == said


@pytest.mark.parametrize(("began_at", "global_step"), [(None, 12), (8, 12)])
def test_a_run_that_trained_is_not(began_at, global_step, capsys):
    assert ended(began_at, global_step, capsys) == ""
