"""A plausible mistake in a world of one's own is answered before anything is trained, by its class and the line that raised."""

from dataclasses import replace

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.worded import WordedWords
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.datamodules.checks import drawn_pack
from cod_lightning.engines.openai import OpenAIEngine
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.world import LeverPlayers
from cod_lightning.envs.task_world import TaskVocabulary
from cod_lightning.errors import ConfigError
from cod_lightning.models import EndpointPolicy, TinyPolicy
from cod_lightning.types import Split
from tests.cases import each


class Seedless(Levers):
    def sample_pack(self, split, index, num_tasks):
        return super().sample_pack(split=split, index=index, num_tasks=num_tasks)


class Packless(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        return None


class OnlyText(Levers):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0]


class Silent(Levers):
    def reset(self, *, seed=None, options=None):
        return None, {}


class UnorderedVocabulary(TaskVocabulary):
    def words(self):
        return {*super().words()}


class Unordered(Levers):
    companions = (UnorderedVocabulary, *Levers.companions)


class ListedWords(WordedWords):
    def words(self):
        return [*super().words()]


class Listed(HintContext):
    companions = (ListedWords, *HintContext.companions)


class UntaughtPlayers(LeverPlayers):
    def demonstrator(self, pack):
        raise KeyError("no notes")


class Untaught(Levers):
    companions = (UntaughtPlayers, *Levers.companions)


class Nameless(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        pack = super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        return replace(pack, id=f"{split}/{index // 2}")


@each(
    ("world", "said"),
    [
        (Nameless, r"data\.env is Nameless; .* the first two are both 'train/0'"),
        (Seedless, r"data\.env is Seedless; .*unexpected keyword argument 'seed', .*checks\.py:\d+"),
        (Packless, r"data\.env is Packless; .*sample_pack\(\) gave a NoneType, not a Pack"),
        (OnlyText, r"data\.env is OnlyText; .*too many values to unpack"),
        (Silent, r"data\.env is Silent; .*reset\(\) gave a NoneType, not a text"),
        (Unordered, r"data\.env is Unordered; .*a tuple, in the same order in every process \(TypeError: a set"),
    ],
)
def test_a_training_in_a_world_with_a_mistake_is_refused_in_one_line(world, said):
    context = HintContext("compact", response_limit=None)
    data = RolloutDataModule(env=world(protocol="compact"), context=context, engine=TransformersEngine())
    with pytest.raises(ConfigError, match=said) as raised:
        data.check_with(TinyPolicy())
    assert "\n" not in str(raised.value)


class Counted(Levers):
    drawn = 0

    def sample_pack(self, **identity):
        type(self).drawn += 1
        return super().sample_pack(**identity)


def test_the_second_pack_is_drawn_only_where_ids_are_compared():
    world = Counted()
    assert drawn_pack(world, 4, seed=1) == Levers().sample_pack(split=Split.TRAIN, index=0, num_tasks=4, seed=1)
    assert world.drawn == 1


def test_a_language_model_is_refused_a_world_in_single_words_beside_a_context_in_sentences():
    world, policy = Levers(protocol="compact"), EndpointPolicy()
    RolloutDataModule(world, HintContext("compact"), OpenAIEngine()).check_with(policy, elsewhere=True)
    RolloutDataModule(Levers(), HintContext(), OpenAIEngine()).check_with(policy, elsewhere=True)
    with pytest.raises(ConfigError, match=r"data\.env is Levers in single words.*Set data\.env\.protocol=natural"):
        RolloutDataModule(world, HintContext(), OpenAIEngine()).check_with(policy, elsewhere=True)


def test_words_that_are_no_tuple_and_a_demonstrator_that_raises_are_named():
    data = DemonstrationDataModule(Levers(protocol="compact"), Listed("compact"))
    with pytest.raises(ConfigError, match=r"data\.context is Listed; .*TypeError: a list"):
        _ = data.words
    data = DemonstrationDataModule(Untaught(protocol="compact"), HintContext("compact"))
    with pytest.raises(ConfigError, match=r"data\.env is Untaught; .*KeyError: 'no notes', .*test_own_worlds\.py:\d+"):
        next(iter(data.train_dataloader()))
