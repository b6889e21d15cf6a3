"""Whatever a run is made of: killed in the middle of a rollout it goes on as if nothing had happened, on one rank and on two."""

import json
import signal
from functools import partial

import pytest

from cod_lightning.cli import main
from tests.forked import on_ranks
from tests.forked_fit import EVERY, assert_the_same, checkpoint, fit, killed_after, metrics, said
from tests.test_ranks import run, weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LEVERS = {
    name: {"class_path": "cod_lightning.envs.levers.Levers", "init_args": {"protocol": "compact", "max_turns": turns}}
    for name, turns in (("one", 1), ("four", 4))
}
MIXTURE = {"class_path": "cod_lightning.envs.mixture.Mixture", "init_args": {"worlds": LEVERS}}
BUFFER = {
    "class_path": "cod_lightning.training.priority_buffer.PriorityBuffer",
    "init_args": {"sigma": 4.0, "rollouts_per_sync": 2, "rollouts_begun": 3, "versions": 2},
}
BANDIT = (
    f"source=Bandit --data.source.init_args.temperature 0.02 --data.env {json.dumps(MIXTURE, separators=(',', ':'))}"
)
IMITATION = "replay=SelfImitation --data.replay.init_args.warmup_rollouts 2"
PASSES = (
    "--data.passes_per_rollout 2 --data.resample_packs 1 --data.rollouts_per_epoch 1 --data.group_size 2 "
    "--data.program Counterfactual --data.program.fraction 0.5 --data.program.program Anchored "
    "--data.program.program.attempts 2 --data.program.program.fraction 0.5"
)


def logged(found, key):
    """The values of a column, where it has any."""
    return [float(row[key]) for row in found if row.get(key)]


def with_staleness(*expected):
    return lambda found: logged(found, "train/staleness") == list(expected)


def positive(*keys):
    return lambda found: all(max(logged(found, key)) > 0 for key in keys)


def of_a_bandit(found):
    """Its values move with each rollout, and what it draws by follows them."""
    chances = [logged(found, f"source/probability/{name}") for name in LEVERS]
    assert [one + other for one, other in zip(*chances, strict=True)] == pytest.approx([1] * len(chances[0]))
    assert sum(logged(found, f"source/packs/{name}")[-1] for name in LEVERS) >= 4 * 4
    values = zip(*(logged(found, f"source/value/{name}") for name in LEVERS), strict=True)
    return len(set(values)) == len(set(chances[0])) == 4


def of_growth(found):
    return [logged(found, f"source/{key}")[-1] for key in ("num_tasks", "max_turns")] == [4, 4]


SOAK = pytest.mark.soak
KILLED = {
    "two rollouts ahead": ("--data.max_staleness 2 source=Revisits method=grpo", [3],
        lambda found: with_staleness(0, 0, 1, 1, 2, 2, 2, 2)(found) and positive("source/revisits")(found)),
    "a buffer": (f"--data.max_staleness {json.dumps(BUFFER, separators=(',', ':'))}", [1, 3],
        positive("train/staleness")),
    "stored packs": ("replay=SignalReplay --data.max_staleness 1 --data.group_size 2", [3],
        positive("replay/stored_episodes", "replay/replayed_tokens")),
    "a bandit": (f"{BANDIT} --data.max_staleness 1", [5], of_a_bandit),
    "a second pass over packs some of which were replaced": (f"{PASSES} --seed_everything 3", [3],
        positive("train/resampled_packs", "rollout/num_attempts")),
}  # fmt: skip
RARELY = {
    "a second pass over shuffled episodes": (f"{PASSES} --data.shuffle_episodes true", [3], positive("rollout/num_attempts")),
    "own successes": (IMITATION, [3], positive("replay/stored_episodes", "replay/replayed_tokens")),
    "a bandit and packs that are replaced": (f"{BANDIT} --data.resample_packs 1", [5], of_a_bandit),
    "growing packs": ("source=Growth --data.source.init_args.rollouts_per_stage 1 --data.source.init_args.max_turns [1,4]", [5],
        of_growth),
    "near packs": ("source=Revisits source.by=regret source.back=near", [5], positive("source/revisits")),
    "own history": ("source=Revisits source.back=continued --data.max_staleness 1", [5], positive("source/revisits")),
    "weights that are rounded stochastically": ("--trainer.precision bf16-true --model.optimizer adamw_stochastic", [3],
        positive("train/gradient_norm")),
}  # fmt: skip
"""What the run has, the updates after which it is killed, and what its metrics show."""


@pytest.mark.parametrize(
    ("more", "updates", "shown"),
    [*(pytest.param(*one, id=name) for name, one in KILLED.items()),
     *(pytest.param(*one, id=name, marks=SOAK) for name, one in RARELY.items())],
)  # fmt: skip
def test_killed_after_an_update_the_run_goes_on_bit_for_bit(more, updates, shown, tmp_path):
    whole, folder, more = tmp_path / "whole", tmp_path / "run", more.split()
    assert fit(whole, *more) == 0, said(whole)
    for update in updates:
        assert fit(folder, *more, *EVERY, "--ckpt_path", "auto", before=killed_after(update)) == -signal.SIGKILL
        assert checkpoint(folder)["global_step"] == update
    assert fit(folder, *more, *EVERY, "--ckpt_path", "last") == 0, said(folder)
    assert_the_same(folder, whole)
    assert shown(metrics(whole))


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        pytest.param("--data.max_staleness 1", with_staleness(0, 0, 1, 1, 1, 1, 1, 1), id="a rollout ahead"),
        pytest.param(
            "--data.max_staleness 2", with_staleness(0, 0, 1, 1, 2, 2, 2, 2), id="two rollouts ahead", marks=SOAK
        ),
        pytest.param(IMITATION, positive("replay/replayed_tokens"), id="own successes", marks=SOAK),
        pytest.param(BANDIT, positive("source/packs/one"), id="a bandit", marks=SOAK),
    ],
)
def test_two_ranks_that_are_killed_go_on_as_if_nothing_had_happened(more, shown, tmp_path):
    more = (*more.split(), "--data.suites", "null", "--trainer.max_epochs", "2")
    whole, folder = tmp_path / "whole", tmp_path / "run"
    run(whole, "ddp", *more)
    run(folder, "ddp", *more, killed=True)
    run(folder, "ddp", *more, "--ckpt_path", "last")
    expected = weights(whole)
    assert all((weights(folder)[name] == tensor).all() for name, tensor in expected.items())
    assert metrics(folder) == metrics(whole)
    assert shown(metrics(whole))


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
