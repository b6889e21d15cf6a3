"""Sources of training packs: today's order, a bandit over categories, and sources that answer wrongly."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.errors import ConfigError
from cod_lightning.training.bandit import Bandit, mean_absolute
from cod_lightning.training.packs import PackChoice, PackOutcomes, PackSource, TrainingPacks, Uniform
from cod_lightning.types import Split
from tests.credit_tables import plain_credit
from tests.stubs import WordWorld

TWO = Mixture({"slow": Levers(max_turns=4), "fast": Levers(max_turns=1)})


def outcomes(categories, values, valid=None):
    choices = [PackChoice(index, category) for index, category in enumerate(categories)]
    return PackOutcomes(choices=choices, credit=plain_credit(torch.tensor(values), valid))


def bandit(categories=("a", "b"), seed=1, **options):
    source = Bandit(**options)
    source.start(categories, seed)
    return source


def test_the_uniform_source_names_the_packs_that_the_environment_draws_one_after_the_other():
    packs = TrainingPacks(Uniform(), TWO, 3, 7)
    drawn = [pack for first, count in ((0, 4), (4, 2), (6, 4)) for _, pack in packs.draw(first, count)]
    assert drawn == [TWO.sample_pack(split=Split.TRAIN, index=i, num_tasks=3, seed=7) for i in range(10)]


def test_mean_absolute_advantages_are_those_of_the_loop_over_known_episodes():
    torch.manual_seed(0)
    values, valid = torch.randn(9, 3, 5), torch.rand(9, 3, 5) < 0.6
    category = torch.tensor([0, 2, 2, 0, 3, 3, 0, 2, 3])
    valid[category == 3] = False
    of_episode = category[:, None, None].expand_as(values).flatten()
    found = mean_absolute(values.flatten(), valid.flatten(), of_episode, 4).tolist()
    for c in range(4):
        known = [
            abs(float(values[p, k, e]))
            for p in range(9)
            for k in range(3)
            for e in range(5)
            if category[p] == c and valid[p, k, e]
        ]
        assert found[c] == pytest.approx(sum(known) / len(known)) if known else math.isnan(found[c])


def test_values_follow_the_latest_rollouts_and_a_category_of_which_nothing_is_known_keeps_its_own():
    source = bandit(("a", "b", "c"), step_size=0.25)
    source.observe(outcomes(["a", "b", "a"], [[[0.5, -0.5]], [[0.2, 0.0]], [[1.0, 0.0]]]))
    assert source.values == pytest.approx({"a": 0.25 * 0.5, "b": 0.25 * 0.1, "c": 0.0})
    source.observe(outcomes(["b", "c"], [[[0.3, -0.5]], [[9.0, 9.0]]], [[[True, True]], [[False, False]]]))
    assert source.values == pytest.approx({"a": 0.125, "b": 0.25 * 0.4 + 0.75 * 0.025, "c": 0.0})
    assert source.num_packs == {"a": 2, "b": 2, "c": 1}


def test_categories_are_drawn_by_the_softmax_of_their_values():
    source = bandit(("a", "b", "c"), temperature=0.5)
    source.load_state_dict({"values": {"a": 0.1, "b": 0.9, "c": 0.4}, "num_packs": {}})
    total = sum(math.exp(value / 0.5) for value in source.values.values())
    expected = {name: math.exp(value / 0.5) / total for name, value in source.values.items()}
    assert source.probabilities() == pytest.approx(expected)
    counts = Counter(choice.category for choice in source.next(0, 20_000))
    assert {name: counts[name] / 20_000 for name in "abc"} == pytest.approx(expected, abs=0.015)
    logged = {f"{key}/{name}": value for name in "abc" for key, value in (("value", source.values[name]), ("packs", 0))}
    assert source.metrics() == logged | {f"probability/{name}": p for name, p in source.probabilities().items()}


def test_a_low_temperature_draws_the_largest_value_and_does_not_overflow():
    source = bandit(temperature=1e-6)
    source.load_state_dict({"values": {"a": 3.0, "b": 2.0}, "num_packs": {}})
    assert source.probabilities() == {"a": 1.0, "b": 0.0}


def test_a_draw_depends_on_run_seed_and_number_of_the_pack_alone():
    assert [*bandit().next(0, 5), *bandit().next(5, 3)] == bandit().next(0, 8)
    assert bandit(seed=2).next(0, 64) != bandit().next(0, 64)


def test_asking_twice_changes_nothing():
    source = bandit()
    before = source.state_dict()
    assert source.next(3, 5) == source.next(3, 5)
    assert source.state_dict() == before


def test_a_bandit_that_is_restored_goes_on_as_the_other_would():
    one, other = bandit(), bandit()
    one.observe(outcomes(["a", "b"], [[[0.123456789, 0.4]], [[0.7, -0.1]]]))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for _ in range(3):
        assert one.next(0, 50) == other.next(0, 50)
        for source in (one, other):
            source.observe(outcomes(["a", "b", "b"], [[[0.1]], [[0.9]], [[0.3]]]))
        assert one.metrics() == other.metrics()


@pytest.mark.parametrize("env", [TWO, NonStationary(TWO)], ids=["mixture", "wrapped"])
def test_packs_of_a_category_are_those_of_its_world_and_the_whole_mixture_plays_them(env):
    packs = TrainingPacks(bandit(("slow", "fast")), env, 3, 5).draw(0, 12)
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
    TrainingPacks(bandit(), env, 2, 1).draw(0, 8)
    assert before == [env.sample_pack(split=Split.VALIDATION, index=i, num_tasks=2) for i in range(20)]


class Wrong(PackSource):
    """Answers what the test says."""

    def __init__(self, answer):
        self.answer = answer

    def next(self, first, count):
        return self.answer()


def raises():
    raise KeyError("no such file")


SIX = [PackChoice(i) for i in range(6)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: [], r"names 6 packs where 6 are asked for, not 0\."),
        (lambda: SIX[:5], r"names 6 packs where 6 are asked for, not 5\."),
        (lambda: [*SIX, PackChoice(9)], r"names 6 packs where 6 are asked for, not 7\."),
        (lambda: None, r"answers `next` \(TypeError: 'NoneType' object is not iterable, .*packs\.py:\d+\)\."),
        (raises, r"answers `next` \(KeyError: 'no such file', .*test_packs\.py:\d+\)\."),
        (lambda: [0, 1, 2, 3, 4, 5], r"whose `next` returns PackChoice, not int\."),
        (lambda: [*SIX[:5], PackChoice(-1)], r"names packs by an index from 0 on, not -1\."),
        (lambda: [*SIX[:5], PackChoice("7")], r"names packs by an index from 0 on, not '7'\."),
        (lambda: [*SIX[:5], PackChoice(7, "lake")], r"names categories of the environment \(slow, fast\), not lake\."),
        (lambda: [PackChoice(i, num_tasks=1) for i in range(6)], r"whose packs have 2 to 2 tasks, not 1\."),
        (lambda: [PackChoice(i, num_tasks=3) for i in range(6)], r"whose packs have 2 to 2 tasks, not 3\."),
        (lambda: [*SIX[:5], PackChoice(7, begin=2)], r"whose packs begin at one of their tasks, not at 2\."),
        (lambda: [*SIX[:5], PackChoice(0)], r"names different packs for one rollout, none of them twice\."),
        (
            lambda: [*SIX[:4], PackChoice(7, "slow"), PackChoice(7, "fast")],
            r"tells choices of one index apart by `visit`",
        ),
        (lambda: [*SIX[:5], PackChoice(0, context="{}")], r"tells choices of one index apart by `visit`"),
    ],
)
def test_a_source_that_answers_wrongly_is_named_with_what_was_expected(answer, said):
    with pytest.raises(ConfigError, match=said) as refused:
        TrainingPacks(Wrong(answer), TWO, 2, 1).draw(0, 6)
    text = str(refused.value)
    assert text.startswith("data.source is Wrong; expected a source ")
    assert text.endswith(" Correct the source, or choose source=uniform; the run goes on with --ckpt_path last.")
    assert "\n" not in text


def test_a_pack_that_the_environment_cannot_draw_is_laid_at_the_sources_door():
    class Few(WordWorld):
        def sample_pack(self, *, split, index, num_tasks, seed=0):
            return [super(Few, self).sample_pack(split=split, index=i, num_tasks=num_tasks) for i in range(3)][index]

    with pytest.raises(ConfigError, match=r"data\.source is Wrong; .*packs that the environment can draw \(IndexError"):
        TrainingPacks(Wrong(lambda: [PackChoice(3)]), Few(), 2, 1).draw(0, 1)


@pytest.mark.parametrize("method", ["observe", "metrics", "state_dict", "load_state_dict"])
def test_whatever_else_a_source_raises_is_named_too(method):
    source = Wrong(list)
    setattr(source, method, lambda *_: raises())
    packs = TrainingPacks(source, TWO, 2, 1)
    argument = {"observe": (outcomes(["slow"], [[[0.0]]]),), "load_state_dict": ({"class": "Wrong", "state": {}},)}
    with pytest.raises(
        ConfigError, match=rf"data\.source is Wrong; expected a source that answers `{method}` \(KeyError"
    ):
        getattr(packs, method)(*argument.get(method, ()))


def test_a_state_that_does_not_load_is_refused_and_another_class_of_source_begins_anew():
    packs = TrainingPacks(Bandit(), TWO, 2, 1)
    with pytest.raises(ConfigError, match=r"data\.source is Bandit; .*`load_state_dict` \(KeyError: 'values', .*\)"):
        packs.load_state_dict({"class": "Bandit", "state": {}})
    packs.load_state_dict({"class": "Uniform", "state": {}})
    assert packs.source.values == {"slow": 0.0, "fast": 0.0}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: bandit(step_size=0), r"data\.source\.step_size is 0; expected in \(0, 1\]"),
        (lambda: bandit(step_size=1.5), r"data\.source\.step_size is 1\.5"),
        (lambda: bandit(temperature=0), r"data\.source\.temperature is 0; expected a finite number above 0"),
        (lambda: bandit(temperature=math.nan), r"data\.source\.temperature is nan"),
        (
            lambda: TrainingPacks(Bandit(), Levers(), 2, 1),
            r"data\.source is Bandit; expected source=uniform in an environment of one category \(levers",
        ),
    ],
)
def test_a_bandit_without_a_meaning_is_refused(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def of_the_guide(number):
    """What the page's example defines, with what a file of one's own would import."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "curriculum.md").read_text()
    made = {one.__name__: one for one in (PackSource, PackChoice, PackOutcomes, TextEnv, ConfigError)} | {"Any": Any}
    exec(page.split("```python\n")[number].split("```")[0], made)
    return made


def test_the_source_of_the_guide_chooses_packs():
    packs = TrainingPacks(of_the_guide(1)["FirstHundred"](), WordWorld(), 2, 1).draw(99, 2)
    assert [choice for choice, _ in packs] == [PackChoice(99), PackChoice(0)]


def test_the_curriculum_of_the_guide_grows_its_packs_once_they_are_solved_and_goes_on_so():
    made = of_the_guide(2)["WhenReady"]
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
    with pytest.raises(ConfigError, match=r"data\.pack_size is 2; expected at least 3"):
        TrainingPacks(made(), WordWorld(), 2, 1)
