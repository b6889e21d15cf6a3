"""Observations of parts: to the engine, into rows and records, and refused where nothing reads them."""

import asyncio
import base64
import json
from dataclasses import replace

import pytest
import torch
from msgspec import structs

from cod_lightning.clients.chat import _sent
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import History, TextState
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.engines.openai import OpenAIEngine
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.base import Reference, Tools, Traits
from cod_lightning.envs.frozen_lake import FrozenLakeObscure, PicturedLake
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.wrapped import WrappedWorld
from cod_lightning.errors import ConfigError, ContextFailure, ForgedRole
from cod_lightning.evaluation.references import play_reference
from cod_lightning.evaluation.suite import Suite
from cod_lightning.models import EndpointPolicy, TinyPolicy
from cod_lightning.modules import WarmStartModule
from cod_lightning.objective.batch import collate, concatenated, one_token
from cod_lightning.rollout.boundaries import checked_history, checked_messages
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.dialogue import Dialogue, Sampler
from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.rollout.stats import count_faults
from cod_lightning.rollout.transcript import dump, load
from cod_lightning.types import Group, Image, Message, Role, Split, Text, text_of
from tests import word_play
from tests.cases import each
from tests.chat_server import ChatServer, said
from tests.credit_tables import credit_table
from tests.small_fit import quiet_trainer, small_policy
from tests.stubs import FunctionEngine, PlainContext, WordWorld

CHAT = byte_chat()
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x02\x00\x00\x00\x02 and so on"
PICTURE = Image(PNG, "w3")


class Showing(WordWorld):
    """Shows these parts in packs of odd numbers, and words elsewhere."""

    companions = ()

    def __init__(self, *parts, declared=True):
        super().__init__(max_turns=2)
        self.parts, self.traits = parts, Traits(shows_images=declared)

    def reset(self, *, seed=None, options=None):
        text, info = super().reset(seed=seed, options=options)
        return (self.parts if options["task"].id.startswith("1.") else text), info


def speaking(text="<answer>w1</answer>", seen=None):
    def reply(messages, random):
        if seen is not None:
            seen.append(tuple(messages))
        return text

    return ScriptedEngine(reply, CHAT.encode, CHAT.stop_id)


def play(world, engine=None, num_packs=2):
    sizes = {"num_packs": num_packs, "num_tasks": 2, "window": 20_000, "max_new_tokens": 40}
    return word_play.play(engine or speaking(), world, split=Split.TEST, chat=CHAT, **sizes)


def episodes(groups):
    return [episode for group in groups for episode in group.lifecycles[0].episodes]


def references(world, num_packs=3):
    packs = [world.sample_pack(split=Split.TEST, index=i, num_tasks=3) for i in range(num_packs)]
    lives = play_reference(world, packs, Reference.SCRIPTED, HintContext())
    return [Group(pack=pack, lifecycles=(life,)) for pack, life in zip(packs, lives, strict=True)]


PICTURED = references(PicturedLake())


def test_read_as_text_the_pictured_lake_is_the_lake():
    def told(groups):
        return [(e.reward, e.status, [(t.observation, t.response) for t in e.turns]) for e in episodes(groups)]

    text = references(FrozenLakeObscure())
    solves = [(t, e) for e in episodes(PICTURED) if e.kind == "solve" for t in e.turns]
    assert [e.reward for e in episodes(PICTURED)] == [e.reward for e in episodes(text)]
    assert [t.observation for t, _ in solves] == [
        t.observation for e in episodes(text) if e.kind == "solve" for t in e.turns
    ]
    assert all(text_of(turn.parts) == turn.observation for turn, _ in solves)
    assert sum(isinstance(part, Image) for turn, _ in solves for part in turn.parts) == len(solves) > 20
    assert not any(turn.parts for e in episodes(text) for turn in e.turns)


def test_a_row_has_the_images_of_its_turns_and_none_for_text():
    rows = segments_of(PICTURED)
    assert count_drift(PICTURED) == 0
    for row in rows:
        episode = next(g for g in PICTURED if g.pack.id == row.pack_id).lifecycles[0].episodes[row.episode]
        assert row.images == tuple(part for turn in episode.turns for part in turn.parts if isinstance(part, Image))
    assert {len(row.images) for row in rows if row.episode % 2} == {0}
    assert all(row.images for row in rows if not row.episode % 2)


def test_rows_of_a_batch_keep_their_images_wherever_they_are_chosen_and_joined():
    segments = segments_of(PICTURED)
    batch = collate(segments, credit_table(PICTURED), {group.pack.id: g for g, group in enumerate(PICTURED)}, pad_id=0)
    assert list(batch.images) == [segment.images for segment in segments]
    text, seen = batch.rows(torch.tensor([1])), batch.to("cpu").rows(torch.tensor([2, 0]))
    assert list(seen.images) == [segments[2].images, segments[0].images]
    assert list(concatenated([replace(text, images=()), seen]).images) == [(), *seen.images]
    assert not concatenated([replace(text, images=())] * 2).images
    assert not one_token(batch).images


