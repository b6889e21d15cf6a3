"""The priority buffer chooses as a queue written from its definition does, keeps its bound, and is a part of a run."""

import json
import random

import pytest

from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.training.priority_buffer import PriorityBuffer
from tests.training.test_ahead import UPDATES, fit, made

BOUND = 20


def noise(number):
    return random.Random(derive_seed("priority", 7, number)).gauss(0.0, 1.0)


def by_the_definition(sigma, per_sync, num_rollouts, steps):
    """(what is dropped, what is trained on, what its weights had been trained on) of each step, with nothing but lists."""
    queue, arriving, begun, found = [], [], 0, []
    for step in range(steps):
        if step % per_sync == 0:  # a sync: all that was played since the one before is in the queue
            queue += arriving
            arriving = []
        dropped, chosen = [], None
        pool = queue or arriving[:per_sync]
        while pool:
            best = max(pool, key=lambda one: one[0])
            (queue if best in queue else arriving).remove(best)
            pool = queue or arriving[:per_sync]
            if best[2] >= step - BOUND:
                chosen = best
                break
            dropped.append(best[1])
        if chosen is None:  # the first of all is waited for
            chosen = (0.0, begun, step - step % per_sync)
            begun += 1
        found.append((dropped, chosen[1], chosen[2]))
        if step % per_sync == 0:
            lasting = [one for one in queue + arriving if step + per_sync - one[2] <= BOUND]
            for _ in range(num_rollouts - len(lasting)):
                arriving.append((step + sigma * noise(begun), begun, step))
                begun += 1
    return found


def played(buffer, steps):
    """The same of a buffer beside a queue."""
    queue, begun, found = [], 0, []
    for step in range(steps):
        assert len(queue) == len(buffer.waiting)
        places, place = buffer.choose(step, BOUND)
        dropped = [queue.pop(one) for one in places]
        if place is None:
            chosen, weights = begun, step - step % buffer.rollouts_per_sync
            begun += 1
        else:
            chosen, weights = queue.pop(place)
        found.append(([one for one, _ in dropped], chosen, weights))
        for _ in range(buffer.num_to_begin(step, buffer.num_rollouts, BOUND)):
            buffer.begin(step, 7, begun)
            queue.append((begun, buffer.waiting[-1].weights))
            begun += 1
    return found


@pytest.mark.parametrize("num_rollouts", [4, 7, 8, 24, 40])
@pytest.mark.parametrize(("sigma", "per_sync"), [(2.0, 4), (6.0, 4), (0.0, 4), (2.0, 1), (9.0, 3)])
def test_it_chooses_as_the_definition_does(sigma, per_sync, num_rollouts):
    expected = by_the_definition(sigma, per_sync, num_rollouts, 200)
    assert played(PriorityBuffer(sigma, per_sync, num_rollouts), 200) == expected
    assert all(step - weights <= BOUND for step, (_, _, weights) in enumerate(expected))


def test_with_twice_as_many_as_between_two_syncs_rollouts_are_one_sync_older_than_without_and_more_are_dropped():
    ages = {}
    for num in (4, 7, 24):
        found = played(PriorityBuffer(num_rollouts=num), 400)[100:]
        ages[num] = [100 + step - weights for step, (_, _, weights) in enumerate(found)]
        assert any(dropped for dropped, _, _ in found) == (num == 24)
    assert (min(ages[4]), max(ages[4])) == (1, 4)
    assert (min(ages[7]), max(ages[7])) == (4, 7)
    assert max(ages[24]) > 8


def test_newer_weights_come_first_without_noise_and_the_oldest_of_equal_ones():
    buffer = PriorityBuffer(sigma=0.0, rollouts_per_sync=2, num_rollouts=4)
    for trained in (0, 0, 2, 2):
        buffer.begin(trained)
    assert buffer.choose(4, BOUND) == ([], 2)
    assert buffer.choose(5, BOUND) == ([], 2)
    assert buffer.choose(6, 5) == ([0, 0], None)


def test_its_noise_goes_by_what_a_rollout_is_and_its_state_is_plain():
    one, other = PriorityBuffer(), PriorityBuffer()
    one.begin(0, 7, 3)
    one.begin(0, 7, 4)
    assert len({waiting.priority for waiting in one.waiting}) == 2
    other.begin(0, 7, 4)
    assert other.waiting == one.waiting[1:]
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.waiting == one.waiting


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"sigma": -1.0}, "sigma"),
        ({"rollouts_per_sync": 0}, "rollouts_per_sync"),
        ({"num_rollouts": 3}, "num_rollouts"),
    ],
)
def test_numbers_that_cannot_work_are_refused(own, key):
    with pytest.raises(ConfigError, match=rf"data\.buffer\.{key}"):
        PriorityBuffer(**own)


# ---------------------------------------------------------------------------------------------------- in a run


def buffered(**of_data):
    buffer = PriorityBuffer(rollouts_per_sync=2, num_rollouts=6)
    return made(2, buffer=buffer, rollouts_per_epoch=100, val_packs=2, **of_data)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    data = buffered()
    module, recorder = fit(tmp_path_factory.mktemp("run"), data, limits={"max_epochs": 1, "max_steps": 12 * UPDATES})
    return data, module, recorder


def test_weights_are_synced_every_so_many_rollouts_and_every_pack_is_trained_on_once_or_dropped(run):
    data, _, recorder = run
    versions = recorder.versions[::UPDATES]
    assert all(len(one) == 1 for one in versions)
    assert data.engine.policy_version == 1 + 12 // 2 + 1  # the first one, those of the blocks, that of the validation
    newest = [1 + number // 2 for number in range(12)]
    assert all(0 <= new - old <= 2 for new, (old,) in zip(newest, versions, strict=True))
    expected = [(len(dropped), weights) for dropped, _, weights in played_with_bound(data, 12)]
    dropped = [round(values["train/dropped_rollouts"]) for values in recorder.values[::UPDATES]]
    assert list(zip(dropped, versions, strict=True)) == [(num, [1 + weights // 2]) for num, weights in expected]
    assert any(dropped for dropped, _ in expected)
    assert data.stream.num_packs == 2 * (12 + sum(dropped for dropped, _ in expected))


def played_with_bound(data, steps):
    """As the run's buffer chose: what ends a run begins no more than it needs, which is as far as this looks."""
    buffer, queue, first, found = PriorityBuffer(rollouts_per_sync=2, num_rollouts=6), [], 0, []
    for step in range(steps):
        places, place = buffer.choose(step, 4)
        dropped = [queue.pop(one) for one in places]
        weights = step - step % 2 if place is None else queue.pop(place)
        first += 2 * (1 + len(dropped))
        found.append((dropped, None, weights))
        for _ in range(buffer.num_to_begin(step, min(6, steps - step - 1), 4)):
            buffer.begin(step, data.seed, first + 2 * len(queue))
            queue.append(buffer.waiting[-1].weights)
    return found
