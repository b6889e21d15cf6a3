"""One of each seam from a package outside the tree, by `class_path` alone: trained together, resumed, and refused where they cannot
work. The program and the loss term are those of their guides."""

import re
import textwrap

import pytest
import torch
import yaml

from cod_lightning.rollout.transcript import read
from cod_lightning.types import EpisodeKind
from tests.chat_server import ChatServer, Reply, said
from tests.command_line import ROOT, cod, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGE = '''
import asyncio
from dataclasses import dataclass

import torch
from msgspec import Struct

from cod_lightning.clients.chat import ChatClient
from cod_lightning.contexts.base import ContextMechanism, ContextUpdate, Prepared, Scripted, Words
from cod_lightning.credit.returns import CreditRule
from cod_lightning.envs.async_world import AsyncWorld
from cod_lightning.envs.base import Vocabulary
from cod_lightning.objective.losses.base import LossOutputs, PolicyLoss
from cod_lightning.rewards import Reward
from cod_lightning.seeds import derive_seed
from cod_lightning.training.critics import Critic
from cod_lightning.training.packs import PackChoice, PackSource
from cod_lightning.training.replay import Replay, ReplayedEpisode
from cod_lightning.training.scorers import Scorer
from cod_lightning.types import EpisodeKind, EpisodeStatus, Message, Pack, Role, Task

WORDS = ("one", "two", "three")


@dataclass(frozen=True)
class Right:
    word: str


class RemoteVocabulary(Vocabulary):
    def words(self):
        return ("guess", "right", "wrong", *WORDS)


class Remote(AsyncWorld):
    """One of three words is right in all tasks of a pack; somewhere else knows which, and takes a while to say so."""

    name, max_turns, rules = "remote", 2, "guess"
    success, status = False, EpisodeStatus.COMPLETED
    companions = (RemoteVocabulary,)

    def sample_pack(self, *, split, index, num_tasks, seed=0):
        hidden = derive_seed("remote", split, seed, index)
        tasks = [Task(id=str(n), seed=n, spec=Right(WORDS[hidden % 3])) for n in range(num_tasks)]
        return Pack(id=f"remote/{split}/{seed}/{index}", split=split, world_seed=hidden, tasks=tuple(tasks))

    async def open(self, task):
        await asyncio.sleep(0.001)
        self.right, self.turn, self.success = task.spec.word, 0, False
        return "guess"

    async def act(self, action):
        await asyncio.sleep(0.001)
        self.turn, self.success = self.turn + 1, self.right in action.split()
        return "right" if self.success else "wrong", float(self.success), self.success or self.turn == 2, False, {}


@dataclass(frozen=True)
class HalfOfLater(CreditRule):
    """An episode's own reward, and half of every later one."""

    def weights(self, kinds):
        each = len(kinds)
        return 0.5 * torch.ones(each, each).triu() + 0.5 * torch.eye(each)


@dataclass(frozen=True)
class TwoLayers(Critic):
    """The return less a value out of two layers."""

    lr: float = 0.05

    def net(self, hidden_size):
        return torch.nn.Sequential(torch.nn.Linear(hidden_size, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def advantages(self, values, returns, action_mask):
        return returns[:, None] - values


class Facts(Struct, frozen=True):
    facts: tuple[str, ...] = ()
    uses: int = 0


class FactsScripted(Scripted):
    def adopt(self, note):
        return Facts(tuple(note.split()))

    def asks(self, messages):
        return messages[0].content == "update"

    def write(self, note, messages):
        return note


class FactsWords(Words):
    def words(self):
        return ("update",)


class ByTask(ContextMechanism):
    """Keeps facts; a task is shown those that share a word with its first observation."""

    State = Facts
    companions = (FactsScripted, FactsWords)

    def empty(self):
        return Facts()

    def text(self, state):
        return "\\n".join(state.facts)

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


class FewTurns(Reward):
    """A tenth off for each turn."""

    async def __call__(self, episode, task):
        return -0.1 * len(episode.turns)


class Judge(Reward):
    """A tenth for an answer that a chat model likes."""

    weight = 0.1

    def __init__(self, url):
        self.client = ChatClient("judge", url, where="data.rewards.judge", timeout_s=1.0, max_retries=1)

    async def __call__(self, episode, task):
        messages = (Message(Role.USER, episode.turns[-1].response),)
        return await self.client.ask(messages, max_tokens=5, read=lambda answer: float(answer.text))


class ComesBack(PackSource):
    """Half of each rollout's packs are those of the largest advantages so far, played again; the others are new."""

    def __init__(self):
        self.worth = {}

    def next(self, first, count):
        best = sorted(self.worth, key=lambda index: (-self.worth[index], index))[: count // 2]
        return [PackChoice(index) for index in (*best, *range(first, first + count - len(best)))]

    def observe(self, outcomes):
        worth = outcomes.credit.values[outcomes.credit.table.own].view(len(outcomes.choices), -1).abs().mean(dim=1).tolist()
        self.worth |= {choice.index: value for choice, value in zip(outcomes.choices, worth, strict=True)}

    def metrics(self):
        return {"known": len(self.worth)}

    def state_dict(self):
        return {"worth": dict(self.worth)}

    def load_state_dict(self, state_dict):
        self.worth = dict(state_dict["worth"])


class Latest(Replay):
    """The episodes stored last join each update again, two for each of its packs."""

    def __init__(self):
        super().__init__(max_episodes=40)
        self.seen = 0

    def observe(self, rollout):
        self.seen += len(rollout.episodes)

    def choose(self, stored, rollout):
        return [[ReplayedEpisode(one, one.advantage) for one in stored[-2 * len(of) :]] for of in rollout.updates]

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
        return LossOutputs(loss=loss / max(1, inputs.num_action_tokens))


class Uniform(Scorer):
    """A teacher to whom all of 50 words are alike, and who is silent about every seventh token."""

    def score(self, rows, forward):
        scores = torch.full(rows.token_ids.shape, -3.912)
        scores[rows.token_ids % 7 == 0] = float("nan")
        return scores
'''
for guide in ("programs", "loss_terms"):
    PACKAGE += re.findall(r"^```python\n(.*?)^```", (ROOT / f"docs/guides/{guide}.md").read_text(), re.DOTALL | re.M)[0]