class Seen(WrappedWorld):
    """Shows a picture beside the first words of each task."""

    traits = Traits(shows_images=True)

    def reset(self, *, seed=None, options=None):
        text, info = self.world.reset(seed=seed, options=options)
        return (Text(text), Image(PNG, "")), info


def test_demonstrations_that_show_images_train_no_policy(tmp_path):
    world, context = Seen(Levers(protocol="compact")), HintContext(protocol="compact")
    data = DemonstrationDataModule(world, context, pack_size=2, num_updates=1, num_packs=1)
    with pytest.raises(ConfigError, match=r"model\.policy is TinyPolicy; expected one that reads images"):
        quiet_trainer(tmp_path).fit(WarmStartModule(small_policy()), data)


def test_a_record_keeps_parts_and_one_of_text_has_no_field_for_them():
    lines = [line for group in PICTURED for line in dump(group)]
    read = load(lines)
    assert [[t for e in g.lifecycles[0].episodes for t in e.turns] for g in read] == [
        [t for e in g.lifecycles[0].episodes for t in e.turns] for g in PICTURED
    ]
    assert [line for group in read for line in dump(group)] == lines
    solve, update = json.loads(lines[0])["episodes"][:2]
    image = PICTURED[0].lifecycles[0].episodes[0].turns[0].parts[1]
    assert solve["turns"][0]["parts"][1] == {
        "type": "image",
        "png": base64.b64encode(image.png).decode(),
        "alternative": image.alternative,
        "media_type": "image/png",
    }
    assert all("parts" not in turn for turn in update["turns"])


def test_the_engine_reads_the_parts_neighbouring_texts_joined():
    seen = []
    groups = play(Showing(Text("see "), Text("this: "), PICTURE, Text(".")), speaking(seen=seen))
    assert not any(group.lifecycles[0].failed for group in groups)
    (message,) = {message for messages in seen for message in messages if message.parts}
    assert message == Message(Role.USER, "see this: w3.", (Text("see this: "), PICTURE, Text(".")))


def test_parts_without_an_image_are_text_and_need_no_declaration():
    groups = play(Showing(Text("see "), Text("this"), declared=False), FunctionEngine(lambda _: CHAT.encode("w1")))
    turns = [turn for episode in episodes(groups) if episode.kind == "solve" for turn in episode.turns]
    assert "see this" in {turn.observation for turn in turns}
    assert not any(turn.parts for turn in turns)


def test_an_undeclared_image_or_an_engine_that_reads_text_alone_costs_the_lifecycle_alone():
    groups = play(Showing(PICTURE, declared=False))
    assert [group.lifecycles[0].failed for group in groups] == [False, True]
    assert "set traits = Traits(shows_images=True)" in groups[1].lifecycles[0].episodes[0].error
    assert count_faults(groups) == {"EnvironmentFailure": 1}
    groups = play(Showing(PICTURE), FunctionEngine(lambda _: CHAT.encode("w1")))
    assert [group.lifecycles[0].failed for group in groups] == [False, True]
    assert groups[1].lifecycles[0].episodes[0].error.startswith("EngineFailure: FunctionEngine was shown an image")


@each(
    ("parts", "words"),
    [
        (("words",), "a str among its parts"),
        ((Image(b"GIF89a", ""),), "an image that is no PNG"),
        ((Image(PNG, "", media_type="image/gif"),), "an image that is no PNG"),
        ((Image(bytearray(PNG), ""),), "an image that is no PNG"),
        ((Image(PNG + bytes(2**20), ""),), "at most 1,048,576 bytes"),
        ((Image(PNG.replace(b"\0\0\0\2 ", b"\0\1\0\2 "), ""),), "2 x 65,538 pixels"),
        ((Image(PNG[:16], ""),), "0 x 0 pixels"),
        ((PICTURE,) * 33, "33 parts at once; at most 32"),
        ((Image(PNG, None),), "a NoneType, not a string"),
        ((Image(PNG, "\ud800"),), "surrogates not allowed"),
        ((Text("x" * 600_000), Image(PNG, "x" * 600_000)), "1,200,000 characters"),
    ],
)
def test_a_part_that_is_none_or_too_large_costs_its_lifecycle(parts, words):
    groups = play(Showing(*parts))
    assert [group.lifecycles[0].failed for group in groups] == [False, True]
    assert words in groups[1].lifecycles[0].episodes[0].error


def test_a_world_with_tools_shows_no_image():
    class Looking(Tools):
        schemas = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},)

    world = Showing(PICTURE)
    world.companions = (Looking,)
    assert "an image beside tools" in play(world)[1].lifecycles[0].episodes[0].error


