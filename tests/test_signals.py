"""Rewards, teachers, losses, roles and curricula in the command line: runs resume exactly, two ranks do what one does."""

import json
import signal

import pytest
import torch

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.rollout.transcript import dump
from cod_lightning.types import Split
from tests.chat_server import ChatServer, said
from tests.forked_fit import EVERY, assert_the_same, fit
from tests.forked_fit import said as printed
from tests.test_ranks import STOPPED_AT, rows, run, teacher, weights  # noqa: F401
from tests.test_resume import killed_after

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REWARDS, TRAINING = "cod_lightning.rewards", "cod_lightning.training"


def made(name, **init_args):
    return {"class_path": name, "init_args": init_args}


def all_rewards(transcripts):
    """Every part that needs no endpoint."""
    parts = {
        "world": made(f"{REWARDS}.WorldReward", weight=0.5),
        "format": made(f"{REWARDS}.FormatReward"),
        "facts": made(f"{REWARDS}.NewFacts", pattern="[0-9]=[a-z]+"),
        "known": made(f"{TRAINING}.learned_reward.PartlyKnown", transcripts=str(transcripts)),
        "noisy": made(f"{REWARDS}.NoisyJudge", false_positive=0.3, false_negative=0.2),
        "pairs": made(f"{REWARDS}.NoisyPairwiseJudge", error=0.3, opponents=2),
    }
    return ["--data.rewards", json.dumps(parts)]


def by_world(folder):
    """JSD to the teachers of two worlds, one of which plays, and an entropy bonus."""
    terms, scorers = "cod_lightning.objective.terms", f"{TRAINING}.scorers"
    added = [made(f"{terms}.JSD", coefficient=0.5), made(f"{terms}.EntropyBonus", coefficient=0.01)]
    one = made(f"{scorers}.CheckpointScorer", path=str(folder))
    teachers = {"teacher": made(f"{scorers}.ScorerByWorld", teachers={"levers": one, "elsewhere": one})}
    return ["--model.terms", json.dumps(added), "--model.scorers", json.dumps(teachers)]


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory):
    """Of a player that solves some tasks."""
    world, mechanism = Levers(protocol="compact"), HintContext(protocol="compact")
    packs = [world.sample_pack(split=Split.TRAIN, index=index, num_tasks=4) for index in range(8)]
    sampler = scripted_sampler(world.reference(Reference.SCRIPTED, packs[0]), mechanism)
    groups = run_groups(packs, 1, Setting(env=world, mechanism=mechanism, sampler=sampler))
    path = tmp_path_factory.mktemp("transcripts") / "train.jsonl"
    path.write_text("".join(line + "\n" for group in groups for line in dump(group)))
    return path


@pytest.fixture(scope="module")
def policy(teacher):  # noqa: F811
    """The folder of a policy that another run exported."""
    scorers = json.loads(teacher[teacher.index("--model.scorers") + 1])
    return scorers["teacher"]["init_args"]["path"]


PARTS = {
    "rewards, ahead, NFT, regret": lambda policy, transcripts: [
        *(*all_rewards(transcripts), "--data.max_staleness", "1", "loss=nft", "+source=regret"),
    ],
    "writer for a frozen player, SDPO, growth": lambda policy, transcripts: [
        *("--model.trained_kinds", "[update]", "--data.frozen.kind", "solve", "--data.frozen.path", policy),
        *("loss=sdpo", "+source=growth", "--data.source.init_args.rollouts_per_stage", "1"),
        *("--data.source.init_args.max_turns", "[1, 4]"),
    ],
    "rejection sampling, learnability, JSD, teachers by world": lambda policy, transcripts: [
        *("loss=reinforce", "baseline=accepted", "+source=learnability", *by_world(policy)),
    ],
}


FIRST, *OTHERS = PARTS


@pytest.mark.parametrize("part", [FIRST, *(pytest.param(part, marks=pytest.mark.soak) for part in OTHERS)])
def test_stopped_in_the_middle_of_a_rollout_it_goes_on_bit_for_bit_and_two_ranks_log_what_one_does(
    part, policy, transcripts, tmp_path
):
    more = [*PARTS[part](policy, transcripts), "--data.suites", "null"]
    whole, part_way, two = tmp_path / "whole", tmp_path / "part", tmp_path / "two"
    run(whole, None, *more)
    run(part_way, None, *more, killed=True)
    assert read_checkpoint(part_way / "checkpoints" / "last.ckpt").global_step == STOPPED_AT
    run(part_way, None, *more, "--ckpt_path", "last")
    assert rows(part_way) == rows(whole)
    assert all(torch.equal(weights(part_way)[name], tensor) for name, tensor in weights(whole).items())
    run(two, "ddp", *more)
    for ours, theirs in zip(rows(whole), rows(two), strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert (value == "") == (theirs[name] == ""), name
            # 1e-4: AdamW's first steps divide rounding by rounding
            assert not value or float(theirs[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), name


def longer(content):
    """Prefers the episode of which more is shown."""
    shown = json.loads(content["messages"][1]["content"])
    first, second = (len(json.dumps(shown[place])) for place in ("first", "second"))
    better = "tie" if first == second else "first" if first > second else "second"
    return said(json.dumps({"better": better, "reason": "It is longer."}))


def test_a_chat_model_compares_siblings_in_training_and_the_run_goes_on_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-1")
    (tmp_path / "rubric.txt").write_text("The longer one.")
    with ChatServer(longer) as server:
        judge = made(f"{REWARDS}.PairwiseJudge", rubric=str(tmp_path / "rubric.txt"), model="m", base_url=server.url)
        more = ("--data.rewards", json.dumps({"pairs": judge}), "--data.max_staleness", "1")
        whole, folder = tmp_path / "whole", tmp_path / "run"
        assert fit(whole, *more) == 0, printed(whole)
        assert fit(folder, *more, *EVERY, before=killed_after(3)) == -signal.SIGKILL
        assert fit(folder, *more, *EVERY, "--ckpt_path", "last") == 0, printed(folder)
    assert_the_same(folder, whole)
    lives = [json.loads(line) for line in (whole / "lifecycles" / "train.jsonl").read_text().splitlines()]
    scores = [one["parts"]["pairs"] for life in lives for one in life["episodes"] if one["kind"] == "solve"]
    assert sum(scores) / len(scores) == pytest.approx(0.5)
    assert len(set(scores)) > 2
    held_out = (whole / "lifecycles" / "validation.jsonl").read_text()
    assert '"parts"' not in held_out
