"""Tasks that a mechanism of records has seen, made by hand."""

from cod_lightning.envs.base import Reference
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.types import Split
from tests.records import episode, turn
from tests.word_play import first_packs


def solved(*observations, reward=1.0, feedback="done"):
    turns = tuple(turn("act", observation=one) for one in observations)
    return episode(turns=turns, reward=reward, success=reward > 0, feedback=feedback)


def lived(context, *tasks, state=None):
    """The state after tasks of (first observation, reward), each begun with what the one before left."""
    state = context.empty() if state is None else state
    for observation, reward in tasks:
        state = context.prepare(state, "rules", observation).state
        state = context.feedback(state, solved(observation, reward=reward, feedback=f"end of {observation}"))
    return state


def profits(env, context, program):
    """The lifecycles of 30 packs as scripted play goes through them, in which it gets better from task to task."""
    packs = first_packs(env, 30, 4, Split.TEST)
    lives = list(play_reference(env, packs, Reference.SCRIPTED, context, program=program))
    success = [estimate.mean for estimate in summarise(lives).success]
    assert success[3] >= success[0] + 0.2
    return lives


def shown(context, state, observation):
    return context.prepare(state, "RULES", observation).system
