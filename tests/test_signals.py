"""Rewards, teachers, losses, roles and curricula in the command line: runs resume exactly, two ranks do what one does."""

import json

import pytest
import torch

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.clients.answer import ChatAnswer
from cod_lightning.contexts import HintContext
from cod_lightning.envs.levers import Levers
from cod_lightning.models.pretrained import read_tokenizer
from cod_lightning.rewards.judge import Grader
from cod_lightning.rollout import transcript
from cod_lightning.types import StopReason
from tests.chat_server import ChatServer, said
from tests.forked_fit import assert_alike, metrics
from tests.test_ranks import STOPPED_AT, run, teacher, weights  # noqa: F401
from tests.vllm_server import FakeVLLM
from tests.word_play import scripted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REWARDS, TRAINING = "cod_lightning.rewards", "cod_lightning.training"


def made(name, **init_args):
    return {"class_path": name, "init_args": init_args}


def all_rewards(transcripts):
    """Every part that needs no endpoint."""
    parts = {
        "world": made(f"{REWARDS}.WorldReward", weight=0.5),
        "format": made(f"{REWARDS}.FormatReward"),
        "facts": made("examples.studies.new_facts.NewFacts", pattern="[0-9]=[a-z]+"),
        "known": made("cod_lightning.methods.learned_reward.PartlyKnown", transcripts=str(transcripts)),
        "noisy": made("cod_lightning.methods.noisy.NoisyJudge", false_positive=0.3, false_negative=0.2),
        "pairs": made("cod_lightning.methods.noisy.NoisyPairwiseJudge", error=0.3, opponents=2),
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
    path = tmp_path_factory.mktemp("transcripts") / "train.jsonl"
    transcript.write(path, scripted(world, mechanism, num_packs=8, num_tasks=4))
    return path


@pytest.fixture(scope="module")
def policy(teacher):  # noqa: F811
    """The folder of a policy that another run exported."""
    scorers = json.loads(teacher[teacher.index("--model.scorers") + 1])
    return scorers["teacher"]["init_args"]["path"]


PROPOSES = (
    *("method=grpo", "program=ProposeAndSolve", "--data.program.init_args.solves", "2"),
    *("--warm_start", '{"num_updates": 150, "num_packs": 200}'),  # random numbers propose nothing
)
PARTS = {
    "rewards, ahead, NFT, regret": lambda policy, transcripts: [
        *all_rewards(transcripts),
        *["--data.max_staleness", "1", "method=nft", "source=Revisits", "source.by=regret", "source.back=near"],
    ],
    "writer for a frozen player, SDPO, growth": lambda policy, transcripts: [
        *f"--model.trained_kinds [update] --data.frozen.kind solve --data.frozen.path {policy}".split(),
        *("method=sdpo", "source=Growth", "--data.source.init_args.rollouts_per_stage", "1"),
        *("--data.source.init_args.max_turns", "[1, 4]"),
    ],
    "rejection sampling, learnability, JSD, teachers by world": lambda policy, transcripts: [
        *("method=reinforce", "baseline=Accepted", "source=Revisits", *by_world(policy))
    ],
    "proposer and solver, ahead": lambda policy, transcripts: [*PROPOSES, "--data.max_staleness", "1"],
    "solver for a frozen proposer": lambda policy, transcripts: [
        *PROPOSES,
        *("--data.frozen.kind", "write", "--model.trained_kinds", "[solve, update]"),
    ],
}
SHOWN = {
    "proposer and solver, ahead": ("train/write_reward/learnability/position_2", "train/write_valid/position_0"),
    "solver for a frozen proposer": ("train/write_reward/learnability/position_2", "train/write_valid/position_0"),
}
"""What is above 0 at some time, where a part is at work."""


FIRST, *OTHERS = PARTS


@pytest.mark.parametrize("part", [FIRST, *(pytest.param(part, marks=pytest.mark.soak) for part in OTHERS)])
def test_stopped_in_the_middle_of_a_rollout_it_goes_on_bit_for_bit_and_two_ranks_log_what_one_does(
    part, policy, transcripts, tmp_path
):
    more = PARTS[part](policy, transcripts)
    whole = assert_resumed_and_the_same_on_two_ranks(tmp_path, *more, shown=SHOWN.get(part, ()))
    lifecycles = {label: (whole / "lifecycles" / f"{label}.jsonl").read_text() for label in ("train", "validation")}
    assert ('"kind":"write"' in lifecycles["train"]) == ("program=ProposeAndSolve" in more)
    assert '"kind":"write"' not in lifecycles["validation"]


def assert_resumed_and_the_same_on_two_ranks(tmp_path, *more, shown):
    """The folder of the run that was not stopped."""
    more = (*more, "--data.suites", "null")
    whole, part_way, two = tmp_path / "whole", tmp_path / "part", tmp_path / "two"
    run(whole, None, *more)
    for name in shown:
        assert max(float(row[name] or 0) for row in metrics(whole)) > 0, name
    run(part_way, None, *more, killed=True)
    assert read_checkpoint(part_way / "checkpoints" / "last.ckpt").global_step == STOPPED_AT
    run(part_way, None, *more, "--ckpt_path", "last")
    assert metrics(part_way) == metrics(whole)
    assert all(torch.equal(weights(part_way)[name], tensor) for name, tensor in weights(whole).items())
    run(two, "ddp", *more)
    assert_alike(metrics(whole), metrics(two))
    return whole


def verdict(shown):
    """Prefers the episode of which more is shown, and scores one by how much that is."""
    if "first" not in shown:
        return json.dumps({"score": len(json.dumps(shown)) % 11 / 10, "reason": "It is as long as it is."})
    first, second = (len(json.dumps(shown[place])) for place in ("first", "second"))
    better = "tie" if first == second else "first" if first > second else "second"
    return json.dumps({"better": better, "reason": "It is longer."})


@pytest.fixture
def judged(monkeypatch):
    """A chat endpoint that compares. A score is there without waiting: what other turns share a batch, and so the rounding of
    log-probs, would hang on when it comes."""
    monkeypatch.setenv("JUDGE_API_KEY", "sk-1")
    ask = Grader.grade

    async def grade(self, material, read):
        if "first" in material:
            return await ask(self, material, read)
        return read(ChatAnswer(text=verdict(material), stop=StopReason.STOP))

    monkeypatch.setattr(Grader, "grade", grade)
    with ChatServer(lambda content: said(verdict(json.loads(content["messages"][1]["content"])))) as server:
        yield server


@pytest.fixture
def served(policy):
    """A vLLM server with log-probs that are only numbers."""
    fake = FakeVLLM()
    fake.vocabulary = read_tokenizer(policy, "path").get_vocab()
    fake.logprobs = lambda ids: [-0.1 - (7 * place + one) % 23 / 10 for place, one in enumerate(ids)]
    yield fake
    fake.die()


def test_so_does_a_player_of_a_frozen_writer_with_chat_models_as_judges_a_served_teacher_and_self_imitation(
    policy, served, judged, tmp_path
):
    (tmp_path / "rubric.txt").write_text("The longer one.")
    judge = {"rubric": str(tmp_path / "rubric.txt"), "model": "m", "base_url": judged.url}
    parts = {
        "pairs": made(f"{REWARDS}.PairwiseJudge", **judge),
        "judge": made(f"{REWARDS}.JudgeReward", weight=0.5, **judge),
        "length": made(f"{REWARDS}.LengthReward", zero_tokens=1, full_tokens=3, max_turns=4),
        "overlong": made("cod_lightning.methods.overlong.OverlongReward", zero_tokens=1, full_tokens=4, penalty=0.1),
        "rule": made(f"{REWARDS}.BrokenRule", pattern="[0-3]", penalty=0.1, kinds=["solve", "update"]),
    }
    scorer = made(f"{TRAINING}.vllm_scorer.VLLMScorer", url=served.url, model="teacher")
    term = made("cod_lightning.objective.terms.KL", to="teacher", estimator="k3")
    whole = assert_resumed_and_the_same_on_two_ranks(
        tmp_path,
        *("--data.rewards", json.dumps(parts)),
        *["--data.max_staleness", "1", "method=grpo", "source=Revisits", "source.by=regret", "source.back=near"],
        *("--model.terms", json.dumps([term]), "--model.scorers", json.dumps({"teacher": scorer})),
        *("--model.trained_kinds", "[solve]", "--data.frozen.kind", "update", "--model.policy.weights", policy),
        *("replay=SelfImitation", "--data.replay.init_args.warmup_rollouts", "2"),
        shown=("train/divergence_teacher", "replay/replayed_tokens", "source/revisits"),
    )
    lives = [json.loads(line) for line in (whole / "lifecycles" / "train.jsonl").read_text().splitlines()]
    given = {
        name: [one["parts"][name] for life in lives for one in life["episodes"] if name in one["parts"]]
        for name in parts
    }
    assert sum(given["pairs"]) / len(given["pairs"]) == pytest.approx(0.5)
    assert all(len(set(scores)) >= 2 for scores in given.values())
    assert len(set(given["pairs"])) > 2
    held_out = (whole / "lifecycles" / "validation.jsonl").read_text()
    assert '"pairs"' not in held_out