def test_an_alternative_that_spells_a_control_token_is_broken_up_in_the_prompt():
    end = CHAT.text((CHAT.stop_id,))
    turn, plain = (play(Showing(Image(PNG, text)))[1].lifecycles[0].episodes[0].turns[0] for text in (f"x{end}y", "x"))
    assert turn.observation == f"x{end}y"
    assert turn.new_ids.count(CHAT.stop_id) == plain.new_ids.count(CHAT.stop_id)


def test_a_prompt_that_begins_anew_has_all_images_of_its_messages():
    sampler = Sampler(engine=speaking("w1"), chat=CHAT, window=20_000, max_new_tokens=40)
    system, first = Message(Role.SYSTEM, "rules"), Message(Role.USER, "w3", (PICTURE,))
    other = Image(PNG + b"!", "w4")

    async def turns():
        dialogue = Dialogue(sampler, "a", (system, first))
        yield await dialogue.turn()
        dialogue.say("w4", (other,))
        yield await dialogue.turn()
        dialogue.go_on((Message(Role.SYSTEM, "other rules"), *dialogue.messages[1:], Message(Role.USER, "on")))
        yield await dialogue.turn()
        dialogue.say("and on")
        yield await dialogue.turn()

    async def parts():
        return [turn.parts async for turn in turns()]

    assert asyncio.run(parts()) == [(PICTURE,), (other,), (PICTURE, other), ()]


def test_an_update_begins_with_text_alone_and_a_mechanism_may_keep_an_image_but_shows_none_of_its_own():
    opening = (Message(Role.SYSTEM, "w2"), Message(Role.USER, "w3"))
    assert checked_messages(opening, PlainContext()) == opening
    with pytest.raises(ContextFailure, match="an image that the dialogue does not have"):
        checked_messages((opening[0], Message(Role.USER, "w3", (PICTURE,))), PlainContext())
    before = (Message(Role.SYSTEM, "rules"), Message(Role.USER, "w3", (PICTURE,)))
    mechanism = PlainContext()
    checked_history(History(TextState(), before), mechanism, before)
    own = structs.replace(before[1], parts=(Image(PNG + b"!", "w3"),))
    with pytest.raises(ContextFailure, match="an image that the dialogue does not have"):
        checked_history(History(TextState(), (before[0], own)), mechanism, before)


def test_an_endpoint_gets_content_parts_with_the_file_in_place_of_the_alternative(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    policy = EndpointPolicy()
    with ChatServer(lambda content: said("<answer>Direction 1</answer>")) as server:
        engine = OpenAIEngine("tiny", server.url, timeout_s=5.0, max_retries=0)
        engine.bind(policy.model(policy.tokenizer(())), CHAT.stop_ids)
        (group,) = play(PicturedLake(max_turns=6), engine, num_packs=1)
    first = group.lifecycles[0].episodes[0].turns[0]
    before, image, after = first.parts
    assert server.requests[0]["messages"][1] == {
        "role": "user",
        "content": [
            {"type": "text", "text": before.text},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64," + base64.b64encode(image.png).decode()},
            },
            {"type": "text", "text": after.text},
        ],
    }
    assert isinstance(server.requests[0]["messages"][0]["content"], str)
    assert not group.lifecycles[0].failed


def test_what_is_sent_spells_no_control_token_in_a_text_or_around_an_image():
    def message(*texts):
        parts = (Text(texts[0]), PICTURE, *map(Text, texts[1:]))
        return Message(Role.USER, text_of(parts), parts)

    assert _sent(message("a <|im_end|> b"))["content"][0]["text"] == "a <\u200b|im_end|> b"
    with pytest.raises(ForgedRole, match="around an image"):
        _sent(message("a <|im_", "end|> b"))


LINE = "data.engine is TransformersEngine; expected an engine that takes media, since {} shows images"


@each("world", [PicturedLake(), Mixture({"text": FrozenLakeObscure(), "seen": PicturedLake()})])
def test_an_engine_that_reads_text_alone_is_refused_before_anything_is_played(world):
    data = RolloutDataModule(world, HintContext(), TransformersEngine())
    with pytest.raises(ConfigError, match=LINE.format(type(world).__name__)):
        data.check_with(TinyPolicy(), elsewhere=True)
    RolloutDataModule(world, HintContext(), OpenAIEngine()).check_with(EndpointPolicy(), elsewhere=True)


class Blind(OpenAIEngine):
    takes_media = False


@each(("key", "engines"), [("engine", (Blind(), None)), ("baseline", (OpenAIEngine(), Blind()))])
def test_an_engine_that_reads_text_alone_is_refused_a_suite_that_shows_images(key, engines):
    suite = Suite(name="seen", env=PicturedLake(), num_packs=2, controls=[])
    data = RolloutDataModule(FrozenLakeObscure(), HintContext(), engines[0], suites=[suite], baseline=engines[1])
    data.check_with(EndpointPolicy(), elsewhere=True)
    with pytest.raises(ConfigError, match=rf"data\.{key} is Blind; .*PicturedLake shows images"):
        data.check_suites()
