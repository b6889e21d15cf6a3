"""Whatever a run is made of: killed in a rollout it goes on as if nothing had happened, and two ranks do what one does."""

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
from tests.ranks import STOPPED_AT, exported, run, weights
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


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory):
    """Of a player that solves some tasks."""
    world, mechanism = Levers(protocol="compact"), HintContext(protocol="compact")
    path = tmp_path_factory.mktemp("transcripts") / "train.jsonl"
    transcript.write(path, scripted(world, mechanism, num_packs=8, num_tasks=4))
    return path


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The folder of a policy that another run exported."""
    return str(exported(tmp_path_factory.mktemp("policy")))


def test_two_ranks_that_are_killed_go_on_as_if_nothing_had_happened_with_two_rollouts_ahead_of_packs_that_come_back(
    tmp_path,
):
    more = [
        "--data.max_staleness",
        "2",
        "source=Revisits",
        "method=grpo",
        "--data.suites",
        "null",
        "--trainer.max_epochs",
        "2",
    ]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    run(whole, "ddp", *more)
    staleness = [row["train/staleness"] for row in metrics(whole) if row["train/staleness"]]
    assert list(map(float, staleness)) == [0, 0, 1, 1, 2, 2, 2, 2]
    run(folder, "ddp", *more, killed=True)
    assert_goes_on(folder, whole, "ddp", *more)


def test_stopped_in_the_middle_of_a_rollout_it_goes_on_bit_for_bit_and_two_ranks_log_what_one_does(
    transcripts, tmp_path
):
    own = ("--data.max_staleness", "1", "method=nft", "source=Revisits", "source.by=regret", "source.back=near")
    assert_resumed_and_the_same_on_two_ranks(tmp_path, *all_rewards(transcripts), *own)


@pytest.mark.soak
def test_so_does_one_of_a_proposer_and_a_solver(tmp_path):
    """After a warm start: random numbers propose nothing."""
    more = [
        "method=grpo",
        "program=ProposeAndSolve",
        "--data.program.init_args.solves",
        "2",
        "--data.max_staleness",
        "1",
    ]
    more += ["--warm_start", '{"num_updates": 150, "num_packs": 200}']
    shown = ("train/write_reward/learnability/position_2", "train/write_valid/position_0")
    whole = assert_resumed_and_the_same_on_two_ranks(tmp_path, *more, shown=shown)
    lifecycles = {label: (whole / "lifecycles" / f"{label}.jsonl").read_text() for label in ("train", "validation")}
    assert ('"kind":"write"' in lifecycles["train"], '"kind":"write"' in lifecycles["validation"]) == (True, False)


def assert_goes_on(folder, whole, strategy, *more):
    run(folder, strategy, *more, "--ckpt_path", "last")
    assert metrics(folder) == metrics(whole)
    assert all(torch.equal(weights(folder)[name], tensor) for name, tensor in weights(whole).items())


def assert_resumed_and_the_same_on_two_ranks(tmp_path, *more, shown=()):
    """The folder of the run that was not stopped."""
    more = (*more, "--data.suites", "null")
    whole, part_way, two = tmp_path / "whole", tmp_path / "part", tmp_path / "two"
    run(whole, None, *more)
    for name in shown:
        assert max(float(row[name] or 0) for row in metrics(whole)) > 0, name
    run(part_way, None, *more, killed=True)
    assert read_checkpoint(part_way / "checkpoints" / "last.ckpt").global_step == STOPPED_AT
    assert_goes_on(part_way, whole, None, *more)
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


@pytest.mark.soak
def test_so_does_a_player_of_a_frozen_writer_with_chat_models_as_judges_a_served_teacher_and_self_imitation(
    policy, served, judged, tmp_path
):
    (tmp_path / "rubric.txt").write_text("The longer one.")
    judge = {"rubric": str(tmp_path / "rubric.txt"), "model": "m", "base_url": judged.url}
    parts = {
        "pairs": made(f"{REWARDS}.PairwiseJudge", **judge),
        "judge": made(f"{REWARDS}.JudgeReward", weight=0.5, **judge),
        "length": made("cod_lightning.methods.length.LengthReward", zero_tokens=1, full_tokens=3, max_turns=4),
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
        *(
            "--model.trained_kinds",
            "[solve]",
            "--data.frozen",
            "FrozenRole",
            "--data.frozen.kind",
            "update",
            "--model.policy.weights",
            policy,
        ),
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
