"""What is kept for texts is bounded by bytes, whatever their lengths, and gives what the function gives."""

import tracemalloc

import pytest

from cod_lightning.envs.answers import code_of
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.chat import Chat
from cod_lightning.text_cache import text_cache

LETTERS = 50_000


def counting(most_bytes):
    calls = []

    def ids(text: str) -> tuple[int, ...]:
        calls.append(text)
        return tuple(1000 + ord(one) for one in text)

    return text_cache(ids, most_bytes), calls


def test_the_same_text_is_worked_out_once_and_what_would_fill_it_alone_is_not_kept():
    cached, calls = counting(2**20)
    assert [cached(text) for text in ("ab", "b", "ab")] == [(1097, 1098), (1098,), (1097, 1098)]
    assert calls == ["ab", "b"]
    cached, calls = counting(2**20)
    cached("small")
    for _ in range(2):
        cached("x" * 2**18)
    cached("small")
    assert len(calls) == 3


@pytest.mark.parametrize(
    "length", [pytest.param(n, marks=pytest.mark.slow) if n != 1000 else n for n in (1, 10, 1000, 10_000)]
)
def test_memory_stays_below_the_bound_whatever_the_length(length):
    most = 2**20
    cached, _ = counting(most)
    tracemalloc.start()
    for number in range(5 * most // (36 * length + 500)):
        text = f"{number:010}".rjust(length, "x")
        assert len(cached(text)) == len(text)
    kept = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kept < 2 * most + 40 * length


@pytest.mark.slow
@pytest.mark.parametrize("chat", [byte_chat, lambda: Chat(TinyPolicy().tokenizer(["up"]))], ids=["bytes", "words"])
def test_long_prompts_do_not_pile_up(chat):
    """70,000 prompts of 1,100 tokens took an estimated 2.6 GB; here a twentieth of them, which would take 130 MB and more."""
    made = chat()
    tracemalloc.start()
    for number in range(3_500):
        made.encode(f"{number} " + "up " * 366)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 100 * 2**20


def test_long_answers_of_a_world_do_not_pile_up():
    tracemalloc.start()
    for number in range(1_000):
        code_of(f"{number}" * LETTERS, "Lever", 4)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 100 * 2**20
