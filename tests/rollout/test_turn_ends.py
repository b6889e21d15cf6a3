"""Turns that end at a string, and thoughts that are closed when their budget is used up."""

import asyncio
import copy
import random

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.datamodules.checks import check_turns
from cod_lightning.engines.base import Request, TurnEnd, cut
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import ConfigError
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Dialogue, Sampler, end_of_thought, thought_marks
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Message, Role, Split, StopReason
from tests.cases import each
from tests.random_checkpoint import TAGS
from tests.real_templates import CHATML, bpe_tokenizer
from tests.stubs import PlainContext, WordWorld

OPENING = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Which way?"))
THINKS = CHATML.replace("assistant\\n' }}{%- endif %}", "assistant\\n<think>\\n' }}{%- endif %}")
"""Every response begins within a thought, as with DeepSeek-R1's template."""


@pytest.fixture(scope="module")
def chat():
    tokenizer = copy.deepcopy(bpe_tokenizer(THINKS))
    tokenizer.add_tokens(TAGS)
    return Chat(tokenizer, enable_thinking=True, rewrite_history=False)


@pytest.fixture(scope="module")
def model(chat):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=chat.num_ids, head_dim=16, intermediate_size=64, **sizes)).eval()


@pytest.fixture
def engine(chat, model):
    engine = TransformersEngine()
    engine.bind(model, stop_ids=chat.stop_ids)
    engine.update_weights(model.state_dict().items(), policy_version=1)
    return engine


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


@pytest.mark.parametrize("stop_strings", [(), ("e", "a")])
def test_a_closed_thought_is_no_action_and_all_others_have_the_log_probs_of_the_model(
    chat, model, engine, stop_strings
):
    world = WordWorld()
    packs = [world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)]
    settings = {"max_new_tokens": 12, "thinking_budget": 5, "stop_strings": stop_strings}
    sampler = Sampler(engine=engine, chat=chat, window=2000, **settings)
    groups = run_groups(packs, 2, Setting(env=world, mechanism=PlainContext(), sampler=sampler))
    lives = [life for group in groups for life in group.lifecycles]
    assert not any(life.failed for life in lives)
    assert count_drift(groups) == 0
    closing = chat.encode("\n</think>\n\n")
    solved = lives[0].episodes[0]
    closed = [n for n, turn in enumerate(solved.turns) if turn.new_ids == closing]
    assert stop_strings or len(closed) == 3
    for n in closed:
        thought, answer = solved.turns[n - 1 : n + 1]
        assert len(thought.action_ids) == 5
        assert thought.stop is StopReason.LENGTH
        assert len(answer.action_ids) <= 7
        assert answer.extends
    for row in segments_of(groups):
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([row.token_ids])).logits[0], dim=-1)
        for t, sampled in enumerate(row.action_mask):
            if sampled:
                assert row.behaviour_logprobs[t] == pytest.approx(scores[t - 1, row.token_ids[t]].item(), abs=1e-4)


def test_the_environment_gets_thought_and_answer_as_one_response(chat):
    said = iter(["a long thought without end", "Left."])
    engine = ScriptedEngine(lambda messages, random: next(said), chat.encode, chat.stop_id)
    whole = engine.generate

    async def at_most(request):
        answer = await whole(request)
        return answer if len(answer.action_ids) <= request.max_new_tokens else _first(answer, request.max_new_tokens)

    engine.generate = at_most
    sampler = Sampler(engine=engine, chat=chat, window=500, max_new_tokens=50, thinking_budget=4)

    async def one_turn():
        dialogue = Dialogue(sampler, "me", OPENING)
        return dialogue, await dialogue.turn()

    dialogue, turn = asyncio.run(one_turn())
    assert dialogue.thought is not None
    assert dialogue.response == f"{dialogue.thought.response}\n</think>\n\nLeft."
    assert turn.response == "Left."
    assert dialogue.messages[-1].content == dialogue.response


def _first(answer, num):
    from msgspec import structs

    return structs.replace(
        answer,
        action_ids=answer.action_ids[:num],
        behaviour_logprobs=answer.behaviour_logprobs[:num],
        stop=StopReason.LENGTH,
    )


def test_a_thought_that_was_closed_in_time_is_left_alone(chat):
    begin, end = thought_marks(chat)
    assert end_of_thought(chat, (begin, 5), (6, end, 7)) == ()
    assert end_of_thought(chat, (5,), (6, 7)) == ()
    assert end_of_thought(chat, (begin, end, 5), (6, begin, 7)) == chat.encode("\n</think>\n\n")


def test_what_cannot_end_a_turn_or_a_thought_is_refused_by_key(chat):
    plain = Chat(bpe_tokenizer(CHATML), enable_thinking=True)
    for strings, budget, of, message in (
        (("",), None, chat, r"data\.stop_strings is ''; expected texts"),
        ((), 4, plain, r"data\.thinking_budget is set; expected null for a tokenizer without the tokens <think>"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_turns(strings, budget, of)
    check_turns(("</answer>",), 4, chat)
