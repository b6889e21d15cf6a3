"""A process that no longer moves ends, and says where it was; nothing waits for a call that blocks in a thread."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress

import pytest

from cod_lightning.rollout.deadlines import EXIT_STALLED, Liveness, Watchdog, in_thread
from tests.cases import each

HANGS = """
import sys, time
from pathlib import Path
from cod_lightning.rollout.deadlines import Liveness
from cod_lightning.rollout.deadlines import Watchdog

def decoding_forever():
    time.sleep(60)

liveness = Liveness()
for sibling in range(40):
    liveness.at(f"train/7#{sibling}.2", "engine")
liveness.at("train/7#3.2", "world\\x1b[2J\\ud800")
with Watchdog(liveness, 0.2, Path(sys.argv[1]), "the rollout 'train'"):
    decoding_forever()
"""


def test_it_dumps_the_stacks_names_who_hangs_and_exits_with_its_own_code(tmp_path):
    file = tmp_path / "run" / "stalled.txt"
    done = subprocess.run([sys.executable, "-c", HANGS, str(file)], capture_output=True, text=True, timeout=30)
    assert done.returncode == EXIT_STALLED == 70
    for text in (done.stderr, file.read_text()):
        assert "nothing has moved for 0.2 s in the rollout 'train' (data.deadlines.stall_s)" in text
        assert "in decoding_forever" in text
        assert "--ckpt_path last" in text
        first, *others = [line for line in text.splitlines() if "#" in line and ": in the" in line]
        assert first.startswith("  train/7#3.2: in the world␛[2J\ufffd for ")
        assert len(others) == 31
        assert "and 8 more" in text


@pytest.mark.slow
def test_a_full_pipe_that_nobody_reads_holds_up_no_end(tmp_path):
    pipe = os.pipe()
    os.set_blocking(pipe[1], False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe[1], b"x" * 4096)
    os.set_blocking(pipe[1], True)
    command = [sys.executable, "-c", HANGS, str(tmp_path / "stalled.txt")]
    assert subprocess.run(command, stderr=pipe[1], timeout=60).returncode == EXIT_STALLED
    assert "in decoding_forever" in (tmp_path / "stalled.txt").read_text()
    for end in pipe:
        os.close(end)


@pytest.mark.slow
def test_a_link_in_the_report_s_place_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "stalled.txt").symlink_to("precious")
    command = [sys.executable, "-c", HANGS, str(tmp_path / "stalled.txt")]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == EXIT_STALLED
    assert (tmp_path / "precious").read_text() == "mine"
    assert "nothing has moved" in (tmp_path / "stalled.txt").read_text()


@pytest.mark.slow
def test_who_moves_now_and_then_is_left_alone(tmp_path):
    liveness = Liveness()
    with Watchdog(liveness, 0.4, tmp_path / "stalled.txt", "x"):
        for _ in range(8):
            time.sleep(0.1)
            liveness.at("a", "engine")
    time.sleep(0.5)  # and after it is over
    assert not (tmp_path / "stalled.txt").exists()


@each("stall_s", [None, 1800.0])
def test_it_costs_no_wait_at_the_end(tmp_path, stall_s):
    begun = time.perf_counter()
    with Watchdog(Liveness(), stall_s, tmp_path / "stalled.txt", "x"):
        pass
    assert time.perf_counter() - begun < 10


def test_a_call_returns_or_raises_what_it_does_in_its_thread():
    async def main():
        assert await in_thread(lambda: 3) == 3
        with pytest.raises(KeyError, match="gone"):
            await in_thread(lambda: {}["gone"], bounded=True)

    asyncio.run(main())


def test_more_calls_than_places_all_return_and_one_that_is_not_counted_ends_one_that_waits(monkeypatch):
    monkeypatch.setattr("cod_lightning.rollout.deadlines._MOST_THREADS", 2)

    async def main():
        return await asyncio.gather(*(in_thread(lambda n=n: n, bounded=True) for n in range(9)))

    assert asyncio.run(main()) == list(range(9))
    monkeypatch.setattr("cod_lightning.rollout.deadlines._MOST_THREADS", 1)

    async def main():
        closed = threading.Event()
        waiting = asyncio.create_task(in_thread(closed.wait, bounded=True))
        await asyncio.sleep(0)
        await asyncio.wait_for(in_thread(closed.set), 5)
        return await waiting

    assert asyncio.run(main())


def test_neither_the_loop_nor_the_process_waits_for_a_call_that_does_not_return():
    code = """
    import asyncio, time
    from cod_lightning.rollout.deadlines import in_thread
    try:
        asyncio.run(asyncio.wait_for(in_thread(lambda: time.sleep(60), bounded=True), 0.1))
    except TimeoutError:
        print("over", flush=True)
    """
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=50)
    assert done.stdout == "over\n"
    assert done.returncode == 0
    assert time.monotonic() - begun < 30
