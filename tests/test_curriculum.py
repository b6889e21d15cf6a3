"""The command line with a bandit over the worlds of a mixture: it trains, and goes on from a kill as if nothing had happened."""

import json
import signal
from functools import partial

import pytest

from cod_lightning.cli import main
from cod_lightning.training.packs import Uniform
from tests.forked import on_ranks
from tests.forked_fit import EVERY, assert_the_same, checkpoint, fit, metrics, said
from tests.test_ranks import rows, run, weights
from tests.test_resume import killed_after


class Ends(Uniform):
    """Has the packs of one rollout."""

    def next(self, first, count):
        return super().next(first, count if first == 0 else 0)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MIXTURE = {
    "class_path": "cod_lightning.envs.mixture.Mixture",
    "init_args": {
        "worlds": {
            name: {
                "class_path": "cod_lightning.envs.levers.Levers",
                "init_args": {"protocol": "compact", "max_turns": turns},
            }
            for name, turns in (("one", 1), ("four", 4))
        }
    },
}
BANDIT = ("source=Bandit", "--data.source.init_args.temperature", "0.02", "--data.env", json.dumps(MIXTURE))


@pytest.mark.parametrize(
    "more",
    [
        ("--data.max_staleness", "1"),
        *(pytest.param(more, marks=pytest.mark.soak) for more in ((), ("--data.resample_packs", "1"))),
    ],
    ids=str,
)
def test_killed_after_some_updates_a_run_with_a_bandit_goes_on_bit_for_bit(tmp_path, more):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert fit(whole, *BANDIT, *more) == 0, said(whole)
    assert fit(folder, *BANDIT, *more, *EVERY, "--ckpt_path", "auto", before=killed_after(5)) == -signal.SIGKILL
    assert checkpoint(folder)["global_step"] == 5
    assert fit(folder, *BANDIT, *more, *EVERY, "--ckpt_path", "last") == 0, said(folder)
    assert_the_same(folder, whole)
    logged = [row for row in metrics(whole) if row["source/value/one"]]
    assert len({(row["source/value/one"], row["source/value/four"]) for row in logged}) == 4
    for row in logged:
        assert float(row["source/probability/one"]) + float(row["source/probability/four"]) == pytest.approx(1)
    assert float(logged[-1]["source/packs/one"]) + float(logged[-1]["source/packs/four"]) >= 4 * 4
    assert len({row["source/probability/one"] for row in logged}) == 4


CURRICULA = {
    "growth": (
        "source=Growth",
        "--data.source.init_args.rollouts_per_stage",
        "1",
        "--data.source.init_args.max_turns",
        "[1, 4]",
    ),
    "failures": (
        "source=Revisits",
        "source.by=failure",
        "source.back=near",
        "--data.source.init_args.solved_max",
        "0.99",
    ),
    "history": ("source=Revisits", "source.back=continued", "--data.max_staleness", "1"),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", CURRICULA)
def test_killed_in_the_middle_of_a_rollout_a_run_with_a_curriculum_goes_on_bit_for_bit(tmp_path, name):
    chosen = CURRICULA[name]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert fit(whole, *chosen) == 0, said(whole)
    assert fit(folder, *chosen, *EVERY, before=killed_after(5)) == -signal.SIGKILL
    assert fit(folder, *chosen, *EVERY, "--ckpt_path", "last") == 0, said(folder)
    assert_the_same(folder, whole)
    last = [row for row in metrics(whole) if row["train/gradient_norm"]][-1]
    if name == "growth":
        assert (last["source/num_tasks"], last["source/max_turns"]) == ("4.0", "4.0")
    else:
        assert float(last["source/revisits"]) > 0


@pytest.mark.soak
def test_a_writer_trained_for_a_frozen_player_goes_on_bit_for_bit_and_its_player_stays_as_it_was(tmp_path):
    before, whole, folder = tmp_path / "before", tmp_path / "whole", tmp_path / "run"
    assert fit(before, "--trainer.max_epochs", "1") == 0, said(before)
    exported = ["export", "--ckpt_path", str(before / "checkpoints" / "last.ckpt"), "--out", str(tmp_path / "player")]
    assert on_ranks(1, partial(main, exported), tmp_path / "out") == [0]
    role = ("--model.trained_kinds", "[update]", "--data.frozen.kind", "solve")
    role += ("--data.frozen.path", str(tmp_path / "player"))
    assert fit(whole, *role) == 0, said(whole)
    assert fit(folder, *role, *EVERY, before=killed_after(5)) == -signal.SIGKILL
    assert fit(folder, *role, *EVERY, "--ckpt_path", "last") == 0, said(folder)
    assert_the_same(folder, whole)
    assert not all((weights(whole)[name] == tensor).all() for name, tensor in weights(before).items())


@pytest.mark.soak
def test_two_ranks_with_a_bandit_go_on_from_the_middle_of_a_rollout_as_if_nothing_had_happened(tmp_path):
    more = (*BANDIT, "--data.suites", "null", "--trainer.max_epochs", "2")
    whole, folder = tmp_path / "whole", tmp_path / "run"
    run(whole, "ddp", *more)
    run(folder, "ddp", *more, killed=True)
    run(folder, "ddp", *more, "--ckpt_path", "last")
    expected = weights(whole)
    assert all((weights(folder)[name] == tensor).all() for name, tensor in expected.items())
    assert rows(folder) == rows(whole)


def test_a_source_that_ends_the_run_leaves_one_line_and_the_checkpoint_before(tmp_path):
    folder = tmp_path / "run"
    source = '{"class_path": "tests.test_curriculum.Ends"}'
    assert fit(folder, *EVERY, "--data.source", source) == 2
    lines = said(folder).splitlines()
    assert (
        "data.source is Ends; expected a source that names 4 packs where 4 are asked for, not 0. Correct" in lines[-1]
    )
    assert checkpoint(folder)["global_step"] == 2
    assert fit(folder, *EVERY, "--ckpt_path", "last", "--accept_changes", "true") == 0, said(folder)
