"""The endpoint engine against a server on this machine, which serves a tiny policy, or trouble."""

import asyncio

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.engines.base import Completion, Request, digest
from cod_lightning.engines.openai import OpenAIEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.models import EndpointPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeStatus, Message, Role, Split, StopReason
from tests.chat_server import WINDOW, ChatServer, Reply, said, tiny_engine, tiny_policy, tiny_server

pytestmark = pytest.mark.slow

KEY = "sk-very-secret-0123456789"
CHAT = Chat(EndpointPolicy().tokenizer(()))
WORLD, MECHANISM = Levers(protocol="compact"), HintContext(protocol="compact")


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def bound(url, **kwargs) -> OpenAIEngine:
    engine = OpenAIEngine("tiny", url, **({"timeout_s": 5.0, "max_retries": 0} | kwargs))
    engine.bind(EndpointPolicy().model(CHAT.tokenizer), CHAT.stop_ids)
    engine.update_weights([], 3)
    return engine


def request(text="up", **kwargs) -> Request:
    messages = (Message(Role.SYSTEM, "rules"), Message(Role.USER, text))
    settings = {"dialogue": "a", "max_new_tokens": 8, "noise_seed": 2**40 + 7, "temperature": 0.5}
    return Request(prompt_ids=CHAT.opening(messages), messages=messages, **(settings | kwargs))


def ask(engine, *requests) -> list[Completion]:
    async def all_of_them():
        return await asyncio.gather(*(engine.generate(r) for r in requests or [request()]))

    return asyncio.run(all_of_them())


def play(engine, chat, window, num_packs=6, max_new_tokens=8):
    packs = [WORLD.sample_pack(split=Split.TEST, index=i, num_tasks=4) for i in range(num_packs)]
    sampler = Sampler(engine=engine, chat=chat, window=window, max_new_tokens=max_new_tokens, temperature=0.0)
    return run_groups(packs, 1, Setting(env=WORLD, mechanism=MECHANISM, sampler=sampler))


def outline(groups):
    episodes = [episode for group in groups for episode in group.lifecycles[0].episodes]
    return [(e.status, e.reward, e.context_after, [(t.response, t.stop) for t in e.turns]) for e in episodes]


@pytest.mark.parametrize("max_new_tokens", [8, 2])
def test_a_served_policy_says_what_it_says_in_process(max_new_tokens):
    expected = play(tiny_engine(), tiny_policy()[1], WINDOW, max_new_tokens=max_new_tokens)
    with tiny_server() as server:
        engine = bound(server.url, max_concurrent=3)
        served = play(engine, CHAT, 100_000, max_new_tokens=max_new_tokens)
    assert outline(served) == outline(expected)
    stops = {turn.stop for group in served for e in group.lifecycles[0].episodes for turn in e.turns}
    assert stops == {StopReason.STOP if max_new_tokens == 8 else StopReason.LENGTH}
    assert count_drift(served) == 0
    assert engine.client.usage.num_served == len(server.requests) > 30
    assert 1 < server.most_in_flight <= 3


def test_a_request_carries_messages_sampling_settings_and_the_key_which_a_server_without_keys_does_not_get(monkeypatch):
    with ChatServer(lambda content: said("up")) as server:
        engine = bound(server.url, extra_body={"top_k": -1}, token_limit="max_completion_tokens", leave_out=["top_p"])
        ask(engine)
    assert server.keys == [f"Bearer {KEY}"]
    assert server.requests == [
        {
            "model": "tiny",
            "messages": [{"role": "system", "content": "rules"}, {"role": "user", "content": "up"}],
            "temperature": 0.5,
            "seed": 7,
            "max_completion_tokens": 8,
            "top_k": -1,
        }
    ]
    with ChatServer(lambda content: said("up")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ask(bound(None, api_key_variable="NO_SUCH_KEY"))
    assert server.keys == [None]


def test_ids_are_those_of_the_text_and_a_special_token_in_it_is_only_letters():
    text = "caf\u00e9 <|end|> <|user|>"
    with ChatServer(lambda content: said(text)) as server:
        (completion,) = ask(bound(server.url))
    assert CHAT.decode(completion.action_ids) == text
    assert completion.action_ids[-1] in CHAT.stop_ids
    assert not set(completion.action_ids[:-1]) & CHAT.stop_ids
    assert completion.behaviour_logprobs == (0.0,) * len(completion.action_ids)
    assert (completion.policy_version, completion.prompt_digest) == (3, digest(request().prompt_ids))


def test_tokens_are_counted_and_reported():
    with ChatServer(lambda content: said("up")) as server:
        engine = bound(server.url)
        assert engine.report() == ""
        ask(engine, *[request()] * 3)
    usage = engine.client.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (30, 15, 12)
    assert engine.report() == "tiny: 3 answers; tokens: 30 in (15 cached), 12 out"


@pytest.mark.parametrize(
    ("reply", "text", "stop", "note"),
    [
        (said("up", "length"), "up", StopReason.LENGTH, "cut off"),
        (said(None, "length", reasoning_content="hm"), "", StopReason.LENGTH, "cut off"),
        (said(""), "", StopReason.STOP, "empty"),
        (said(None), "", StopReason.STOP, "empty"),
        (said(None, refusal="I cannot"), "I cannot", StopReason.STOP, "refusal"),
        (said("up", None), "up", StopReason.STOP, ""),
    ],
)
def test_what_the_model_does_is_a_turn_of_its_own(reply, text, stop, note):
    with ChatServer(lambda content: reply) as server:
        engine = bound(server.url)
        (completion,) = ask(engine)
    assert (CHAT.decode(completion.action_ids), completion.stop) == (text, stop)
    assert completion.action_ids, "a turn without ids would break the row"
    assert dict(engine.client.usage.notes) == ({note: 1} if note else {})


def test_the_run_goes_on_where_some_requests_fail():
    turns = iter(range(10_000))
    with tiny_server() as server:
        answer = server.answer
        server.answer = lambda content: answer(content) if next(turns) % 10 != 5 else Reply("", status=500)
        engine = bound(server.url)
        groups = play(engine, CHAT, 100_000)
    episodes = [e for group in groups for e in group.lifecycles[0].episodes]
    failed = [e for e in episodes if e.status is EpisodeStatus.FAILED]
    assert 0 < len(failed) == engine.client.usage.failures["HTTP 500"] <= len(groups)
    assert all(e.reward is None and e.error.startswith("EndpointFailure: HTTP 500: ") for e in failed)
    assert any(e.reward is not None for e in episodes)
