"""Pairwise judges against their definition, the stand-in whose errors are known, and one behind an endpoint on this machine."""

import asyncio
import json
from itertools import permutations

import pytest

from cod_lightning.clients.answer import ChatAnswer
from cod_lightning.clients.failure import EndpointFailure
from cod_lightning.methods.noisy import NoisyPairwiseJudge
from cod_lightning.rewards import Pairwise, PairwiseJudge
from cod_lightning.rewards.pairwise import pairs_of, verdict_of
from cod_lightning.types import EpisodeKind, StopReason, Task
from tests import records
from tests.cases import each
from tests.chat_server import ChatServer, said

TASK = Task(id="0", seed=1, spec=None)


def episode(k, success=True, kind=EpisodeKind.SOLVE, feedback=None):
    said = f"sibling {k}" if feedback is None else feedback
    return records.episode(kind=kind, reward=float(success), success=success, feedback=said)


class Table(Pairwise):
    """Prefers as a table says; None is no verdict."""

    def __init__(self, verdicts, opponents=None):
        super().__init__(opponents, "data.rewards.Table")
        self.verdicts, self.asked = verdicts, []

    async def preferred(self, first, second, task):
        a, b = (int(one.feedback.split()[-1]) for one in (first, second))
        self.asked.append((a, b))
        if self.verdicts[a, b] is None:
            raise EndpointFailure("timeout", "no answer")
        return self.verdicts[a, b]


def asked(part, episodes):
    return asyncio.run(part(episodes, TASK))


