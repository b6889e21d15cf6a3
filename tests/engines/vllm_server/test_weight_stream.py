"""Readers of weights that go by: all get everything in order, and one that fails or stands still is left behind."""

import threading

import pytest
import torch

from cod_lightning.engines.vllm_server.turn import ServerLost
from cod_lightning.engines.vllm_server.weight_stream import Reader, described, in_buckets, pass_by
from cod_lightning.errors import EngineFailure

NAMED = [(f"w{i}", torch.full((i + 1,), float(i))) for i in range(12)]
LAYOUT = described([NAMED])


def passed(readers, size=16):
    for reader in readers:
        reader.start()
    pass_by(in_buckets([[one] for one in NAMED], LAYOUT, size), readers)
    return [reader.end() for reader in readers]


def reader(read, stall_s=5.0, end_s=5.0):
    return Reader("one", read, stall_s=stall_s, end_s=end_s)


def test_all_readers_get_everything_in_order():
    lists = [[], [], []]
    assert passed([reader(found.extend) for found in lists]) == [None] * 3
    assert all([name for name, _ in found] == [name for name, _ in NAMED] for found in lists)


def test_a_bucket_has_its_size_and_one_part_more_at_most():
    buckets = list(in_buckets([[one] for one in NAMED], LAYOUT, 24))
    assert [one for bucket in buckets for one in bucket] == NAMED
    assert all(sum(t.nbytes for _, t in bucket[:-1]) < 24 for bucket in buckets)
    assert all(sum(t.nbytes for _, t in bucket) >= 24 for bucket in buckets[:-1])


def test_one_that_fails_is_left_behind_and_its_first_failure_counts():
    def fails(weights):
        next(iter(weights))
        raise ValueError("no\nmore")

    found = []
    failure, none = passed([reader(fails), reader(found.extend)])
    assert str(failure) == "one was not sent the weights (ValueError: no more)"
    assert none is None
    assert len(found) == len(NAMED)


def test_one_that_is_said_to_have_failed_reads_no_further():
    begun, first = threading.Event(), threading.Event()
    seen = []

    def waits(weights):
        for one in weights:
            seen.append(one)
            begun.set()
            first.wait(5.0)

    stuck = reader(waits)
    stuck.start()
    stuck.offer(NAMED[:1])
    begun.wait(5.0)
    stuck.fail(ServerLost("gone"))
    stuck.offer(NAMED[1:])
    first.set()
    assert str(stuck.end()) == "gone"
    assert len(seen) == 1


def test_one_that_stands_still_is_given_up_after_its_time_and_the_others_get_everything():
    release = threading.Event()
    found = []
    failure, none = passed([reader(lambda weights: release.wait(), stall_s=0.05), reader(found.extend)])
    release.set()
    assert str(failure) == "one stood still for 0.05 s while it was sent weights"
    assert none is None
    assert len(found) == len(NAMED)


def test_one_that_does_not_end_is_given_up():
    release = threading.Event()

    def read(weights):
        list(weights)
        release.wait()

    (failure,) = passed([reader(read, end_s=0.05)])
    release.set()
    assert "one did not end within 0.05 s (data.engine.sync_timeout_s)" in str(failure)


def test_readers_end_where_the_weights_do_not_come():
    def breaks():
        yield NAMED[:1]
        raise RuntimeError("the gather failed")

    waiting = reader(list)
    waiting.start()
    with pytest.raises(RuntimeError, match="the gather failed"):
        pass_by(breaks(), [waiting])
    assert isinstance(waiting.end(), EngineFailure)
