"""Self-imitation: which episodes are replayed, with which advantage, against the definition."""

import json
import math
import random
from collections import Counter
from statistics import median

import pytest

from cod_lightning.methods.self_imitation import SelfImitation
from tests.story import of_rollout, recorded


def test_self_imitation_replays_what_is_still_better_than_the_median_with_a_weight_that_rises():
    replay = SelfImitation(episodes_per_update=50, coefficient=0.8, warmup_rollouts=4)
    replay.start(1)
    rng = random.Random(3)
    stored, groups = [], []
    for number in range(4):
        episodes = []
        for p in range(6):
            returns = [[rng.random() for _ in range(2)] for _ in range(3)]
            for e in range(2):
                mean = sum(r[e] for r in returns) / 3
                groups.append((e, mean))
                episodes += [
                    recorded(
                        rollout=number,
                        pack_id=f"{number}/{p}",
                        sibling=k,
                        episode=e,
                        episode_return=r[e],
                        group_return=mean,
                        advantage=2.0 * (r[e] - mean),
                    )
                    for k, r in enumerate(returns)
                ]
        rollout = of_rollout(episodes, number=number, updates=((0,), (1,)))
        replay.observe(rollout)
        weight = 0.8 * (1 - math.cos(math.pi * (number + 1) / 4)) / 2
        assert replay.metrics()["weight"] == pytest.approx(weight)
        medians = {e: median(value for place, value in groups if place == e) for e in range(2)}
        expected = {one: 2 * (one.episode_return - medians[one.episode]) for one in stored}
        chosen = replay.choose(stored, rollout)
        assert len(chosen) == 2
        for of_update in chosen:
            assert {one.episode for one in of_update} == {one for one, now in expected.items() if now > 1e-6}
            for one in of_update:
                assert one.advantage == pytest.approx(weight * expected[one.episode])
        stored += [one for one in episodes if replay.worth(one) > 0]
        assert all(one.advantage > 0 for one in stored)
    replay.observe(of_rollout(number=9))
    assert replay.weight == 0.8


def test_what_a_shifted_baseline_adds_to_all_is_no_measure_of_how_good_an_episode_still_is():
    replay = SelfImitation(warmup_rollouts=0)
    replay.start(1)
    replay.observe(rollout := of_rollout([recorded(group_return=0.2)]))
    plain = {"episode_return": 0.501, "group_return": 0.5}
    stored = [recorded(**plain, advantage=0.001), recorded(**plain, advantage=0.101, of_equals=0.1, sibling=1)]
    found = [one.advantage for one in replay.choose(stored, rollout)[0]]
    assert found == pytest.approx([0.301] * 2)


def test_a_group_counts_once_whichever_of_its_siblings_are_known():
    replay = SelfImitation()
    for siblings in ((0, 1), (1, 2)):
        replay.observe(of_rollout([recorded(sibling=k, group_return=0.25) for k in siblings]))
    assert list(*replay.returns.values()) == [0.25, 0.25]


def test_an_episode_is_compared_with_others_of_its_kind_and_position_whatever_its_index_in_their_lifecycles():
    replay = SelfImitation(warmup_rollouts=0)
    solve, update = {"kind": "solve", "position": 1}, {"kind": "update", "position": 0}
    short, long = recorded(pack_id="a", episode=1, **solve), recorded(pack_id="b", episode=2, **solve)
    between = recorded(pack_id="b", episode=1, **update, group_return=-3.0)
    replay.observe(rollout := of_rollout([short, between, long]))
    assert [one.advantage for one in replay.choose([short], rollout)[0]] == [0.5]


def test_self_imitation_draws_better_episodes_more_often_and_never_more_than_it_may():
    replay = SelfImitation(episodes_per_update=2, warmup_rollouts=0, priority=2.0)
    replay.start(1)
    stored = [recorded(sibling=k, episode_return=0.5 + 0.1 * k, advantage=0.1 * k) for k in range(1, 5)]
    replay.observe(of_rollout([recorded(group_return=0.5)]))
    counts = Counter()
    for number in range(300):
        for of_update in replay.choose(stored, of_rollout(number=number, updates=((0,), (1,)))):
            assert len(of_update) == 2
            counts.update(one.episode.sibling for one in of_update)
    assert counts[1] < counts[2] < counts[3] < counts[4]


def test_self_imitation_goes_on_with_its_weight_and_its_latest_returns(monkeypatch):
    monkeypatch.setattr("cod_lightning.methods.self_imitation._BASELINE_SIZE", 2)
    replay, other = (SelfImitation(warmup_rollouts=4) for _ in range(2))
    for number in range(3):
        replay.observe(of_rollout([recorded(group_return=float(number))], number=number))
    other.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    assert other.weight == replay.weight > 0
    for one in (replay, other):
        one.observe(of_rollout([recorded(group_return=9.0)], number=3))
        assert [list(values) for values in one.returns.values()] == [[2.0, 9.0]]
