"""The priority buffer chooses as a queue written from its definition does, keeps its bound, and is a part of a run."""

import json
import math
import random
from contextlib import nullcontext

import pytest

from cod_lightning.datamodules.checks import check_staleness
from cod_lightning.errors import ConfigError
from cod_lightning.methods.priority_buffer import PriorityBuffer
from cod_lightning.seeds import derive_seed
from tests.cases import each
from tests.training.test_ahead import UPDATES, Noting, Stops, fit, made

BOUND = 20
NUM_ROLLOUTS = 8


def noise(number):
    return random.Random(derive_seed("priority", 7, number)).gauss(0.0, 1.0)


def by_the_definition(sigma, per_sync, per_begin, steps):
    """(what is trained on, what its weights had been trained on) of each step, with nothing but lists; and what never is."""
    queue, arriving, begun, found = [], [], 0, []
    for step in range(steps):
        if step % per_sync == 0:  # a sync: all that was played since the one before is in the queue
            queue, arriving = queue + arriving, []
        chosen = None
        while chosen is None and (pool := queue or arriving[:per_sync]):
            best = max(pool, key=lambda one: one[0])
            (queue if best in queue else arriving).remove(best)
            chosen = best if best[2] >= step - BOUND else None  # what is too old is taken out and forgotten
        if chosen is None:  # the first of all is waited for
            chosen = (0.0, begun, step)
            begun += 1
        found.append(chosen[1:])
        for _ in range(0 if step % per_sync else per_begin if step else per_sync - 1 + per_begin):
            arriving.append((step + sigma * noise(begun), begun, step))
            begun += 1
    return found


def played(buffer, steps, needed=math.inf):
    """The same of a buffer beside a queue, and how many each step dropped."""
    queue, begun, found, dropped = [], 0, [], []
    buffer.max_age = BOUND
    for step in range(steps):
        assert len(queue) == len(buffer.waiting)
        num_dropped, place = buffer.choose(step)
        del queue[:num_dropped]
        assert place is not None or step == 0
        begun += place is None
        found.append((0, 0) if place is None else queue.pop(place))
        dropped.append(num_dropped)
        for _ in range(buffer.num_to_begin(step, needed - step - 1)):
            buffer.begin(step, 7, begun)
            queue.append((begun, buffer.waiting[-1].weights))
            begun += 1
    return found, dropped, begun


@each("more", [0, 1, 3, 8])
@each(("sigma", "per_sync"), [(2.0, 4), (6.0, 4), (0.0, 4), (2.0, 1), (9.0, 3)])
def test_it_chooses_as_the_definition_does(sigma, per_sync, more):
    expected = by_the_definition(sigma, per_sync, per_sync + more, 200)
    found, dropped, _ = played(PriorityBuffer(sigma, per_sync, per_sync + more), 200)
    assert found == expected
    assert all(step - weights <= BOUND for step, (_, weights) in enumerate(found))
    assert any(dropped) == (more > 0)


def test_a_rollout_that_is_as_old_as_may_be_when_it_is_needed_needs_no_other_in_its_place():
    num_begun = []
    for versions in (3, 2):
        buffer = PriorityBuffer(rollouts_per_sync=1, rollouts_begun=4, versions=versions)
        buffer.begin(0, 7, 0)
        num_begun.append(buffer.num_to_begin(1, 2))
    assert num_begun == [1, 2]


def test_rollouts_are_one_sync_old_and_a_faster_sampler_makes_them_newer_and_drops_the_rest():
    ages = {}
    for per_sync in (4, 2):
        found, dropped, _ = played(PriorityBuffer(rollouts_per_sync=per_sync), 1000)
        ages[per_sync] = [step - weights for step, (_, weights) in enumerate(found)]
        assert (sum(dropped) > 900) == (per_sync == 2)
    assert ages[4][:4] == [0, 1, 2, 3]
    assert set(ages[4][4:]) == {4, 5, 6, 7}
    assert sum(age in (2, 3) for age in ages[2]) > 950
    assert max(ages[2]) > 3


@each(("needed", "begun"), [(1, 4), (6, 4), (7, 6), (40, 4), (41, 8), (42, 12)])
def test_no_more_are_begun_than_the_run_needs_and_none_is_missing(needed, begun):
    found, dropped, total = played(PriorityBuffer(rollouts_begun=begun), needed, needed)
    assert len(found) == needed
    assert total - needed - sum(dropped) >= 0
    assert begun > 4 or total == needed


def test_its_noise_goes_by_what_a_rollout_is_and_its_state_is_plain():
    one, other = PriorityBuffer(), PriorityBuffer()
    one.begin(0, 7, 3)
    one.begin(0, 7, 4)
    assert len({waiting.priority for waiting in one.waiting}) == 2
    other.begin(0, 7, 4)
    assert other.waiting == one.waiting[1:]
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.waiting == one.waiting


# ---------------------------------------------------------------------------------------------------- in a run


def buffered():
    return PriorityBuffer(rollouts_per_sync=2, rollouts_begun=4, versions=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    data = made(buffered(), rollouts_per_epoch=NUM_ROLLOUTS)
    _, recorder = fit(tmp_path_factory.mktemp("run"), data, limits={"max_epochs": 1})
    return data, recorder


def expected_run(seed, steps):
    """(how many are dropped, what its weights had been trained on) of each step, and the packs that were begun."""
    buffer, queue, first, found = buffered(), [], 0, []
    for step in range(steps):
        num_dropped, place = buffer.choose(step)
        del queue[:num_dropped]
        found.append((num_dropped, step if place is None else queue.pop(place)))
        first += 2 * (1 + num_dropped)
        for _ in range(buffer.num_to_begin(step, steps - step - 1)):
            buffer.begin(step, seed, first + 2 * len(queue))
            queue.append(buffer.waiting[-1].weights)
    return found, first


def test_a_run_trains_on_what_the_buffer_chooses_by_the_weights_of_its_sync_and_reports_what_is_dropped(run):
    data, recorder = run
    expected, num_packs = expected_run(data.seed, NUM_ROLLOUTS)
    dropped = [round(values["train/dropped_rollouts"]) for values in recorder.values[::UPDATES]]
    assert list(zip(dropped, recorder.versions[::UPDATES], strict=True)) == [
        (num, [1 + weights // 2]) for num, weights in expected
    ]
    assert sum(dropped) > 0
    assert data.engine.policy_version == 1 + NUM_ROLLOUTS // 2
    assert data.stream.num_packs == num_packs == 2 * (NUM_ROLLOUTS + sum(dropped))
    assert sum(label == "train" for label, *_ in recorder.played) == NUM_ROLLOUTS + sum(dropped)


@pytest.mark.slow
@pytest.mark.parametrize("error", [None, ZeroDivisionError()])
def test_a_run_that_ends_early_leaves_the_next_one_in_the_same_process_alone(error, tmp_path):
    data = made(buffered(), rollouts_per_epoch=NUM_ROLLOUTS)
    with pytest.raises(ZeroDivisionError) if error else nullcontext():
        fit(tmp_path, data, more=[Stops(error)], limits={"max_epochs": 1})
    _, recorder = fit(tmp_path, data, limits={"max_epochs": 1})
    assert len(recorder.versions) == NUM_ROLLOUTS * UPDATES, "an epoch of its own"


def test_it_is_refused_beside_a_source_that_learns():
    check_staleness(made(buffered()))
    with pytest.raises(ConfigError, match=r"data\.max_staleness is PriorityBuffer; expected a number with Noting"):
        check_staleness(made(buffered(), source=Noting()))
