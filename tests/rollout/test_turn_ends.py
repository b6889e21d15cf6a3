"""Turns that end at a string."""

import asyncio
import random

import pytest

from cod_lightning.engines.base import Request, TurnEnd, cut
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Dialogue, Sampler
from cod_lightning.types import Message, Role, StopReason
from tests.cases import each
from tests.families import made
from tests.real_templates import CHATML, bpe_tokenizer
from tests.word_play import play, sampling_from, see_exact

OPENING = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Which way?"))


@pytest.fixture(scope="module")
def chat():
    return Chat(bpe_tokenizer(CHATML))


@pytest.fixture(scope="module")
def model(chat):
    return made("qwen3", 0.05, vocab_size=chat.num_ids, max_position_embeddings=2048)


@pytest.fixture
def engine(chat, model):
    return sampling_from(model, chat)


def ask(engine, **more):
    request = Request(dialogue="a", prompt_ids=[9, 8, 7], messages=(), max_new_tokens=60, noise_seed=5, **more)
    answer = asyncio.run(engine.generate(request))
    engine.release("a")
    return answer


@each("seed", range(20))
def test_a_turn_ends_at_the_first_token_after_which_its_text_holds_the_string(chat, seed):
    drawn = random.Random(seed)
    ids = tuple(drawn.randrange(3, chat.num_ids) for _ in range(80))
    text = chat.text(ids)
    begin = drawn.randrange(len(text) // 2, len(text) - 8)
    string = text[begin : begin + drawn.randint(1, 8)]
    by_definition = next(n for n in range(1, len(ids) + 1) if string in chat.text(ids[:n]))
    ends = TurnEnd((string, "never written \u1234"), chat.text)
    assert next(n for n in range(1, len(ids) + 1) if ends(ids[:n])) == by_definition


def test_the_engine_stops_sampling_there_and_samples_the_same_until_then(chat, engine):
    whole = ask(engine)
    assert len(whole.action_ids) == 60
    ends = TurnEnd((chat.text(whole.action_ids[20:23]),), chat.text)
    found = ask(engine, ends=ends)
    assert found == cut(whole, ends)
    assert len(found.action_ids) <= 23
    assert found.stop is StopReason.STOP


def test_the_dialogue_cuts_what_an_engine_sampled_beyond_the_string_and_goes_on_from_there(chat):
    engine = ScriptedEngine(lambda messages, random: "Left. STOP And more.", chat.encode, chat.stop_id)
    sampler = Sampler(engine=engine, chat=chat, window=500, max_new_tokens=50, stop_strings=("STOP",))

    async def two_turns():
        dialogue = Dialogue(sampler, "me", OPENING)
        first = await dialogue.turn()
        dialogue.say("And now?")
        return first, await dialogue.turn()

    first, second = asyncio.run(two_turns())
    assert first.response == second.response == "Left. STOP"
    assert first.stop is StopReason.STOP
    assert chat.text(second.new_ids).startswith("<|im_end|>\n<|im_start|>user\nAnd now?")


def test_turns_that_end_at_strings_have_the_log_probs_of_the_model_and_no_drift(chat, model, engine):
    groups = play(
        engine, num_siblings=2, num_tasks=2, chat=chat, window=2000, max_new_tokens=12, stop_strings=("e", "a")
    )
    see_exact(groups, model, 1e-4)
