"""The transformers engine against the plain forward pass of the same model."""

import asyncio
import copy
import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.engines.base import digest
from cod_lightning.engines.decoder import Decoder
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import EngineFailure
from cod_lightning.forward.decode_graphs import DecodeGraphs
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.segments import segments_of
from cod_lightning.types import StopReason
from tests.cases import each
from tests.stubs import WORDS
from tests.word_play import ask, play, reference_logprobs, request, sampling_from, see_exact

TINY = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "intermediate_size": 64}


@pytest.fixture
def engine(model):
    return bound(model)


def bound(model, **how) -> TransformersEngine:
    return sampling_from(model, [2], 7, **how)


def lifecycles(engine, tokenizer, num_packs=3, num_siblings=4, **kwargs):
    return play(engine, num_packs=num_packs, num_siblings=num_siblings, chat=Chat(tokenizer), **kwargs)


def test_an_episode_is_one_row_whose_log_probs_are_those_of_a_plain_forward_pass(engine, model, tokenizer):
    groups = lifecycles(engine, tokenizer)
    see_exact(groups, model)
    keys = [(s.pack_id, s.sibling, s.episode) for s in segments_of(groups)]
    assert len(keys) == len(set(keys)) == 3 * 4 * 5


def test_a_sample_does_not_depend_on_who_shares_the_batch(engine, tokenizer):
    alone = lifecycles(engine, tokenizer, num_packs=1, num_siblings=2)
    crowded = lifecycles(engine, tokenizer, num_packs=5, num_siblings=6)
    for k in range(2):
        a, b = alone[0].lifecycles[k], crowded[0].lifecycles[k]
        assert [t.action_ids for e in a.episodes for t in e.turns] == [
            t.action_ids for e in b.episodes for t in e.turns
        ]


def test_few_slots_and_small_prefills_change_nothing(model, tokenizer):
    roomy = lifecycles(bound(model), tokenizer, num_packs=2)
    tight = lifecycles(bound(model, max_dialogues=2, prefill_tokens=20), tokenizer, num_packs=2)
    assert [s.token_ids for s in segments_of(roomy)] == [s.token_ids for s in segments_of(tight)]


def test_a_model_with_attention_of_its_own_samples_the_same_lifecycles_row_by_row(model, tokenizer):
    apart = copy.deepcopy(model)
    apart.set_attn_implementation("eager")
    rows, packed = (segments_of(lifecycles(bound(one), tokenizer, num_packs=1)) for one in (apart, model))
    assert [row.token_ids for row in rows] == [row.token_ids for row in packed]
    for row, other in zip(rows, packed, strict=True):
        assert row.behaviour_logprobs == pytest.approx(other.behaviour_logprobs, abs=1e-5)


def test_siblings_share_the_computation_of_their_first_prompt(engine, tokenizer, monkeypatch):
    decoder, rows = engine.decoder, []
    logits = decoder._logits
    monkeypatch.setattr(decoder, "_logits", lambda given: rows.append(len(given.slots)) or logits(given))
    groups = lifecycles(engine, tokenizer, num_packs=3, num_siblings=5)
    opened = {group.lifecycles[0].episodes[0].turns[0].new_ids for group in groups}
    assert rows[0] == len(opened) < max(rows) == 15
    assert len({life.episodes[0].turns[0].prompt_digest for group in groups for life in group.lifecycles}) == len(
        opened
    )


def see_sampled(model, prompt, completion):
    """The log-probs of a turn are those of a plain forward pass."""
    expected = reference_logprobs(model, [*prompt, *completion.action_ids])[len(prompt) - 1 : -1]
    chosen = expected[torch.arange(len(completion.action_ids)), torch.tensor(completion.action_ids)].tolist()
    assert completion.behaviour_logprobs == pytest.approx(chosen, abs=1e-5)


