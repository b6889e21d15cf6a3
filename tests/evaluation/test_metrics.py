"""Position metrics weigh lifecycles, not batches or ranks."""

import math
import random

import pytest
import torch
from msgspec import structs

from cod_lightning.evaluation.metrics import PositionMetrics
from cod_lightning.types import EpisodeKind, EpisodeStatus, Lifecycle
from tests.records import lifecycle, solve, update

ALL = [lifecycle(f"p{i}", (i % 2 == 0, i % 3 > 0, i != 3)) for i in range(7)]


def counted(lifecycles: list[Lifecycle]) -> PositionMetrics:
    metrics = PositionMetrics()
    metrics.update(lifecycles)
    return metrics


def test_uneven_ranks_one_of_them_without_lifecycles_summed_equal_one() -> None:
    ranks = [counted(ALL[:2]), counted([]), counted(ALL[2:])]
    merged = PositionMetrics()
    for name in merged._defaults:
        setattr(merged, name, merged._reductions[name](torch.stack([getattr(one, name) for one in ranks])))
    merged._update_count = 1  # what update() would have done
    assert merged.compute() == counted(ALL).compute()


def test_logged_names_are_the_fixed_ones_and_never_nan() -> None:
    scalars = counted([lifecycle("a", (True, None))]).compute()
    assert {"reward/position_0", "success/position_0", "context_parse_rate", "num/position_1"} <= scalars.keys()
    assert "success/position_1" not in scalars
    assert "cod_gain" not in scalars
    assert not any(math.isnan(value) for value in scalars.values())


def test_a_pack_may_be_as_long_as_packs_may_be_and_one_longer_than_its_room_is_refused() -> None:
    solves = tuple(solve(n, n % 2 == 0) for n in range(10_001))
    found = counted([Lifecycle(pack_id="p", sibling=0, episodes=solves[:-1]), ALL[0]]).compute()
    assert (found["num/position_0"], found["num/position_9999"], found["success/position_9998"]) == (2.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"a lifecycle of 10,001 tasks"):
        counted([Lifecycle(pack_id="p", sibling=0, episodes=solves)])


def test_every_figure_equals_the_definition_written_as_a_loop() -> None:
    """Rewards that say nothing of success, failures on the way, contexts that do not parse, tasks that are asked again."""
    rng = random.Random(0)
    lives = []
    for n in range(40):
        life = lifecycle(f"p{n}", [rng.choice((True, False, False, None)) for _ in range(4)])
        episodes = []
        for e in life.episodes:
            if e.kind is EpisodeKind.UPDATE:
                known = rng.random() < 0.8
                e = update(e.position, parsed=rng.random() < 0.7)
                e = e if known else structs.replace(e, status=EpisodeStatus.SKIPPED, reward=None, success=None)
            elif e.reward is not None:
                e = structs.replace(e, reward=rng.random(), repeat=rng.random() < 0.3)
            else:
                e = structs.replace(e, repeat=rng.random() < 0.3)
            episodes.append(e)
        lives.append(structs.replace(life, episodes=tuple(episodes)))
    metrics = PositionMetrics()
    metrics.update(lives[:25])
    metrics.update(lives[25:30])
    metrics.update([lifecycle("short", (True, False))])
    metrics.update(lives[30:])
    found = metrics.compute()
    lives.append(lifecycle("short", (True, False)))

    def mean(values):
        return sum(values) / len(values)

    known = [e for life in lives for e in life.solves if e.reward is not None]
    for n in range(4):
        here = [e for e in known if e.position == n]
        assert found[f"num/position_{n}"] == len(here)
        assert found[f"reward/position_{n}"] == pytest.approx(mean([e.reward for e in here]), rel=1e-12)
        assert found[f"success/position_{n}"] == pytest.approx(mean([e.success for e in here]), rel=1e-12)
    parsed = [e.success for life in lives for e in life.updates if e.success is not None]
    assert found["context_parse_rate"] == pytest.approx(mean(parsed))
    assert found["success/new"] == pytest.approx(mean([e.success for e in known if not e.repeat]))
    assert found["success/repeated"] == pytest.approx(mean([e.success for e in known if e.repeat]))
    assert found["cod_gain"] == pytest.approx(found["success/position_3"] - found["success/position_0"])
    assert found["lifecycles"] == 41
