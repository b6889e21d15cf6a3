"""Calls that block, each in a thread that nothing waits for."""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from cod_lightning.rollout.threads import in_thread


def test_a_call_returns_or_raises_what_it_does_in_its_thread():
    async def main():
        assert await in_thread(lambda: 3) == 3
        with pytest.raises(KeyError, match="gone"):
            await in_thread(lambda: {}["gone"], bounded=True)

    asyncio.run(main())


def test_more_calls_than_places_all_return_and_one_that_is_not_counted_ends_one_that_waits(monkeypatch):
    monkeypatch.setattr("cod_lightning.rollout.threads._MOST_THREADS", 2)

    async def main():
        return await asyncio.gather(*(in_thread(lambda n=n: n, bounded=True) for n in range(9)))

    assert asyncio.run(main()) == list(range(9))
    monkeypatch.setattr("cod_lightning.rollout.threads._MOST_THREADS", 1)

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
    from cod_lightning.rollout.threads import in_thread
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
