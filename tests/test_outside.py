"""One of each seam from a package outside the tree, by `class_path` alone: trained together for two updates, and resumed."""

import textwrap

import pytest
import yaml

from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.transcript import read
from cod_lightning.types import EpisodeKind
from tests.command_line import cod, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGE = '''
from dataclasses import dataclass

import torch
from msgspec import Struct

from cod_lightning.contexts.base import ContextMechanism, ContextUpdate, Prepared
from cod_lightning.objective.losses.base import LossOutputs, PolicyLoss, metrics_of
from cod_lightning.objective.terms import LossTerm, TermSums
from cod_lightning.plans import LifecyclePlan, PlannedEpisode
from cod_lightning.rewards import Reward
from cod_lightning.training.packs import PackChoice, PackSource
from cod_lightning.training.scorers import Scorer
from cod_lightning.types import EpisodeKind, Message, Role


@dataclass(frozen=True)
class OnlyOnce(LifecyclePlan):
    """One update, after the first task."""

    def order(self, num_tasks):
        solves = [PlannedEpisode(EpisodeKind.SOLVE, n) for n in range(num_tasks)]
        return [solves[0], PlannedEpisode(EpisodeKind.UPDATE, 0), *solves[1:]] if num_tasks > 1 else solves


class Facts(Struct, frozen=True):
    facts: tuple[str, ...] = ()
    uses: int = 0


class ByTask(ContextMechanism):
    """Keeps facts; a task is shown those that share a word with its first observation."""

    State = Facts

    def empty(self):
        return Facts()

    def text(self, state):
        return "\\n".join(state.facts)

    def adopt(self, note):
        return Facts(tuple(note.split()))

    def prepare(self, state, rules, observation):
        goal = observation.split()[-1]
        shown = [fact for fact in state.facts if fact.endswith(goal)]
        return Prepared(" ".join([rules, *shown]), Facts(state.facts, state.uses + bool(shown)))

    def update(self, state, rules, episode, tokens):
        answer = yield (Message(Role.SYSTEM, "update"), Message(Role.USER, episode.feedback))
        facts = tuple(dict.fromkeys((*state.facts, *answer.response.split())))
        return ContextUpdate(state=Facts(facts, state.uses), reward=0.0, parsed=True)

    def feedback(self, state, episode):
        return state

    def asks(self, messages):
        return messages[0].content == "update"

    def write(self, note, messages):
        return note

    def words(self):
        return ("update",)


class FewTurns(Reward):
    """A tenth off for each turn."""

    async def __call__(self, episode, task):
        return -0.1 * len(episode.turns)


class EveryOther(PackSource):
    """Packs 0, 2, 4, ..., and how many outcomes it has seen."""

    def __init__(self):
        self.seen = 0

    def next(self, first, count):
        return [PackChoice(2 * n) for n in range(first, first + count)]

    def observe(self, outcomes):
        self.seen += len(outcomes.choices)

    def metrics(self):
        return {"seen": self.seen}

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state_dict):
        self.seen = state_dict["seen"]


@dataclass(frozen=True, kw_only=True)
class Plain(PolicyLoss):
    """- mean of advantage times log-prob."""

    def __call__(self, inputs):
        loss = -(inputs.advantages * torch.where(inputs.action_mask, inputs.policy_logprobs, 0.0)).sum()
        none = torch.zeros_like(inputs.action_mask)
        return LossOutputs(loss=loss / max(1, inputs.num_action_tokens), metrics=metrics_of(inputs, none))


class Uniform(Scorer):
    """A teacher to whom all of 50 words are alike, and who is silent about every seventh token."""

    def score(self, rows, forward):
        scores = torch.full(rows.token_ids.shape, -3.912)
        scores[rows.token_ids % 7 == 0] = float("nan")
        return scores


@dataclass(frozen=True, kw_only=True)
class Pull(LossTerm):
    """Half the squared distance from the teacher."""

    coefficient: float = 0.1

    @property
    def needs(self):
        return ("teacher",)

    @property
    def logged_as(self):
        return "pull"

    def __call__(self, inputs):
        known = inputs.action_mask & inputs.scores["teacher"].isfinite()
        gap = torch.where(known, inputs.policy_logprobs - inputs.scores["teacher"].nan_to_num(), 0.0)
        missing = int((inputs.action_mask & ~known).sum())
        return TermSums(loss=0.5 * (gap**2).sum(), logged=float(gap.detach().sum()), num_missing=missing)
'''
CONFIG = {
    "model": {
        "loss": {"class_path": "outside.Plain"},
        "terms": [{"class_path": "outside.Pull"}],
        "scorers": {"teacher": {"class_path": "outside.Uniform"}},
    },
    "data": {
        "plan": {"class_path": "outside.OnlyOnce"},
        "context": {"class_path": "outside.ByTask"},
        "source": {"class_path": "outside.EveryOther"},
        "rewards": {"turns": {"class_path": "outside.FewTurns"}},
        "packs_per_rollout": 4,
        "updates_per_rollout": 2,
        "rollouts_per_epoch": 1,
        "val_packs": 4,
        "suites": None,
    },
    "trainer": {"max_epochs": 2},
    "warm_start": None,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the package, the YAML and a run of two epochs of two updates."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "outside.py").write_text(textwrap.dedent(PACKAGE))
    (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG))
    run(folder, "whole")
    return folder


