"""The contract of an environment is small, and what stands beside one is found in one way."""

import pytest

from cod_lightning.envs.base import (
    HiddenRules,
    Players,
    Proposals,
    Reference,
    TextEnv,
    Tools,
    Traits,
    Variants,
    Vocabulary,
    beside,
)
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.envs.task_world import TaskPlayers
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance_turns import members
from cod_lightning.types import EpisodeStatus, Pack, Split, Task
from tests.cases import each

KINDS = (Players, Vocabulary, HiddenRules, Variants, Proposals, Tools)


class Bare(TextEnv):
    """The required members and nothing else: say yes."""

    name, max_turns, rules = "bare", 1, "Say yes."
    success, status = False, EpisodeStatus.COMPLETED

    def sample_pack(self, *, split, index, num_tasks, seed=0):
        tasks = tuple(Task(id=str(n), seed=n, spec=None) for n in range(num_tasks))
        return Pack(id=f"bare/{split}/{seed}/{index}", split=split, world_seed=index, tasks=tasks)

    def reset(self, *, seed=None, options=None):
        self.success = False
        return "Well?", {}

    def step(self, action):
        self.success = action == "yes"
        return "Over.", float(self.success), True, False, {}


def public(kind: type) -> set[str]:
    """What a class declares itself and does not hide: attributes, annotations, properties and methods, gymnasium's where it
    declares them again."""
    return {name for name in {**vars(kind), **vars(kind).get("__annotations__", {})} if not name.startswith("_")}


def test_the_contract_has_nine_public_members_and_no_companion_more_than_four():
    assert public(TextEnv) == {
        *("name", "max_turns", "traits", "companions", "rules", "success", "status", "step", "sample_pack")
    }
    assert {kind: len(public(kind)) for kind in KINDS if len(public(kind)) > 4} == {}


def test_an_environment_of_the_required_members_has_every_companions_default_and_what_it_lacks_is_named_in_one_line():
    env = Bare()
    pack = env.sample_pack(split=Split.TEST, index=1, num_tasks=2)
    assert env.traits == Traits(reward_range=(0.0, 1.0), hides_reward=False, blocking=False)
    assert beside(env, Vocabulary).words() == ()
    assert beside(env, HiddenRules).hidden_rule(pack) == pack.id
    assert beside(env, Variants).categories() == ("bare",)
    assert beside(env, Variants).of_category("bare") is env
    assert beside(env, Variants).without_world_memory() is env
    assert (beside(env, Proposals).offer, beside(env, Proposals).proposed("x", pack.tasks[0])) == ("", None)
    assert (*beside(env, Tools).schemas, *beside(env, Tools).results) == ()
    assert list(members(env)) == []
    with pytest.raises(NotImplementedError, match=r"^Bare has no scripted reference$"):
        beside(env, Players).reference(Reference.SCRIPTED, pack)
    with pytest.raises(NotImplementedError, match=r"^Bare has no demonstrator; a warm start needs one$"):
        beside(env, Players).demonstrator(pack)
    with pytest.raises(ConfigError, match=r"data\.env is Bare"):
        beside(env, HiddenRules).changed(pack, 1, 0)
    with pytest.raises(NotImplementedError, match=r"^Bare\.companions has no TaskPlayers with a play\(\)"):
        TaskPlayers(env).demonstrator(pack)


def test_the_first_companion_of_a_kind_counts_and_an_environment_around_another_one_puts_its_own_first():
    class Loud(Vocabulary):
        def words(self):
            return (self.env.name.upper(),)

    class Quiet(Vocabulary):
        pass

    class Both(Bare):
        companions = (Loud, Quiet)

    env = Both()
    assert beside(env, Vocabulary).words() == ("BARE",)
    assert beside(env, Quiet).words() == ()
    inside = Levers(protocol="compact")
    for outside in (RalphLoop(inside), Mixture({"levers": inside})):
        assert beside(outside, Vocabulary).words() == beside(inside, Vocabulary).words()
        outside.reset(options={"task": outside.sample_pack(split=Split.TEST, index=0, num_tasks=1).tasks[0]})
        assert beside(outside, Proposals).offer == beside(inside, Proposals).offer == "levers"
    assert beside(Mixture({"a": inside, "b": Bare()}), Variants).categories() == ("a", "b")


@each(
    ("name", "value", "said"),
    [
        ("blocking", True, "set traits = Traits(blocking=...)"),
        ("words", lambda self: (), "move it to a class of Vocabulary and name that in companions"),
        ("reference", lambda self, kind, pack: None, "move it to a class of Players and name that in companions"),
    ],
)
def test_a_member_that_nothing_reads_is_named_by_check(name, value, said):
    (found,) = members(type("Old", (Bare,), {name: value})())
    assert found.startswith(f"{name} has no effect here; ")
    assert said in found


def test_companions_that_are_no_classes_are_named_by_check():
    with pytest.raises(Exception, match="companions is "):
        list(members(type("Odd", (Bare,), {"companions": [Vocabulary]})()))
