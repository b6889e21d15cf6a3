"""A plausible mistake in a world of one's own is answered before anything is trained, by its class and the line that raised."""

from dataclasses import replace

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.models import TinyPolicy
from datamodules import DemonstrationDataModule, RolloutDataModule


class Seedless(Levers):
    def sample_pack(self, split, index, num_tasks):
        return super().sample_pack(split=split, index=index, num_tasks=num_tasks)


class OnlyText(Levers):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0]


class Silent(Levers):
    def reset(self, *, seed=None, options=None):
        return None, {}


class Unordered(Levers):
    def words(self):
        return {*super().words()}


class Listed(HintContext):
    def words(self):
        return [*super().words()]


class Untaught(Levers):
    def demonstrator(self, pack):
        raise KeyError("no notes")


class Nameless(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        pack = super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        return replace(pack, id=f"{split}/{index // 2}")


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (Nameless, r"data\.env is Nameless; expected .*ids of their own; the first two are both 'train/0'"),
        (Seedless, r"data\.env is Seedless; .*unexpected keyword argument 'seed', .*checks\.py:\d+"),
        (OnlyText, r"data\.env is OnlyText; .*too many values to unpack"),
        (Silent, r"data\.env is Silent; .*gave NoneType and str, not texts"),
        (Unordered, r"data\.env is Unordered; .*a tuple, in the same order in every process, and no set"),
    ],
)
def test_a_training_in_a_world_with_a_mistake_is_refused_in_one_line(world, said):
    context = HintContext("compact", response_limit=None)
    data = RolloutDataModule(env=world(protocol="compact"), context=context, engine=TransformersEngine())
    with pytest.raises(ConfigError, match=said) as raised:
        data.check_with(TinyPolicy())
    assert "\n" not in str(raised.value)


def test_a_mechanism_whose_words_are_no_tuple_is_refused():
    data = DemonstrationDataModule(Levers(protocol="compact"), Listed("compact"))
    with pytest.raises(ConfigError, match=r"data\.context is Listed; .*and no list"):
        _ = data.words


def test_a_demonstrator_that_raises_is_named_with_its_line():
    data = DemonstrationDataModule(Untaught(protocol="compact"), HintContext("compact"))
    with pytest.raises(ConfigError, match=r"data\.env is Untaught; .*KeyError: 'no notes', .*test_own_worlds\.py:\d+"):
        next(data._batches())
