"""Checks that a suite can be played, before the first rollout: a refusal takes seconds and not hours."""

import copy
from contextlib import closing
from dataclasses import replace

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv, Vocabulary, beside
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.controls import ByReference, Control
from cod_lightning.evaluation.suite import Suite
from cod_lightning.rollout.boundaries import see_sentences
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import Pack, Split, text_of


def ready(suite: Suite, world: TextEnv, pack_size: int, mechanism: ContextMechanism, chat: Chat) -> Suite:
    """The suite with world, pack size and controls settled, beside a training in `world`.

    Raises `ConfigError` for a named control that its world cannot serve, and for words that the policy cannot read.
    """
    settled = suite.within(world, pack_size)
    assert settled.env is not None, "within() settles the world"
    if suite.env is not None:
        see_sentences(suite.env, mechanism, chat, f"data.suites.{suite.name}.env")
    world, key, chosen = settled.env, f"data.suites.{suite.name}.controls", settled.chosen
    with settled.answering(world, "an environment that draws packs, and begins a task"):
        split, size = Split(settled.split), settled.pack_size or pack_size
        first = world.sample_pack(split=split, index=0, num_tasks=size, seed=settled.seed)
        _check_words(settled, world, first, mechanism, chat)
    fitting = list[Control]()
    for one in chosen:
        with settled.answering(one, "a control that raises nothing"):
            if settled.controls is not None:
                one.check(world, first, mechanism, key)
            elif isinstance(one, ByReference) and not one.served(world, first):
                continue
            fitting.append(one)
    return replace(settled, controls=tuple(fitting))


def _check_words(suite: Suite, world: TextEnv, pack: Pack, mechanism: ContextMechanism, chat: Chat) -> None:
    """A tiny policy knows the words of its training world; every other one would be `<unk>` to it."""
    with closing(copy.deepcopy(world)) as here:
        begun, _ = here.reset(options={"task": pack.tasks[0]})
        observation, rules = text_of(begun), here.rules
    shown = mechanism.prepare(mechanism.empty(), rules, observation).system
    if foreign := chat.unknown_word(" ".join((*beside(world, Vocabulary).words(), shown, observation))):
        expected = f"a world in words that the policy was made with, not '{foreign}'"
        remedy = "Leave the suite out, or train on a mixture with this world."
        raise ConfigError(f"data.suites.{suite.name}.env", world.name, expected, remedy)
