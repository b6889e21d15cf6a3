"""A policy with a closed vocabulary is shown its own words only, and the class that says another one is named."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonargparse import ArgumentParser

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import ContextMechanism, InTask, Intervention, Prepared, Words
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import TextEnv, Vocabulary, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.chat import Chat
from tests.cases import each
from tests.own_worlds import own_worlds
from tests.word_play import play

CONFIGS = Path(__file__).parents[2] / "configs" / "env"


def built(path: Path) -> TextEnv:
    parser = ArgumentParser()
    parser.add_argument("--env", type=TextEnv)
    spec: dict[str, Any] = yaml.safe_load(path.read_text())
    return parser.instantiate_classes(parser.parse_object({"env": spec})).env


def live(world: TextEnv, mechanism: ContextMechanism) -> None:
    words = beside(world, Vocabulary).words() + beside(mechanism, Words).words()
    chat = Chat(TinyPolicy().tokenizer(words))
    said = [*words, *chat.tokenizer.all_special_tokens]
    engine = ScriptedEngine(
        lambda messages, random: " ".join(random.choices(said, k=random.randrange(8))), chat.encode, chat.stop_id
    )
    play(engine, world, mechanism, num_siblings=4, num_tasks=2, chat=chat, window=4000, max_new_tokens=50)


def test_a_shipped_world_says_its_own_words_only_whatever_it_is_answered():
    names = [name for name in own_worlds() if "defaults" not in yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())]
    compact = [
        world for world in (built(CONFIGS / f"{name}.yaml") for name in names) if beside(world, Vocabulary).words()
    ]
    assert len(compact) > 9
    for world, mechanism in product(compact, (HintContext("compact"), NotebookContext("compact"))):
        live(world, mechanism)


class Begins(Levers):
    def reset(self, *, seed=None, options=None):
        return "once upon", super().reset(seed=seed, options=options)[1]


class Rules(Levers):
    rules = property(lambda self: "jackpot")  # type: ignore[assignment]


class Steps(Levers):
    def step(self, action):
        return ("jackpot", *super().step(action)[1:])


class Prepares(HintContext):
    def prepare(self, state, rules, observation):
        return Prepared(f"{rules} jackpot", state)


class RepliesInTask(InTask):
    def on_turn(self, state, response, tokens):
        return Intervention(state, "jackpot")


class Replies(HintContext):
    companions = (RepliesInTask, *HintContext.companions)


class Asks(HintContext):
    def update(self, state, rules, episode, tokens):
        opening = next(asking := super().update(state, rules, episode, tokens))
        answer = yield opening
        del answer, asking
        yield "jackpot"


@each(
    ("world", "mechanism", "said"),
    [
        (Begins, HintContext, "data.env is Begins, whose reset() says the word 'once'"),
        (Rules, HintContext, "data.env is Rules, whose rules says the word 'jackpot'"),
        (Steps, HintContext, "data.env is Steps, whose step() says the word 'jackpot'"),
        (Levers, Prepares, "data.context is Prepares, whose prepare() says the word 'jackpot'"),
        (Levers, Replies, "data.context is Replies, whose on_turn() says the word 'jackpot'"),
        (Levers, Asks, "data.context is Asks, whose update() says the word 'jackpot'"),
    ],
)
def test_whoever_says_an_unknown_word_is_named_and_ends_the_run(world, mechanism, said):
    with pytest.raises(ConfigError, match="expected only words that the words") as error:
        live(world(protocol="compact"), mechanism("compact"))
    assert str(error.value).startswith(said)


def test_an_open_vocabulary_knows_every_word():
    assert Chat(TinyPolicy().tokenizer(["a"])).unknown_word("a b") == "b"
    assert byte_chat().unknown_word("naïve ✓") == ""