def by_definition(num, verdicts, opponents):
    """Score of each of `num` siblings, by loops."""
    scores = []
    for a in range(num):
        found = []
        for b in range(num):
            apart = min((a - b) % num, (b - a) % num)
            if a == b or (opponents is not None and opponents < num - 1 and apart > opponents // 2):
                continue
            if verdicts[a, b] is None or verdicts[b, a] is None:
                continue
            found.append(0.5 * verdicts[a, b] + 0.5 * (1 - verdicts[b, a]))
        scores.append(sum(found) / len(found) if found else None)
    return scores


@each("opponents", [None, 2, 4, 6])
@each("num", [2, 3, 4, 5, 8])
def test_scores_are_the_mean_over_opponents_of_both_orders(num, opponents):
    choices = (1.0, 0.5, 0.0, 1.0, None)
    verdicts = {(a, b): choices[(7 * a + 3 * b + a * b) % 5] for a, b in permutations(range(num), 2)}
    part = Table(verdicts, opponents)
    found = asked(part, [episode(k) for k in range(num)])
    assert found == pytest.approx(by_definition(num, verdicts, opponents))
    degree = num - 1 if opponents is None else min(opponents, num - 1)
    assert len(part.asked) == len(set(part.asked)) == num * degree
    assert part.num_pairs == num * degree / 2
    assert part.num_missing == sum(None in (verdicts[a, b], verdicts[b, a]) for a, b in pairs_of(num, opponents))


def test_who_prefers_one_place_or_none_tells_nothing_apart_and_two_that_did_the_same_are_a_tie():
    for always, num_by_place in ((1.0, 10), (0.0, 10), (0.5, 0)):
        part = Table(dict.fromkeys(permutations(range(5), 2), always))
        assert asked(part, [episode(k) for k in range(5)]) == [0.5] * 5
        assert (part.num_by_place, part.num_pairs) == (num_by_place, 10)
    part = Table({(1, 2): 0.0, (2, 1): 1.0})
    assert asked(part, [episode(1), episode(1), episode(2)]) == [0.25, 0.25, 1.0]
    assert len(part.asked) == 4


def test_an_episode_all_of_whose_pairs_failed_has_no_score():
    verdicts = {(a, b): None if 0 in (a, b) else float(a < b) for a, b in permutations(range(4), 2)}
    part = Table(verdicts)
    assert asked(part, [episode(k) for k in range(4)]) == [None, 1.0, 0.5, 0.0]
    assert "6 pairs compared, 0 decided by their order alone, 3 without verdict" in part.report()


def test_agreement_is_that_on_pairs_of_which_one_was_solved():
    verdicts = {(a, b): float(a < b) for a, b in permutations(range(3), 2)}
    part = Table(verdicts)
    asked(part, [episode(0), episode(1, success=False), episode(2)])
    assert part.report().endswith("the solved one preferred in 1 of 2 pairs with one (50.0%)")
    assert Table({}).report() == ""


@each("error", [0.0, 0.1, 0.4])
def test_the_noisy_judge_errs_as_often_as_asked(error):
    part, again = (NoisyPairwiseJudge(error=error) for _ in range(2))

    async def verdicts(part):
        tasks = [Task(id="0", seed=seed, spec=None) for seed in range(200)]
        return [await part.preferred(episode(0), episode(1, False), task) for task in tasks]

    async def mean(first, second):
        tasks = [Task(id="0", seed=seed, spec=None) for seed in range(2000)]
        found = [await part.preferred(episode(0, first), episode(1, second), task) for task in tasks]
        return sum(found) / len(found), sum(one == 0.5 for one in found) / len(found)

    for first, second, right in ((True, False, 1.0), (False, True, 0.0), (True, True, 0.5), (False, False, 0.5)):
        average, ties = asyncio.run(mean(first, second))
        assert average == pytest.approx(error + (1 - 2 * error) * right, abs=0.03)
        assert ties == pytest.approx((right == 0.5) * (1 - error), abs=0.03)
    first = asyncio.run(verdicts(part))
    assert first == asyncio.run(verdicts(again)), "the same of the same question"


@pytest.fixture
def judge(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-1")
    monkeypatch.setattr("cod_lightning.clients.http._FIRST_PAUSE_S", 0.01)
    monkeypatch.delenv("JUDGE_BASE_URL", raising=False)
    (tmp_path / "rubric.txt").write_text("The one that explores.")

    def made(url, **settings):
        given = {"timeout_s": 5.0, "max_retries": 1, "max_refusals": 1000}
        return PairwiseJudge(rubric=str(tmp_path / "rubric.txt"), model="m", base_url=url, **(given | settings))

    return made


def by_number(content):
    """Prefers the later sibling, and says nothing readable where sibling 0 comes first."""
    shown = json.loads(content["messages"][1]["content"])
    first, second = (int(shown[place]["feedback"].split()[-1]) for place in ("first", "second"))
    if first == 0:
        return said("first!")
    return said(json.dumps({"better": "first" if first > second else "second", "reason": "Later."}))


def test_the_model_sees_both_as_quotes_in_both_orders_and_each_missing_pair_is_counted(judge):
    with ChatServer(by_number) as server:
        part = judge(server.url)
        assert asked(part, [episode(k) for k in (1, 2, 3)]) == [0.0, 0.5, 1.0]
        assert len(server.requests) == 6
        system, user = (message["content"] for message in server.requests[0]["messages"])
        assert "The one that explores." in system
        assert json.loads(user).keys() == {"first", "second"}
        assert not any("reward" in json.loads(user)[place] for place in ("first", "second"))
        assert asked(part, [episode(k) for k in (0, 1, 2)]) == [None, 0.0, 1.0]
    assert dict(part.client.usage.failures) == {"unreadable": 2}
    assert part.report().startswith("m: 10 answers")
    assert "6 pairs compared, 0 decided by their order alone, 2 without verdict" in part.report()


@each(
    ("better", "score"),
    [('"first"', 1.0), ('"second"', 0.0), ('"tie"', 0.5), ('"third"', None), ("1", None), ('["first"]', None)],
)
def test_a_verdict_is_first_second_or_tie(better, score):
    answer = ChatAnswer(text=f'<think>hm</think>{{"better": {better}, "reason": ""}}', stop=StopReason.STOP)
    if score is not None:
        assert verdict_of(answer) == score
        return
    with pytest.raises(ValueError, match="none of first, second, tie"):
        verdict_of(answer)
