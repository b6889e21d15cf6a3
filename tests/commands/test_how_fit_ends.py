"""How a `fit` ends: with nothing to do, or by a callback of Lightning's own."""

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import yaml
from lightning.pytorch.loops.fit_loop import _FitLoop

from cod_lightning.callbacks import Evaluation
from cod_lightning.cli import main
from cod_lightning.commands.train import TrainCLI, _show
from tests.cases import each


def ended(began_at, global_step, capsys, num_moved=1):
    trainer = {"max_epochs": 3, "max_steps": -1, "max_time": None}
    config = SimpleNamespace(ckpt_path="runs/smoke/checkpoints/last.ckpt", trainer=trainer, sampled_token_budget=None)
    cli = SimpleNamespace(
        trainer=SimpleNamespace(global_step=global_step, is_global_zero=True),
        began_at=began_at,
        root=Path("no_such_folder"),
        memory_plan=None,
        model=SimpleNamespace(num_moved=num_moved),
        config=config,
    )
    with mock.patch("cod_lightning.commands.train.evaluate"):
        TrainCLI._trained(cli)  # pyright: ignore[reportArgumentType]
    return capsys.readouterr().err


def test_a_run_that_had_ended_is_said_to_have_trained_nothing_and_what_to_raise(capsys):
    said = "note: nothing was trained: runs/smoke/checkpoints/last.ckpt is where the run ends. To train on, raise "
    said += "max_epochs, max_steps, max_time or sampled_token_budget.\n"
    assert ended(12, 12, capsys) == said


@each(("began_at", "global_step"), [(None, 12), (8, 12)])
def test_a_run_that_trained_is_not(began_at, global_step, capsys):
    assert ended(began_at, global_step, capsys) == ""


def test_a_run_in_which_no_update_had_a_gradient_is_said_to_have_learnt_nothing(capsys):
    assert ended(None, 12, capsys, num_moved=0).startswith(
        "note: nothing was learnt: none of 12 updates had a gradient, since every advantage was 0"
    )


def test_the_table_is_followed_by_what_training_did_to_success_pass_at_k_and_entropy(tmp_path, monkeypatch):
    (tmp_path / "metrics.csv").write_text("step,train/pass_at/1,train/entropy\n0,0.5,1.0\n1,0.75,0.5\n")
    notes = []
    monkeypatch.setattr("cod_lightning.evaluation.results.results_of", lambda *_, **__: {})
    monkeypatch.setattr("cod_lightning.evaluation.table.print_table", lambda *_, note: notes.append(note))
    reporting = SimpleNamespace(report=lambda: "")
    data = SimpleNamespace(engine=reporting, baseline=None, rewards={})
    trainer = SimpleNamespace(callbacks=[Evaluation()])
    _show(SimpleNamespace(trainer=trainer, root=tmp_path, datamodule=data, demonstrations=None))
    assert notes == [
        "In training, first update to last quarter: pass@1 0.500 to 0.750, entropy 1.000 to 0.500 (nats a token)."
    ]


@pytest.mark.slow
def test_the_config_that_is_kept_begins_a_run_anew_and_overwrites_none_and_lies_at_home_if_asked(tmp_path, monkeypatch):
    def ended(*_, **__):
        raise SystemExit(0)

    monkeypatch.setattr(_FitLoop, "advance", ended)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = "fit --config smoke --warm_start null --overwrite true --trainer.default_root_dir"
    with pytest.raises(SystemExit):
        main([*words.split(), "~/run"])
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (kept["overwrite"], kept["ckpt_path"], kept["warm_start"]) == (False, None, None)