@given(
    st.lists(st.tuples(st.sampled_from([(3,), (3, 7), (4, 6)]), st.integers(0, 3)), min_size=2, max_size=14),
    st.integers(2, 6),
    st.sampled_from([20, 8192]),
)
@pytest.mark.slow
def test_dialogues_that_begin_like_others_before_them_are_sampled_from_what_they_ask(
    model, prompts, max_dialogues, prefill_tokens
):
    engine = bound(model, max_dialogues=max_dialogues, prefill_tokens=prefill_tokens)

    async def lead(number, beginning, rounds):
        ids, said = [*beginning * 4, 5, number % 3 + 8], []
        for _ in range(rounds + 1):
            completion = await engine.generate(request(list(ids), f"d{number}", max_new_tokens=3, noise_seed=number))
            said.append((list(ids), completion))
            ids += [*completion.action_ids, 9]
        engine.release(f"d{number}")
        return said

    async def lead_all():
        return await asyncio.gather(*(lead(n, *prompt) for n, prompt in enumerate(prompts)))

    for prompt, completion in (turn for said in asyncio.run(lead_all()) for turn in said):
        assert completion.prompt_digest == digest(prompt)
        see_sampled(model, prompt, completion)


def test_what_a_dialogue_begins_with_is_not_computed_again_until_the_weights_or_the_rollout_are_others(
    engine, model, monkeypatch
):
    decoder, fed = engine.decoder, []
    logits = decoder._logits
    monkeypatch.setattr(decoder, "_logits", lambda rows: fed.append(rows.lengths.tolist()) or logits(rows))
    rules = list(range(3, 40))

    async def one_after_the_other():
        for number, last in enumerate((1, 1, 4)):
            await engine.generate(request([*rules, last], f"d{number}", max_new_tokens=1))
            engine.release(f"d{number}")

    for _ in range(2):
        asyncio.run(one_after_the_other())
    assert fed == [[38], [1], [1]] * 2

    async def synced_in_between():
        await engine.generate(request(rules, "before", max_new_tokens=1))
        engine.release("before")
        engine.update_weights(model.state_dict().items(), 8)
        await engine.generate(request(rules, "after", max_new_tokens=1))

    asyncio.run(synced_in_between())
    assert fed[6:] == [[37], [37]]


def test_a_caller_who_gives_up_frees_its_slot_and_spoils_no_neighbour_s_cache(model):
    engine = bound(model, max_dialogues=2)

    async def give_up_half_way():
        stays = asyncio.create_task(engine.generate(request([3, 7, 5], "stays", max_new_tokens=12, noise_seed=1)))
        gone = asyncio.create_task(engine.generate(request([4, 6], "gone", max_new_tokens=50, noise_seed=2)))
        never = asyncio.create_task(engine.generate(request([4, 6], "never", max_new_tokens=50)))
        for _ in range(8):
            await asyncio.sleep(0)
        for task, dialogue in ((gone, "gone"), (never, "never")):
            task.cancel()
            engine.release(dialogue)
        comes = asyncio.create_task(engine.generate(request([8, 9, 3, 5, 7, 4], "comes", max_new_tokens=12)))
        return await asyncio.gather(stays, comes)

    stays, comes = asyncio.run(give_up_half_way())
    see_sampled(model, [3, 7, 5], stays)
    see_sampled(model, [8, 9, 3, 5, 7, 4], comes)
    engine.release("stays")
    engine.release("comes")
    engine.update_weights(model.state_dict().items(), 1)  # refused while a slot is held


def test_who_waits_for_a_slot_gets_it_once_a_slow_world_lets_go(model):
    engine = bound(model, max_dialogues=1)

    async def hold_and_let_go():
        first = await engine.generate(request([3, 7], "first"))
        second = asyncio.create_task(engine.generate(request([3, 7], "second")))
        await asyncio.sleep(0.05)  # the first one's world takes its time; nothing is in flight
        assert not second.done()
        engine.release("first")
        return first, await asyncio.wait_for(second, 5)

    first, second = asyncio.run(hold_and_let_go())
    assert first == second


@each(
    ("lengths", "passes"),
    [
        ((1, 9), (1, 9)),
        ((1, 9, 9, 9), (3, 9, 9, 9)),
        ((1, 2, 9, 9), (2, 2, 9, 9)),
        ((4, 4, 4, 4, 4, 9), (4,) * 5 + (9,)),
    ],
)
def test_turns_are_answered_when_a_third_is_over_or_after_two_more_passes(model, monkeypatch, lengths, passes):
    engine, advance, num_passes = bound(model), Decoder._advance, 0
    engine.decoder._table._stop_ids = []  # every turn goes on to its limit

    def counted(self, in_flight, joining):
        nonlocal num_passes
        num_passes += 1
        advance(self, in_flight, joining)

    async def timed(n, length):
        completion = await engine.generate(request((5, 6), dialogue=str(n), max_new_tokens=length))
        assert len(completion.action_ids) == length
        return num_passes

    async def all_of_them():
        return await asyncio.gather(*(timed(n, length) for n, length in enumerate(lengths)))

    monkeypatch.setattr(Decoder, "_advance", counted)
    assert tuple(asyncio.run(all_of_them())) == passes


