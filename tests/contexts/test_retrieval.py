"""Kept indices serve many threads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from cod_lightning.contexts.retrieval import similarities


def test_an_index_that_takes_long_to_build_holds_up_no_other():
    begun, goes_on = Event(), Event()

    def slow(entry):
        begun.set()
        assert goes_on.wait(20)
        return entry

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(similarities, ("a slow text",), slow, "slow")
        assert begun.wait(20)
        with ThreadPoolExecutor(1) as other:
            quick = other.submit(similarities, ("a quick text",), str, "quick")
            try:
                assert quick.result(timeout=5)[0] > 0
            finally:
                goes_on.set()
        assert waiting.result(timeout=20)[0] > 0