CONFIG = {
    "model": {
        "credit": {"class_path": "outside.HalfOfLater"},
        "critic": {"class_path": "outside.TwoLayers"},
        "loss": {"class_path": "outside.Plain"},
        "terms": [{"class_path": "outside.Pull"}],
        "scorers": {"teacher": {"class_path": "outside.Uniform"}},
    },
    "data": {
        "env": {"class_path": "outside.Remote"},
        "program": {"class_path": "outside.OnlyOnce"},
        "context": {"class_path": "outside.ByTask"},
        "source": {"class_path": "outside.ComesBack"},
        "replay": {"class_path": "outside.Latest"},
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


def graded(content):
    """0, 1 or 2."""
    return said(str(len(content["messages"][0]["content"]) % 3))


@pytest.fixture(scope="module")
def judge():
    """A chat endpoint whose model gives grades."""
    with ChatServer(graded) as server:
        yield server


@pytest.fixture(scope="module")
def folder(judge, tmp_path_factory):
    """A folder with the package, the YAML and a run of two epochs of two updates."""
    folder = tmp_path_factory.mktemp("outside")
    write(folder, judge.url)
    run(folder, "whole")
    return folder


def write(folder, url, more=""):
    """The package, and the YAML with the address of the judge."""
    (folder / "outside.py").write_text(textwrap.dedent(PACKAGE) + more)
    graded = {"class_path": "outside.Judge", "init_args": {"url": url}}
    data = CONFIG["data"] | {"rewards": CONFIG["data"]["rewards"] | {"judge": graded}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG | {"data": data}))


def run(folder, name, *more):
    line = "fit --config smoke --config mine.yaml --checkpoint_every 1 --keep_checkpoints null"
    done = cod(*line.split(), "--trainer.default_root_dir", name, *more, cwd=folder, path=[folder], timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_every_part_has_left_its_trace_in_the_metrics(folder):
    found = rows(folder / "whole")
    trained = [row for row in found if row["train/gradient_norm"]]
    assert len(trained) == 4
    assert [float(row["source/known"]) for row in trained] == [4, 4, 6, 6]
    assert [float(row["replay/replayed_episodes"]) for row in trained] == [0, 0, 8, 8]
    assert {float(row["train/staleness"]) for row in trained} == {0}, "what is replayed has an age in its place"
    assert [float(row["replay/age"]) for row in trained[2:]] == [1, 1]
    seen = [float(row["replay/seen"]) for row in trained]
    assert seen[0] == seen[1] < seen[2] == seen[3]
    assert all(float(row["train/reward/turns/position_0"]) < 0 for row in trained)
    assert all(0 <= float(row["train/reward/judge/position_0"]) <= 0.2 for row in trained)
    errors = [float(row["train/value_error"]) for row in trained]
    assert errors[0] == errors[1] != errors[2] == errors[3], "the critic learned from the first rollout"
    assert all(row["train/pull"] and 0 <= float(row["train/teacher_missing"]) < 1 for row in trained)
    assert all(float(row["rollout/token_drift"]) == 0 for row in trained)


def test_transcripts_have_the_program_s_episodes_the_source_s_packs_and_the_mechanism_s_state(folder):
    groups = read(folder / "whole" / "lifecycles" / "train.jsonl")
    life = groups[0].lifecycles[0]
    kinds = [(episode.kind, episode.position) for episode in life.episodes]
    solve, update = EpisodeKind.SOLVE, EpisodeKind.UPDATE
    assert kinds == [(solve, 0), (update, 0), (solve, 1), (solve, 2), (solve, 3)]
    packs = [int(group.pack.id.rpartition("/")[2]) for group in groups]
    assert packs[:4] == [0, 1, 2, 3]
    assert set(packs[4:6]) < set(packs[:4]), "the packs of the largest advantages, played again"
    assert packs[6:] == [4, 5]
    assert life.solves[0].parts.keys() == {"world", "turns", "judge"}
    assert set(life.updates[0].state_after) == {"facts", "uses"}
    assert "\n".join(life.updates[0].state_after["facts"]) == life.updates[0].context_after


def same_weights(*runs):
    one, other = (torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)["state_dict"] for run in runs)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


BAD = {
    "a program that waits for something else": (
        "import asyncio\nclass Late(OnlyOnce):\n    async def __call__(self, agent, pack):\n"
        "        await asyncio.sleep(0)\n        await super().__call__(agent, pack)\n",
        ("--data.program", "outside.Late"),
        ("data.program is Late for 4 tasks", "expected a program that waits for its agent alone"),
    ),
    "a source that names no pack": (
        "class Empty(ComesBack):\n    def next(self, first, count):\n        return []\n",
        ("--data.source", "outside.Empty"),
        ("data.source is Empty", "4 packs where 4 are asked for, not 0", "--ckpt_path auto"),
    ),
    "a source whose state does not load": (
        "def refuse(self, state_dict):\n    raise KeyError('worth')\nComesBack.load_state_dict = refuse\n",
        ("--ckpt_path", "WHOLE/checkpoints/update-00000001.ckpt"),
        ("data.source is ComesBack", "answers `load_state_dict` (KeyError: 'worth', ", "--ckpt_path auto"),
    ),
    "a teacher that raises": (
        "class Broken(Scorer):\n    def score(self, rows, forward):\n        raise OSError('gone')\n",
        ("--model.scorers", "{teacher: {class_path: outside.Broken}}"),
        ("model.scorers.teacher raised OSError: gone", "--ckpt_path auto"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_part_that_cannot_work_ends_in_one_line_that_names_key_value_and_remedy(judge, folder, tmp_path, name):
    more, arguments, expected = BAD[name]
    write(tmp_path, judge.url, more)
    metrics = (folder / "whole" / "metrics.csv").read_bytes()
    message = refused(tmp_path, *(argument.replace("WHOLE", str(folder / "whole")) for argument in arguments))
    assert (folder / "whole" / "metrics.csv").read_bytes() == metrics, "a run that is refused loses no row"
    assert "\n" not in message
    assert all(part in message for part in expected), message


def refused(folder, *arguments):
    """What `fit` says last, from `error:` on."""
    done = cod("fit", "--config", "smoke", "--config", "mine.yaml", *arguments, cwd=folder, path=[folder], timeout=300)
    assert done.returncode in (1, 2), done.stderr[-2000:]
    assert "Traceback (most" not in done.stderr
    assert done.stderr.count("error:") == 1
    return done.stderr.partition("error:")[2].strip()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, ("does not answer", "Check the settings at data.rewards.judge")),
        (said("good"), ("RewardFailure, for example", "judge raised EndpointFailure", "data.max_failed_fraction")),
    ],
    ids=["down", "nonsense"],
)
def test_a_judge_that_cannot_be_read_ends_the_run_with_what_it_did_and_the_remedy(tmp_path, answer, expected):
    with ChatServer(lambda content: answer) as server:
        url = server.url if answer is not None else "http://127.0.0.1:9/v1"
        write(tmp_path, url)
        message = refused(tmp_path)
    assert all(part in message for part in expected), message


def test_a_run_whose_judge_goes_down_loses_nothing_and_goes_on_bit_for_bit_once_it_is_up_again(folder, tmp_path):
    left = 150

    def answer(content):
        nonlocal left
        left -= 1
        return graded(content) if left >= 0 else Reply(status=500)

    with ChatServer(answer) as server:
        write(tmp_path, server.url)
        message = refused(tmp_path, "--trainer.default_root_dir", "part", "--checkpoint_every", "1")
        assert "judge raised EndpointFailure: " in message
        assert "--ckpt_path auto" in message
        assert "in __call__" in (tmp_path / "part" / "lifecycles" / "faults.log").read_text(), "the judge's traceback"
        before = [row["step"] for row in rows(tmp_path / "part") if row["train/gradient_norm"]]
        assert 0 < len(before) < 4
        left = 10_000
        run(tmp_path, "part", "--ckpt_path", "last")
    assert same_weights(folder / "whole", tmp_path / "part")
    whole, part = ([r["train/gradient_norm"] for r in rows(f)] for f in (folder / "whole", tmp_path / "part"))
    assert whole == part