def test_greedy_decoding_takes_the_most_likely_token_and_tempered_log_probs_are_those_sampled_from(engine, model):
    (completion,) = ask(engine, request([3, 7, 5], temperature=0.0))
    ids = [3, 7, 5]
    for action in completion.action_ids:
        assert action == int(reference_logprobs(model, ids)[-1].argmax())
        ids.append(action)
    engine.release("a")
    (completion,) = ask(engine, request([3, 7, 5], temperature=0.5))
    expected = reference_logprobs(model, [3, 7, 5], temperature=0.5)[-1, completion.action_ids[0]]
    assert completion.behaviour_logprobs[0] == pytest.approx(expected.item(), abs=1e-5)


def test_samples_follow_the_distribution(engine, model):
    completions = ask(engine, *(request([3, 7, 5], f"d{i}", noise_seed=i, max_new_tokens=1) for i in range(400)))
    for i in range(400):
        engine.release(f"d{i}")
    counts = torch.bincount(torch.tensor([c.action_ids[0] for c in completions]), minlength=len(WORDS) + 7)
    expected = reference_logprobs(model, [3, 7, 5])[-1].exp() * 400
    assert float(((counts - expected) ** 2 / expected).sum()) < 2.0 * len(counts)  # chi-square, mean = number of cells


def test_a_weight_left_out_of_a_sync_or_of_another_form_or_name_is_named(engine, model):
    """Packed 4-bit bytes, and a tensor that torch would stretch to the shape, are no weights."""
    weights = dict(model.state_dict())
    del weights["model.layers.0.mlp.up_proj.weight"]
    with pytest.raises(EngineFailure, match=r"layers\.0\.mlp\.up_proj\.weight"):
        engine.update_weights(weights.items(), policy_version=8)
    weights = dict(model.state_dict())
    name = "model.norm.weight"
    bad = [(name, weights[name][:1]), (name, weights[name].to(torch.uint8)), ("model.norm.bias", weights[name])]
    for of, tensor in bad:
        with pytest.raises(EngineFailure, match=f"sync 9 brought {of} as"):
            engine.update_weights([(of, tensor)], policy_version=9)


def test_an_engine_of_its_own_precision_rounds_its_copy_alone_also_at_later_syncs(model, tokenizer):
    engine = bound(model, dtype="bfloat16")
    own = dict(engine._bound().model.named_parameters())
    assert engine.precision == "bfloat16"
    assert {weight.dtype for weight in own.values()} == {torch.bfloat16}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert torch.equal(own["model.norm.weight"].float(), model.model.norm.weight.bfloat16().float())
    moved = {name: tensor + 0.05 for name, tensor in model.state_dict().items()}
    engine.update_weights(moved.items(), policy_version=8)
    assert torch.equal(own["model.norm.weight"], moved["model.norm.weight"].bfloat16())
    rotary = [b.dtype for name, b in engine._bound().model.named_buffers() if "inv_freq" in name]
    assert set(rotary) <= {torch.float32}


def test_an_engine_decodes_where_its_weights_come_from(engine, model):
    """Of a model that ranks share out it is given one on the CPU, and weights that were put together on each rank's GPU."""
    before = engine._bound()
    engine.update_weights(((name, tensor.to("meta")) for name, tensor in model.state_dict().items()), policy_version=8)
    assert {tensor.device.type for tensor in engine.held().values()} == {"meta"}
    assert engine._bound().forward.model is engine._bound().model
    assert engine._bound() is not before, "what was made for the other device goes with it"
    assert engine._bound()._window == before._window


def test_weights_do_not_change_under_a_live_dialogue(engine, model):
    ask(engine, request([3, 7, 5]))
    with pytest.raises(EngineFailure, match="1 dialogues are live"):
        engine.update_weights(model.state_dict().items(), policy_version=8)


