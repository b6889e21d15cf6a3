"""What a source of packs may ask of a lifecycle: fewer turns for a task, and a context to begin with."""

import dataclasses

import msgspec
from msgspec import structs

from cod_lightning.contexts.base import InTask, Intervention, Stored, TextState, beside
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.rollout import transcript
from cod_lightning.types import EpisodeStatus, Split
from tests.cases import each
from tests.stubs import PlainContext, WordWorld
from tests.word_play import CHAT, play


class ChoosingInTask(InTask):
    def on_turn(self, state, response, tokens):
        return Intervention(TextState(), "w2") if state.text == "choosing" else None


class Choosing(PlainContext):
    """Answers the first response of each task in the environment's place."""

    companions = (ChoosingInTask, *PlainContext.companions)

    def prepare(self, state, rules, observation):
        return structs.replace(super().prepare(state, rules, observation), state=TextState("choosing"))


def lives(max_turns=None, context=None, mechanism=PlainContext()):  # noqa: B008
    world = WordWorld(max_turns=3)
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    tasks = tuple(dataclasses.replace(task, max_turns=max_turns) for task in pack.tasks)
    pack = dataclasses.replace(pack, tasks=tasks, context=context)
    world.sample_pack = lambda **_: pack
    return play(env=world, mechanism=mechanism, num_siblings=2)


@each("bound", [1, 2, 3, 9, None])
def test_a_task_is_cut_off_at_its_bound_with_reward_0_and_what_was_said_is_kept(bound):
    for life in lives(max_turns=bound)[0].lifecycles:
        for solve in life.solves:
            assert len(solve.turns) == min(bound or 3, 3)
            if bound in (1, 2):
                assert (solve.status, solve.reward, solve.success) == (EpisodeStatus.TRUNCATED, 0.0, False)
                assert len(solve.feedback.split()) == 2, "what the environment showed last"
            else:
                assert (solve.status, solve.reward) == (EpisodeStatus.COMPLETED, 1.0)


@each("bound", [1, 2, None])
def test_what_a_mechanism_answers_within_a_task_is_no_turn_of_the_environment_and_not_counted(bound):
    for life in lives(bound, mechanism=Choosing())[0].lifecycles:
        for solve in life.solves:
            assert solve.turns[1].observation == "w2"
            assert len(solve.turns) == 1 + (bound or 3)


def test_all_siblings_begin_with_the_pack_s_context_and_write_on_from_it():
    (group,) = lives(context=beside(PlainContext(), Stored).dump(TextState("w7 w8")))
    for life in group.lifecycles:
        assert [solve.context_before for solve in life.solves] == ["w7 w8", "w1"]
        assert life.updates[0].context_before == "w7 w8"
        assert "w7 w8" in CHAT.decode(life.solves[0].turns[0].new_ids)


def test_a_context_of_another_mechanism_costs_the_lifecycle_and_says_so():
    (group,) = lives(context=beside(NotebookContext(), Stored).dump(NotebookContext().empty()))
    for life in group.lifecycles:
        assert life.episodes[0].fault == "ContextFailure"
        assert "is of NotebookContext version" in life.episodes[0].error


def test_a_transcript_keeps_both_and_says_nothing_of_them_where_there_are_none():
    (group,) = lives(max_turns=2, context=beside(PlainContext(), Stored).dump(TextState("w7")))
    (read,) = transcript.load(transcript.dump(group))
    assert read.pack == group.pack
    assert [one.episodes for one in read.lifecycles] == [one.episodes for one in group.lifecycles]
    (plain,) = lives()
    of_pack = msgspec.json.decode(transcript.dump(plain)[0])["pack"]
    assert of_pack.keys() == {"id", "split", "world_seed", "tasks"}
    assert of_pack["tasks"][0].keys() == {"id", "seed", "spec", "repeat"}
