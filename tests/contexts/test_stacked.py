"""Several memories at once: all are shown, each is asked in turn, and each keeps its own state."""

import pytest

from cod_lightning.contexts import CheckedContext, HintContext, StackedContext, StartedContext
from cod_lightning.contexts.base import InTask, Scripted, Stored
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import DataError
from cod_lightning.evaluation.references import play_reference, scripted_sampler, summarise
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.rollout.episode import check_hooks
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, Split
from tests.asked import answered, shown
from tests.cases import each


def stacks(protocol):
    hint = HintContext(protocol, response_limit=None)
    return {
        "hint and skills": StackedContext([hint, SkillsContext(protocol)]),
        "skills and hint": StackedContext([SkillsContext(protocol), hint]),
        "notebook and hint": StackedContext([NotebookContext(protocol), hint]),
        "episodes, hint and notebook": StackedContext([EpisodesContext(protocol), hint, NotebookContext(protocol)]),
        "records alone": StackedContext([EpisodesContext(protocol), TranscriptContext(protocol)]),
    }


STACKS = each("name", stacks("natural"))


@pytest.mark.parametrize("protocol", ["natural", pytest.param("compact", marks=pytest.mark.slow)])
@STACKS
def test_scripted_play_goes_by_all_of_them_and_no_update_is_refused(name, protocol):
    env, context = Levers(protocol=protocol), stacks(protocol)[name]
    packs = [env.sample_pack(split=Split.TEST, index=i, num_tasks=4) for i in range(10)]
    lives = list(play_reference(env, packs, Reference.SCRIPTED, context))
    row = summarise(lives)
    assert (row.num_failed, row.num_malformed) == (0, 0)
    assert row.success[-1].mean >= 0.9
    for life in lives:
        assert len(life.updates) == (3 if context.updates else 0)
        assert all(update.success and not update.feedback for update in life.updates)
        asking = sum(part.updates for part in context.parts)
        assert {len(update.turns) for update in life.updates} <= {asking}


def test_a_task_is_shown_every_part_in_their_order():
    context = StackedContext([HintContext(response_limit=None), NotebookContext(response_limit=None)])
    text = shown(context, "RULES", "one fact")
    assert text.startswith("RULES")
    assert text.index("Hints from earlier tasks") < text.index("Your notebook")
    assert text.count("one fact") == 2


@each("kind", [HintContext, SkillsContext, NotebookContext])
def test_a_stack_of_one_is_lived_through_as_its_part_is(kind):
    env = Levers()
    packs = [env.sample_pack(split=Split.TEST, index=i, num_tasks=4) for i in range(3)]
    stacked, alone = (
        list(play_reference(env, packs, Reference.SCRIPTED, one)) for one in (StackedContext([kind()]), kind())
    )
    for life, other in zip(stacked, alone, strict=True):
        assert [(e.reward, e.turns) for e in life.episodes] == [(e.reward, e.turns) for e in other.episodes]


def test_the_length_that_parts_suggest_is_shown_once_and_at_the_end():
    parts = [HintContext(), SkillsContext(), NotebookContext()]
    text = shown(StackedContext(parts), "RULES", "one fact")
    alone = shown(parts[0], "RULES", "")
    assert alone.startswith("RULES\n\n## Response length\n")
    assert text.endswith(length := alone.removeprefix("RULES"))
    assert text.count(length) == 1
    assert text.count("one fact") == 3
    other = shown(StackedContext([HintContext(response_limit=77), parts[1]]), "RULES", "one fact")
    assert other.count("## Response length\n") == 2, "each of its own"


@each("order", [1, -1])
def test_what_one_part_cannot_read_is_named_with_the_part_and_the_other_holds(order):
    context = StackedContext([HintContext(penalty=0.2), NotebookContext(penalty=0.3)][::order])
    good = beside(HintContext(), Scripted).write("new hint", ())
    found = answered(context, [good, "no block"][::order], state=beside(context, Scripted).adopt("old"))
    assert (found.parsed, found.reward) == (False, -0.3)
    assert found.reason.startswith("NotebookContext: ")
    assert context.text(found.state) == "\n".join(["HintContext:\nnew hint", "NotebookContext:\n1. old"][::order])


def test_each_part_s_store_is_checked_by_the_part_itself():
    context = StackedContext([HintContext(), NotebookContext()])
    kept = beside(context, Stored).dump(beside(context, Scripted).adopt("a fact"))
    assert beside(context, Stored).load(kept) == beside(context, Scripted).adopt("a fact")
    with pytest.raises(DataError, match=r"is of HintContext version 1; data\.context is NotebookContext version 1"):
        beside(StackedContext([NotebookContext(), HintContext()]), Stored).load(kept)
    with pytest.raises(DataError, match=r"has 2 parts; data\.context\.parts has 3"):
        beside(StackedContext([HintContext(), NotebookContext(), EpisodesContext()]), Stored).load(kept)
    with pytest.raises(DataError, match="is of StackedContext version 1"):
        beside(HintContext(), Stored).load(kept)


def test_a_choice_of_a_skill_passes_through_and_its_state_is_the_part_s():
    env, context = Levers(max_turns=1), StackedContext([HintContext(), SkillsContext()])
    pack = env.sample_pack(split=Split.TEST, index=1, num_tasks=4)
    sampler = scripted_sampler(beside(env, Players).reference(Reference.ORACLE, pack), context)
    (group,) = run_groups([pack], 1, Setting(env=env, mechanism=context, sampler=sampler))
    solves = [one for one in group.lifecycles[0].episodes if one.kind is EpisodeKind.SOLVE]
    assert [solve.reward for solve in solves] == [1.0] * 4
    assert sum(skill.uses for skill in solves[-1].state_after.states[1].skills) == 3


def test_a_part_with_rules_over_it_is_a_part_as_the_one_inside_is():
    context = StackedContext([CheckedContext(HintContext(), forbidden=["poison"]), SkillsContext()])
    assert beside(context, InTask).hooks() == {"on_turn"}
    check_hooks(Apps(actions="tools"), StackedContext([CheckedContext(HintContext()), NotebookContext()]))
    check_hooks(Apps(actions="tools"), StartedContext(HintContext()))