def test_decoding_by_recorded_passes_samples_the_same_lifecycles(model, tokenizer):
    engine = bound(model)
    forward = engine.decoder.forward
    forward._decode, forward.most_further = DecodeGraphs(forward._one_each), 8
    expected = lifecycles(bound(model), tokenizer, num_packs=2)
    found = lifecycles(engine, tokenizer, num_packs=2)
    assert [s.token_ids for s in segments_of(found)] == [s.token_ids for s in segments_of(expected)]


def test_an_error_inside_the_model_reaches_every_waiting_lifecycle_and_the_engine_lives_on(
    engine, tokenizer, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(engine.decoder, "_logits", lambda *_: 1 / 0)
        groups = lifecycles(engine, tokenizer)
    errors = {e.error for g in groups for x in g.lifecycles for e in x.episodes if e.error}
    assert errors == {"EngineFailure: ZeroDivisionError: division by zero"}
    assert all(not x.failed for g in lifecycles(engine, tokenizer) for x in g.lifecycles)


def _half_copied(cache, source, target, num_columns):
    for keys in cache._keys:
        keys[target, :, :num_columns] = keys[source, :, :num_columns]
    raise torch.OutOfMemoryError


def _half_grown(cache, num_slots, num_columns):
    cache.num_columns = 2 * num_columns
    raise torch.OutOfMemoryError


@each(("method", "broken"), [("copy", _half_copied), ("reserve", _half_grown)])
def test_what_a_pass_that_ended_half_way_left_in_the_cache_is_in_no_later_turn(model, monkeypatch, method, broken):
    engine, rules, others = bound(model), [3, 7, 5, 8, 4, 6, 9], [9, 4, 4, 8, 3, 5, 7]

    async def sampled(ids, dialogue):
        return await engine.generate(request(ids, dialogue, max_new_tokens=5))

    async def out_of_memory():
        first, *_ = await asyncio.gather(*(sampled([*ids, 1], f"{ids}") for ids in (rules, others)))
        engine.release(f"{others}")
        cache = engine.decoder._cache
        with monkeypatch.context() as patch:
            patch.setattr(cache, method, functools.partial(broken, cache))
            with pytest.raises(EngineFailure, match="OutOfMemory"):
                await sampled([*rules, 4], "fails")
        engine.release("fails")
        asked = [[*rules, 1, *first.action_ids, 5], [*others, 5]]
        return asked, await asyncio.gather(sampled(asked[0], f"{rules}"), sampled(asked[1], "new"))

    for ids, completion in zip(*asyncio.run(out_of_memory()), strict=True):
        see_sampled(model, ids, completion)
        assert completion.prompt_digest == digest(ids)


def test_a_stop_token_in_the_last_place_that_was_allowed_is_a_stop_and_one_place_fewer_is_a_limit(engine):
    def say(name, most):
        asked = [request([3, 7, 5], f"{name}{n}", noise_seed=n, max_new_tokens=m) for n, m in most.items()]
        return dict(zip(most, ask(engine, *asked), strict=True))

    free = say("free", dict.fromkeys(range(20), 30))
    stopped = {n: len(c.action_ids) for n, c in free.items() if c.stop is StopReason.STOP and len(c.action_ids) > 1}
    assert len(stopped) > 2
    assert {n: c.stop for n, c in say("exact", stopped).items()} == dict.fromkeys(stopped, StopReason.STOP)
    for n, short in say("short", {n: length - 1 for n, length in stopped.items()}).items():
        assert (short.stop, short.action_ids) == (StopReason.LENGTH, free[n].action_ids[:-1])


def test_turns_of_unlike_temperature_share_a_batch_and_are_sampled_each_by_its_own(engine):
    ways = [1.0, 0.3, 2.0, 0.0, 1.0]

    def asked(n, dialogue):
        return request([3, 7, 5], dialogue, noise_seed=n, temperature=ways[n])

    together = ask(engine, *(asked(n, f"t{n}") for n in range(len(ways))))
    for n, said in enumerate(together):
        (alone,) = ask(engine, asked(n, f"a{n}"))
        assert said.action_ids == alone.action_ids
        assert said.behaviour_logprobs == pytest.approx(alone.behaviour_logprobs, abs=1e-5)
