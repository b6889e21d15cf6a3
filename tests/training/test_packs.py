"""Sources of training packs: today's order, a bandit over categories, and sources that answer wrongly."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cod_lightning.envs.base import HiddenRules, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.errors import ConfigError
from cod_lightning.methods.bandit import Bandit
from cod_lightning.training.packs import PackChoice, PackOutcomes, PackSource, TrainingPacks, Uniform
from cod_lightning.types import Group, Lifecycle, Split
from tests.cases import each
from tests.credit_tables import outcomes, plain_credit
from tests.stubs import WordWorld

TWO = Mixture({"slow": Levers(max_turns=4), "fast": Levers(max_turns=1)})


def test_the_uniform_source_names_the_packs_that_the_environment_draws_one_after_the_other():
    packs = TrainingPacks(Uniform(), TWO, 3, 7)
    drawn = [pack for first, count in ((0, 4), (4, 2), (6, 4)) for _, pack in packs.draw(first, count)]
    assert drawn == [TWO.sample_pack(split=Split.TRAIN, index=i, num_tasks=3, seed=7) for i in range(10)]


@each("env", [TWO, NonStationary(TWO)])
def test_packs_of_a_category_are_those_of_its_world_and_the_whole_mixture_plays_them(env):
    packs = TrainingPacks(Bandit(), env, 3, 5).draw(0, 12)
    assert {choice.category for choice, _ in packs} == {"slow", "fast"}
    for choice, pack in packs:
        assert {task.spec.world for task in pack.tasks} == {choice.category}
        env.reset(options={"task": pack.tasks[0]})
        assert env.max_turns == {"slow": 4, "fast": 1}[choice.category]
    if env is TWO:
        inner = TWO.worlds[choice.category].sample_pack(split=Split.TRAIN, index=11, num_tasks=3, seed=5)
        assert pack.id == inner.id


def test_evaluation_packs_are_the_same_whatever_the_category_that_was_drawn_before():
    env = Mixture(dict(TWO.worlds))
    before = [env.sample_pack(split=Split.VALIDATION, index=i, num_tasks=2) for i in range(20)]
    TrainingPacks(Bandit(), env, 2, 1).draw(0, 8)
    assert before == [env.sample_pack(split=Split.VALIDATION, index=i, num_tasks=2) for i in range(20)]


def test_a_pack_that_comes_back_changes_where_it_did_before():
    packs = TrainingPacks(Uniform(), NonStationary(Levers()), 6, 5)
    where = [
        [beside(packs.env, HiddenRules).changes_at(packs.pack(PackChoice(n, visit=visit))) for n in range(8)]
        for visit in (0, 41)
    ]
    assert where[0] == where[1]


class Wrong(PackSource):
    """Answers what the test says."""

    def __init__(self, answer):
        self.answer = answer

    def next(self, first, count):
        return self.answer()


def raises():
    raise KeyError("no such file")


SIX = [PackChoice(i) for i in range(6)]


@each(
    ("answer", "said"),
    [
        (lambda: [], r"names 6 packs where 6 are asked for, not 0\."),
        (lambda: [*SIX, PackChoice(9)], r"names 6 packs where 6 are asked for, not 7\."),
        (lambda: None, r"answers `next` \(TypeError: 'NoneType' object is not iterable, .*packs\.py:\d+\)\."),
        (raises, r"answers `next` \(KeyError: 'no such file', .*test_packs\.py:\d+\)\."),
        (lambda: [0, 1, 2, 3, 4, 5], r"names packs that the environment can draw \(AttributeError"),
        (lambda: [PackChoice(0, max_turns="3")] * 6, r"can draw \(AssertionError: max_turns is no whole number"),
        (lambda: [*SIX[:5], PackChoice(0)], r"names different packs for one rollout"),
        (lambda: [*SIX[:4], PackChoice(7, "slow"), PackChoice(7, "fast")], r"of one index told apart by `visit`"),
        (lambda: [*SIX[:5], PackChoice(0, context="{}")], r"of one index told apart by `visit`"),
    ],
)
def test_a_source_that_answers_wrongly_is_named_with_what_was_expected(answer, said):
    with pytest.raises(ConfigError, match=said) as refused:
        TrainingPacks(Wrong(answer), TWO, 2, 1).draw(0, 6)
    text = str(refused.value)
    assert text.startswith("data.source is Wrong; expected a source ")
    assert text.endswith(" Correct the source, or choose source=Uniform; the run goes on with --ckpt_path auto.")
    assert "\n" not in text


def test_a_pack_that_the_environment_cannot_draw_is_laid_at_the_sources_door():
    class Few(WordWorld):
        def sample_pack(self, *, split, index, num_tasks, seed=0):
            return [super(Few, self).sample_pack(split=split, index=i, num_tasks=num_tasks) for i in range(3)][index]

    with pytest.raises(ConfigError, match=r"data\.source is Wrong; .*packs that the environment can draw \(IndexError"):
        TrainingPacks(Wrong(lambda: [PackChoice(3)]), Few(), 2, 1).draw(0, 1)


def test_a_pack_whose_id_no_file_holds_is_refused_likewise():
    class Halved(WordWorld):
        def sample_pack(self, **asked):
            return replace(super().sample_pack(**asked), id="words \ud800")

    with pytest.raises(ConfigError, match=r"data\.source is Uniform; .*environment can draw \(UnicodeEncodeError"):
        TrainingPacks(Uniform(), Halved(), 2, 1).draw(0, 1)


@each("method", ["observe", "metrics", "state_dict", "load_state_dict"])
def test_whatever_else_a_source_raises_is_named_too(method):
    source = Wrong(list)
    setattr(source, method, lambda *_: raises())
    packs = TrainingPacks(source, TWO, 2, 1)
    argument = {"observe": (outcomes(["slow"], [[[0.0]]]),), "load_state_dict": ({"class": "Wrong", "state": {}},)}
    with pytest.raises(ConfigError, match=rf"data\.source is Wrong; .*`{method}` \(KeyError"):
        getattr(packs, method)(*argument.get(method, ()))


def test_lifecycles_from_elsewhere_that_are_none_are_named_too():
    source = Wrong(list)
    packs = TrainingPacks(source, TWO, 2, 1)
    pack = packs.pack(PackChoice(0))
    life = Lifecycle(pack_id=pack.id, sibling=0, episodes=(None,))
    source.collected = lambda *_: [Group(pack=pack, lifecycles=(life,))]
    with pytest.raises(ConfigError, match=r"data\.source is Wrong; .*`collected` \(AttributeError"):
        packs.collected([pack], 1, 10, 10)


def test_a_state_that_does_not_load_is_refused_and_another_class_of_source_begins_anew():
    packs = TrainingPacks(Bandit(), TWO, 2, 1)
    with pytest.raises(ConfigError, match=r"data\.source is Bandit; .*`load_state_dict` \(KeyError: 'values', .*\)"):
        packs.load_state_dict({"class": "Bandit", "state": {}})
    packs.load_state_dict({"class": "Uniform", "state": {}})
    assert packs.source.values == {"slow": 0.0, "fast": 0.0}


def of_the_guide():
    """What the page's example defines."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "curriculum.md").read_text()
    made = {}
    exec(page.split("```python\n")[1].split("```")[0], made)
    return made["WhenReady"]


def test_the_curriculum_of_the_guide_grows_its_packs_once_they_are_solved_and_goes_on_so():
    made = of_the_guide()
    packs, other = (TrainingPacks(made(ready_at=0.7), WordWorld(), 3, 1) for _ in range(2))
    sizes = []
    for rewards in ([0.0, 1.0], [1.0, 1.0], [0.0, 0.0]):
        drawn = packs.draw(0, 2)
        sizes.append({len(pack) for _, pack in drawn})
        solves = torch.tensor(rewards).view(2, 1, 1)
        packs.observe(PackOutcomes(choices=[choice for choice, _ in drawn], credit=plain_credit(solves)))
    assert sizes == [{2}, {2}, {3}]
    other.load_state_dict(packs.state_dict())
    assert other.metrics() == packs.metrics() == {"source/ready": 1.0}
    with pytest.raises(ConfigError, match=r"data\.pack_size is 2"):
        TrainingPacks(made(), WordWorld(), 2, 1)