def run(folder, name, *more):
    line = [
        "fit",
        "--config",
        "smoke",
        "--config",
        "mine.yaml",
        "--checkpoint_every",
        "1",
        "--keep_checkpoints",
        "null",
    ]
    done = cod(*line, "--trainer.default_root_dir", name, *more, cwd=folder, path=[folder], timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_every_part_has_left_its_trace_in_the_metrics(folder):
    found = rows(folder / "whole")
    trained = [row for row in found if row["train/gradient_norm"]]
    assert len(trained) == 4
    assert [float(row["source/seen"]) for row in trained] == [4, 4, 8, 8]
    assert all(float(row["train/reward/turns/position_0"]) < 0 for row in trained)
    assert all(row["train/pull"] and 0 <= float(row["train/teacher_missing"]) < 1 for row in trained)
    assert all(float(row["rollout/token_drift"]) == 0 for row in trained)


def test_transcripts_have_the_plan_the_source_s_packs_and_the_mechanism_s_state(folder):
    groups = read(folder / "whole" / "lifecycles" / "train.jsonl")
    life = groups[0].lifecycles[0]
    kinds = [(episode.kind, episode.position) for episode in life.episodes]
    solve, update = EpisodeKind.SOLVE, EpisodeKind.UPDATE
    assert kinds == [(solve, 0), (update, 0), (solve, 1), (solve, 2), (solve, 3)]
    assert all(int(group.pack.id.rpartition("/")[2]) % 2 == 0 for group in groups)
    assert set(life.updates[0].state_after) == {"facts", "uses"}
    assert "\n".join(life.updates[0].state_after["facts"]) == life.updates[0].context_after


def test_stopped_after_an_update_it_goes_on_bit_for_bit(folder):
    import torch

    run(folder, "part", "--ckpt_path", "whole/checkpoints/update-00000001.ckpt")
    whole, part = (
        torch.load(folder / name / "checkpoints" / "last.ckpt", weights_only=False)["state_dict"]
        for name in ("whole", "part")
    )
    assert whole.keys() == part.keys()
    assert all(torch.equal(whole[name], part[name]) for name in whole)


BAD = {
    "a plan that ends with an update": (
        "class Late(OnlyOnce):\n    def order(self, num_tasks):\n        return [*super().order(num_tasks), "
        "PlannedEpisode(EpisodeKind.UPDATE, num_tasks - 1)]\n",
        ("--data.plan", "outside.Late"),
        ("data.plan is Late for 4 tasks", "expected a solve episode at the end", "Leave the last one out"),
    ),
    "a source that names no pack": (
        "class Empty(EveryOther):\n    def next(self, first, count):\n        return []\n",
        ("--data.source", "outside.Empty"),
        ("data.source is Empty", "4 packs where 4 are asked for, not 0", "--ckpt_path last"),
    ),
    "a teacher with another tokenizer": (
        "",
        (
            "--model.scorers",
            "{teacher: {class_path: cod_lightning.training.scorers.CheckpointScorer, init_args: {path: other}}}",
        ),
        (
            "model.scorers.teacher.path is other",
            "expected a checkpoint with the policy's tokenizer",
            "Choose a teacher",
        ),
    ),
    "a run's checkpoint as a teacher": (
        "",
        (
            "--model.scorers",
            "{teacher: {class_path: cod_lightning.training.scorers.CheckpointScorer, init_args: {path: a.ckpt}}}",
        ),
        ("model.scorers.teacher.path is a.ckpt", "Hugging Face form", "export --ckpt_path a.ckpt"),
    ),
    "a teacher that raises": (
        "class Broken(Scorer):\n    def score(self, rows, forward):\n        raise OSError('gone')\n",
        ("--model.scorers", "{teacher: {class_path: outside.Broken}}"),
        ("model.scorers.teacher raised OSError: gone", "--ckpt_path last"),
    ),
    "a teacher that is silent": (
        "class Silent(Scorer):\n    def score(self, rows, forward):\n"
        "        return torch.full(rows.token_ids.shape, float('nan'))\n",
        ("--model.scorers", "{teacher: {class_path: outside.Silent}}"),
        ("model.scorers.teacher gave no log-prob for", "more than 50%", "--ckpt_path last"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_part_that_cannot_work_ends_in_one_line_that_names_key_value_and_remedy(folder, tmp_path, name):
    more, arguments, expected = BAD[name]
    (tmp_path / "outside.py").write_text(textwrap.dedent(PACKAGE) + more)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(CONFIG))
    TinyPolicy().tokenizer(["another", "vocabulary"]).save_pretrained(tmp_path / "other")
    line = ["fit", "--config", "smoke", "--config", "mine.yaml", *arguments]
    done = cod(*line, cwd=tmp_path, path=[tmp_path], timeout=300)
    assert done.returncode in (1, 2), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert all(part in said for part in expected), said
